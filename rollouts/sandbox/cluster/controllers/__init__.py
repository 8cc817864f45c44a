"""What lives in the simulated cluster: each controller keeps one promise.

All have one shape (`Controller`): `observe` is told of every stored change, notes what has to be looked at,
and writes nothing; `work` looks at a bounded number of noted things and writes through `Writes`; `next_due`
says when there is something to look at. What to do is decided by pure functions (`placement`, `pod_lifecycle`,
`disruption_budget`, …); here it is only gathered and carried out. Nothing is remembered that cannot be read from the
stored objects again: at start every stored object is shown to `observe` as if it had just been added.
"""

from datetime import datetime
from typing import Final, Protocol

from rollouts.sandbox.apiserver.storage import StorageChange

ITEMS_PER_TURN: Final = 8
"""Things a controller looks at before requests get their turn again: a few milliseconds of work."""


class Controller(Protocol):
    """A part of the simulated cluster."""

    def observe(self, change: StorageChange) -> None:
        """Note what a stored change makes necessary."""

    def work(self, now: datetime) -> None:
        """Do a slice of what is due."""

    def next_due(self) -> datetime | None:
        """Say when there is work next; a moment that has passed means now."""
