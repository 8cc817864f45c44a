"""A workload as a tree: replicas, their cliques and scaling groups, the replicas of those, and the pods of each.

The engine's views, with the effective strategy, say what is outdated, available, complete or surge, so a page always
shows what the controller acts on. Besides the snapshot of the workload this costs three queries: details of pods for
pages, the revisions, and sometimes their templates.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from rollouts import models
from rollouts.accounts.commands import WorkloadRef
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.model.observed import Pod
from rollouts.engine.model.values import value
from rollouts.engine.rollout.update import read_progress
from rollouts.engine.tree.availability import CliqueView, GroupReplicaView, GroupView, ReplicaView
from rollouts.engine.tree.surge import find_first_surge
from rollouts.manifests.masking import mask_text
from rollouts.selectors.revisions import RevisionNumbers, mask_image
from rollouts.selectors.timestamps import to_datetime
from rollouts.selectors.workload_snapshot import WorkloadSnapshot, read_snapshot

_UNREADABLE: Final = "The manifest of the workload is not valid, so Grove UI cannot arrange its objects."


@value
class PodNode:
    """A pod."""

    name: str
    uid: str
    index: int
    template_hash: str
    revision: int | None  # None: the template is not stored
    outdated: bool
    available: bool
    ready: bool
    surge: bool
    leaving: bool
    gated: bool
    node: str
    ip: str
    gang: str
    phase: str
    reason: str
    message: str
    restarts: int
    images: tuple[str, ...]
    created: datetime
    ready_since: datetime | None


@value
class CliqueNode:
    """A PodClique, also one that does not exist."""

    name: str
    template: str  # its name in the template
    exists: bool
    wanted: int
    needed: int  # how many available pods make it available
    template_hash: str  # the current one
    promised_hash: str  # the hash on its PodClique; empty: it does not exist
    available_pods: int
    scheduled_pods: int
    gated_pods: int
    outdated_pods: int
    available: bool
    outdated: bool
    complete: bool
    updating: bool
    pods: tuple[PodNode, ...]


@value
class GroupReplicaNode:
    """A replica of a scaling group."""

    name: str
    index: int
    available: bool
    outdated: bool
    leaving: bool
    surge: bool
    cliques: tuple[CliqueNode, ...]


@value
class GroupNode:
    """A PodCliqueScalingGroup."""

    name: str
    template: str
    exists: bool
    wanted: int
    needed: int  # how many available replicas make it available
    available: bool
    outdated: bool
    complete: bool
    updating: bool
    replicas: tuple[GroupReplicaNode, ...]


@value
class ReplicaNode:
    """A replica of the set."""

    name: str
    index: int
    available: bool
    outdated: bool
    complete: bool
    surge: bool
    updating: bool  # the update is replacing its pods
    cliques: tuple[CliqueNode, ...]  # outside scaling groups
    groups: tuple[GroupNode, ...]


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Counts of pods; terminating pods count only as such."""

    total: int
    available: int
    outdated: int
    surge: int
    leaving: int


