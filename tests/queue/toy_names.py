"""The Redis keys to which the toy reconciler writes; the braces stand for a key."""

BEGUN = "toy:begun:{}"
ENDED = "toy:ended:{}"
AT_ONCE = "toy:at-once:{}"  # passes over the same workload that run right now
CLASHED = "toy:clashed:{}"
WORKERS = "toy:workers:{}"  # the processes that began a pass, the last one first
WROTE = "toy:wrote:{}"  # passes that were let through the fence in the end, by process
FENCED = "toy:fenced:{}"  # and those that were not
RELEASED = "toy:released:{}"  # a pass over a waiting workload continues once this key exists
