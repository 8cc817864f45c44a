"""Passes over one workload without queue and watcher: the test fills the mirror from lists, and runs pass after pass.

So a test decides what a pass sees, and when. Mirror, engine, executor, history and cluster are the real ones.
"""

import time
from collections.abc import Callable, Container
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from rollouts import mirror, models
from rollouts.cluster import ClusterClient, Obj, Resource
from rollouts.cluster.resources import NODES, PODCLIQUESETS, PODS
from rollouts.controller.reconciler import reconcile_workload
from rollouts.engine.model.names import PART_OF
from rollouts.queue.results import ReconcileResult

SECONDS = 120.0  # generous: only reached when something is broken


def observe(
    cluster: ClusterClient, row: models.Cluster, namespace: str | None = None, *, among: Container[str] | None = None
) -> dict[Resource, list[Obj]]:
    """List all objects of one namespace, of some or of all into the mirror, and return them."""
    seen: dict[Resource, list[Obj]] = {}
    for resource in mirror.MIRRORED:
        if resource != NODES:
            listing = cluster.list(resource, namespace=namespace)
            mine = [obj for obj in listing.items if among is None or obj["metadata"]["namespace"] in among]
            names = {(obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in mine}
            mirror.store(row, resource, mine)
            mirror.replace(row, resource, names, listing.resource_version)
            seen[resource] = mine
    return seen


@dataclass(slots=True)
class Loop:
    """The passes over one workload."""

    cluster: ClusterClient
    namespace: str
    name: str
    row: models.Cluster = field(init=False)
    outcomes: list[ReconcileResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.row = mirror.ensure_cluster("here")

    @property
    def key(self) -> str:
        """The key of the workload."""
        return f"here/{self.namespace}/{self.name}"

    def observe(self) -> None:
        """List all objects of the namespace into the mirror, which must contain no other namespace."""
        observe(self.cluster, self.row, self.namespace)

    def take_pass(self, now: float | None = None) -> ReconcileResult:
        """Run one pass over what the mirror has."""
        seen = mirror.fetch_workload(self.row, self.namespace, self.name)
        outcome = reconcile_workload(self.cluster, self.row, self.key, seen, time.time() if now is None else now)
        self.outcomes.append(outcome)
        return outcome

    def run(
        self,
        until: Callable[[], bool],
        then: Callable[[], None] = lambda: None,
        process: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Fill the mirror and run passes, each in a `process` and with `then` after it, until a condition holds."""
        deadline = time.monotonic() + SECONDS
        self.observe()
        while not until():
            assert time.monotonic() < deadline, self._explain()
            self.observe()
            with process():
                self.take_pass()
            then()

    def _explain(self) -> str:
        """Return why the workload is not as expected: the last results, and why pods wait."""
        waiting = {
            pod["metadata"]["name"]: one.get("message") or one["reason"]
            for pod in self.pods()
            for one in pod["status"].get("conditions") or ()
            if one["status"] != "True" and one["type"] in ("PodScheduled", "Ready")
        }
        return f"not within {SECONDS:g} s; last outcomes: {self.outcomes[-3:]}; pods that wait: {waiting}"

    # What the cluster shows.

    def stored(self) -> Obj:
        """Return the PodCliqueSet."""
        return self.cluster.get(PODCLIQUESETS, self.name, namespace=self.namespace)

    def status(self) -> dict[str, Any]:
        """Return its status."""
        return self.stored().get("status") or {}

    def condition(self, kind: str) -> dict[str, Any]:
        """Return one of its conditions, or an empty one."""
        return next((one for one in self.status().get("conditions") or () if one["type"] == kind), {})

    def pods(self) -> list[Obj]:
        """Return its pods that are not being deleted."""
        listing = self.cluster.list(PODS, namespace=self.namespace, labels=f"{PART_OF}={self.name}")
        return [pod for pod in listing.items if "deletionTimestamp" not in pod["metadata"]]

    def is_complete(self) -> bool:
        """Return whether every replica is complete and no update is in progress."""
        return self.condition("Progressing").get("reason") == "Complete" and bool(
            self.status().get("observedGeneration") == self.stored()["metadata"]["generation"]
        )
