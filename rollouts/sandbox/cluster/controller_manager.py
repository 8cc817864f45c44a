"""The controllers of the simulated cluster, and when each of them works.

Subscribes the controllers to the store, passes every change to them, and lets them work in turns, a slice each, so that
a request never waits for more than a slice. `step` does what is due now and `next_due` returns when something will be
due; tests call these two with a clock of their own and never sleep. `run` calls them with the real clock, on the event
loop that also serves the API.

Restart-safe: at start the controllers observe each stored object as if it had just been added, and all their state
follows from that.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from rollouts.sandbox.apiserver.storage import Storage, StorageChange
from rollouts.sandbox.apiserver.verbs import Verbs
from rollouts.sandbox.cluster.cache import ClusterCache, Kinds
from rollouts.sandbox.cluster.client import ControllerClient
from rollouts.sandbox.cluster.controllers import Controller
from rollouts.sandbox.cluster.controllers.disruption import DisruptionController
from rollouts.sandbox.cluster.controllers.event_recorder import EventRecorder
from rollouts.sandbox.cluster.controllers.garbage_collector import GarbageCollector
from rollouts.sandbox.cluster.controllers.kubelets import Kubelets
from rollouts.sandbox.cluster.controllers.namespace import NamespaceController
from rollouts.sandbox.cluster.controllers.node_lifecycle import NodeLifecycleController
from rollouts.sandbox.cluster.controllers.pod_eviction import PodEvictionController
from rollouts.sandbox.cluster.controllers.podgang import PodGangController
from rollouts.sandbox.cluster.controllers.scheduler import Scheduler
from rollouts.sandbox.cluster.pod_lifecycle import KubeletTimings

Obj = dict[str, Any]
log: Final = logging.getLogger(__name__)


class ControllerManager:
    """The controllers of one simulated cluster."""

    def __init__(self, verbs: Verbs, store: Storage, clock: Callable[[], datetime], timings: KubeletTimings) -> None:
        self._store, self._clock = store, clock
        self._registry = registry = verbs.registry
        kinds = Kinds.from_registry(registry)
        self.client = client = ControllerClient(verbs)
        self.cache = cache = ClusterCache(store, kinds)
        recorder = EventRecorder(store, kinds, client, clock)
        self.scheduler = Scheduler(cache, client, recorder, clock)
        self._controllers: tuple[Controller, ...] = (
            NodeLifecycleController(store, cache, client, recorder, clock),
            self.scheduler,
            Kubelets(cache, client, recorder, clock, timings),
            PodEvictionController(store, cache, client, clock),
            PodGangController(store, cache, client, clock),
            DisruptionController(store, registry, cache, client, clock),
            GarbageCollector(store, client, clock),
            NamespaceController(store, registry, kinds, client, clock),
            recorder,
        )
        # The cache first: it is never older than the change that a controller observes.
        self._observers = (cache.observe, *(controller.observe for controller in self._controllers))
        self._has_changes = asyncio.Event()
        self.failures = 0  # exceptions of controllers; tests expect 0
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Subscribe to changes, and observe everything that is stored."""
        self._unsubscribe = self._store.subscribe(self._observe)
        for kind in self._registry:
            for stored in self._store.list(kind):
                self._observe(StorageChange(kind, "ADDED", stored.obj, None, stored.revision, stored.body))

    def stop(self) -> None:
        """Unsubscribe from changes."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def step(self) -> None:
        """Let every controller do a slice of what is due."""
        now = self._clock()
        for controller in self._controllers:
            due = controller.next_due()
            if due is not None and due <= now:
                with self._contain_errors("working"):
                    controller.work(now)

    def next_due(self) -> datetime | None:
        """Return when the next controller is due."""
        moments = (controller.next_due() for controller in self._controllers)
        return min((moment for moment in moments if moment is not None), default=None)

    async def run(self) -> None:
        """Work until cancelled, sleeping while nothing is due."""
        while True:
            self._has_changes.clear()
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
                await self._has_changes.wait()
        except TimeoutError:
            pass

    def _observe(self, change: StorageChange) -> None:
        for observe in self._observers:
            with self._contain_errors("observing"):
                observe(change)
        self._has_changes.set()

    @contextmanager
    def _contain_errors(self, what: str) -> Iterator[None]:
        """Keep an error in one controller from stopping the others or failing the request whose change it observes."""
        try:
            yield
        except Exception:
            self.failures += 1
            log.exception("A controller failed while %s", what)
