"""The parts of `metadata` that all objects of a set share: API versions, labels and owner references."""

from typing import Any, Final

from rollouts.engine.model import names

GROVE_API: Final = "grove.io/v1alpha1"
SCHEDULER_API: Final = "scheduler.grove.io/v1alpha1"


def default_labels(workload: str, component: str, name: str) -> dict[str, str]:
    """Return the labels that every object of a set has."""
    return {
        names.MANAGED_BY: names.OPERATOR,
        names.PART_OF: workload,
        names.NAME: name,
        names.COMPONENT: component,
    }


def make_owner_references(kind: str, name: str, uid: str, api: str = GROVE_API) -> list[dict[str, Any]]:
    """Return the owner reference that lets garbage collection delete an object with its owner."""
    owner = {"apiVersion": api, "kind": kind, "name": name, "uid": uid}
    return [{**owner, "controller": True, "blockOwnerDeletion": True}]
