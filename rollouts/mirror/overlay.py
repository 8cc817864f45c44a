"""A workload as the mirror has it, overlaid with what the API has answered since.

A pass begins with `fetch_workload` and ends with `store_all`; between the two its rounds plan on the answers to their
own writes, without a query. The invariant: the overlay of answers is what `fetch_workload` returns after they are
stored, unless another client writes in between.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from rollouts.cluster import Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODGANGS, PODS, SERVICES
from rollouts.engine.model.observed import Clique, Gang, Group, Observed, Pod, Service
from rollouts.mirror import reading
from rollouts.mirror.rows import MIRRORED, make_row
from rollouts.mirror.writing import ObjectChanges

ObservedObject = Clique | Group | Gang | Service | Pod
_Parse = Callable[[Sequence[tuple[Any, ...]], reading.Owners, list[reading.Stranger]], Iterator[ObservedObject]]

_KINDS: Final[dict[Resource, tuple[str, tuple[str, ...], _Parse]]] = {
    PODCLIQUESCALINGGROUPS: ("groups", reading.GROUP, reading.parse_groups),
    PODCLIQUES: ("cliques", reading.CLIQUE, reading.parse_cliques),
    PODGANGS: ("gangs", reading.GANG, reading.parse_gangs),
    SERVICES: ("services", reading.SERVICE, reading.parse_services),
    PODS: ("pods", reading.POD, reading.parse_pods),
}


def overlay_changes(observed: Observed, set_uid: str, changes: Iterable[ObjectChanges]) -> Observed:
    """Return what is observed with the answers in place of what they show; answers about the set itself are ignored."""
    changes_by_resource = {part.resource: part for part in changes if part.resource in _KINDS}
    # Owners first: the overlaid PodCliques decide which pods belong to the workload.
    for resource in (resource for resource in _KINDS if resource in changes_by_resource):
        name = _KINDS[resource][0]
        objects_by_name: dict[str, ObservedObject] = {one.name: one for one in getattr(observed, name)}
        for obj in changes_by_resource[resource].gone:
            _remove(objects_by_name, obj)
        for value in _parse_objects(
            resource, changes_by_resource[resource].objects, _compute_owners(observed, set_uid)
        ):
            objects_by_name[value.name] = value
        ordered: Any = tuple(objects_by_name[key] for key in sorted(objects_by_name))
        observed = replace(observed, **{name: ordered})
        if changes_by_resource[resource].gone and resource in (PODCLIQUES, PODCLIQUESCALINGGROUPS):
            observed = _mark_orphans_leaving(observed)
    return observed


def _remove(table: dict[str, ObservedObject], obj: Obj) -> None:
    metadata = obj["metadata"]
    former = table.get(metadata["name"])
    if former is not None and former.uid == metadata.get("uid"):
        del table[metadata["name"]]


def _parse_objects(resource: Resource, objects: Iterable[Obj], owners: reading.Owners) -> Iterator[ObservedObject]:
    _, columns, read = _KINDS[resource]
    for obj in objects:
        row = make_row(MIRRORED[resource], obj)
        yield from read([tuple(row[column] for column in columns)], owners, [])


def _compute_owners(observed: Observed, set_uid: str) -> reading.Owners:
    groups = {group.name: group.uid for group in observed.groups}
    cliques = {clique.name: clique.uid for clique in observed.cliques}
    return reading.Owners(set_uid, groups, cliques, frozenset())


def _mark_orphans_leaving(observed: Observed) -> Observed:
    """Mark as leaving what has lost its owner: the garbage collector deletes it."""
    groups = {group.name for group in observed.groups}
    cliques = tuple(
        replace(clique, leaving=True) if clique.group and clique.group not in groups else clique
        for clique in observed.cliques
    )
    staying = {clique.name for clique in cliques if not (clique.group and clique.group not in groups)}
    pods = tuple(pod if pod.clique in staying or pod.leaving else replace(pod, leaving=True) for pod in observed.pods)
    return replace(observed, cliques=cliques, pods=pods)
