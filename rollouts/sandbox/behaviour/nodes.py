"""How much a node has and how much a pod asks for, in exact integers.

Kubernetes writes amounts as quantities ("500m", "1.5Gi", "2e3"). They are read here once into whole
thousandths, rounded up, so that the scheduler adds and compares plain integers and never meets a rounding
error. Before this module there are manifests, after it `scheduler` sees only numbers. The invariant: for
every resource, `allocatable` minus the sum of `compute_requests` of the pods on a node is exactly what is
free.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from rollouts.sandbox.api.formats import parse_quantity

Obj = dict[str, Any]
Amounts = Mapping[str, int]
"""Resource name → thousandths. A resource that is left out is zero."""

PODS: Final = "pods"
NATIVE_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage", PODS})
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
GPU_INSTANCE: Final = "gpu-node"
"""The instance type of nodes with accelerators; any other type is a plain CPU node."""

_THOUSAND: Final = 1000
_CAPACITY: Final[dict[str, str]] = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "500Gi", PODS: "110"}
_GPU_CAPACITY: Final[dict[str, str]] = {**_CAPACITY, "cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8"}


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps pods away from a node (NoSchedule) or drives them off (NoExecute) unless they tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler and the kubelets see it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    cordoned: bool
    allocatable: Amounts  # what pods may ask for in all, whether or not it is taken
    ready: bool  # the kubelet reports; pods of a node that is not ready are not Ready either
    address: str  # the host IP its pods report

    @property
    def has_devices(self) -> bool:
        """Say whether the node offers extended resources such as GPUs."""
        return any(amount > 0 and name not in NATIVE_RESOURCES for name, amount in self.allocatable.items())


@lru_cache(maxsize=4096)
def count_thousandths(quantity: str | int | float) -> int:
    """Read a quantity into thousandths, rounded up: "100m" → 100, "1Ki" → 1024000, "1n" → 1; what is none is 0."""
    return math.ceil(parse_quantity(quantity) * _THOUSAND)


def parse_amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Read a resource list."""
    return {name: count_thousandths(quantity) for name, quantity in (quantities or {}).items()}


def parse_node(manifest: Obj) -> Node:
    """Read a Node manifest; a node that has reported no allocatable resources offers none."""
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    addresses = {entry["type"]: entry["address"] for entry in status.get("addresses") or ()}
    return Node(
        name=manifest["metadata"]["name"],
        labels=manifest["metadata"].get("labels") or {},
        taints=tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()),
        cordoned=bool(spec.get("unschedulable")),
        allocatable=parse_amounts(status.get("allocatable") or status.get("capacity")),
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()),
        address=addresses.get("InternalIP", ""),
    )


def choose_capacity(labels: Mapping[str, str]) -> dict[str, str]:
    """Give the capacity a simulated machine of this instance type reports."""
    return dict(_GPU_CAPACITY if labels.get(INSTANCE_TYPE_LABEL) == GPU_INSTANCE else _CAPACITY)


def compute_requests(pod_spec: Obj) -> dict[str, int]:
    """Add up what a pod asks of its node, itself as one of the node's `pods` included.

    Init containers run one after the other before the rest, except those with restartPolicy Always, which
    keep running: with a sidecar of 1 cpu, an init container of 4 cpu after it and two containers of 2 cpu the
    pod asks for max(1 + 2 + 2, 1 + 4) = 5 cpu.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod_spec.get("initContainers") or ():
        own = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            running = add_amounts(running, own)
            peak = _max_amounts(peak, running)
        else:
            peak = _max_amounts(peak, add_amounts(running, own))
    for container in pod_spec.get("containers") or ():
        running = add_amounts(running, _container_requests(container))
    total = add_amounts(_max_amounts(running, peak), parse_amounts(pod_spec.get("overhead")))
    return {name: amount for name, amount in {**total, PODS: _THOUSAND}.items() if amount > 0}


def add_amounts(left: Amounts, right: Amounts) -> dict[str, int]:
    """Add two resource lists."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _max_amounts(left: Amounts, right: Amounts) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def _container_requests(container: Obj) -> dict[str, int]:
    """Read a container's requests; a limit without a request is its request too."""
    resources = container.get("resources") or {}
    return parse_amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
