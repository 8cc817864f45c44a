"""The surge of a workload, and its deletion by hand: a remedy for surge that keeps others from their room, or broke.

Surge is what stands beyond the wanted number: whole replicas of the set, replicas of a scaling group, pods of a clique.
Which it is at each level is read off the engine's own views. Of a replica the objects are deleted that hold its pods,
as the controller deletes them; of a clique the pods themselves. Nobody's disruption budget is asked, so it is a
deletion by force.

While an original is outdated the controller creates surge anew, which may well be wanted: on another node it may come
up. The invariant: nothing within the wanted numbers is touched.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rollouts.audit import Caller, deed
from rollouts.cluster import ClusterError, Conflict, NotFound, Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODS, SERVICES
from rollouts.commands import Command, Place
from rollouts.engine.actions import Delete, Kind
from rollouts.engine.arrange import arrange
from rollouts.engine.observed import Observed, Pod
from rollouts.engine.shape import make_shape
from rollouts.engine.simulate import BY_HAND
from rollouts.engine.views import CliqueView, GroupView, Replica
from rollouts.engine.workload import Workload
from rollouts.mirror import Changes
from rollouts.refusals import Contradiction
from rollouts.services.changing import fetch_expected
from rollouts.services.pods import (
    Fate,
    Manner,
    PodOutcome,
    PodsDeleted,
    Sender,
    count_fates,
    on_record,
    open_record,
    read_observed,
    read_workload,
)
from rollouts.services.sites import Site, open_site, version_in

_MOST_TOLD: Final = 500  # units on record by name
_NONE_THERE: Final = "There is no such surge any more: it is gone, or it was taken over."


@dataclass(frozen=True, slots=True)
class Holder:
    """An object that holds pods."""

    resource: Resource
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SurgeUnit:
    """Something beyond the wanted number that is deleted as a whole."""

    name: str  # my-3, my-0-decode-2, or that of a pod
    component: str  # the name of the PodClique, scaling group or set that it is surge of
    holders: tuple[Holder, ...]  # empty for a single pod
    pods: tuple[Pod, ...]


def find_surge(workload: Workload, observed: Observed) -> tuple[SurgeUnit, ...]:
    """Return the surge of a workload at every level; what is leaving already is none."""
    tree = arrange(make_shape(workload), observed)
    found: list[SurgeUnit] = []
    for replica in tree.replicas.values():
        if replica.index < workload.replicas:
            found += _surge_inside(replica)
        elif replica.has_live_frame:
            found.append(_whole_replica(workload.name, replica))
    return tuple(found)


def delete_units(workload: Workload, observed: Observed, names: Collection[str]) -> tuple[Delete, ...]:
    """Return the deletion of surge by the names of its units, for a simulation."""
    units = [unit for unit in find_surge(workload, observed) if unit.name in names]
    holders = [Delete(_KINDS[one.resource], one.name, one.uid, BY_HAND) for unit in units for one in unit.holders]
    pods = [Delete(Kind.POD, pod.name, pod.uid, BY_HAND) for unit in units if not unit.holders for pod in unit.pods]
    return (*holders, *pods)


_KINDS: Final = {PODCLIQUESCALINGGROUPS: Kind.GROUP, PODCLIQUES: Kind.CLIQUE, SERVICES: Kind.SERVICE}


def surge_delete(
    caller: Caller, place: Place, names: Collection[str], *, expected: str | None = None, dry_run: bool = False
) -> PodsDeleted:
    """Delete surge by the names of its units; what becomes of each of its pods is told."""
    with deed(caller, Command.DELETE_ANY_PODS, place, dry_run=dry_run) as it:
        site = open_site(place)
        live = fetch_expected(site, expected)
        units = [unit for unit in _look(site, live) if unit.name in names]
        if not units:
            raise Contradiction(_NONE_THERE)
        surge = {"surge": [unit.name for unit in units[:_MOST_TOLD]]}
        it.begin(after={**surge, **open_record([pod for unit in units for pod in unit.pods])})
        outcomes = [*_delete_pods(site, units, dry_run=dry_run), *_delete_holders(site, units, dry_run=dry_run)]
        if not dry_run:
            it.done(after={**surge, **on_record(outcomes)}, detail=count_fates(outcomes))
        return PodsDeleted(place, version_in(live), tuple(outcomes), 0, dry_run, it.entry)


# ---- what is surge


def _surge_inside(replica: Replica) -> Iterator[SurgeUnit]:
    for clique in replica.cliques:
        # A complete clique may keep a pod with a higher index since it was scaled in: that is no surge.
        if not clique.is_complete:
            extra = (pod for pod in clique.live if pod.index >= clique.wanted)
            yield from (SurgeUnit(pod.name, clique.name, (), (pod,)) for pod in extra)
    for group in replica.groups:
        for part in group.replicas.values():
            if part.index >= group.wanted and not part.is_leaving:
                yield SurgeUnit(part.name, group.name, tuple(_holders(part.cliques)), tuple(_pods(part.cliques)))


def _whole_replica(name: str, replica: Replica) -> SurgeUnit:
    cliques = [*replica.cliques, *(one for group in replica.groups for one in _members(group))]
    holders = [
        *(Holder(PODCLIQUESCALINGGROUPS, one.group.name, one.group.uid) for one in replica.groups if one.group),
        *_holders(cliques),
        *([] if replica.service is None else [Holder(SERVICES, replica.service.name, replica.service.uid)]),
    ]
    return SurgeUnit(replica.name, name, tuple(holders), tuple(_pods(cliques)))


def _members(group: GroupView) -> Iterator[CliqueView]:
    for part in group.replicas.values():
        yield from part.cliques


def _holders(cliques: Iterable[CliqueView]) -> Iterator[Holder]:
    return (Holder(PODCLIQUES, view.clique.name, view.clique.uid) for view in cliques if view.clique)


def _pods(cliques: Iterable[CliqueView]) -> Iterator[Pod]:
    return (pod for view in cliques for pod in view.live)


# ---- its deletion


def _look(site: Site, live: Obj) -> tuple[SurgeUnit, ...]:
    return find_surge(read_workload(site, live), read_observed(site, live))


def _delete_pods(site: Site, units: Sequence[SurgeUnit], *, dry_run: bool) -> list[PodOutcome]:
    pods = [pod for unit in units if not unit.holders for pod in unit.pods]
    if not pods:
        return []
    sender = Sender(site, Manner.REMOVE, dry_run=dry_run)
    outcomes = [*sender.send(pods)]
    if not dry_run:
        site.take_in([Changes(PODS, sender.found, sender.gone)])
    return outcomes


def _delete_holders(site: Site, units: Sequence[SurgeUnit], *, dry_run: bool) -> Iterator[PodOutcome]:
    for unit in units:
        if not unit.holders:
            continue
        trouble = _delete_unit(site, unit, dry_run=dry_run)
        fate, message = (Fate.REFUSED, trouble) if trouble else (Fate.DELETED, f"With all of {unit.name}.")
        for pod in unit.pods:
            yield PodOutcome(pod.name, pod.uid, fate, message, pod.clique, pod.index)


def _delete_unit(site: Site, unit: SurgeUnit, *, dry_run: bool) -> str:
    """Delete what holds the pods of a unit; return what was in the way, if anything was."""
    trouble = ""
    for holder in unit.holders:
        try:
            change = _delete_holder(site, holder, dry_run=dry_run)
        except (NotFound, Conflict):
            continue  # it is gone, or another one has its name
        except ClusterError as error:
            trouble = trouble or f"{holder.name}: {error}"
        else:
            if not dry_run:
                site.take_in([change])
    return trouble


def _delete_holder(site: Site, holder: Holder, *, dry_run: bool) -> Changes:
    """Delete an object, and return what is known of it by that."""
    namespace, resource = site.place.namespace, holder.resource
    answer = site.cluster.delete(
        resource, holder.name, namespace=namespace, uid=holder.uid, propagation="Background", dry_run=dry_run
    )
    metadata = answer.get("metadata") or {}
    if metadata.get("deletionTimestamp") and metadata.get("finalizers"):
        return Changes(resource, [answer])  # somebody holds it for a while
    return Changes(resource, (), [{"metadata": {"namespace": namespace, "name": holder.name, "uid": holder.uid}}])
