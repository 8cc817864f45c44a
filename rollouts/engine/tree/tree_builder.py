"""Builds the tree: the observed objects arranged by replica of the set, scaling group, clique and pod.

The first step of a pass; the steps after it look objects up in the tree instead of searching. The invariant: each
object is in the tree exactly once, or it is a stranger. A stranger has our labels and no position: its clique is
unknown, its name contradicts its labels, or another pod has its index. Strangers are reported and never changed.

A pod may outlive its PodClique for a while. It is then in the tree under the name of that PodClique, so that no pod is
created at an index where an old pod still runs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from rollouts.engine.model.actions import Kind
from rollouts.engine.model.observed import TERMINAL_PHASES, Clique, Gang, Group, Observed, Pod, Service
from rollouts.engine.model.values import value
from rollouts.engine.tree.availability import LazyReplicas, ReplicaView, Tree
from rollouts.engine.tree.complete_components import CompleteComponents, ComponentNames, LazyNames
from rollouts.engine.tree.layout import Layout, ObjectIndex
from rollouts.engine.tree.steady_state import is_steady, is_steady_and_complete

Stranger = tuple[str, str]
"""The name of an object, and why it has no position in the workload."""


def build_tree(layout: Layout, observed: Observed) -> Tree:
    """Return the tree of the observed objects."""
    found, strangers = _index_objects(layout, observed)
    return _assemble_tree(layout, found, tuple(sorted(strangers)))


@value
class Orphan:
    """An object without a controller that has a position in the workload."""

    kind: Kind
    name: str
    uid: str
    group: str  # the name of the scaling group that it belongs to; empty: it belongs to the set


def find_orphans(layout: Layout, ownerless: Observed) -> list[Orphan]:
    """Return the objects without a controller that have a position in the workload, owners first."""
    found, _ = _index_objects(layout, ownerless)
    gangs = [*found.base_gangs.values(), *[gang for some in found.scaled_gangs.values() for gang in some.values()]]
    return [
        *[Orphan(Kind.SERVICE, one.name, one.uid, "") for one in found.services.values()],
        *[Orphan(Kind.GROUP, one.name, one.uid, "") for one in found.groups.values()],
        *[Orphan(Kind.GANG, one.name, one.uid, "") for one in gangs],
        *[Orphan(Kind.CLIQUE, one.name, one.uid, one.group) for one in found.cliques.values()],
    ]


def update_tree(layout: Layout, tree: Tree, observed: Observed, changed_replicas: Set[int]) -> Tree:
    """Return the tree after some replicas changed: they are as observed now, or gone if nothing is observed of them.

    The new tree takes over the replicas of the former one, which must not be used any more.
    """
    found, _ = _index_objects(layout, observed)
    now = {index: layout.make_replica_view(index, found) for index in found.indices}
    flags = _ReplicaFlags()
    for replica in now.values():
        flags.add(layout, replica)
    changed = _find_changed_components(layout, tree, now, changed_replicas)
    complete = None if changed is None else tree.complete.with_changes(changed)
    replicas = _update_replicas(tree, now, changed_replicas)
    return Tree(
        replicas=replicas,
        strangers=tree.strangers,
        complete=complete or _make_complete_components(layout, replicas),
        unavailable=_update_flagged(tree.unavailable, flags.unavailable, changed_replicas),
        outdated=_update_flagged(tree.outdated, flags.outdated, changed_replicas),
        incomplete=_update_flagged(tree.incomplete, flags.incomplete, changed_replicas),
        unfinished=_update_flagged(tree.unfinished, flags.unfinished, changed_replicas),
        updating=_update_flagged(tree.updating, flags.updating, changed_replicas),
        ownerless=_update_flagged(tree.ownerless, flags.ownerless, changed_replicas),
        unsteady=_update_flagged(tree.unsteady, flags.unsteady, changed_replicas),
    )


def _update_flagged(before: frozenset[int], now: Sequence[int], changed: Set[int]) -> frozenset[int]:
    """Return the flagged replicas after some changed, of which `now` are flagged; mostly the set stays the same."""
    return before if before & changed == {*now} else (before - changed).union(now)


def _find_changed_components(
    layout: Layout, tree: Tree, now: Mapping[int, ReplicaView], changed: Set[int]
) -> Mapping[int, ComponentNames] | None:
    """Return the complete components of the originals in which they differ now; None if replicas came or went."""
    if not (changed <= tree.replicas.keys() and changed <= now.keys()):
        return None
    originals = [index for index in changed if index < layout.workload.replicas]
    return {index: now[index].complete for index in originals if now[index].complete != tree.replicas[index].complete}


def _update_replicas(tree: Tree, now: Mapping[int, ReplicaView], changed: Set[int]) -> dict[int, ReplicaView]:
    """Put the changed replicas among the others, in place: copying hundreds for one costs more than building it."""
    replicas = tree.replicas if isinstance(tree.replicas, dict) else {**tree.replicas}
    is_in_order = now.keys() <= replicas.keys()
    replicas.update(now)
    for index in changed - now.keys():
        replicas.pop(index, None)
    return replicas if is_in_order else dict(sorted(replicas.items()))


@dataclass(slots=True)
class _ReplicaFlags:
    """The indices of the replicas with each flag of the tree."""

    unavailable: list[int] = field(default_factory=list)
    outdated: list[int] = field(default_factory=list)
    incomplete: list[int] = field(default_factory=list)
    unfinished: list[int] = field(default_factory=list)
    updating: list[int] = field(default_factory=list)
    ownerless: list[int] = field(default_factory=list)
    unsteady: list[int] = field(default_factory=list)

    def add(self, layout: Layout, replica: ReplicaView) -> None:
        """Add a replica under all its flags at once: going through thousands again for each flag takes longer."""
        index = replica.index
        if not replica.is_available:
            self.unavailable.append(index)
        if replica.is_outdated:
            self.outdated.append(index)
        if not replica.is_complete:
            self.incomplete.append(index)
            if not replica.is_outdated:
                self.unfinished.append(index)
        if replica.is_updating:
            self.updating.append(index)
        if not replica.has_live_owners:
            self.ownerless.append(index)
        if not is_steady(layout, replica):
            self.unsteady.append(index)


def _assemble_tree(layout: Layout, found: ObjectIndex, strangers: tuple[Stranger, ...]) -> Tree:
    """Return the tree of the indexed objects."""
    replicas: dict[int, ReplicaView | None] = {}
    steady: set[int] = set()
    flags = _ReplicaFlags()
    for index in sorted(found.indices):
        if is_steady_and_complete(layout, index, found):
            replicas[index] = None
            steady.add(index)
        else:
            replicas[index] = replica = layout.make_replica_view(index, found)
            flags.add(layout, replica)
    known = LazyReplicas(replicas, partial(layout.make_replica_view, found=found))
    return Tree(
        replicas=known,
        strangers=strangers,
        complete=_make_complete_components(layout, known, steady),
        unavailable=frozenset(flags.unavailable),
        outdated=frozenset(flags.outdated),
        incomplete=frozenset(flags.incomplete),
        unfinished=frozenset(flags.unfinished),
        updating=frozenset(flags.updating),
        ownerless=frozenset(flags.ownerless),
        unsteady=frozenset(flags.unsteady),
    )


def _make_complete_components(
    layout: Layout, replicas: Mapping[int, ReplicaView], steady: Set[int] = frozenset()
) -> CompleteComponents:
    """Return the complete components of the originals; in a steady and complete replica all cliques are complete."""

    def compute_clique_names() -> dict[int, list[str]]:
        originals = [index for index in replicas if index < layout.workload.replicas]
        return {
            index: layout.list_clique_names(index) if index in steady else replicas[index].complete[0]
            for index in originals
        }

    def compute_group_names() -> dict[int, list[str]]:
        originals = [index for index in replicas if index < layout.workload.replicas] if layout.groups else []
        return {index: replicas[index].complete[1] for index in originals}

    return CompleteComponents(LazyNames(compute_clique_names), LazyNames(compute_group_names))


def _index_objects(layout: Layout, observed: Observed) -> tuple[ObjectIndex, list[Stranger]]:
    """Return the objects that belong to the workload by name, and the strangers."""
    found = ObjectIndex()
    strangers = [
        *_index_services(layout, observed.services, found),
        *_index_groups(layout, observed.groups, found),
        *_index_gangs(layout, observed.gangs, found),
        *_index_cliques(layout, observed.cliques, found),
        *_index_pods(layout, observed.pods, found),
    ]
    return found, strangers


# Each adds the objects of one kind to `found` and yields the strangers.


def _index_services(layout: Layout, services: Iterable[Service], found: ObjectIndex) -> Iterator[Stranger]:
    for service in services:
        index = service.replica
        if index < 0 or service.name != layout.prefixes[index]:
            yield service.name, _render_name_mismatch("Service", index)
        else:
            found.services[index] = service
            found.indices.add(index)


def _index_groups(layout: Layout, groups: Iterable[Group], found: ObjectIndex) -> Iterator[Stranger]:
    for group in groups:
        index = group.replica
        if group.template not in layout.groups:
            yield group.name, f"the set has no scaling group {group.template!r}"
        elif index < 0 or group.name != f"{layout.prefixes[index]}-{group.template}":
            yield group.name, _render_name_mismatch("PodCliqueScalingGroup", index)
        else:
            found.groups[group.name] = group
            found.indices.add(index)


def _index_gangs(layout: Layout, gangs: Iterable[Gang], found: ObjectIndex) -> Iterator[Stranger]:
    for gang in gangs:
        index = gang.replica
        if index >= 0 and gang.name == layout.prefixes[index]:
            found.base_gangs[index] = gang
            found.indices.add(index)
        elif index >= 0 and _is_scaled_gang_name(layout, gang):
            found.scaled_gangs.setdefault(index, {})[gang.name] = gang
            found.indices.add(index)
        else:
            yield gang.name, _render_name_mismatch("PodGang", index)


def _is_scaled_gang_name(layout: Layout, gang: Gang) -> bool:
    base = layout.prefixes[gang.replica]
    group, _, number = gang.name.removeprefix(f"{base}-").rpartition("-")
    return gang.name.startswith(f"{base}-") and group in layout.groups and number.isdecimal()


def _render_name_mismatch(kind: str, replica: int) -> str:
    return f"no {kind} of replica {replica} has this name"


def _index_cliques(layout: Layout, cliques: Iterable[Clique], found: ObjectIndex) -> Iterator[Stranger]:
    for clique in cliques:
        mismatch = _find_clique_mismatch(layout, clique)
        if mismatch:
            yield clique.name, mismatch
            continue
        found.cliques[clique.name] = clique
        found.indices.add(clique.replica)
        if clique.group:
            found.group_replicas.setdefault(clique.group, set()).add(clique.group_replica)


def _find_clique_mismatch(layout: Layout, clique: Clique) -> str:
    """Return why a PodClique has no position in the workload; empty if it has one."""
    if clique.template not in layout.cliques:
        return f"the set has no clique {clique.template!r}"
    if clique.replica < 0:
        return "it has no valid label for its replica of the set"
    group = layout.group_of.get(clique.template)
    if group is None:
        if clique.group:
            return f"the clique {clique.template} is in no scaling group"
        expected = f"{layout.prefixes[clique.replica]}-{clique.template}"
    else:
        full = f"{layout.prefixes[clique.replica]}-{group}"
        if clique.group != full or clique.group_replica < 0:
            return (
                f"the clique {clique.template} of replica {clique.replica} is in the scaling group {full}, but its"
                " labels do not name a replica of that group"
            )
        expected = f"{full}-{clique.group_replica}-{clique.template}"
    return "" if clique.name == expected else f"its labels require the name {expected}"


def _index_pods(layout: Layout, pods: Iterable[Pod], found: ObjectIndex) -> Iterator[Stranger]:
    """Add the pods of each PodClique by index, also of PodCliques that no longer exist."""
    by_clique: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.name.startswith(pod.clique):
            by_clique[pod.clique].append(pod)
        else:
            yield pod.name, f"no pod of {pod.clique} has this name"
    for name, members in by_clique.items():
        if name not in found.cliques and not _index_deleted_clique(layout, name, found):
            yield from [(pod.name, f"the set has no PodClique {name!r}") for pod in members]
            continue
        if not _is_sorted_by_index(members):
            yield from _drop_duplicates(members)
        found.pods[name] = members


def _index_deleted_clique(layout: Layout, name: str, found: ObjectIndex) -> bool:
    """Add the position of a PodClique that no longer exists and has pods left; return whether it has one."""
    place = layout.find_position(name)
    if place is None:
        return False
    found.indices.add(place.replica)
    if place.group:
        group = f"{layout.prefixes[place.replica]}-{place.group}"
        found.group_replicas.setdefault(group, set()).add(place.group_replica)
    return True


def _is_sorted_by_index(pods: list[Pod]) -> bool:
    """Whether the pods are in the order of their indices and no two share one, as is nearly always so."""
    last = -1
    for pod in pods:
        if pod.index <= last:
            return False
        last = pod.index
    return True


def _drop_duplicates(pods: list[Pod]) -> Iterator[Stranger]:
    """Sort pods by index; of two live pods with one index keep the older and yield the other."""
    candidates = sorted(pods, key=lambda pod: (pod.index, pod.created, pod.name))
    pods.clear()
    last = -1
    for pod in candidates:
        if pod.index < 0:
            yield pod.name, "it has no index"
            continue
        # The same as `Pod.is_live`, without a call for each of thousands of pods.
        if not pod.leaving and pod.phase not in TERMINAL_PHASES:
            if pod.index == last:
                yield pod.name, f"another pod of {pod.clique} has the index {pod.index}"
                continue
            last = pod.index
        pods.append(pod)
