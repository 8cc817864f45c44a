"""Keeps the status of PodDisruptionBudgets current, as `disruption_budget` computes it; evictions depend on it.

A change of a pod makes the budgets of its namespace due; without budgets a pod's change costs one lookup. Changes are
batched for `BATCH_DELAY`, so that many pods that start together are counted a few times and not once for each.
"""

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from rollouts.engine.scheduling.placement import NamespacedName
from rollouts.sandbox.apiserver.registry import Registry
from rollouts.sandbox.apiserver.selectors import match_labels
from rollouts.sandbox.apiserver.storage import Storage, StorageChange
from rollouts.sandbox.cluster.cache import ClusterCache, is_finished, is_ready, is_terminating, key_of
from rollouts.sandbox.cluster.client import ControllerClient
from rollouts.sandbox.cluster.controllers import QueueController
from rollouts.sandbox.cluster.disruption_budget import CoveredPods, compute_expected_pods, compute_status
from rollouts.sandbox.times import parse_stored_time, render_time

Obj = dict[str, Any]

# How long a granted eviction counts against the budget while its pod still exists.
DISRUPTION_TIMEOUT: Final = timedelta(minutes=2)
BATCH_DELAY: Final = timedelta(milliseconds=50)


class DisruptionController(QueueController[NamespacedName]):
    """Updates the budgets of namespaces whose pods changed."""

    def __init__(
        self,
        store: Storage,
        registry: Registry,
        cache: ClusterCache,
        client: ControllerClient,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(clock)
        self._store, self._registry, self._cache, self._client = store, registry, cache, client
        self._by_namespace: defaultdict[str, dict[NamespacedName, None]] = defaultdict(dict)

    def observe(self, change: StorageChange) -> None:
        """Queue the budget that changed, or the budgets in the namespace of a pod that changed."""
        key, soon = key_of(change.obj), self._clock() + BATCH_DELAY
        if change.kind is self._cache.kinds.pods:
            for budget in self._by_namespace.get(key[0], ()):
                self._queue.schedule_no_later(budget, soon)
        elif change.kind is self._cache.kinds.disruption_budgets:
            if change.type == "DELETED":
                self._by_namespace[key[0]].pop(key, None)
                self._queue.cancel(key)
            else:
                self._by_namespace[key[0]][key] = None
                self._queue.schedule_no_later(key, soon)

    def _sync(self, key: NamespacedName, now: datetime) -> None:
        stored = self._store.get(self._cache.kinds.disruption_budgets, *key)
        if stored is not None:
            self._update_status(key, stored.obj, now)

    def _update_status(self, key: NamespacedName, budget: Obj, now: datetime) -> None:
        selector = (budget.get("spec") or {}).get("selector")
        stored = self._store.list(self._cache.kinds.pods, key[0])
        pods = [s.obj for s in stored if match_labels(selector, s.obj["metadata"].get("labels") or {})]
        pods = [pod for pod in pods if not is_finished(pod)]
        disrupted = self._pending_disruptions(budget, pods, now)
        healthy = sum(is_ready(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
        covered = CoveredPods(compute_expected_pods(pods, self._fetch_scales(pods)), healthy)
        self._client.update_status(
            self._cache.kinds.disruption_budgets, budget, compute_status(budget, covered, disrupted, render_time(now))
        )
        if disrupted:
            self._queue.schedule_no_later(key, min(map(parse_stored_time, disrupted.values())) + DISRUPTION_TIMEOUT)

    def _pending_disruptions(self, budget: Obj, pods: list[Obj], now: datetime) -> Obj:
        staying = {pod["metadata"]["name"] for pod in pods if not is_terminating(pod)}
        granted = (budget.get("status") or {}).get("disruptedPods") or {}
        return {
            name: since
            for name, since in granted.items()
            if name in staying and parse_stored_time(since) + DISRUPTION_TIMEOUT > now
        }

    def _fetch_scales(self, pods: list[Obj]) -> dict[str, int | None]:
        """Look up the replicas that the pods' controllers ask for, each controller once."""
        references = {
            entry["uid"]: (pod["metadata"]["namespace"], entry)
            for pod in pods
            for entry in pod["metadata"].get("ownerReferences") or ()
            if entry.get("controller")
        }
        return {uid: self._fetch_scale(*reference) for uid, reference in references.items()}

    def _fetch_scale(self, namespace: str, reference: Obj) -> int | None:
        group = reference["apiVersion"].rpartition("/")[0]
        kind = self._registry.by_kind(group, reference["kind"])
        stored = self._store.get(kind, namespace, reference["name"]) if kind and kind.scale else None
        replicas = (stored.obj.get("spec") or {}).get("replicas") if stored else None
        return None if replicas is None else int(replicas)
