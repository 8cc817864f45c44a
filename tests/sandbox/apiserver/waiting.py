"""Waits for a condition with a deadline, instead of sleeping for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 90.0


def wait_until(condition: Callable[[], T], complaint: str) -> T:
    """Poll until the condition holds; return its value."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(complaint)
