"""The desired objects of a workload: services, scaling groups, PodCliques and pods, and the patches that update them.

`plan_builder` decides which are missing; `docs/semantics.md` 8 says when the replicas of a template apply. Labels,
environment and owners are Grove's, so that Grove's users and tools find what they know. The invariants: an object is
built from the current template and from nothing stored; the name of a pod follows from what is observed, so a create
that is repeated after a lost answer is refused instead of creating a second pod.

Not done yet: the init container that lets pods wait for the cliques in `startsAfter`. PodCliques have `startsAfter`,
and nothing waits for it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rollouts.engine.model import names
from rollouts.engine.model.hashing import compute_name_suffix, effective_pod_spec
from rollouts.engine.model.metadata import GROVE_API, default_labels, make_owner_references
from rollouts.engine.model.observed import Clique, Group
from rollouts.engine.model.template_keys import (
    RESERVED_ANNOTATIONS,
    RESERVED_LABELS,
    TEMPLATE_KEYS,
    TEMPLATE_REPLICAS,
    compute_clique_keys,
    compute_group_keys,
    compute_scaling_keys,
    find_scaling_keys,
    select_template_annotations,
    select_template_labels,
)
from rollouts.engine.model.workload import CliqueTemplate, GroupTemplate, StartupType, Workload
from rollouts.engine.tree.availability import CliqueView, GroupView

Manifest = dict[str, Any]


def build_service(workload: Workload, replica: int) -> Manifest:
    """Return the headless service that gives the pods of a replica their names."""
    name = names.service_name(workload.name, replica)
    index = {names.REPLICA_INDEX: str(replica)}
    selector = {names.MANAGED_BY: names.OPERATOR, names.PART_OF: workload.name, **index}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(
            workload,
            name,
            default_labels(workload.name, "pcs-headless-service", name) | index,
            make_owner_references("PodCliqueSet", workload.name, workload.uid),
        ),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": workload.publish_not_ready_addresses,
            "selector": selector,
        },
    }


def build_group(workload: Workload, template: GroupTemplate, replica: int) -> Manifest:
    """Return a scaling group of a replica."""
    name = names.group_name(workload.name, replica, template.name)
    labels = default_labels(workload.name, "pcs-podcliquescalinggroup", name) | {names.REPLICA_INDEX: str(replica)}
    metadata = _metadata(workload, name, labels, make_owner_references("PodCliqueSet", workload.name, workload.uid))
    metadata["annotations"] = {**_group_annotations(template), TEMPLATE_REPLICAS: str(template.replicas)}
    return {
        "apiVersion": GROVE_API,
        "kind": "PodCliqueScalingGroup",
        "metadata": metadata,
        "spec": {
            "replicas": template.replicas,
            "minAvailable": template.min_available,
            "cliqueNames": list(template.clique_names),
        },
    }


def build_clique(workload: Workload, view: CliqueView, replica: int) -> Manifest:
    """Return a standalone PodClique."""
    labels = clique_labels(workload, view, replica, component="pcs-podclique")
    labels[names.GANG] = names.base_gang_name(workload.name, replica)
    owner = make_owner_references("PodCliqueSet", workload.name, workload.uid)
    return _build_clique_manifest(workload, view, labels, owner, _predecessors(workload, view.template, replica))


def build_member_clique(
    workload: Workload, view: CliqueView, owner: Group, *, replica: int, group: GroupView, index: int
) -> Manifest:
    """Return a PodClique of a replica of a scaling group."""
    labels = clique_labels(workload, view, replica, component="pcsg-podclique")
    labels |= member_labels(workload, group, replica, index)
    owners = make_owner_references("PodCliqueScalingGroup", owner.name, owner.uid)
    return _build_clique_manifest(
        workload, view, labels, owners, _predecessors(workload, view.template, replica, group, index)
    )


def clique_labels(workload: Workload, view: CliqueView, replica: int, *, component: str) -> dict[str, str]:
    """Return the labels of a PodClique, without those of its gang and group."""
    return {
        **select_template_labels(view.template),
        **default_labels(workload.name, component, view.name),
        names.REPLICA_INDEX: str(replica),
        names.TEMPLATE_HASH: view.template_hash,
    }


def _clique_annotations(template: CliqueTemplate) -> dict[str, str]:
    """Return the annotations of a PodClique that it has from its template, and the record of them."""
    annotations = select_template_annotations(template)
    keys = compute_clique_keys(template)
    return {**annotations, TEMPLATE_KEYS: ",".join(keys)} if keys else annotations


def _group_annotations(template: GroupTemplate) -> dict[str, str]:
    """Return the annotations that a scaling group has from its template, and the record of them."""
    keys = compute_group_keys(template)
    annotations = select_template_annotations(template)
    return {**annotations, TEMPLATE_KEYS: ",".join(keys)} if keys else annotations


def member_labels(workload: Workload, group: GroupView, replica: int, index: int) -> dict[str, str]:
    """Return the labels of a replica of a scaling group and its gang."""
    base = names.base_gang_name(workload.name, replica)
    labels = {names.GROUP: group.name, names.GROUP_REPLICA_INDEX: str(index)}
    if index < group.template.min_available:
        return labels | {names.GANG: base}
    gang = names.scaled_gang_name(group.name, index, group.template.min_available)
    return labels | {names.GANG: gang, names.BASE_GANG: base}


def patch_clique_template(workload: Workload, view: CliqueView, former_keys: tuple[str, ...]) -> Manifest:
    """Return the patch that gives a PodClique the current template.

    Labels and annotations from an older template are removed (null), then those of the current one are set.
    """
    removed: dict[str, dict[str, None]] = {"labels": {}, "annotations": {TEMPLATE_KEYS: None} if former_keys else {}}
    for field, _, name in (key.partition(".") for key in former_keys):
        if field in removed and name not in RESERVED_LABELS and name not in RESERVED_ANNOTATIONS:
            removed[field][name] = None
    spec: Manifest = {"podSpec": effective_pod_spec(view.template, workload.priority_class)}
    if find_scaling_keys(former_keys) != compute_scaling_keys(view.template):
        spec["autoScalingConfig"] = view.template.auto_scaling
    return {
        "metadata": {
            "labels": {
                **removed["labels"],
                **select_template_labels(view.template),
                names.TEMPLATE_HASH: view.template_hash,
            },
            "annotations": {**removed["annotations"], **_clique_annotations(view.template)},
        },
        "spec": spec,
    }


def patch_auto_scaling(clique: Clique, template: CliqueTemplate) -> Manifest | None:
    """Return the patch that gives a PodClique the autoscaling settings of its template; None if it has them."""
    scaling_keys = compute_scaling_keys(template)
    former = find_scaling_keys(clique.template_keys)
    if former == scaling_keys:
        return None
    keys = [*(key for key in clique.template_keys if key not in former), *scaling_keys]
    patch: Manifest = {"metadata": {"annotations": {TEMPLATE_KEYS: ",".join(keys) or None}}}
    return {**patch, "spec": {"autoScalingConfig": template.auto_scaling}}


def patch_group(group: Group, template: GroupTemplate) -> Manifest | None:
    """Return the patch that brings a scaling group up to date with its template; None if it is."""
    change = patch_replicas(group, template.replicas)
    keys = compute_group_keys(template)
    if group.template_keys == keys:
        return change
    former_keys = (key.partition(".") for key in group.template_keys)
    gone = {name: None for field, _, name in former_keys if field == "annotations" and name not in RESERVED_ANNOTATIONS}
    annotations = {TEMPLATE_KEYS: None, **gone, **_group_annotations(template)}
    if change is None:
        return {"metadata": {"annotations": annotations}}
    return {**change, "metadata": {"annotations": {**annotations, **change["metadata"]["annotations"]}}}


def patch_replicas(observed: Clique | Group, template_replicas: int) -> Manifest | None:
    """Return the patch that applies the replicas of the template; None if they are as last recorded.

    An object without a record was created by Grove: it keeps its replicas, and the record is added. The minimum of a
    PodClique without minAvailable in its template goes down with its replicas, and never up.
    """
    if observed.template_replicas == template_replicas:
        return None
    patch: Manifest = {"metadata": {"annotations": {TEMPLATE_REPLICAS: str(template_replicas)}}}
    if observed.template_replicas is None:
        return patch
    spec = {"replicas": template_replicas}
    if isinstance(observed, Clique) and observed.min_available > template_replicas:
        spec["minAvailable"] = template_replicas
    return {**patch, "spec": spec}


def pod_name(view: CliqueView, clique: Clique, index: int) -> str:
    """Return the name of the next pod with this index: the same until that pod exists, then another."""
    others = sorted(pod.uid for pod in view.pods if pod.index == index)
    return f"{view.name}-{compute_name_suffix(clique.uid, index, view.template_hash, others)}"


def build_pod(
    workload: Workload,
    view: CliqueView,
    owner: Clique,
    index: int,
    *,
    replica: int,
    group: tuple[GroupView, int] | None = None,
) -> Manifest:
    """Return a pod of a PodClique; `group` is its scaling group and the index of the group replica."""
    component = "pcsg-podclique" if group else "pcs-podclique"
    labels = clique_labels(workload, view, replica, component=component) | {
        names.CLIQUE: view.name,
        names.POD_INDEX: str(index),
        names.GANG: names.base_gang_name(workload.name, replica),
    }
    if group is not None:
        labels |= member_labels(workload, group[0], replica, group[1])
    metadata = _metadata(
        workload, pod_name(view, owner, index), labels, make_owner_references("PodClique", view.name, owner.uid)
    )
    if view.template.annotations:
        metadata["annotations"] = dict(view.template.annotations)
    environment = _environment(workload, view, replica, group[0].template if group else None)
    spec = _pod_spec(workload, view.template, environment)
    spec["hostname"] = names.pod_hostname(view.name, index)
    spec["subdomain"] = names.service_name(workload.name, replica)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _metadata(workload: Workload, name: str, labels: Mapping[str, str], owner: list[Manifest]) -> Manifest:
    return {"name": name, "namespace": workload.namespace, "labels": dict(labels), "ownerReferences": owner}


def _build_clique_manifest(
    workload: Workload, view: CliqueView, labels: Mapping[str, str], owner: list[Manifest], starts_after: list[str]
) -> Manifest:
    template = view.template
    metadata = _metadata(workload, view.name, labels, owner)
    metadata["annotations"] = {**_clique_annotations(template), TEMPLATE_REPLICAS: str(template.replicas)}
    spec: Manifest = {
        "roleName": template.role_name,
        "replicas": template.replicas,
        "minAvailable": template.min_available,
        "podSpec": effective_pod_spec(template, workload.priority_class),
    }
    if starts_after:
        spec["startsAfter"] = starts_after
    if template.auto_scaling is not None:
        spec["autoScalingConfig"] = template.auto_scaling
    return {"apiVersion": GROVE_API, "kind": "PodClique", "metadata": metadata, "spec": spec}


def _predecessors(
    workload: Workload, template: CliqueTemplate, replica: int, group: GroupView | None = None, index: int = 0
) -> list[str]:
    """Return the names of the PodCliques that this one starts after.

    In a scaled gang these are only PodCliques of the same group replica: all others are up already.
    """
    scaled = group is not None and index >= group.template.min_available
    found: list[str] = []
    for name in _predecessor_names(workload, template):
        theirs = next((other for other in workload.groups if name in other.clique_names), None)
        if group is not None and scaled:
            if theirs is not None and theirs.name == group.template.name:
                found.append(names.group_clique_name(group.name, index, name))
        elif theirs is None:
            found.append(names.clique_name(workload.name, replica, name))
        else:
            full = names.group_name(workload.name, replica, theirs.name)
            found.extend(names.group_clique_name(full, part, name) for part in range(theirs.min_available))
    return found


def _predecessor_names(workload: Workload, template: CliqueTemplate) -> Iterable[str]:
    if workload.startup_type is StartupType.EXPLICIT:
        return template.starts_after
    if workload.startup_type is StartupType.IN_ORDER:
        order = [clique.name for clique in workload.cliques]
        return order[max(0, order.index(template.name) - 1) : order.index(template.name)]
    return ()


def _environment(workload: Workload, view: CliqueView, replica: int, group: GroupTemplate | None) -> list[Manifest]:
    """Return the environment variables that tell each container its position."""
    service = names.service_name(workload.name, replica)
    variables = [
        {"name": "GROVE_PCS_NAME", "value": workload.name},
        {"name": "GROVE_PCS_INDEX", "value": str(replica)},
        {"name": "GROVE_PCLQ_NAME", "value": view.name},
        {"name": "GROVE_HEADLESS_SERVICE", "value": f"{service}.{workload.namespace}.svc.cluster.local"},
        _make_label_variable("GROVE_PCLQ_POD_INDEX", names.POD_INDEX),
    ]
    if group is None:
        return variables
    pods = sum(clique.replicas for clique in workload.cliques if clique.name in group.clique_names)
    return [
        *variables,
        _make_label_variable("GROVE_PCSG_NAME", names.GROUP),
        _make_label_variable("GROVE_PCSG_INDEX", names.GROUP_REPLICA_INDEX),
        {"name": "GROVE_PCSG_TEMPLATE_NUM_PODS", "value": str(pods)},
    ]


def _make_label_variable(name: str, label: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}


def _pod_spec(workload: Workload, template: CliqueTemplate, environment: list[Manifest]) -> Manifest:
    spec = effective_pod_spec(template, workload.priority_class)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [_with_environment(container, environment) for container in spec[field]]
    others = [gate for gate in spec.get("schedulingGates") or () if gate.get("name") != names.SCHEDULING_GATE]
    spec["schedulingGates"] = [{"name": names.SCHEDULING_GATE}, *others]
    return spec


def _with_environment(container: Mapping[str, Any], environment: list[Manifest]) -> Manifest:
    ours = {variable["name"] for variable in environment}
    theirs = [variable for variable in container.get("env") or () if variable["name"] not in ours]
    return {**container, "env": [*environment, *theirs]}
