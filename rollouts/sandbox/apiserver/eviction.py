"""Whether a pod may be evicted now, by the disruption budgets that select it.

Pure functions for `verbs.evict`. `cluster.controllers.disruption` keeps the status of the budgets current; a granted
eviction takes one of `disruptionsAllowed` at once, so that two evictions in a row cannot both use the last one.
"""

from collections.abc import Iterable
from typing import Any

from rollouts.engine.model.observed import TERMINAL_PHASES
from rollouts.sandbox.apiserver.errors import ApiError, StatusCause, too_many_requests
from rollouts.sandbox.apiserver.selectors import match_labels
from rollouts.sandbox.conditions import is_true, make_disruption_target, merge_conditions

Obj = dict[str, Any]

_EVICTION_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


def find_budget(pod: Obj, budgets: Iterable[Obj]) -> Obj | None:
    """Return the budget that selects a pod; reject more than one, as the real server does."""
    labels = pod["metadata"].get("labels") or {}
    found = [one for one in budgets if match_labels((one.get("spec") or {}).get("selector"), labels)]
    if len(found) > 1:
        sentence = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "InternalError", sentence)
    return found[0] if found else None


def can_ignore_budget(pod: Obj) -> bool:
    """Return whether a pod may be evicted regardless of budgets: it is terminating, pending or has ended."""
    phase = pod.get("status", {}).get("phase")
    return "deletionTimestamp" in pod["metadata"] or phase in {"Pending", *TERMINAL_PHASES}


def compute_status_after_eviction(pod: Obj, budget: Obj, now: str) -> Obj | None:
    """Return the budget's status after this eviction, None if the eviction is free; raise 429 if not allowed."""
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        cause = StatusCause(
            "DisruptionBudget", f"The disruption budget {name} is still being processed by the server.", ""
        )
        raise too_many_requests(_EVICTION_REFUSED, (cause,), 10)
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if not is_true(pod, "Ready") and _allows_unhealthy_eviction(budget, healthy, desired):
        return None
    if status.get("disruptionsAllowed", 0) < 1:
        sentence = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        raise too_many_requests(_EVICTION_REFUSED, (StatusCause("DisruptionBudget", sentence, ""),), None)
    disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
    return {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}


def with_disruption_target(pod: Obj, now: str) -> Obj:
    """Return the pod with the condition that gives the reason of its eviction."""
    status = pod.get("status") or {}
    target = {**make_disruption_target("EvictionByEvictionAPI", "Eviction API: evicting"), "lastProbeTime": None}
    conditions = merge_conditions(status.get("conditions"), [target], now)
    return {**pod, "metadata": {**pod["metadata"]}, "status": {**status, "conditions": conditions}}


def _allows_unhealthy_eviction(budget: Obj, healthy: int, desired: int) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    return bool(healthy >= desired > 0)
