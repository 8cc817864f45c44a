"""Views of PodCliques, scaling groups and replicas: available, outdated, leaving, complete (`docs/semantics.md` 1).

`tree_builder` builds these from what is observed; everything after it reads them. Counting is done once, so that a
settled workload of a thousand pods costs little more than looking at each pod.

    clique          available with its minimum of available pods, up with what its scale lets it have of them; outdated
                    by its pods
    group replica   available when each of its cliques is; outdated when a PodClique or pod in it is; leaving once none
                    of its PodCliques is there to stay, until the last pod is gone
    set replica     available when each clique in no group and each group is; outdated by what is in it, its pods and
                    the PodCliques of its groups, and by PodCliques in no group while anything is in it
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from functools import cached_property
from itertools import chain, takewhile
from typing import Final

from rollouts.engine.manifest.references import MAX_PODS
from rollouts.engine.model.observed import Clique, Gang, Group, Pod, Service
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import CliqueTemplate, GroupTemplate
from rollouts.engine.rollout.order import replica_update_order
from rollouts.engine.rollout.roller import is_complete

ComponentNames = tuple[list[str], list[str]]
"""Of a replica of the set: PodCliques in no scaling group, and PodCliqueScalingGroups."""

_NO_INDICES: Final[frozenset[int]] = frozenset()


def compute_min_available(template: CliqueTemplate, clique: Clique | None) -> int:
    """Return how many pods a PodClique must have.

    Left out of the template it is all of its replicas. A PodClique that was made while they were fewer keeps the
    minimum that it was made with: else every replica would be unavailable from the moment at which replicas are raised.
    """
    return template.min_available if clique is None else resolve_min_available(template, clique.min_available)


def resolve_min_available(template: CliqueTemplate, made_with: int) -> int:
    """Return how many pods a PodClique must have that was made with this minimum, 0 for none."""
    if template.has_explicit_min_available or not 0 < made_with < template.min_available:
        return template.min_available
    return made_with


def is_min_available_stale(template: CliqueTemplate, clique: Clique) -> bool:
    """Whether a PodClique says another minimum than the one that is written; one that has none says nothing."""
    return template.has_explicit_min_available and clique.min_available not in (0, template.min_available)


@value
class CliqueView:
    """A PodClique with its pods; also one that does not exist yet, or no more."""

    name: str
    template: CliqueTemplate
    template_hash: str  # the current one, whatever its PodClique and pods carry
    clique: Clique | None  # None: not there
    is_live: bool  # its PodClique is there to stay
    wanted: int  # how many pods it is to have
    needed: int  # how many available pods make it available: the minimum of its template, whatever it is scaled to
    pods: Sequence[Pod]  # all of them, by index
    live: Sequence[Pod]  # those that are neither leaving nor ended
    available: int
    scheduled: int
    gated: int
    outdated: int  # of the live ones
    is_updating: bool  # its own status says that its update to the current templates has begun and not ended
    is_available: bool  # there with enough available pods
    # It has just its wanted pods, all of them available and of the current template. Scaling in may have left it with
    # the pods 0 and 2, which is fine. An update ends with 0 and 1: pod 2 may be surge.
    is_complete: bool

    @property
    def is_complete_but_for_gaps(self) -> bool:
        """Whether it is complete but for a gap in the indices of its pods."""
        counts = (len(self.live), self.available, self.outdated, self.wanted)
        return self.is_live and not self.is_label_outdated and is_complete(*counts)

    @property
    def is_outdated(self) -> bool:
        """Whether a pod of it is of another template than the current one."""
        return self.outdated > 0

    @property
    def is_label_outdated(self) -> bool:
        """Whether a PodClique that is there to stay promises its pods another template than the current one."""
        return self.is_live and self.clique is not None and self.clique.template_hash != self.template_hash

    @property
    def attainable_minimum(self) -> int:
        """How much of its minimum it can have: one that was scaled below it has no more pods to wait for."""
        return min(self.needed, self.wanted)

    @property
    def is_scaled_below_minimum(self) -> bool:
        """Whether it is scaled to fewer pods than its minimum, so that it cannot be available."""
        return self.wanted < self.needed

    @property
    def is_up(self) -> bool:
        """Whether it is available, or would be if its scale let it: an update has nothing to wait for."""
        return self.is_live and self.available >= self.attainable_minimum

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of it."""
        return self.clique is None and not self.pods

    def first_surge(self, *, is_extra: bool) -> int | None:
        """Return from which index on its pods are surge; None: none is. All are where the replica it is in is extra.

        A complete clique may keep a pod with a higher index since it was scaled in: that is no surge.
        """
        return 0 if is_extra else None if self.is_complete else self.wanted

    def list_surge(self, *, is_extra: bool) -> list[Pod]:
        """Return the live pods that are surge, by index."""
        first = self.first_surge(is_extra=is_extra)
        if first is None or not self.live or self.live[-1].index < first:
            return []
        return [pod for pod in self.live if pod.index >= first]

    def count_surge(self, *, is_extra: bool) -> int:
        """Count the live pods that are surge."""
        return len(self.list_surge(is_extra=is_extra))

    def count_updated(self, *, is_extra: bool) -> int:
        """Count the pods of the current template that are available where one is desired: surge is none of them."""
        first = self.first_surge(is_extra=is_extra)
        if not self.outdated and (first is None or not self.live or self.live[-1].index < first):
            return self.available
        return sum(
            [
                pod.ready and pod.template_hash == self.template_hash and (first is None or pod.index < first)
                for pod in self.live
            ]
        )


