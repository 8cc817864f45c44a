"""Logs an outage once, when it begins, instead of with every failed call.

A module that does without a service while it is down, mostly Redis, keeps an `OutageLog` and reports each failure and
each success to it. `log_limits` limits lines without such knowledge.
"""

import logging
import threading


class OutageLog:
    """Logs the first failure of each outage of a service; thread-safe."""

    def __init__(self, logger: logging.Logger, message: str) -> None:
        self._logger = logger
        self._message = message  # has a %s for the name of the exception
        self._is_down = threading.Event()

    def failed(self, error: Exception) -> None:
        """Record a failed call; log the first one of an outage."""
        if not self._is_down.is_set():
            self._logger.warning(self._message, type(error).__name__)
        self._is_down.set()

    def succeeded(self) -> None:
        """Record a call that succeeded: the outage is over."""
        self._is_down.clear()
