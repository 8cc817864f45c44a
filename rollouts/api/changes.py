"""The body of each command as the change that it asks for, for the command itself and for its simulation alike.

Before it: `serializers`, which validate the body. After it: `services.changes.execute`, or
`services.simulation.workload_simulate`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from rollouts.accounts.commands import WorkloadRef
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.services import workloads
from rollouts.services.changes import Apply, WorkloadChange

Values = Mapping[str, Any]


def make_change(kind: str, ref: WorkloadRef, body: Values, at: datetime) -> WorkloadChange:
    """Return the change that a validated body asks for; `at` is when the request was first sent."""
    return _BUILDERS[kind](ref, body, at)


def _set_images(_: WorkloadRef, body: Values, __: datetime) -> WorkloadChange:
    return workloads.set_images([ImageEdit(one["clique"], one["image"], one["container"]) for one in body["images"]])


def _scale(_: WorkloadRef, body: Values, __: datetime) -> WorkloadChange:
    return workloads.scale(body["replicas"], body["component"], body["replica"])


def _edit_strategy(_: WorkloadRef, body: Values, __: datetime) -> WorkloadChange:
    return workloads.edit_strategy(body)


def _restart(_: WorkloadRef, body: Values, at: datetime) -> WorkloadChange:
    return workloads.restart(body["components"], at=at.timestamp())


def _roll_back(ref: WorkloadRef, body: Values, _: datetime) -> WorkloadChange:
    return workloads.roll_back(ref, body["revision"])


def _apply(_: WorkloadRef, body: Values, __: datetime) -> WorkloadChange:
    return Apply(body["manifest"])


_BUILDERS: Final[Mapping[str, Callable[[WorkloadRef, Values, datetime], WorkloadChange]]] = {
    "apply": _apply,
    "images": _set_images,
    "scale": _scale,
    "strategy": _edit_strategy,
    "restart": _restart,
    "rollback": _roll_back,
}
