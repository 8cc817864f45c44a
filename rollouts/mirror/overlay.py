"""What was seen of a workload, and what the API has answered since, as one view.

Between `read`, which a pass begins with, and `store_all`, which it ends with: the steps in between go on from the
answers to their own writes without asking the database. The invariant: folding answers in gives what `read` gives after
they are stored, as long as nobody else has written.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from rollouts.cluster import Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODGANGS, PODS, SERVICES
from rollouts.engine.model.observed import Clique, Gang, Group, Observed, Pod, Service
from rollouts.mirror import reading
from rollouts.mirror.rows import MIRRORED, make_row
from rollouts.mirror.writing import Changes

Value = Clique | Group | Gang | Service | Pod
_Read = Callable[[Sequence[tuple[Any, ...]], reading.Owners, list[reading.Stranger]], Iterator[Value]]

_KINDS: Final[dict[Resource, tuple[str, tuple[str, ...], _Read]]] = {
    PODCLIQUESCALINGGROUPS: ("groups", reading.GROUP, reading.read_groups),
    PODCLIQUES: ("cliques", reading.CLIQUE, reading.read_cliques),
    PODGANGS: ("gangs", reading.GANG, reading.read_gangs),
    SERVICES: ("services", reading.SERVICE, reading.read_services),
    PODS: ("pods", reading.POD, reading.read_pods),
}


def fold(observed: Observed, set_uid: str, changes: Iterable[Changes]) -> Observed:
    """Return what is observed with answers taken in; of the set itself nothing is looked at."""
    told = {part.resource: part for part in changes if part.resource in _KINDS}
    # Owners first: whose pods are whose is told by the PodCliques as they are by then.
    for resource in (resource for resource in _KINDS if resource in told):
        name = _KINDS[resource][0]
        table: dict[str, Value] = {one.name: one for one in getattr(observed, name)}
        for obj in told[resource].gone:
            _take_out(table, obj)
        for value in _values(resource, told[resource].objects, _owners(observed, set_uid)):
            table[value.name] = value
        ordered: Any = tuple(table[key] for key in sorted(table))
        observed = replace(observed, **{name: ordered})
        if told[resource].gone and resource in (PODCLIQUES, PODCLIQUESCALINGGROUPS):
            observed = _orphan(observed)
    return observed


def _take_out(table: dict[str, Value], obj: Obj) -> None:
    metadata = obj["metadata"]
    former = table.get(metadata["name"])
    if former is not None and former.uid == metadata.get("uid"):
        del table[metadata["name"]]


def _values(resource: Resource, objects: Iterable[Obj], owners: reading.Owners) -> Iterator[Value]:
    _, columns, read = _KINDS[resource]
    for obj in objects:
        row = make_row(MIRRORED[resource], obj)
        yield from read([tuple(row[column] for column in columns)], owners, [])


def _owners(observed: Observed, set_uid: str) -> reading.Owners:
    groups = {group.name: group.uid for group in observed.groups}
    cliques = {clique.name: clique.uid for clique in observed.cliques}
    return reading.Owners(set_uid, groups, cliques, frozenset())


def _orphan(observed: Observed) -> Observed:
    """Count as leaving what has lost its owner: the garbage collector takes it."""
    groups = {group.name for group in observed.groups}
    cliques = tuple(
        replace(clique, leaving=True) if clique.group and clique.group not in groups else clique
        for clique in observed.cliques
    )
    staying = {clique.name for clique in cliques if not (clique.group and clique.group not in groups)}
    pods = tuple(pod if pod.clique in staying or pod.leaving else replace(pod, leaving=True) for pod in observed.pods)
    return replace(observed, cliques=cliques, pods=pods)
