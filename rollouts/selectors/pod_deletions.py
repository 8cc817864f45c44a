"""Pods that people deleted, from the command to what stands in their place now.

Before it: `services.pods`, which puts what became of each pod on record, and where it was. After it: a page that stays
open until all have come back. What was commanded is read from the audit, what there is now from the tree, so whoever
opens the page later, or has been away, sees the same. By a command that was begun its outcome is found; where the
process was ended in between there is none, and of each pod only what can be seen of it now is told.

The invariant: a pod is known by its uid, so one that has taken a name is never taken for the one that was deleted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from django.db.models import Q

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import NotFound
from rollouts.models import AuditEntry
from rollouts.selectors.tree import CliqueNode, PodNode, WorkloadTree, walk_cliques

_COMMANDS: Final = (Command.DELETE_OUTDATED_PODS, Command.DELETE_ANY_PODS)


class ReplacementStage(StrEnum):
    """How far a pod is that was to be deleted."""

    STAYED = "stayed"  # it was not deleted
    THERE = "there"  # and whether it was told to go is not known
    LEAVING = "leaving"
    GONE = "gone"  # and nobody has its place yet
    OVER = "over"  # gone, and its place is not to be taken
    COMING = "coming"  # another pod has its place and is not available yet
    BACK = "back"  # another pod has its place and is available


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """A pod that was to be deleted."""

    name: str
    where: str  # its clique and its place there; empty when it had none
    outcome: str  # as `services.pods.Fate` says it
    message: str
    stage: ReplacementStage
    successor: PodNode | None


@dataclass(frozen=True, slots=True)
class PodDeletionReport:
    """What a command to delete pods has come to by now."""

    record: int
    at: datetime
    actor: str
    is_by_force: bool
    pods: tuple[PodDeletion, ...]
    stages: Mapping[str, int]  # how many are how far
    omitted: int  # of which there is no more on record than their number
    left: int  # that were meant as well, and were more than one command deletes


def pod_deletions_detail(place: WorkloadRef, record: int, tree: WorkloadTree) -> PodDeletionReport:
    """Return what has come of a command to delete pods of a workload; raises NotThere."""
    entry = _find_entry(place, record)
    after = {} if entry is None or not isinstance(entry.after, dict) else entry.after
    recorded = after.get("pods")
    if entry is None or not isinstance(recorded, list) or not all(isinstance(one, dict) for one in recorded):
        raise NotFound(f"There is no deletion {record} of pods of {place.name} on record.")
    pods = tuple(_trace_pods(recorded, tree))
    return PodDeletionReport(
        record=entry.pk,
        at=entry.at,
        actor=entry.actor,
        is_by_force=entry.command == Command.DELETE_ANY_PODS,
        pods=pods,
        stages=Counter(str(pod.stage) for pod in pods),
        omitted=int(after.get("untold") or 0),
        left=int(after.get("left") or 0),
    )


def _find_entry(place: WorkloadRef, record: int) -> AuditEntry | None:
    """Return the outcome of a command, by its own number or by that of its beginning; the beginning, if it has none."""
    rows = AuditEntry.objects.filter(
        cluster=place.cluster, namespace=place.namespace, name=place.name, command__in=_COMMANDS
    )
    found = rows.filter(Q(pk=record) | Q(begun=record))
    # An outcome comes after its beginning. One that says nothing of pods tells less than the beginning does.
    return next((entry for entry in found.order_by("-pk") if entry.after is not None), None)


def list_remaining_uids(place: WorkloadRef, record: int) -> frozenset[str]:
    """Return the uids of the pods that a command left for another one."""
    rows = AuditEntry.objects.filter(pk=record, cluster=place.cluster, namespace=place.namespace, name=place.name)
    after = rows.values_list("after", flat=True).first()
    return frozenset(after.get("rest") or ()) if isinstance(after, dict) else frozenset()


def _trace_pods(recorded: list[dict[str, Any]], tree: WorkloadTree) -> Iterator[PodDeletion]:
    cliques = {clique.name: clique for _, clique in walk_cliques(tree)}
    places = {name: place for place, name in enumerate(cliques)}
    # In the order of the picture; what has no place in it any more comes last.
    for one in sorted(recorded, key=lambda one: (places.get(one["clique"], len(places)), one["index"], one["name"])):
        yield _trace_pod(one, cliques.get(one.get("clique") or ""))


def _trace_pod(one: Mapping[str, Any], clique: CliqueNode | None) -> PodDeletion:
    index, pods = one.get("index"), () if clique is None else clique.pods
    itself = next((pod for pod in pods if pod.uid == one["uid"]), None)
    successor = next((pod for pod in pods if pod.index == index and pod.uid != one["uid"] and not pod.leaving), None)
    stage = _compute_stage(
        str(one["outcome"]), itself, successor, is_wanted=clique is not None and index in range(clique.wanted)
    )
    return PodDeletion(
        name=one["name"],
        where=f"{one['clique']} {index}" if one.get("clique") else "",
        outcome=str(one["outcome"]),
        message=one.get("message") or "",
        stage=stage,
        successor=successor if stage in (ReplacementStage.COMING, ReplacementStage.BACK) else None,
    )


# What `services.pods` says of pods that were there and that it has not deleted.
_NOT_DELETED: Final = frozenset({"Refused", "NotOutdated", "NotSent"})


def _compute_stage(
    outcome: str, itself: PodNode | None, successor: PodNode | None, *, is_wanted: bool
) -> ReplacementStage:
    if itself is not None:
        if outcome == "Unknown" and not itself.leaving:
            return ReplacementStage.THERE
        # What the cluster was asked to delete is leaving, also before the mirror has heard of it.
        return ReplacementStage.STAYED if outcome in _NOT_DELETED and not itself.leaving else ReplacementStage.LEAVING
    if successor is not None:
        return ReplacementStage.BACK if successor.available else ReplacementStage.COMING
    return ReplacementStage.GONE if is_wanted else ReplacementStage.OVER
