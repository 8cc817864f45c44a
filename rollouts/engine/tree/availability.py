"""Views of PodCliques, scaling groups and replicas: available, outdated, leaving, complete (`docs/semantics.md` 1).

`tree_builder` makes the views from observed objects; every later step reads them. Pods are counted once, so a steady
workload of a thousand pods costs little more than one loop over them. `surge` says which of the units are surge. Which
pod is available, `Pod.available` in `model/observed` says; `layout.make_clique_view` compares their number with the
minimum.

    clique          available with its minimum of available pods; up with as many of them as its scale permits;
                    outdated if one of its pods is
    group replica   available if each of its cliques is; outdated if one of its PodCliques or pods is; leaving once all
                    its PodCliques are terminating or gone, until the last pod is gone
    set replica     available if each standalone clique and each group is; outdated if one of its pods or group
                    replicas is, or if a standalone PodClique is while anything in the replica is live
"""

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from itertools import takewhile
from typing import Final

from rollouts.engine.manifest.references import MAX_PODS
from rollouts.engine.model.observed import Clique, Gang, Group, Pod, Service
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import CliqueTemplate, GroupTemplate
from rollouts.engine.tree.complete_components import CompleteComponents, ComponentNames

_NO_INDICES: Final[frozenset[int]] = frozenset()


def compute_min_available(template: CliqueTemplate, clique: Clique | None) -> int:
    """Return the minimum of a PodClique.

    If the template leaves minAvailable out, the minimum is its replicas. A PodClique that was created with fewer
    replicas keeps its smaller minimum: otherwise raising replicas would make every set replica unavailable at once.
    """
    return template.min_available if clique is None else resolve_min_available(template, clique.min_available)


def resolve_min_available(template: CliqueTemplate, made_with: int) -> int:
    """Return the minimum of a PodClique that was created with this minimum; 0 means that it was created without one."""
    if template.has_explicit_min_available or not 0 < made_with < template.min_available:
        return template.min_available
    return made_with


def is_min_available_stale(template: CliqueTemplate, clique: Clique) -> bool:
    """Whether a PodClique has another minimum than the one written in its template."""
    return template.has_explicit_min_available and clique.min_available not in (0, template.min_available)


def is_complete(live: int, available: int, outdated: int, wanted: int, highest: int = -1) -> bool:
    """Whether exactly the wanted units exist, all of them available and none outdated.

    `highest` is the highest index where the indices must be 0 ... R-1: for replicas, and for pods in an update. Pods
    outside an update may have a gap from a scale-in, which nothing closes.
    """
    return live == available == wanted and not outdated and highest < wanted


@value
class CliqueView:
    """A PodClique with its pods; also one that does not exist yet or no longer."""

    name: str
    template: CliqueTemplate
    template_hash: str  # the current one, whatever its PodClique and pods carry
    clique: Clique | None  # None: it does not exist
    is_live: bool  # its PodClique exists and is not terminating
    wanted: int  # the number of pods that it should have
    needed: int  # the number of available pods that make it available, whatever it is scaled to
    pods: Sequence[Pod]  # all pods, by index
    live: Sequence[Pod]  # the pods that are neither terminating nor in a terminal phase
    available: int
    scheduled: int
    gated: int
    outdated: int  # live pods of another template than the current one
    is_updating: bool  # by its own status, its update to the current templates has begun and not ended
    is_available: bool  # live, with enough available pods
    # It has exactly its wanted pods, all available and of the current template. After a scale-in these may be the pods
    # 0 and 2. An update must end with 0 and 1, because pod 2 may be surge.
    is_complete: bool

    @property
    def is_complete_but_for_gaps(self) -> bool:
        """Whether it is complete except for a gap in the indices of its pods."""
        counts = (len(self.live), self.available, self.outdated, self.wanted)
        return self.is_live and not self.is_label_outdated and is_complete(*counts)

    @property
    def is_outdated(self) -> bool:
        """Whether one of its pods is of another template than the current one."""
        return self.outdated > 0

    @property
    def is_label_outdated(self) -> bool:
        """Whether a live PodClique has the hash of another template than the current one."""
        return self.is_live and self.clique is not None and self.clique.template_hash != self.template_hash

    @property
    def attainable_minimum(self) -> int:
        """As much of its minimum as its scale permits."""
        return min(self.needed, self.wanted)

    @property
    def is_scaled_below_minimum(self) -> bool:
        """Whether it is scaled to fewer pods than its minimum, so that it cannot be available."""
        return self.wanted < self.needed

    @property
    def is_up(self) -> bool:
        """Whether it is available, or as available as its scale permits: an update does not wait for it."""
        return self.is_live and self.available >= self.attainable_minimum

    @property
    def is_empty(self) -> bool:
        """Whether neither the PodClique nor a pod of it exists."""
        return self.clique is None and not self.pods


