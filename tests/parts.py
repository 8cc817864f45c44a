"""What a test does when a program it needs is not on this machine.

On a developer's machine the test skips with one line on how to install the program. In CI every program must exist
(`.ci/run` installs them), so there a missing one fails the test: a green run has run everything.
"""

import os
from typing import NoReturn

import pytest


def missing(part: str, how: str) -> NoReturn:
    """Skip the calling test, or fail it in CI, naming the missing program and how to install it."""
    sentence = f"{part} is not on this machine; {how}"
    if os.environ.get("CI"):
        pytest.fail(f"{sentence} (CI must have it)", pytrace=False)
    pytest.skip(sentence)
