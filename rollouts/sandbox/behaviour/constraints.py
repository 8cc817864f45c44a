"""Which nodes a pod may be on at all, whatever room they have.

Reads nodeSelector, required node affinity and tolerations into hashable values and answers, for one node, why
it is out of the question — in the words of the Kubernetes scheduler, because people search the web for them.
`scheduler` asks this once for each node and distinct `Constraints`; `kubelet` asks how long a pod stays under
a taint. Preferred terms, pod (anti-)affinity and topology spread are not simulated: Grove's pods may not
carry the last, and the first two only rank nodes.
"""

from dataclasses import dataclass
from typing import Any, Final

from rollouts.sandbox.behaviour.nodes import Node, Taint

Obj = dict[str, Any]

UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
NODE_CORDONED: Final = "node(s) were unschedulable"
NODE_AFFINITY_UNMET: Final = "node(s) didn't match Pod's node affinity/selector"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression over a node label, or over the node's name."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: tuple[str, ...]
    on_field: bool = False  # matchFields: the key names a field, of which only metadata.name exists


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that a pod puts up with."""

    key: str  # empty: any key
    operator: str  # Equal or Exists
    value: str
    effect: str  # empty: any effect
    seconds: int | None  # how long NoExecute is put up with; None is for ever


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a pod may go. Pods of one template share one value, so verdicts are remembered by it."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[Requirement, ...], ...] | None = None  # any one of them must hold; None: no affinity asked
    tolerations: tuple[Toleration, ...] = ()


ANYWHERE: Final = Constraints()


def parse_constraints(pod_spec: Obj) -> Constraints:
    """Read what a pod's spec says about nodes."""
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return Constraints(
        selector=tuple(sorted((pod_spec.get("nodeSelector") or {}).items())),
        terms=None if required is None else tuple(map(_parse_term, required.get("nodeSelectorTerms") or ())),
        tolerations=tuple(_parse_toleration(entry) for entry in pod_spec.get("tolerations") or ()),
    )


def find_obstacle(constraints: Constraints, node: Node) -> str | None:
    """Say why the node is out of the question, or None; the first reason counts, in the scheduler's own
    order.
    """
    if node.cordoned and not _is_tolerated(UNSCHEDULABLE_TAINT, constraints.tolerations):
        return NODE_CORDONED
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not _is_tolerated(taint, constraints.tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if not _is_selected(constraints, node):
        return NODE_AFFINITY_UNMET
    return None


def compute_stay(tolerations: tuple[Toleration, ...], taint: Taint) -> float | None:
    """Say how many seconds a running pod stays under a taint; None is for ever.

    Admission has given every pod five minutes for nodes that are not ready, so nothing is special about these here.
    """
    if taint.effect != "NoExecute":
        return None
    matching = [toleration for toleration in tolerations if _tolerates(toleration, taint)]
    if not matching:
        return 0.0
    return min((float(max(entry.seconds, 0)) for entry in matching if entry.seconds is not None), default=None)


def _is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def _is_selected(constraints: Constraints, node: Node) -> bool:
    if any(node.labels.get(key) != value for key, value in constraints.selector):
        return False
    if constraints.terms is None:
        return True
    # An empty term selects nothing, and so does an empty list of terms.
    return any(term and all(_holds(entry, node) for entry in term) for term in constraints.terms)


def _holds(requirement: Requirement, node: Node) -> bool:
    if requirement.on_field:
        actual = node.name if requirement.key == "metadata.name" else None
    else:
        actual = node.labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return actual is not None and actual in requirement.values
        case "NotIn":
            return actual is None or actual not in requirement.values
        case "Exists":
            return actual is not None
        case "DoesNotExist":
            return actual is None
        case "Gt" | "Lt" as operator:
            return _compares(actual, operator, requirement.values)
    return False


def _compares(actual: str | None, operator: str, values: tuple[str, ...]) -> bool:
    try:
        left, right = int(actual or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def _parse_term(term: Obj) -> tuple[Requirement, ...]:
    labels = tuple(_parse_requirement(entry, on_field=False) for entry in term.get("matchExpressions") or ())
    return labels + tuple(_parse_requirement(entry, on_field=True) for entry in term.get("matchFields") or ())


def _parse_requirement(entry: Obj, *, on_field: bool) -> Requirement:
    return Requirement(entry.get("key", ""), entry.get("operator", ""), tuple(entry.get("values") or ()), on_field)


def _parse_toleration(entry: Obj) -> Toleration:
    seconds = entry.get("tolerationSeconds")
    return Toleration(
        key=entry.get("key") or "",
        operator=entry.get("operator") or "Equal",
        value=entry.get("value") or "",
        effect=entry.get("effect") or "",
        seconds=None if seconds is None else int(seconds),
    )