@value
class GroupReplicaView:
    """One replica of a scaling group with all its cliques, whether they exist or not."""

    name: str
    index: int
    cliques: tuple[CliqueView, ...]
    is_available: bool
    is_outdated: bool
    is_leaving: bool
    is_anything_scheduled: bool

    @property
    def is_up(self) -> bool:
        """Whether it is available, or as available as the scale of its cliques permits."""
        return self.is_available or all(view.is_up for view in self.cliques)

    @property
    def is_scheduled(self) -> bool:
        """Whether each of its cliques is live and has its minimum of scheduled pods."""
        return all(view.is_live and view.scheduled >= view.needed for view in self.cliques)


def make_group_replica_view(name: str, index: int, cliques: tuple[CliqueView, ...]) -> GroupReplicaView:
    """Return a replica of a scaling group."""
    available, outdated, leaving, scheduled = True, False, True, False
    for view in cliques:
        available = available and view.is_available
        outdated = outdated or view.outdated > 0 or view.is_label_outdated
        leaving = leaving and not view.is_live
        scheduled = scheduled or view.scheduled > 0
    return GroupReplicaView(name, index, cliques, available, outdated, leaving, scheduled)


@value
class GroupView:
    """A scaling group with the replicas of which anything exists."""

    name: str
    template: GroupTemplate
    group: Group | None
    is_live: bool  # its PodCliqueScalingGroup exists and is not terminating
    wanted: int  # the number of replicas that it should have
    needed: int  # the number of available replicas that make it available
    replicas: Mapping[int, GroupReplicaView]
    is_updating: bool  # by its own status, its update to the current templates has begun and not ended
    is_available: bool  # live, with enough available replicas, surge included
    is_outdated: bool  # any of its replicas is
    # It has exactly its wanted replicas, all up and of the current template, and no outdated pod is left of others: an
    # update that ended before its last pods were gone would begin again because of them.
    is_complete: bool
    is_anything_scheduled: bool

    @property
    def attainable_minimum(self) -> int:
        """As much of its minimum as its scale permits."""
        return min(self.needed, self.wanted)

    @property
    def is_scaled_below_minimum(self) -> bool:
        """Whether it is scaled to fewer replicas than its minimum, so that it cannot be available."""
        return self.wanted < self.needed

    @property
    def is_up(self) -> bool:
        """Whether it is available, or as available as its scale and that of its cliques permit."""
        return self.is_available or (
            self.is_live and sum(one.is_up for one in self.replicas.values()) >= self.attainable_minimum
        )


def make_group_view(
    name: str,
    template: GroupTemplate,
    group: Group | None,
    replicas: Mapping[int, GroupReplicaView],
    *,
    is_updating: bool,
) -> GroupView:
    """Return a scaling group."""
    wanted = template.replicas if group is None else min(group.replicas, MAX_PODS)
    needed = template.min_available
    is_live = group is not None and not group.leaving
    available = up = outdated = there = 0
    highest = -1
    scheduled = False
    for index, part in replicas.items():
        available += part.is_available
        scheduled = scheduled or part.is_anything_scheduled
        outdated += part.is_outdated
        if not part.is_leaving:
            there += 1
            up += part.is_up
            highest = max(highest, index)
    # fmt: off
    return GroupView(
        name, template, group, is_live, wanted, needed, replicas, is_updating, is_live and available >= needed,
        outdated > 0, is_live and is_complete(there, up, outdated, wanted, highest), scheduled,
    )
    # fmt: on


@value
class ReplicaView:
    """One replica of the set."""

    name: str
    index: int
    service: Service | None
    cliques: tuple[CliqueView, ...]  # the standalone ones
    groups: tuple[GroupView, ...]
    base_gang: Gang | None
    scaled_gangs: Mapping[str, Gang]  # by name
    is_available: bool
    is_outdated: bool
    complete: ComponentNames  # its complete components
    is_complete: bool  # each of its components is
    is_anything_scheduled: bool  # any of its pods has a node
    is_updating: bool  # the update of a component has begun and not ended
    has_live_owners: bool  # its service, a scaling group or a standalone PodClique is live

    @property
    def is_up(self) -> bool:
        """Whether it is available, or as available as the scale of its components permits."""
        return self.is_available or (
            all(view.is_up for view in self.cliques) and all(view.is_up for view in self.groups)
        )

    @property
    def gangs(self) -> list[Gang]:
        """All its gangs, by name."""
        base = [] if self.base_gang is None else [self.base_gang]
        return base + [gang for _, gang in sorted(self.scaled_gangs.items())]

    def find_gang(self, name: str) -> Gang | None:
        """Return the gang of this name if it exists; the base gang has the name of the replica."""
        return self.base_gang if name == self.name else self.scaled_gangs.get(name)

    @property
    def member_cliques(self) -> Iterator[CliqueView]:
        """The cliques of its scaling groups."""
        for group in self.groups:
            for part in group.replicas.values():
                yield from part.cliques

    @property
    def all_cliques(self) -> Iterator[CliqueView]:
        """All its cliques."""
        yield from self.cliques
        yield from self.member_cliques

    @property
    def is_emptied(self) -> bool:
        """Whether nothing in it is live, and pods of it are still terminating."""
        return not _has_live_contents(self.cliques, self.groups) and any(view.pods for view in self.all_cliques)

    @property
    def has_pods_of_other_templates(self) -> bool:
        """Whether a pod of another template exists, terminating or not."""
        return any(pod.template_hash != view.template_hash for view in self.all_cliques for pod in view.pods)

    @property
    def is_gone(self) -> bool:
        """Whether nothing exists of it except PodGangs."""
        frame = (self.service, *(view.group for view in self.groups))
        return all(part is None for part in frame) and all(view.is_empty for view in self.all_cliques)

    @property
    def awaits_garbage_collection(self) -> bool:
        """Whether its owners are gone or terminating while objects in it are still live."""
        return not self.has_live_owners and any(view.is_live or view.live for view in self.all_cliques)


