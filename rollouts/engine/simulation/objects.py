"""Manifests and patches of a plan, parsed into observed objects.

`cluster` applies the writes of a plan with these functions and stores the results as if they had been observed. Only
what the engine reads is parsed, so a patch of other fields changes nothing.
"""

from collections.abc import Mapping
from typing import Any

from rollouts.engine.model import names
from rollouts.engine.model.actions import Kind
from rollouts.engine.model.observed import Clique, Gang, Group, Pod, Service
from rollouts.engine.model.template_keys import TEMPLATE_KEYS, TEMPLATE_REPLICAS
from rollouts.engine.model.values import fast_replace

Obj = Mapping[str, Any]


def parse_object(
    kind: Kind, manifest: Obj, uid: str, version: str, now: float
) -> Clique | Group | Gang | Service | Pod:
    """Return a new object of this kind."""
    if kind is Kind.POD:
        return parse_pod(manifest, uid, now)
    if kind is Kind.CLIQUE:
        return parse_clique(manifest, uid, version, now)
    if kind is Kind.GROUP:
        return parse_group(manifest, uid, version, now)
    if kind is Kind.GANG:
        return parse_gang(manifest, uid, version)
    return parse_service(manifest, uid)


def parse_clique(manifest: Obj, uid: str, version: str, now: float) -> Clique:
    """Return a new PodClique."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    name, labels = metadata["name"], metadata["labels"]
    group, group_replica = labels.get(names.GROUP, ""), int(labels.get(names.GROUP_REPLICA_INDEX, -1))
    replica = int(labels[names.REPLICA_INDEX])
    prefix = f"{group}-{group_replica}-" if group else f"{labels[names.PART_OF]}-{replica}-"
    return Clique(
        name=name,
        uid=uid,
        resource_version=version,
        generation=1,
        created=now,
        template=name.removeprefix(prefix),
        replica=replica,
        group=group,
        group_replica=group_replica,
        template_hash=labels[names.TEMPLATE_HASH],
        replicas=spec["replicas"],
        template_replicas=_template_replicas(metadata),
        leaving=False,
        status={},
        template_keys=_template_keys(metadata),
        min_available=spec.get("minAvailable") or 0,
    )


def parse_group(manifest: Obj, uid: str, version: str, now: float) -> Group:
    """Return a new PodCliqueScalingGroup."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    name, labels = metadata["name"], metadata["labels"]
    replica = int(labels[names.REPLICA_INDEX])
    return Group(
        name=name,
        uid=uid,
        resource_version=version,
        generation=1,
        created=now,
        template=name.removeprefix(f"{labels[names.PART_OF]}-{replica}-"),
        replica=replica,
        replicas=spec["replicas"],
        template_replicas=_template_replicas(metadata),
        leaving=False,
        status={},
        template_keys=_template_keys(metadata),
    )


def parse_gang(manifest: Obj, uid: str, version: str) -> Gang:
    """Return a new PodGang."""
    metadata = manifest["metadata"]
    return Gang(
        name=metadata["name"],
        uid=uid,
        resource_version=version,
        replica=int(metadata["labels"][names.REPLICA_INDEX]),
        leaving=False,
        pod_groups=_pod_groups(manifest["spec"]),
        status={},
        priority_class=manifest["spec"].get("priorityClassName") or "",
        scheduler=metadata["labels"].get(names.SCHEDULER, ""),
    )


def parse_service(manifest: Obj, uid: str) -> Service:
    """Return a new headless service."""
    metadata = manifest["metadata"]
    return Service(
        name=metadata["name"],
        uid=uid,
        replica=int(metadata["labels"][names.REPLICA_INDEX]),
        leaving=False,
        publish_not_ready_addresses=bool(manifest["spec"].get("publishNotReadyAddresses")),
    )


def parse_pod(manifest: Obj, uid: str, now: float) -> Pod:
    """Return a new pod: Pending, on no node."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    labels = metadata["labels"]
    return Pod(
        name=metadata["name"],
        uid=uid,
        clique=labels[names.CLIQUE],
        index=int(labels[names.POD_INDEX]),
        template_hash=labels[names.TEMPLATE_HASH],
        created=now,
        node="",
        phase="Pending",
        ready=False,
        leaving=False,
        gated=any(gate["name"] == names.SCHEDULING_GATE for gate in spec.get("schedulingGates", ())),
    )


def patch_clique(clique: Clique, patch: Obj, version: str) -> Clique:
    """Return a PodClique after a merge patch."""
    metadata, spec = patch.get("metadata", {}), patch.get("spec", {})
    return fast_replace(
        clique,
        resource_version=version,
        generation=clique.generation + bool(spec),
        template_hash=metadata.get("labels", {}).get(names.TEMPLATE_HASH, clique.template_hash),
        replicas=spec.get("replicas", clique.replicas),
        template_replicas=_template_replicas(metadata, clique.template_replicas),
        template_keys=_template_keys(metadata, clique.template_keys),
        min_available=spec.get("minAvailable", clique.min_available),
    )


def patch_group(group: Group, patch: Obj, version: str) -> Group:
    """Return a PodCliqueScalingGroup after a merge patch."""
    metadata, spec = patch.get("metadata", {}), patch.get("spec", {})
    return fast_replace(
        group,
        resource_version=version,
        generation=group.generation + bool(spec),
        replicas=spec.get("replicas", group.replicas),
        template_replicas=_template_replicas(metadata, group.template_replicas),
        template_keys=_template_keys(metadata, group.template_keys),
    )


def patch_gang(gang: Gang, patch: Obj, version: str) -> Gang:
    """Return a PodGang after a merge patch; a list is replaced whole."""
    spec = patch.get("spec", {})
    pod_groups = _pod_groups(spec) if "podgroups" in spec else gang.pod_groups
    return fast_replace(
        gang,
        resource_version=version,
        pod_groups=pod_groups,
        priority_class=spec.get("priorityClassName", gang.priority_class) or "",
        scheduler=patch.get("metadata", {}).get("labels", {}).get(names.SCHEDULER, gang.scheduler),
    )


def patch_service(service: Service, patch: Obj) -> Service:
    """Return a service after a merge patch."""
    publish = patch.get("spec", {}).get("publishNotReadyAddresses", service.publish_not_ready_addresses)
    return fast_replace(service, publish_not_ready_addresses=publish)


def _template_replicas(metadata: Obj, former: int | None = None) -> int | None:
    text = metadata.get("annotations", {}).get(TEMPLATE_REPLICAS)
    return former if text is None else int(text)


def _template_keys(metadata: Obj, former: tuple[str, ...] = ()) -> tuple[str, ...]:
    annotations = metadata.get("annotations", {})
    if TEMPLATE_KEYS not in annotations:
        return former
    return tuple(filter(None, (annotations[TEMPLATE_KEYS] or "").split(",")))


def _pod_groups(spec: Obj) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {
        group["name"]: (group["minReplicas"], tuple(reference["name"] for reference in group["podReferences"]))
        for group in spec["podgroups"]
    }
