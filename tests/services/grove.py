"""A workload as Grove's own operator leaves it behind: its hashes, its finalizers, its PodGangs, its managed fields."""

import itertools
import time
from contextlib import suppress
from typing import Any

from rollouts.cluster import ClusterClient, NotFound, Obj, Resource
from rollouts.cluster.resources import (
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from rollouts.engine.model import names
from rollouts.engine.model.template_keys import TEMPLATE_KEYS, TEMPLATE_REPLICAS
from rollouts.engine.model.times import parse_time
from rollouts.mirror.other_operator import GROVE_MANAGER, find_grove_management, find_last_write, is_written_by_grove
from tests.project.running import wait_until

ALL: tuple[Resource, ...] = (PODCLIQUESETS, PODCLIQUESCALINGGROUPS, PODCLIQUES, PODGANGS, SERVICES, PODS)
FINALIZERS = {
    PODCLIQUESETS: "grove.io/podcliqueset.grove.io",
    PODCLIQUES: "grove.io/podclique.grove.io",
    PODCLIQUESCALINGGROUPS: "grove.io/podcliquescalinggroup.grove.io",
}
GROVES_HASH = "5d98c7b84"
_writes = itertools.count(1)


def list_objects(cluster: ClusterClient, namespace: str, resource: Resource, name: str = "chat") -> list[Obj]:
    """Return the objects of a kind that belong to a workload."""
    if resource == PODCLIQUESETS:
        return [cluster.get(resource, name, namespace=namespace)]
    return list(cluster.list(resource, namespace=namespace, labels=f"{names.PART_OF}={name}").items)


def hand_to_grove(cluster: ClusterClient, namespace: str) -> None:
    """Make a workload that we have deployed look as if Grove's operator had made every object of it."""
    for resource in (PODS, PODCLIQUES):
        for obj in list_objects(cluster, namespace, resource):
            clique = obj["metadata"]["labels"].get(names.CLIQUE) or obj["metadata"]["name"]
            labels = {names.TEMPLATE_HASH: f"{GROVES_HASH}-{clique.rpartition('-')[2]}"}
            patch(cluster, resource, obj, {"metadata": {"labels": labels}})
    for obj in list_objects(cluster, namespace, PODGANGS):
        groups = [{**group, "podReferences": group["podReferences"][::-1]} for group in obj["spec"]["podgroups"]]
        change = {
            "metadata": {"labels": {names.REPLICA_INDEX: None, names.BASE_GANG: None}},
            "spec": {"podgroups": groups},
        }
        patch(cluster, PODGANGS, obj, change)
    for resource in (PODCLIQUES, PODCLIQUESCALINGGROUPS):
        for obj in list_objects(cluster, namespace, resource):
            patch(cluster, resource, obj, {"metadata": {"annotations": {TEMPLATE_REPLICAS: None, TEMPLATE_KEYS: None}}})
    put_status(cluster, namespace)
    for resource, finalizer in FINALIZERS.items():
        for obj in list_objects(cluster, namespace, resource):
            patch(cluster, resource, obj, {"metadata": {"finalizers": [finalizer]}})


def delete_sets_of_grove(cluster: ClusterClient, *, but: str = "") -> None:
    """Delete the sets that other tests have left for Grove's operator, but not those in one namespace."""
    for stored in cluster.list(PODCLIQUESETS).items:
        metadata, theirs = stored["metadata"], "the set" if is_written_by_grove(stored) else ""
        if metadata["namespace"] != but and find_grove_management(stored, theirs):
            patch(cluster, PODCLIQUESETS, stored, {"metadata": {"finalizers": []}})
            with suppress(NotFound):  # one that was being deleted is gone by now
                cluster.delete(PODCLIQUESETS, metadata["name"], namespace=metadata["namespace"])


def put_status(cluster: ClusterClient, namespace: str, **more: Any) -> None:
    """Write the status of the set as Grove does."""
    stored = cluster.get(PODCLIQUESETS, "chat", namespace=namespace)
    status = {key: value for key, value in stored["status"].items() if key not in ("updateProgress", "conditions")}
    stored["status"] = {**status, "currentGenerationHash": GROVES_HASH, **more}
    cluster.update(PODCLIQUESETS, stored, subresource="status")


def patch(cluster: ClusterClient, resource: Resource, obj: Obj, change: Obj) -> Obj:
    """Change an object."""
    metadata = obj["metadata"]
    return cluster.patch_merge(resource, metadata["name"], change, namespace=metadata["namespace"])


def write_as_grove(cluster: ClusterClient, namespace: str, resource: Resource, name: str) -> None:
    """Have Grove's operator write an object, later than we have."""

    note = {"grove.io/reconcile-trigger": str(next(_writes))}
    metadata = {"name": name, "namespace": namespace, "annotations": note}
    stored = cluster.apply(resource, {"metadata": metadata}, field_manager=GROVE_MANAGER, force=True)
    assert is_written_by_grove(stored)
    # A takeover comes later, and managed fields tell the second only.
    written = parse_time(find_last_write(stored, GROVE_MANAGER))
    assert written is not None
    wait_until(lambda: time.time() >= written + 1, 30)
