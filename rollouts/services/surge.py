"""The surge of a workload, and its deletion by hand: a remedy for surge that keeps others from their room, or broke.

Surge is what stands beyond the wanted number: whole replicas of the set, replicas of a scaling group, pods of a clique.
Which it is at each level is read off the engine's own views. Of a replica the objects are deleted that hold its pods,
as the controller deletes them; of a clique the pods themselves. Nobody's disruption budget is asked, so it is a
deletion by force.

While an original is outdated the controller creates surge anew, which may well be wanted: on another node it may come
up. The invariants: nothing within the wanted numbers is touched; and names are used again, so surge is named with a
mark of the very objects that were looked at, and what has come in their place is safe.
"""

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import Contradiction
from rollouts.cluster import ClusterError, Conflict, NotFound, Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODS, SERVICES
from rollouts.engine.model.actions import Delete, Kind
from rollouts.engine.model.observed import Observed, Pod
from rollouts.engine.model.workload import Workload
from rollouts.engine.simulation.simulate import BY_HAND
from rollouts.engine.tree.layout import make_shape
from rollouts.engine.tree.tree_builder import arrange
from rollouts.engine.tree.views import CliqueView, GroupView, Replica
from rollouts.mirror import Changes
from rollouts.services.audit import Caller, deed
from rollouts.services.edit import fetch_expected
from rollouts.services.pods import (
    NOT_TRIED,
    SECONDS,
    STOPPING,
    Fate,
    Manner,
    PodOutcome,
    PodsDeleted,
    Sender,
    count_fates,
    explain,
    on_record,
    open_record,
    read_observed,
    read_workload,
)
from rollouts.services.workload_client import Site, open_site, version_in

_MOST_TOLD: Final = 500  # units on record by name
_MARK_LETTERS: Final = 16
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

    @property
    def mark(self) -> str:
        """What tells it from another one that has its name later."""
        uids = [one.uid for one in self.holders or self.pods]
        return hashlib.sha256(" ".join(sorted(uids)).encode()).hexdigest()[:_MARK_LETTERS]


@dataclass(frozen=True, slots=True)
class NamedUnit:
    """Surge by name and mark, as it was looked at."""

    name: str
    mark: str


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


def delete_units(workload: Workload, observed: Observed, chosen: Collection[NamedUnit]) -> tuple[Delete, ...]:
    """Return the deletion of surge, for a simulation."""
    units = _choose(find_surge(workload, observed), chosen)
    holders = [Delete(_KINDS[one.resource], one.name, one.uid, BY_HAND) for unit in units for one in unit.holders]
    pods = [Delete(Kind.POD, pod.name, pod.uid, BY_HAND) for unit in units if not unit.holders for pod in unit.pods]
    return (*holders, *pods)


_KINDS: Final = {PODCLIQUESCALINGGROUPS: Kind.GROUP, PODCLIQUES: Kind.CLIQUE, SERVICES: Kind.SERVICE}


def surge_delete(
    caller: Caller, place: Place, chosen: Collection[NamedUnit], *, expected: str | None = None, dry_run: bool = False
) -> PodsDeleted:
    """Delete surge, if it still is what was looked at; told is what becomes of each of its pods, and what was gone."""
    with deed(caller, Command.DELETE_ANY_PODS, place, dry_run=dry_run) as it:
        site = open_site(place)
        live = fetch_expected(site, expected)
        units = _choose(_look(site, live), chosen)
        if not units:
            raise Contradiction(_NONE_THERE)
        surge = {"surge": [unit.name for unit in units[:_MOST_TOLD]]}
        it.begin(after={**surge, **open_record([pod for unit in units for pod in unit.pods])})
        outcomes = _delete_pods(site, units, dry_run=dry_run)
        is_stopped = any(one.outcome in STOPPING for one in outcomes)
        remover = _Remover(site, dry_run=dry_run, is_stopped=is_stopped)
        outcomes += [one for unit in units if unit.holders for one in remover.delete(unit)]
        outcomes += _list_gone(units, chosen)
        if not dry_run:
            it.done(after={**surge, **on_record(outcomes)}, detail=count_fates(outcomes))
        return PodsDeleted(place, version_in(live), tuple(outcomes), 0, dry_run, it.entry)


def _choose(units: Iterable[SurgeUnit], chosen: Collection[NamedUnit]) -> list[SurgeUnit]:
    return [unit for unit in units if NamedUnit(unit.name, unit.mark) in chosen]


def _list_gone(units: Iterable[SurgeUnit], chosen: Collection[NamedUnit]) -> list[PodOutcome]:
    gone = {*chosen} - {NamedUnit(unit.name, unit.mark) for unit in units}
    return [PodOutcome(name, "", Fate.GONE, _NONE_THERE) for name in sorted({one.name for one in gone})]


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


class _Remover:
    """Deletes what holds the pods of surge, one after the other, until an answer is lost or it takes too long."""

    def __init__(self, site: Site, *, dry_run: bool, is_stopped: bool) -> None:
        self._site = site
        self._dry_run = dry_run
        self._is_stopped = is_stopped
        self._deadline = time.monotonic() + SECONDS

    def delete(self, unit: SurgeUnit) -> Iterator[PodOutcome]:
        """Delete a unit, and say of each of its pods what became of it; of itself, where it has none."""
        told = {(one.resource, one.name): self._attempt(one) for one in unit.holders}
        troubles = [f"{name}: {said}" for (_, name), (fate, said) in told.items() if fate not in _AS_MEANT]
        is_under_way = any(fate is Fate.DELETED for fate, _ in told.values())
        for pod in unit.pods:
            # It goes with its clique, which may go with its scaling group before it is asked to.
            fate, message = told.get((PODCLIQUES, pod.clique), (Fate.UNKNOWN, "Nothing that holds it is known."))
            if fate in _AS_MEANT and is_under_way:
                # What stays of the unit is said where all else went as meant.
                fate, message = Fate.DELETED, troubles[0] if troubles else f"With all of {unit.name}."
            yield PodOutcome(pod.name, pod.uid, fate, message, pod.clique, pod.index)
        if not unit.pods:
            fates = [fate for fate, _ in told.values() if fate not in _AS_MEANT]
            fate = fates[0] if fates else Fate.DELETED if is_under_way else Fate.GONE
            yield PodOutcome(unit.name, "", fate, troubles[0] if troubles else "It had no pods.")

    def _attempt(self, holder: Holder) -> tuple[Fate, str]:
        if self._is_stopped or time.monotonic() > self._deadline:
            return Fate.NOT_SENT, NOT_TRIED
        try:
            change = _delete_holder(self._site, holder, dry_run=self._dry_run)
        except (NotFound, Conflict):
            return Fate.GONE, f"{holder.name} was gone already, or another one has its name."
        except ClusterError as error:
            fate, sentence = explain(error)
            self._is_stopped = fate in STOPPING
            return fate, sentence
        if not self._dry_run:
            self._site.take_in([change])
        return Fate.DELETED, ""


_AS_MEANT: Final = frozenset({Fate.DELETED, Fate.GONE})


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
