"""A controller with a late view: it sees its own writes at once, and other changes after a while.

Between `simulated`, where every plan is made from the current objects, and the reconciler, whose view is a mirror fed
by a watch. Events arrive in the order in which they happened, and a row only moves forward. The answer to a write is
the object as the write left it; after a rejected write the controller fetches the object.
"""

from collections.abc import Iterable
from typing import Any

from rollouts.engine.model.actions import Action, Create, Kind, Plan, RemoveGate
from rollouts.engine.model.observed import Observed
from rollouts.engine.plan.planner import plan
from tests.engine.disturbed import DisturbedCluster
from tests.engine.simulated import Cluster

Place = tuple[Kind, str]


class Recorded(DisturbedCluster):
    """A simulated cluster that records every state of every object, in order."""

    def __init__(self, *values: Any, **named: Any) -> None:
        self.news: list[tuple[Place, Any]] = []  # the object, or None: gone
        super().__init__(*values, **named)

    def _store(self, kind: Kind, thing: Any) -> None:
        super()._store(kind, thing)
        self.news.append(((kind, thing.name), thing))

    def _remove(self, kind: Kind, thing: Any) -> None:
        self.news.append(((kind, thing.name), None))
        super()._remove(kind, thing)


class LateCluster:
    """A cluster, and the view that the controller has of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = Recorded(cluster.world.observed(), cluster.behaviour, cluster.world.now)
        cluster.world = self.world
        self._rows: dict[Place, tuple[int, Any]] = {}  # the number of the news that it is from, and the object
        self._heard = 0
        self.hear(None)

    def known(self) -> Observed:
        """Return the view of the controller."""
        rows: dict[Kind, list[Any]] = {kind: [] for kind in Kind}
        for (kind, _), (_, thing) in self._rows.items():
            if thing is not None:
                rows[kind].append(thing)
        return Observed(
            status=self.world.status,
            cliques=tuple(rows[Kind.CLIQUE]),
            groups=tuple(rows[Kind.GROUP]),
            gangs=tuple(rows[Kind.GANG]),
            services=tuple(rows[Kind.SERVICE]),
            pods=tuple(rows[Kind.POD]),
        )

    def hear(self, count: int | None) -> None:
        """Apply this many events to the view, in order; None: all of them."""
        until = len(self.world.news) if count is None else self._heard + count
        for number in range(self._heard, min(until, len(self.world.news))):
            self._move(number)
        self._heard = min(until, len(self.world.news))

    def plan(self) -> Plan:
        return plan(self.cluster.workload, self.known(), self.world.now)

    def write(self, actions: Iterable[Action]) -> list[Action]:
        """Carry out a plan and see the answers; return the rejected actions, whose objects are not fetched yet."""
        refused = []
        for action in actions:
            before = len(self.world.news)
            if self.world.apply([action]):
                refused.append(action)
            else:
                self._move(self._answer(place_of(action), before))
        return refused

    def fetch(self, actions: Iterable[Action]) -> None:
        """Fetch the objects that some actions were about."""
        for action in actions:
            self._move(self._answer(place_of(action), len(self.world.news)))

    def _answer(self, place: Place, since: int) -> int | None:
        """Return the first event of an object since a write; if the write changed nothing, the last one before."""
        numbers = (number for number in range(since, len(self.world.news)) if self.world.news[number][0] == place)
        earlier = (number for number in range(since - 1, -1, -1) if self.world.news[number][0] == place)
        return next(numbers, next(earlier, None))

    def _move(self, number: int | None) -> None:
        if number is None:  # nothing is stored of it here, as of the set itself
            return
        place, thing = self.world.news[number]
        if number >= self._rows.get(place, (-1, None))[0]:
            self._rows[place] = (number, thing)


def place_of(action: Action) -> Place:
    """Return the object that an action is about."""
    if isinstance(action, Create):
        return action.kind, action.manifest["metadata"]["name"]
    return (Kind.POD, action.pod) if isinstance(action, RemoveGate) else (action.kind, action.name)