def make_replica_view(  # noqa: PLR0917 - called thousands of times, and keywords are slower
    name: str,
    index: int,
    service: Service | None,
    cliques: tuple[CliqueView, ...],
    groups: tuple[GroupView, ...],
    base_gang: Gang | None,
    scaled_gangs: Mapping[str, Gang],
) -> ReplicaView:
    """Return a replica of the set."""
    available, outdated = True, False
    complete_cliques: list[str] = []
    complete_groups: list[str] = []
    scheduled = updating = False
    has_owners = service is not None and not service.leaving
    for view in cliques:
        available = available and view.is_available
        outdated = outdated or view.outdated > 0
        if view.is_complete:
            complete_cliques.append(view.name)
        scheduled = scheduled or view.scheduled > 0
        updating = updating or view.is_updating
        has_owners = has_owners or view.is_live
    for group in groups:
        available = available and group.is_available
        outdated = outdated or group.is_outdated
        if group.is_complete:
            complete_groups.append(group.name)
        scheduled = scheduled or group.is_anything_scheduled
        updating = updating or group.is_updating
        has_owners = has_owners or group.is_live
    is_complete = len(complete_cliques) == len(cliques) and len(complete_groups) == len(groups)
    if not outdated and not is_complete:
        # The hash of a standalone PodClique does not count while the replica is empty.
        outdated = any(view.is_label_outdated for view in cliques) and _has_live_contents(cliques, groups)
    # fmt: off
    return ReplicaView(
        name, index, service, cliques, groups, base_gang, scaled_gangs, available, outdated,
        (complete_cliques, complete_groups), is_complete, scheduled, updating, has_owners,
    )
    # fmt: on


def _has_live_contents(cliques: Iterable[CliqueView], groups: Iterable[GroupView]) -> bool:
    """Whether anything in a set replica is live; a pod without its PodClique does not count."""
    return any(view.is_live and view.live for view in cliques) or any(
        not part.is_leaving for group in groups for part in group.replicas.values()
    )


class LazyReplicas(Mapping[int, ReplicaView]):
    """Replicas of the set, ordered by index; the view of a steady and complete replica is made at its first use.

    Such a replica has no scaling groups, and all its cliques are complete.
    """

    def __init__(self, built: dict[int, ReplicaView | None], build: Callable[[int], ReplicaView]) -> None:
        """`built` has None for each replica that is steady and complete; `build` makes its view."""
        self._built = built
        self._build = build

    def __getitem__(self, index: int) -> ReplicaView:
        """Return a replica."""
        replica = self._built[index]
        if replica is None:
            replica = self._built[index] = self._build(index)
        return replica

    def __iter__(self) -> Iterator[int]:
        """Go through the indices."""
        return iter(self._built)

    def __reversed__(self) -> Iterator[int]:
        """Go through the indices from the highest."""
        return reversed(self._built)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._built)

    def keys(self) -> KeysView[int]:
        """Return the indices as a set, without making views."""
        return self._built.keys()


@value
class Tree:
    """All observed objects of a workload, by replica of the set."""

    replicas: dict[int, ReplicaView] | LazyReplicas  # ordered by index; only those of which anything exists
    strangers: tuple[tuple[str, str], ...]  # names of objects without a position, and why they have none
    complete: CompleteComponents  # of the wanted replicas

    # The indices of replicas by what is special about them, so that no step has to go through all replicas.
    unavailable: frozenset[int]
    outdated: frozenset[int]
    incomplete: frozenset[int]
    unfinished: frozenset[int]  # incomplete and not outdated
    updating: frozenset[int]
    ownerless: frozenset[int]  # without a live owner
    unsteady: frozenset[int]  # not steady

    def beyond(self, wanted: int) -> frozenset[int]:
        """Return the replicas with an index beyond the wanted number."""
        if not self.replicas or next(reversed(self.replicas)) < wanted:
            return _NO_INDICES
        return frozenset(takewhile(lambda index: index >= wanted, reversed(self.replicas)))

    def missing(self, wanted: int) -> frozenset[int]:
        """Return the originals of which nothing exists."""
        if len(self.replicas) - len(self.beyond(wanted)) == wanted:
            return _NO_INDICES
        return frozenset(range(wanted)) - self.replicas.keys()

    def has_exactly(self, wanted: int) -> bool:
        """Whether exactly the wanted replicas exist."""
        return len(self.replicas) == wanted and not self.beyond(wanted)
