"""Nodes as the scheduler and the kubelets see them, and what a simulated machine offers.

It reads Node manifests; the scheduler then sees only numbers, in thousandths (`engine.scheduling.resources`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rollouts.engine.scheduling.constraints import Taint
from rollouts.engine.scheduling.resources import PODS, ResourceList, has_devices, parse_resource_list
from rollouts.sandbox.conditions import is_true

Obj = dict[str, Any]

INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
GPU_INSTANCE_TYPE: Final = "gpu-node"
"""The instance type of nodes with accelerators; any other type is a plain CPU node."""

_CAPACITY: Final[dict[str, str]] = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "500Gi", PODS: "110"}
_GPU_CAPACITY: Final[dict[str, str]] = {**_CAPACITY, "cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8"}


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as the scheduler and the kubelets see it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    cordoned: bool
    allocatable: ResourceList  # what its pods may request in total
    ready: bool  # the kubelet reports; pods of a node that is not ready are not Ready either
    address: str  # the host IP its pods report

    @property
    def has_devices(self) -> bool:
        """Whether the node offers extended resources such as GPUs."""
        return has_devices(self.allocatable)


def parse_node_info(manifest: Obj) -> NodeInfo:
    """Read a Node manifest; a node that has reported no allocatable resources offers none."""
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    addresses = {entry["type"]: entry["address"] for entry in status.get("addresses") or ()}
    return NodeInfo(
        name=manifest["metadata"]["name"],
        labels=manifest["metadata"].get("labels") or {},
        taints=tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()),
        cordoned=bool(spec.get("unschedulable")),
        allocatable=parse_resource_list(status.get("allocatable") or status.get("capacity")),
        ready=is_true(manifest, "Ready"),
        address=addresses.get("InternalIP", ""),
    )


def choose_capacity(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the capacity that a simulated machine of this instance type reports."""
    return dict(_GPU_CAPACITY if labels.get(INSTANCE_TYPE_LABEL) == GPU_INSTANCE_TYPE else _CAPACITY)
