"""Which nodes a pod may be on at all, whatever room they have.

Reads nodeSelector, required node affinity and tolerations into hashable values and answers, for one node, why
it is out of the question — in the words of the Kubernetes scheduler, because people search the web for them.
`placement` asks this once for each node and distinct `Constraints`, for the forecast and for the sandbox alike; the
sandbox's kubelets ask how long a pod stays under a taint. Preferred terms, pod (anti-)affinity and topology spread
are not simulated: Grove's pods may not carry the last, and the first two only rank nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps pods away from a node (NoSchedule) or drives them off (NoExecute) unless they tolerate it."""

    key: str
    value: str
    effect: str


class NodeProperties(Protocol):
    """What is asked of a node to know whether a pod may run on it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Its taints."""

    @property
    def cordoned(self) -> bool:
        """Whether it is marked unschedulable."""


# The taints that follow from a node's own state
NOT_READY_KEY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE_KEY: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE_KEY: Final = "node.kubernetes.io/unschedulable"

UNSCHEDULABLE_TAINT: Final = Taint(UNSCHEDULABLE_KEY, "", "NoSchedule")
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
    affinity = _mapping(_mapping(pod_spec.get("affinity")).get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (
        None if required is None else tuple(map(_parse_term, _mappings(_mapping(required).get("nodeSelectorTerms"))))
    )
    selector = _mapping(pod_spec.get("nodeSelector"))
    return Constraints(
        selector=tuple(sorted((key, str(value)) for key, value in selector.items())),
        terms=terms,
        tolerations=tuple(map(_parse_toleration, _mappings(pod_spec.get("tolerations")))),
    )


def _mapping(value: Any) -> Obj:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Obj]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list | tuple) else []


def find_unmet_constraint(constraints: Constraints, node: NodeProperties) -> str | None:
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


def list_unsimulated(pod_spec: Obj) -> tuple[str, ...]:
    """Return what of a pod's spec restricts its nodes and is not looked at here, in words."""
    affinity = _mapping(pod_spec.get("affinity"))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    ports = (port for one in _mappings(pod_spec.get("containers")) for port in _mappings(one.get("ports")))
    spread = _mappings(pod_spec.get("topologySpreadConstraints"))
    found = {
        "required pod (anti-)affinity": any(
            _mapping(affinity.get(kind)).get(required) for kind in ("podAffinity", "podAntiAffinity")
        ),
        "topology spread": any(one.get("whenUnsatisfiable") != "ScheduleAnyway" for one in spread),
        "claimed volumes": any(
            one.get("persistentVolumeClaim") or one.get("ephemeral") for one in _mappings(pod_spec.get("volumes"))
        ),
        "host ports": any(port.get("hostPort") for port in ports),
        "resource claims": bool(pod_spec.get("resourceClaims")),
    }
    return tuple(name for name, is_set in found.items() if is_set)


def compute_toleration_seconds(tolerations: tuple[Toleration, ...], taint: Taint) -> float | None:
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


def _is_selected(constraints: Constraints, node: NodeProperties) -> bool:
    if any(node.labels.get(key) != value for key, value in constraints.selector):
        return False
    if constraints.terms is None:
        return True
    # An empty term selects nothing, and so does an empty list of terms.
    return any(term and all(_is_satisfied(entry, node) for entry in term) for term in constraints.terms)


def _is_satisfied(requirement: Requirement, node: NodeProperties) -> bool:
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
    labels = tuple(_parse_requirement(entry, on_field=False) for entry in _mappings(term.get("matchExpressions")))
    return labels + tuple(_parse_requirement(entry, on_field=True) for entry in _mappings(term.get("matchFields")))


def _parse_requirement(entry: Obj, *, on_field: bool) -> Requirement:
    values = entry.get("values")
    texts = tuple(map(str, values)) if isinstance(values, list | tuple) else ()
    return Requirement(str(entry.get("key", "")), str(entry.get("operator", "")), texts, on_field)


def _parse_toleration(entry: Obj) -> Toleration:
    seconds = entry.get("tolerationSeconds")
    return Toleration(
        key=str(entry.get("key") or ""),
        operator=str(entry.get("operator") or "Equal"),
        value=str(entry.get("value") or ""),
        effect=str(entry.get("effect") or ""),
        seconds=seconds if isinstance(seconds, int) else None,
    )
