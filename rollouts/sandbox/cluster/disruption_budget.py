"""How many pods of a PodDisruptionBudget may be evicted right now.

`verbs.evict` reads the answer from the budget's status, so it must always be current:
`controllers/budgets.py` asks again after every change of a pod in the namespace. Percentages and
maxUnavailable are of the *expected* pods — what the pods' controllers are meant to have, not what happens to
be there — and round up, as on a real cluster: with 7 expected pods minAvailable 50 % keeps 4, maxUnavailable
30 % lets 3 go.
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

    expected: int  # pods that their controllers are meant to have
    healthy: int  # Ready pods that are not leaving and not being evicted


def compute_status(budget: Obj, covered: CoveredPods, disrupted: Obj, now: str) -> Obj:
    """Say what the budget allows; `disrupted` are evictions that were granted and not seen yet."""
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
    """Say how many healthy pods must stay."""
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
    """Add up what the pods' controllers are meant to have; a pod without a known controller counts for
    itself.

    `scale_of` gives the replicas asked for by the uid of a controller.
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
