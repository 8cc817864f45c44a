"""What is observed, put in its place: the replicas of a set, their cliques and scaling groups, and the pods of each.

Comes first in a plan; everything after it looks things up here instead of searching. Each object is in the tree once,
or it is a stranger: something that carries our labels and fits nowhere (an unknown clique, a name that contradicts the
labels, a second pod with one index). Strangers are reported and never touched.

A pod may outlive its PodClique by a while. It is then still in the tree, by the name of that PodClique, so that nobody
builds anew where an old pod still runs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from rollouts.engine.model.actions import Kind
from rollouts.engine.model.observed import ENDED, Clique, Gang, Group, Observed, Pod, Service
from rollouts.engine.model.values import value
from rollouts.engine.tree.layout import Found, Shape
from rollouts.engine.tree.steady_state import is_quiet, is_settled
from rollouts.engine.tree.views import Complete, Listing, Names, Replica, Replicas, Tree

Stranger = tuple[str, str]
"""The name of an object, and why it fits nowhere."""


def arrange(shape: Shape, observed: Observed) -> Tree:
    """Return the tree of what is observed, and who fits nowhere."""
    found, strangers = _place(shape, observed)
    return _build_tree(shape, found, tuple(sorted(strangers)))


@value
class Orphan:
    """An object that nothing controls and that would have its place in the workload."""

    kind: Kind
    name: str
    uid: str
    group: str  # the name of the scaling group that it belongs to; empty: it belongs to the set


def find_orphans(shape: Shape, ownerless: Observed) -> list[Orphan]:
    """Return those objects without a controller that have a place in the workload, owners first."""
    found, _ = _place(shape, ownerless)
    gangs = [*found.base_gangs.values(), *[gang for some in found.scaled_gangs.values() for gang in some.values()]]
    return [
        *[Orphan(Kind.SERVICE, one.name, one.uid, "") for one in found.services.values()],
        *[Orphan(Kind.GROUP, one.name, one.uid, "") for one in found.groups.values()],
        *[Orphan(Kind.GANG, one.name, one.uid, "") for one in gangs],
        *[Orphan(Kind.CLIQUE, one.name, one.uid, one.group) for one in found.cliques.values()],
    ]


def rearrange(shape: Shape, tree: Tree, observed: Observed, touched: Set[int]) -> Tree:
    """Return a tree in which the replicas that were touched are as observed now, or gone if nothing of them is.

    It takes the replicas of the former tree over, so nobody may look at that one any more.
    """
    found, _ = _place(shape, observed)
    now = {index: shape.replica(index, found) for index in found.indices}
    traits = _Traits()
    for replica in now.values():
        traits.note(shape, replica)
    changed = _find_changed(shape, tree, now, touched)
    complete = None if changed is None else tree.complete.renew(changed)
    replicas = _renew_replicas(tree, now, touched)
    return Tree(
        replicas=replicas,
        strangers=tree.strangers,
        complete=complete or _list_complete(shape, replicas),
        unavailable=_renew(tree.unavailable, traits.unavailable, touched),
        outdated=_renew(tree.outdated, traits.outdated, touched),
        incomplete=_renew(tree.incomplete, traits.incomplete, touched),
        unfinished=_renew(tree.unfinished, traits.unfinished, touched),
        begun=_renew(tree.begun, traits.begun, touched),
        frameless=_renew(tree.frameless, traits.frameless, touched),
        restless=_renew(tree.restless, traits.restless, touched),
    )


def _renew(before: frozenset[int], now: Sequence[int], touched: Set[int]) -> frozenset[int]:
    """Return who has a trait when of those that were touched just these have it now; mostly they are the same."""
    return before if before & touched == {*now} else (before - touched).union(now)


def _find_changed(
    shape: Shape, tree: Tree, now: Mapping[int, Replica], touched: Set[int]
) -> Mapping[int, Names] | None:
    """Return the complete components of wanted replicas where they are others now; None if replicas came or went."""
    if not (touched <= tree.replicas.keys() and touched <= now.keys()):
        return None
    originals = [index for index in touched if index < shape.workload.replicas]
    return {index: now[index].complete for index in originals if now[index].complete != tree.replicas[index].complete}


def _renew_replicas(tree: Tree, now: Mapping[int, Replica], touched: Set[int]) -> dict[int, Replica]:
    """Put replicas as they are now among the others, in place: to copy hundreds for one cost more than arranging it."""
    replicas = tree.replicas if isinstance(tree.replicas, dict) else {**tree.replicas}
    is_in_order = now.keys() <= replicas.keys()
    replicas.update(now)
    for index in touched - now.keys():
        replicas.pop(index, None)
    return replicas if is_in_order else dict(sorted(replicas.items()))


@dataclass(slots=True)
class _Traits:
    """The indices of the replicas that stand out, as they are told to the tree."""

    unavailable: list[int] = field(default_factory=list)
    outdated: list[int] = field(default_factory=list)
    incomplete: list[int] = field(default_factory=list)
    unfinished: list[int] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    frameless: list[int] = field(default_factory=list)
    restless: list[int] = field(default_factory=list)

    def note(self, shape: Shape, replica: Replica) -> None:
        """Say all there is to say about a replica while it is at hand: to come back to thousands takes longer."""
        index = replica.index
        if not replica.is_available:
            self.unavailable.append(index)
        if replica.is_outdated:
            self.outdated.append(index)
        if not replica.is_complete:
            self.incomplete.append(index)
            if not replica.is_outdated:
                self.unfinished.append(index)
        if replica.is_begun:
            self.begun.append(index)
        if not replica.has_live_frame:
            self.frameless.append(index)
        if not is_quiet(shape, replica):
            self.restless.append(index)


def _build_tree(shape: Shape, found: Found, strangers: tuple[Stranger, ...]) -> Tree:
    """Return the tree of what was found."""
    replicas: dict[int, Replica | None] = {}
    settled: set[int] = set()
    traits = _Traits()
    for index in sorted(found.indices):
        if is_settled(shape, index, found):
            replicas[index] = None
            settled.add(index)
        else:
            replicas[index] = replica = shape.replica(index, found)
            traits.note(shape, replica)
    known = Replicas(replicas, partial(shape.replica, found=found))
    return Tree(
        replicas=known,
        strangers=strangers,
        complete=_list_complete(shape, known, settled),
        unavailable=frozenset(traits.unavailable),
        outdated=frozenset(traits.outdated),
        incomplete=frozenset(traits.incomplete),
        unfinished=frozenset(traits.unfinished),
        begun=frozenset(traits.begun),
        frameless=frozenset(traits.frameless),
        restless=frozenset(traits.restless),
    )


def _list_complete(shape: Shape, replicas: Mapping[int, Replica], settled: Set[int] = frozenset()) -> Complete:
    """Return which components of the wanted replicas are complete; of those that are settled the cliques are all."""

    def tell_cliques() -> dict[int, list[str]]:
        originals = [index for index in replicas if index < shape.workload.replicas]
        return {
            index: shape.name_cliques(index) if index in settled else replicas[index].complete[0] for index in originals
        }

    def tell_groups() -> dict[int, list[str]]:
        originals = [index for index in replicas if index < shape.workload.replicas] if shape.groups else []
        return {index: replicas[index].complete[1] for index in originals}

    return Complete(Listing(tell_cliques), Listing(tell_groups))


def _place(shape: Shape, observed: Observed) -> tuple[Found, list[Stranger]]:
    """Put everything in its place; return what was found, and who fits nowhere."""
    found = Found()
    strangers = [
        *_place_services(shape, observed.services, found),
        *_place_groups(shape, observed.groups, found),
        *_place_gangs(shape, observed.gangs, found),
        *_place_cliques(shape, observed.cliques, found),
        *_place_pods(shape, observed.pods, found),
    ]
    return found, strangers


# Each puts what belongs to the workload among what is found, and yields the rest.


def _place_services(shape: Shape, services: Iterable[Service], found: Found) -> Iterator[Stranger]:
    for service in services:
        index = service.replica
        if index < 0 or service.name != shape.prefixes[index]:
            yield service.name, _not_called("Service", index)
        else:
            found.services[index] = service
            found.indices.add(index)


def _place_groups(shape: Shape, groups: Iterable[Group], found: Found) -> Iterator[Stranger]:
    for group in groups:
        index = group.replica
        if group.template not in shape.groups:
            yield group.name, f"the set has no scaling group {group.template!r}"
        elif index < 0 or group.name != f"{shape.prefixes[index]}-{group.template}":
            yield group.name, _not_called("PodCliqueScalingGroup", index)
        else:
            found.groups[group.name] = group
            found.indices.add(index)


def _place_gangs(shape: Shape, gangs: Iterable[Gang], found: Found) -> Iterator[Stranger]:
    for gang in gangs:
        index = gang.replica
        if index >= 0 and gang.name == shape.prefixes[index]:
            found.base_gangs[index] = gang
            found.indices.add(index)
        elif index >= 0 and _is_scaled_name(shape, gang):
            found.scaled_gangs.setdefault(index, {})[gang.name] = gang
            found.indices.add(index)
        else:
            yield gang.name, _not_called("PodGang", index)


def _is_scaled_name(shape: Shape, gang: Gang) -> bool:
    base = shape.prefixes[gang.replica]
    group, _, number = gang.name.removeprefix(f"{base}-").rpartition("-")
    return gang.name.startswith(f"{base}-") and group in shape.groups and number.isdecimal()


def _not_called(kind: str, replica: int) -> str:
    return f"no {kind} of replica {replica} has this name"


def _place_cliques(shape: Shape, cliques: Iterable[Clique], found: Found) -> Iterator[Stranger]:
    for clique in cliques:
        complaint = _complaint(shape, clique)
        if complaint:
            yield clique.name, complaint
            continue
        found.cliques[clique.name] = clique
        found.indices.add(clique.replica)
        if clique.group:
            found.parts.setdefault(clique.group, set()).add(clique.group_replica)


def _complaint(shape: Shape, clique: Clique) -> str:
    """Return why a PodClique fits nowhere; empty if it does."""
    if clique.template not in shape.cliques:
        return f"the set has no clique {clique.template!r}"
    if clique.replica < 0:
        return "it does not say of which replica of the set it is"
    group = shape.group_of.get(clique.template)
    if group is None:
        if clique.group:
            return f"the clique {clique.template} is in no scaling group"
        expected = f"{shape.prefixes[clique.replica]}-{clique.template}"
    else:
        full = f"{shape.prefixes[clique.replica]}-{group}"
        if clique.group != full or clique.group_replica < 0:
            return f"the clique {clique.template} of replica {clique.replica} belongs to replicas of {full}"
        expected = f"{full}-{clique.group_replica}-{clique.template}"
    return "" if clique.name == expected else f"by its labels it should be called {expected}"


def _place_pods(shape: Shape, pods: Iterable[Pod], found: Found) -> Iterator[Stranger]:
    """Collect the pods of each PodClique, by index; also of those that are gone."""
    by_clique: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.name.startswith(pod.clique):
            by_clique[pod.clique].append(pod)
        else:
            yield pod.name, f"no pod of {pod.clique} has this name"
    for name, members in by_clique.items():
        if name not in found.cliques and not _place_gone_clique(shape, name, found):
            yield from [(pod.name, f"the set has no PodClique {name!r}") for pod in members]
            continue
        if not _is_in_order(members):
            yield from _take_out_doubles(members)
        found.pods[name] = members


def _place_gone_clique(shape: Shape, name: str, found: Found) -> bool:
    """Note where a PodClique was that is gone and has left pods; return whether there is such a place."""
    place = shape.place(name)
    if place is None:
        return False
    found.indices.add(place.replica)
    if place.group:
        group = f"{shape.prefixes[place.replica]}-{place.group}"
        found.parts.setdefault(group, set()).add(place.group_replica)
    return True


def _is_in_order(pods: list[Pod]) -> bool:
    """Whether each pod has an index and none has that of another; as it is nearly always."""
    last = -1
    for pod in pods:
        if pod.index <= last:
            return False
        last = pod.index
    return True


def _take_out_doubles(pods: list[Pod]) -> Iterator[Stranger]:
    """Put pods in the order of their index; of two that have one index only the older stays."""
    candidates = sorted(pods, key=lambda pod: (pod.index, pod.created, pod.name))
    pods.clear()
    last = -1
    for pod in candidates:
        if pod.index < 0:
            yield pod.name, "it has no index"
            continue
        if not pod.leaving and pod.phase not in ENDED:
            if pod.index == last:
                yield pod.name, f"another pod of {pod.clique} has the index {pod.index} too"
                continue
            last = pod.index
        pods.append(pod)
