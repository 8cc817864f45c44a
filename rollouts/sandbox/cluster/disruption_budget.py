"""How many pods of a PodDisruptionBudget may be evicted right now.

`verbs.evict` reads the number from the budget's status, so `controllers.disruption` computes it anew after every change
of a pod in the namespace. Percentages and maxUnavailable refer to the *expected* pods — the replicas that the pods'
controllers ask for, not the pods that exist — and round up, as on a real cluster: with 7 expected pods minAvailable
50 % keeps 4, maxUnavailable 30 % allows 3 evictions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rollouts.sandbox.conditions import make_condition, merge_conditions

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CoveredPods:
    """The pods a budget's selector covers."""

    expected: int  # replicas that the pods' controllers ask for
    healthy: int  # Ready pods that neither terminate nor are being evicted


def compute_status(budget: Obj, covered: CoveredPods, disrupted: Obj, now: str) -> Obj:
    """Return the status of a budget; `disrupted` are the granted evictions whose pods do not terminate yet."""
    desired = compute_desired_healthy(budget.get("spec") or {}, covered.expected)
    allowed = max(0, covered.healthy - desired) if covered.expected else 0
    condition = make_condition(
        "DisruptionAllowed", holds=allowed > 0, reason="SufficientPods" if allowed else "InsufficientPods"
    )
    generation = budget["metadata"].get("generation", 1)
    status = budget.get("status") or {}
    computed: Obj = {
        **status,
        "observedGeneration": generation,
        "expectedPods": covered.expected,
        "currentHealthy": covered.healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "disruptedPods": disrupted,
        "conditions": merge_conditions(
            status.get("conditions"), [{**condition, "message": "", "observedGeneration": generation}], now
        ),
    }
    if not disrupted:
        del computed["disruptedPods"]
    return computed


def compute_desired_healthy(spec: Obj, expected: int) -> int:
    """Return how many healthy pods must stay."""
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - _resolve_percent(spec["maxUnavailable"], expected))
    if spec.get("minAvailable") is not None:
        return _resolve_percent(spec["minAvailable"], expected)
    return min(1, expected)


def _resolve_percent(value: int | str, expected: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(expected * int(value[:-1]) / 100)
    return int(value)


def compute_expected_pods(pods: Sequence[Obj], scale_of: dict[str, int | None]) -> int:
    """Add up the replicas of the pods' controllers; a pod without a known controller counts as one.

    `scale_of` has the replicas by the uid of the controller.
    """
    controllers: dict[str, int] = {}
    alone = 0
    for pod in pods:
        references = pod["metadata"].get("ownerReferences") or ()
        uid = next((entry["uid"] for entry in references if entry.get("controller")), None)
        scale = scale_of.get(uid) if uid else None
        if uid is None or scale is None:
            alone += 1
        else:
            controllers[uid] = scale
    return alone + sum(controllers.values())
