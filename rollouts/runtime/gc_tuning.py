"""Makes Python's cyclic garbage collector run rarely.

A snapshot of a large workload has tens of thousands of objects. Reference counting frees them as soon as the next
snapshot replaces it. With its default threshold the collector scans all of them again and again meanwhile, for up to
0.17 s at a time, in which nothing else in the process runs.

Every long-running process calls it: web, worker, watcher, sandbox.
"""

import gc
from typing import Final

# Allocations minus deallocations before the youngest generation is collected; the default of Python is 700.
_YOUNGEST_GENERATION_THRESHOLD: Final = 100_000


def tune_garbage_collector() -> None:
    """Exclude all objects that exist now from collections, and raise the threshold."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNGEST_GENERATION_THRESHOLD, *gc.get_threshold()[1:])
