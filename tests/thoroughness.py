"""How many examples random tests try: few in every run, more with EXAMPLES_TIMES.

    make test-engine EXAMPLES_TIMES=20

Each run tries other examples, so over many runs few examples a run are enough.
"""

import os

_TIMES = int(os.environ.get("EXAMPLES_TIMES") or 1)


def examples(number: int) -> int:
    """Return how many examples to try where so many are tried in every run."""
    return number * _TIMES
