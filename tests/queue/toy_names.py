"""Where the toy reconciler leaves its traces in Redis; the braces stand for a key."""

BEGUN = "toy:begun:{}"
ENDED = "toy:ended:{}"
AT_ONCE = "toy:at-once:{}"  # passes over the same workload that run right now
CLASHED = "toy:clashed:{}"
RELEASED = "toy:released:{}"  # a pass over a workload that waits goes on once this is there
