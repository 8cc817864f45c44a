"""When Python's collector looks for garbage that refers to itself: seldom, in processes that work on a thousand pods.

A look at a large workload makes tens of thousands of objects that go as soon as the next look takes its place, without
the collector. By its defaults it goes through all of them again and again meanwhile, for up to 0.17 s at a time, in
which nothing else of the process runs.

For every process that stays: web, worker, watcher, sandbox.
"""

import gc
from typing import Final

# New objects beyond those that went, before the youngest are looked through; Python's default is 700.
_YOUNGEST_GENERATION_THRESHOLD: Final = 100_000


def tune_garbage_collector() -> None:
    """Leave out of collections what is loaded by now, as it stays, and collect seldom from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNGEST_GENERATION_THRESHOLD, *gc.get_threshold()[1:])
