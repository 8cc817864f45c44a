"""The resources that nodes offer and pods request, in exact integers.

Kubernetes writes amounts as quantities ("500m", "1.5Gi", "2e3"). They are converted here to whole thousandths, rounded
up, so that a scheduler adds and compares integers without rounding errors. The scheduler of the sandbox, the forecast
and the mirror all compute requests here. The invariant: for every resource, `allocatable` minus
the sum of `compute_requests` of the pods on a node is exactly what is free.
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from rollouts.engine.model.quantities import parse_quantity

ResourceList = Mapping[str, int]
"""Resource name → thousandths."""

PODS: Final = "pods"
NATIVE_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage", PODS})
MILLI_PER_UNIT: Final = 1000
# Larger exponents are no real amounts, and would take minutes to compute.
_MAX_EXPONENT: Final = 30


def quantity_to_decimal(value: object) -> Decimal:
    """Return the number of a quantity; 0 for anything that is no quantity.

    >>> [str(quantity_to_decimal(value)) for value in ("2", "500m", "80Mi", 3, "much", None)]
    ['2', '0.500', '83886080', '3', '0', '0']
    """
    found = parse_quantity(value) if isinstance(value, str | int | float) else None
    if found is None:
        return Decimal(0)
    number, exponent = found
    return Decimal(number).scaleb(exponent) if abs(exponent) <= _MAX_EXPONENT else Decimal(0)


@lru_cache(maxsize=4096)
def quantity_to_milli(quantity: str | int | float) -> int:
    """Return a quantity in thousandths, rounded up: "100m" → 100, "1Ki" → 1024000, "1n" → 1; 0 if it is none."""
    return math.ceil(quantity_to_decimal(quantity) * MILLI_PER_UNIT)


def parse_resource_list(quantities: Any) -> dict[str, int]:
    """Return a resource list in thousandths; empty for anything that is no resource list."""
    if not isinstance(quantities, Mapping):
        return {}
    return {
        name: quantity_to_milli(quantity) if isinstance(quantity, str | int | float) else 0
        for name, quantity in quantities.items()
        if isinstance(name, str)
    }


def compute_requests(pod_spec: Mapping[str, Any]) -> dict[str, int]:
    """Add up the requests of a pod, which include one of the `pods` of its node.

    Init containers run one after the other before the rest, except those with restartPolicy Always, which
    keep running: with a sidecar of 1 cpu, an init container of 4 cpu after it and two containers of 2 cpu the
    pod requests max(1 + 2 + 2, 1 + 4) = 5 cpu.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in _list_containers(pod_spec.get("initContainers")):
        own = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            running = add_resources(running, own)
            peak = _max_resources(peak, running)
        else:
            peak = _max_resources(peak, add_resources(running, own))
    for container in _list_containers(pod_spec.get("containers")):
        running = add_resources(running, _container_requests(container))
    total = add_resources(_max_resources(running, peak), parse_resource_list(pod_spec.get("overhead")))
    return {name: amount for name, amount in {**total, PODS: MILLI_PER_UNIT}.items() if amount > 0}


def add_resources(left: ResourceList, right: ResourceList) -> dict[str, int]:
    """Add two resource lists."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def has_devices(allocatable: ResourceList) -> bool:
    """Whether a node offers extended resources such as GPUs."""
    return any(amount > 0 and name not in NATIVE_RESOURCES for name, amount in allocatable.items())


def _max_resources(left: ResourceList, right: ResourceList) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def _list_containers(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list | tuple) else []


def _container_requests(container: Mapping[str, Any]) -> dict[str, int]:
    """Return the requests of a container; a limit without a request is its request, too."""
    resources = container.get("resources")
    if not isinstance(resources, Mapping):
        return {}
    return {**parse_resource_list(resources.get("limits")), **parse_resource_list(resources.get("requests"))}