@value
class GroupReplicaView:
    """One replica of a scaling group: all its cliques, there or not."""

    name: str
    index: int
    cliques: tuple[CliqueView, ...]
    is_available: bool
    is_outdated: bool
    is_leaving: bool
    is_anything_scheduled: bool

    @property
    def is_up(self) -> bool:
        """Whether it is available, or would be if the scale of its cliques let it."""
        return self.is_available or all(view.is_up for view in self.cliques)

    @property
    def is_scheduled(self) -> bool:
        """Whether each of its cliques is there with enough scheduled pods."""
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
    """A scaling group with those of its replicas of which anything exists."""

    name: str
    template: GroupTemplate
    group: Group | None
    is_live: bool  # its PodCliqueScalingGroup is there to stay
    wanted: int  # how many replicas it is to have
    needed: int  # how many available replicas make it available: the minimum of its template
    replicas: Mapping[int, GroupReplicaView]
    is_updating: bool  # its own status says that its update to the current templates has begun and not ended
    is_available: bool  # there with enough available replicas, extra ones as well
    is_outdated: bool  # any of its replicas is
    # It has just its wanted replicas, all of them up and of the current template, and nothing outdated is left
    # of others: an update that ended before its last pods had gone would begin again because of them.
    is_complete: bool
    is_anything_scheduled: bool

    @property
    def attainable_minimum(self) -> int:
        """How much of its minimum it can have: one that was scaled below it has no more replicas to wait for."""
        return min(self.needed, self.wanted)

    @property
    def is_scaled_below_minimum(self) -> bool:
        """Whether it is scaled to fewer replicas than its minimum, so that it cannot be available."""
        return self.wanted < self.needed

    @property
    def is_up(self) -> bool:
        """Whether it is available, or would be if its scale and that of its cliques let it."""
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
    cliques: tuple[CliqueView, ...]  # those in no scaling group
    groups: tuple[GroupView, ...]
    base_gang: Gang | None
    scaled_gangs: Mapping[str, Gang]  # by name
    is_available: bool
    is_outdated: bool
    complete: ComponentNames  # of those of its components that are
    is_complete: bool  # each of its components is
    is_anything_scheduled: bool  # any of its pods has a node
    is_updating: bool  # the update of a component has begun and not ended
    has_live_owners: bool  # anything that holds its contents is there to stay: service, groups, cliques in no group
    update_order: tuple[bool, bool, int]  # its turn among those to be updated

    @property
    def is_up(self) -> bool:
        """Whether it is available, or would be if the scale of its components let it."""
        return self.is_available or (
            all(view.is_up for view in self.cliques) and all(view.is_up for view in self.groups)
        )

    @property
    def gangs(self) -> list[Gang]:
        """All its gangs, by name."""
        base = [] if self.base_gang is None else [self.base_gang]
        return base + [gang for _, gang in sorted(self.scaled_gangs.items())]

    def find_gang(self, name: str) -> Gang | None:
        """Return the gang of this name, if it is there; the base gang is called like the replica."""
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

    def iter_cliques_with_surge(self, wanted: int) -> Iterator[tuple[CliqueView, bool]]:
        """Yield all its cliques, each with whether the replica that it is in is extra, be it of the set or of a group.

        The set is to have as many as `wanted`.
        """
        is_extra = self.index >= wanted
        for view in self.cliques:
            yield view, is_extra
        for group in self.groups:
            for part in group.replicas.values():
                for view in part.cliques:
                    yield view, is_extra or part.index >= group.wanted

    @property
    def is_emptied(self) -> bool:
        """Whether nothing in it means to stay, and not all of it is gone yet."""
        return not _has_live_contents(self.cliques, self.groups) and any(view.pods for view in self.all_cliques)

    @property
    def has_pods_of_other_templates(self) -> bool:
        """Whether a pod of another template is there, be it on its way out."""
        return any(pod.template_hash != view.template_hash for view in self.all_cliques for pod in view.pods)

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of it but PodGangs, which nothing else holds."""
        frame = (self.service, *(view.group for view in self.groups))
        return all(part is None for part in frame) and all(view.is_empty for view in self.all_cliques)

    @property
    def awaits_garbage_collection(self) -> bool:
        """Whether what held it is gone, and what it held has not been told yet."""
        return not self.has_live_owners and any(view.is_live or view.live for view in self.all_cliques)

    @property
    def has_surge(self) -> bool:
        """Whether a component has more than it is to have in the end."""
        return any(len(view.live) > view.wanted for view in self.cliques) or any(
            index >= view.wanted and not part.is_leaving
            for view in self.groups
            for index, part in view.replicas.items()
        )


def make_replica_view(  # noqa: PLR0917 - called for each of thousands, and by name it takes longer
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
        # What a PodClique still promises to nobody counts for nothing.
        outdated = any(view.is_label_outdated for view in cliques) and _has_live_contents(cliques, groups)
    update_order = replica_update_order(index, scheduled=scheduled, breached=scheduled and not available)
    # fmt: off
    return ReplicaView(
        name, index, service, cliques, groups, base_gang, scaled_gangs, available, outdated,
        (complete_cliques, complete_groups), is_complete, scheduled, updating, has_owners, update_order,
    )
    # fmt: on


def _has_live_contents(cliques: Iterable[CliqueView], groups: Iterable[GroupView]) -> bool:
    """Whether anything in a set replica means to stay; a pod without its PodClique is about to go."""
    return any(view.is_live and view.live for view in cliques) or any(
        not part.is_leaving for group in groups for part in group.replicas.values()
    )


class LazyReplicas(Mapping[int, ReplicaView]):
    """Replicas of the set by index, in its order; those that are settled are put together only when one is asked for.

    A settled replica has no scaling groups, and all its cliques are complete.
    """

    def __init__(self, built: dict[int, ReplicaView | None], build: Callable[[int], ReplicaView]) -> None:
        """Take the replicas, None for each that is settled, and what puts such a one together."""
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
        """Return the indices, as a set that need not be gone through to be compared."""
        return self._built.keys()


class LazyNames:
    """Names in the order of the replicas of the set that they are of; listed when somebody asks, and only once."""

    def __init__(self, tell: Callable[[], Mapping[int, Sequence[str]]]) -> None:
        """Take what tells the names of each replica, in order."""
        self._compute_names = tell

    @cached_property
    def names(self) -> list[str]:
        """All of them."""
        return [*chain.from_iterable(self._compute_names().values())]

    @cached_property
    def _replica_indices(self) -> list[int]:
        """The replica of each of the names."""
        return [index for index, names in self._compute_names().items() for _ in names]

    def with_changes(self, changed: Mapping[int, Sequence[str]]) -> "LazyNames":
        """Return the listing when some replicas have other names, which are put in the place of the former."""
        other = LazyNames(self._compute_names)
        other.names, other._replica_indices = [*self.names], [*self._replica_indices]
        for index, names in changed.items():
            former = slice(bisect_left(other._replica_indices, index), bisect_right(other._replica_indices, index))
            other.names[former], other._replica_indices[former] = names, [index] * len(names)
        return other

    def __eq__(self, other: object) -> bool:
        """Whether they are the same names."""
        return isinstance(other, LazyNames) and self.names == other.names

    __hash__ = None  # type: ignore[assignment]


@value
class CompleteComponents:
    """The complete components of the wanted replicas."""

    cliques: LazyNames  # PodCliques in no scaling group
    groups: LazyNames  # PodCliqueScalingGroups

    def with_changes(self, changed: Mapping[int, ComponentNames]) -> "CompleteComponents":
        """Return what is complete when it is other components in some of the replicas."""
        if not changed:
            return self
        return CompleteComponents(
            self.cliques.with_changes({index: cliques for index, (cliques, _) in changed.items()}),
            self.groups.with_changes({index: groups for index, (_, groups) in changed.items()}),
        )


@value
class Tree:
    """Everything there is of a workload, in its place."""

    replicas: dict[int, ReplicaView] | LazyReplicas  # those of which anything exists, by index and in its order
    strangers: tuple[tuple[str, str], ...]  # the name of what fits nowhere, and why
    complete: CompleteComponents  # of the wanted replicas

    # Which replicas stand out, so that nobody has to go through all of them to see it.
    unavailable: frozenset[int]
    outdated: frozenset[int]
    incomplete: frozenset[int]
    unfinished: frozenset[int]  # are incomplete and not outdated
    updating: frozenset[int]
    ownerless: frozenset[int]  # have no live frame
    unsteady: frozenset[int]  # are not quiet

    def beyond(self, wanted: int) -> frozenset[int]:
        """Return the replicas with an index beyond the wanted number."""
        if not self.replicas or next(reversed(self.replicas)) < wanted:
            return _NO_INDICES
        return frozenset(takewhile(lambda index: index >= wanted, reversed(self.replicas)))

    def missing(self, wanted: int) -> frozenset[int]:
        """Return the wanted replicas of which nothing exists."""
        if len(self.replicas) - len(self.beyond(wanted)) == wanted:
            return _NO_INDICES
        return frozenset(range(wanted)) - self.replicas.keys()

    def has_exactly(self, wanted: int) -> bool:
        """Whether the wanted replicas are there and no others."""
        return len(self.replicas) == wanted and not self.beyond(wanted)
