"""Pods that people deleted, and the pods that replace them.

Before it: `services.deletion`, which stores the result and the position of each pod in the audit log. After it: a page
that follows the pods until all are replaced. It reads the command from the audit log and the present pods from the
tree, so it shows the same whenever it is opened. The entry of a beginning leads to its outcome; if the process died in
between there is none, and the page shows only the present state of each pod.

The invariant: a pod is identified by its uid, so its successor with the same name is never taken for it.
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
    """The progress of a deleted pod."""

    STAYED = "stayed"  # it was not deleted
    THERE = "there"  # and it is unknown whether the deletion was sent
    LEAVING = "leaving"
    GONE = "gone"  # it has no successor yet
    OVER = "over"  # it is gone and gets no successor
    COMING = "coming"  # its successor is not available yet
    BACK = "back"  # its successor is available


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """A pod that a command was to delete."""

    name: str
    where: str  # its clique and index; empty: it had none
    outcome: str  # a value of `services.deletion.DeletionResult`
    message: str
    stage: ReplacementStage
    successor: PodNode | None


@dataclass(frozen=True, slots=True)
class PodDeletionReport:
    """The present result of a command that deletes pods."""

    record: int
    at: datetime
    actor: str
    is_by_force: bool
    pods: tuple[PodDeletion, ...]
    stages: Mapping[str, int]  # the number of pods by stage
    omitted: int  # pods that the audit log only counts
    left: int  # how many more were chosen than one command deletes


def pod_deletions_detail(place: WorkloadRef, record: int, tree: WorkloadTree) -> PodDeletionReport:
    """Return the present result of a command that deletes pods of a workload; raises NotFound."""
    entry = _find_entry(place, record)
    after = {} if entry is None or not isinstance(entry.after, dict) else entry.after
    recorded = after.get("pods")
    if entry is None or not isinstance(recorded, list) or not all(isinstance(one, dict) for one in recorded):
        raise NotFound(f"The audit log has no deletion {record} of pods of {place.name}.")
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
    """Return the outcome of a command by its id or the id of its beginning; without an outcome, the beginning."""
    rows = AuditEntry.objects.filter(
        cluster=place.cluster, namespace=place.namespace, name=place.name, command__in=_COMMANDS
    )
    found = rows.filter(Q(pk=record) | Q(begun=record))
    # The outcome has a higher id. An outcome without pods has less information than the beginning.
    return next((entry for entry in found.order_by("-pk") if entry.after is not None), None)


def list_remaining_uids(place: WorkloadRef, record: int) -> frozenset[str]:
    """Return the uids of the pods that a command left."""
    rows = AuditEntry.objects.filter(pk=record, cluster=place.cluster, namespace=place.namespace, name=place.name)
    after = rows.values_list("after", flat=True).first()
    return frozenset(after.get("rest") or ()) if isinstance(after, dict) else frozenset()


def _trace_pods(recorded: list[dict[str, Any]], tree: WorkloadTree) -> Iterator[PodDeletion]:
    cliques = {clique.name: clique for _, clique in walk_cliques(tree)}
    places = {name: place for place, name in enumerate(cliques)}
    # In the order of the pod grid; pods without a position in it come last.
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


# The results of pods that existed and were not deleted.
_NOT_DELETED: Final = frozenset({"Refused", "NotOutdated", "NotSent"})


def _compute_stage(
    outcome: str, itself: PodNode | None, successor: PodNode | None, *, is_wanted: bool
) -> ReplacementStage:
    if itself is not None:
        if outcome == "Unknown" and not itself.leaving:
            return ReplacementStage.THERE
        # A pod whose deletion was sent is terminating, even if the mirror does not have it yet.
        return ReplacementStage.STAYED if outcome in _NOT_DELETED and not itself.leaving else ReplacementStage.LEAVING
    if successor is not None:
        return ReplacementStage.BACK if successor.available else ReplacementStage.COMING
    return ReplacementStage.GONE if is_wanted else ReplacementStage.OVER
