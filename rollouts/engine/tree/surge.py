"""What is surge at each level, and which deletions remove it (`docs/semantics.md` 1).

    clique          its live pods from the wanted number up. While it is not updated, only as many as it has too many:
                    of the pods 0 and 2, which a scale-in may leave of three, none is surge
    scaling group   its replicas from the wanted number up that are not leaving
    set             its replicas from the wanted number up that have a live owner

In a replica that is surge every pod is. The index of a new surge unit is chosen by `rollout/roller`. Comes after
`availability` and `tree_builder`, which make the views. Statuses, waits, counts, simulations and pages ask this module,
as do the command that deletes surge and the trial of that command, so the trial deletes what the command deletes.
`selectors.workload_rows` counts in SQL instead, and `tests/web/test_figures.py` compares the numbers. The invariant:
nothing within the wanted numbers is surge, except for a pod above a gap in the indices of a clique that is updated,
because the update closes the gap.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from rollouts.engine.model.actions import BY_HAND, Delete, Kind
from rollouts.engine.model.observed import Observed, Pod
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Workload
from rollouts.engine.tree.availability import CliqueView, GroupReplicaView, GroupView, ReplicaView, Tree
from rollouts.engine.tree.layout import make_layout
from rollouts.engine.tree.tree_builder import build_tree

_MARK_LENGTH: Final = 16
_pod_index = attrgetter("index")


# ---- pods of a clique


def find_first_surge(view: CliqueView, *, is_extra: bool) -> int | None:
    """Return the index from which on pods are surge, None if none is; `is_extra`: the clique is in a surge replica."""
    if is_extra:
        return 0
    if view.is_updating:
        return view.wanted
    return view.live[view.wanted].index if len(view.live) > view.wanted else None


def list_surge_pods(view: CliqueView, *, is_extra: bool) -> list[Pod]:
    """Return the live pods that are surge, by index."""
    first = find_first_surge(view, is_extra=is_extra)
    if first is None or not view.live or view.live[-1].index < first:
        return []
    return [*view.live[bisect_left(view.live, first, key=_pod_index) :]]


def count_surge_pods(view: CliqueView, *, is_extra: bool) -> int:
    """Count the live pods that are surge."""
    return len(list_surge_pods(view, is_extra=is_extra))


def count_updated_pods(view: CliqueView, *, is_extra: bool) -> int:
    """Count the available pods of the current template that are not surge."""
    first = find_first_surge(view, is_extra=is_extra)
    if not view.outdated and (first is None or not view.live or view.live[-1].index < first):
        return view.available
    return sum(
        [
            pod.ready and pod.template_hash == view.template_hash and (first is None or pod.index < first)
            for pod in view.live
        ]
    )


# ---- replicas


def list_surge_replicas(view: GroupView) -> list[GroupReplicaView]:
    """Return the replicas of a scaling group that are surge, without leaving ones."""
    return [part for index, part in view.replicas.items() if index >= view.wanted and not part.is_leaving]


def list_surge_set_replicas(tree: Tree, wanted: int) -> list[ReplicaView]:
    """Return the replicas of the set that are surge, by index, without those that have no live owner."""
    return [tree.replicas[index] for index in sorted(tree.beyond(wanted) - tree.ownerless)]


def has_surge_inside(replica: ReplicaView) -> bool:
    """Whether a standalone clique or a scaling group of a replica of the set has surge."""
    return any(count_surge_pods(view, is_extra=False) for view in replica.cliques) or any(
        list_surge_replicas(view) for view in replica.groups
    )


def iter_cliques_with_surge(replica: ReplicaView, wanted: int) -> Iterator[tuple[CliqueView, bool]]:
    """Yield all cliques of a replica of the set, each with whether it is in a surge replica.

    The set should have `wanted` replicas.
    """
    is_extra = replica.index >= wanted
    for view in replica.cliques:
        yield view, is_extra
    for group in replica.groups:
        for part in group.replicas.values():
            for view in part.cliques:
                yield view, is_extra or part.index >= group.wanted


# ---- units, which are deleted whole


@value
class PodOwner:
    """An object that owns pods of a replica that is surge."""

    kind: Kind
    name: str
    uid: str


@value
class SurgeUnit:
    """A replica or pod beyond the wanted number, which is deleted as a whole."""

    name: str  # my-3, my-0-decode-2, or the name of a pod
    component: str  # the name of the PodClique, scaling group or set that has the surge
    owners: tuple[PodOwner, ...]  # empty for a single pod
    pods: tuple[Pod, ...]

    @property
    def mark(self) -> str:
        """A hash of its uids, which tells it from a later unit with the same name."""
        uids = [one.uid for one in self.owners or self.pods]
        return hashlib.sha256(" ".join(sorted(uids)).encode()).hexdigest()[:_MARK_LENGTH]

    @property
    def waiting_component(self) -> str:
        """The component whose waits are about this unit: the replica, or the clique of a single pod."""
        return self.name if self.owners else self.component


def find_surge(workload: Workload, observed: Observed) -> tuple[SurgeUnit, ...]:
    """Return the surge of a workload at every level, without terminating units."""
    tree = build_tree(make_layout(workload), observed)
    wanted = (replica for index, replica in tree.replicas.items() if index < workload.replicas)
    inside = [unit for replica in wanted for unit in _list_surge_inside(replica)]
    whole = [_make_set_unit(workload.name, replica) for replica in list_surge_set_replicas(tree, workload.replicas)]
    return (*inside, *whole)


def plan_unit_deletions(units: Iterable[SurgeUnit]) -> tuple[Delete, ...]:
    """Return the deletion of these units by hand: of a replica the owners of its pods, as the controller does."""
    units = tuple(units)
    owners = [Delete(one.kind, one.name, one.uid, BY_HAND) for unit in units for one in unit.owners]
    pods = [Delete(Kind.POD, pod.name, pod.uid, BY_HAND) for unit in units if not unit.owners for pod in unit.pods]
    return (*owners, *pods)


def _list_surge_inside(replica: ReplicaView) -> Iterator[SurgeUnit]:
    for clique in replica.cliques:
        for pod in list_surge_pods(clique, is_extra=False):
            yield SurgeUnit(pod.name, clique.name, (), (pod,))
    for group in replica.groups:
        for part in list_surge_replicas(group):
            yield SurgeUnit(part.name, group.name, tuple(_pod_owners(part.cliques)), tuple(_pods(part.cliques)))


def _make_set_unit(name: str, replica: ReplicaView) -> SurgeUnit:
    cliques = list(replica.all_cliques)
    owners = [
        *(PodOwner(Kind.GROUP, one.group.name, one.group.uid) for one in replica.groups if one.group),
        *_pod_owners(cliques),
        *([] if replica.service is None else [PodOwner(Kind.SERVICE, replica.service.name, replica.service.uid)]),
    ]
    return SurgeUnit(replica.name, name, tuple(owners), tuple(_pods(cliques)))


def _pod_owners(cliques: Iterable[CliqueView]) -> Iterator[PodOwner]:
    return (PodOwner(Kind.CLIQUE, view.clique.name, view.clique.uid) for view in cliques if view.clique)


def _pods(cliques: Iterable[CliqueView]) -> Iterator[Pod]:
    return (pod for view in cliques for pod in view.live)
