"""Everything that lives in the simulated cluster, on one agenda.

Wires the controllers to the store, shows them every change, and lets them work in turns, each a slice at a
time, so that requests never wait for more than a slice. `step` does what is due now and `next_due` says when
something will be; that is all there is to it, and why tests can move the clock by hand (`advance`) and never
sleep. `run` is the same with the real clock, on the event loop that also serves the API.

Restart-safe: at start each stored object is shown to the controllers as if it had just been added, and
everything they know follows from that.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from rollouts.sandbox.apiserver.storage import Change, Store
from rollouts.sandbox.apiserver.verbs import Verbs
from rollouts.sandbox.cluster.cache import Census, Kinds
from rollouts.sandbox.cluster.client import Writes
from rollouts.sandbox.cluster.controllers import Controller
from rollouts.sandbox.cluster.controllers.disruption import Budgets
from rollouts.sandbox.cluster.controllers.event_recorder import Recorder
from rollouts.sandbox.cluster.controllers.garbage_collector import Collector
from rollouts.sandbox.cluster.controllers.kubelets import Kubelets
from rollouts.sandbox.cluster.controllers.namespace import Emptying
from rollouts.sandbox.cluster.controllers.node_lifecycle import Machines
from rollouts.sandbox.cluster.controllers.pod_eviction import Evictions
from rollouts.sandbox.cluster.controllers.podgang import Gangs
from rollouts.sandbox.cluster.controllers.scheduler import Scheduling
from rollouts.sandbox.cluster.pod_lifecycle import Pace

Obj = dict[str, Any]
log: Final = logging.getLogger(__name__)


class Simulation:
    """The controllers of one simulated cluster."""

    def __init__(self, verbs: Verbs, store: Store, clock: Callable[[], datetime], pace: Pace) -> None:
        self._store, self._clock = store, clock
        self._registry = registry = verbs.registry
        kinds = Kinds.of(registry)
        self.writes = writes = Writes(verbs)
        self.census = census = Census(store, kinds)
        recorder = Recorder(store, kinds, writes, clock)
        self.scheduling = Scheduling(census, writes, recorder, clock)
        self._controllers: tuple[Controller, ...] = (
            Machines(store, census, writes, recorder, clock),
            self.scheduling,
            Kubelets(census, writes, recorder, clock, pace),
            Evictions(store, census, writes, clock),
            Gangs(store, census, writes, clock),
            Budgets(store, registry, census, writes, clock),
            Collector(store, writes, clock),
            Emptying(store, registry, kinds, writes, clock),
            recorder,
        )
        # The census first: a controller never meets one that is older than the change it is told of.
        self._observers = (census.observe, *(controller.observe for controller in self._controllers))
        self._news = asyncio.Event()
        self.failures = 0  # defects that were contained; always 0 in tests
        self._unlisten: Callable[[], None] | None = None

    def start(self) -> None:
        """Learn what is stored and listen from now on."""
        self._unlisten = self._store.listen(self._observe)
        for kind in self._registry:
            for stored in self._store.list(kind):
                self._observe(Change(kind, "ADDED", stored.obj, None, stored.revision, stored.body))

    def stop(self) -> None:
        """Listen no longer."""
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None

    def step(self) -> None:
        """Let every controller do a slice of what is due."""
        now = self._clock()
        for controller in self._controllers:
            due = controller.next_due()
            if due is not None and due <= now:
                with self._contained("working"):
                    controller.work(now)

    def next_due(self) -> datetime | None:
        """Say when something is to be done next."""
        moments = (controller.next_due() for controller in self._controllers)
        return min((moment for moment in moments if moment is not None), default=None)

    async def run(self) -> None:
        """Work until cancelled, sleeping while nothing is due."""
        while True:
            self._news.clear()
            self.step()
            due = self.next_due()
            pause = None if due is None else (due - self._clock()).total_seconds()
            if pause is not None and pause <= 0:
                await asyncio.sleep(0)
                continue
            await self._wait(pause)

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    def _observe(self, change: Change) -> None:
        for observe in self._observers:
            with self._contained("observing"):
                observe(change)
        self._news.set()

    @contextmanager
    def _contained(self, what: str) -> Iterator[None]:
        """Keep a defect in one controller from stopping the others, or from failing the request it was told of."""
        try:
            yield
        except Exception:
            self.failures += 1
            log.exception("a controller failed while %s", what)