@dataclass(frozen=True, slots=True)
class Stranger:
    """An object with the labels of the workload and without a position in it; the controller ignores it."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class WorkloadTree:
    """All objects of a workload, each in its position."""

    cluster: str
    namespace: str
    name: str
    uid: str
    version: str
    strategy: str  # effective
    generation_hash: str  # of the current template
    revision: int | None  # its number
    wanted: int  # replicas of the set
    pods: PodCounts
    replicas: tuple[ReplicaNode, ...]
    strangers: tuple[Stranger, ...]
    findings: tuple[Finding, ...]  # why there is no tree


def workload_tree(place: WorkloadRef) -> WorkloadTree:
    """Return the tree of a workload; raises NotFound."""
    return snapshot_tree(place, read_snapshot(place))


def snapshot_tree(place: WorkloadRef, snapshot: WorkloadSnapshot) -> WorkloadTree:
    """Return the tree of a workload, from its snapshot."""
    if snapshot.planner_input is None:
        return _tree(place, snapshot, strangers=[(pod.name, _UNREADABLE) for pod in snapshot.mirrored.observed.pods])
    layout, tree = snapshot.planner_input.layout, snapshot.planner_input.tree
    builder = _TreeBuilder(
        wanted=layout.workload.replicas,
        updating=frozenset(read_progress(snapshot.mirrored.observed.status).updating),
        numbers=RevisionNumbers(place.cluster, snapshot.mirrored.uid),
        extras=_read_extras(snapshot, place),
    )
    replicas = tuple(map(builder.replica, tree.replicas.values()))
    revision = builder.numbers.of_generation(layout.generation_hash)
    strangers = sorted([*snapshot.mirrored.strangers, *tree.strangers])
    return _tree(
        place, snapshot, strangers, generation_hash=layout.generation_hash, revision=revision, replicas=replicas
    )


def _tree(
    place: WorkloadRef,
    snapshot: WorkloadSnapshot,
    strangers: Iterable[tuple[str, str]],
    *,
    generation_hash: str = "",
    revision: int | None = None,
    replicas: tuple[ReplicaNode, ...] = (),
) -> WorkloadTree:
    return WorkloadTree(
        cluster=place.cluster,
        namespace=place.namespace,
        name=place.name,
        uid=snapshot.mirrored.uid,
        version=snapshot.version,
        strategy="" if snapshot.workload is None else str(snapshot.workload.strategy),
        generation_hash=generation_hash,
        revision=revision,
        wanted=0 if snapshot.workload is None else snapshot.workload.replicas,
        pods=_count(replicas),
        replicas=replicas,
        strangers=tuple(Stranger(name, why) for name, why in strangers),
        findings=snapshot.findings,
    )


_EXTRA_COLUMNS: Final = ("uid", "reason", "restarts", "images", "ip", "gang", "ready_since")
_NO_EXTRA: Final = ("", 0, "", "", "", None)


def _read_extras(snapshot: WorkloadSnapshot, place: WorkloadRef) -> dict[str, tuple[Any, ...]]:
    """Return by uid the details of pods that only pages show."""
    rows = models.Pod.objects.filter(cluster=snapshot.cluster, namespace=place.namespace, workload=place.name)
    return {uid: tuple(rest) for uid, *rest in rows.values_list(*_EXTRA_COLUMNS)}


@dataclass(frozen=True, slots=True)
class _TreeBuilder:
    """Turns the engine's views into nodes."""

    wanted: int
    updating: frozenset[int]
    numbers: RevisionNumbers
    extras: Mapping[str, tuple[Any, ...]]

    def replica(self, view: ReplicaView) -> ReplicaNode:
        surge = view.index >= self.wanted
        return ReplicaNode(
            name=view.name,
            index=view.index,
            available=view.is_available,
            outdated=view.is_outdated,
            complete=view.is_complete,
            surge=surge,
            updating=view.is_updating or view.index in self.updating,
            cliques=tuple(self._clique(clique, surge=surge) for clique in view.cliques),
            groups=tuple(self._group(group, surge=surge) for group in view.groups),
        )

    def _group(self, view: GroupView, *, surge: bool) -> GroupNode:
        return GroupNode(
            name=view.name,
            template=view.template.name,
            exists=view.group is not None,
            wanted=view.wanted,
            needed=view.needed,
            available=view.is_available,
            outdated=view.is_outdated,
            complete=view.is_complete,
            updating=view.is_updating,
            replicas=tuple(
                self._group_replica(part, surge=surge or index >= view.wanted) for index, part in view.replicas.items()
            ),
        )

    def _group_replica(self, view: GroupReplicaView, *, surge: bool) -> GroupReplicaNode:
        return GroupReplicaNode(
            name=view.name,
            index=view.index,
            available=view.is_available,
            outdated=view.is_outdated,
            leaving=view.is_leaving,
            surge=surge,
            cliques=tuple(self._clique(clique, surge=surge) for clique in view.cliques),
        )

    def _clique(self, view: CliqueView, *, surge: bool) -> CliqueNode:
        first_surge = find_first_surge(view, is_extra=surge)
        return CliqueNode(
            name=view.name,
            template=view.template.name,
            exists=view.clique is not None,
            wanted=view.wanted,
            needed=view.needed,
            template_hash=view.template_hash,
            promised_hash="" if view.clique is None else view.clique.template_hash,
            available_pods=view.available,
            scheduled_pods=view.scheduled,
            gated_pods=view.gated,
            outdated_pods=view.outdated,
            available=view.is_available,
            outdated=view.is_outdated,
            complete=view.is_complete,
            updating=view.is_updating,
            pods=tuple(self._pod(pod, view, first_surge) for pod in view.pods),
        )

    def _pod(self, pod: Pod, view: CliqueView, first_surge: int | None) -> PodNode:
        reason, restarts, images, ip, gang, since = self.extras.get(pod.uid, _NO_EXTRA)
        return PodNode(
            name=pod.name,
            uid=pod.uid,
            index=pod.index,
            template_hash=pod.template_hash,
            revision=self.numbers.of_template(view.template.name, pod.template_hash),
            outdated=pod.template_hash != view.template_hash,
            available=pod.available,
            ready=pod.ready,
            surge=first_surge is not None and pod.index >= first_surge,
            leaving=pod.leaving,
            gated=pod.gated,
            node=pod.node,
            ip=ip,
            gang=gang,
            phase=pod.phase,
            reason=reason,
            message=mask_text(pod.message) if pod.message else "",
            restarts=restarts,
            images=_shown_images(images),
            created=to_datetime(pod.created),
            ready_since=None if since is None else to_datetime(since),
        )


@lru_cache(maxsize=4096)
def _shown_images(images: str) -> tuple[str, ...]:
    """Return masked images; cached, because most pods have the same."""
    return tuple(map(mask_image, images.split()))


def walk_cliques(tree: WorkloadTree) -> Iterator[tuple[str, CliqueNode]]:
    """Yield all cliques of the tree, each with its position in words."""
    for replica in tree.replicas:
        yield from _walk_replica(replica)


def walk_pods(tree: WorkloadTree) -> Iterator[PodNode]:
    """Yield all pods of the tree."""
    for _, clique in walk_cliques(tree):
        yield from clique.pods


def _walk_replica(replica: ReplicaNode) -> Iterator[tuple[str, CliqueNode]]:
    for clique in replica.cliques:
        yield f"replica {replica.index}, ", clique
    for group in replica.groups:
        for part in group.replicas:
            for clique in part.cliques:
                yield f"replica {replica.index}, {group.template} {part.index}, ", clique


def _count(replicas: Iterable[ReplicaNode]) -> PodCounts:
    total = available = outdated = surge = leaving = 0
    for pod in (pod for replica in replicas for _, clique in _walk_replica(replica) for pod in clique.pods):
        total += 1
        if pod.leaving:
            leaving += 1
            continue
        available += pod.available
        outdated += pod.outdated
        surge += pod.surge
    return PodCounts(total, available, outdated, surge, leaving)
