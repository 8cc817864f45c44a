"""How often random tests try: seldom in every run, oftener when somebody has the time.

    make test-engine EXAMPLES_TIMES=20

Each run tries other examples, so what few of them miss in one run is met in another.
"""

import os

_TIMES = int(os.environ.get("EXAMPLES_TIMES") or 1)


def examples(number: int) -> int:
    """Return how many examples to try where so many are tried in every run."""
    return number * _TIMES
