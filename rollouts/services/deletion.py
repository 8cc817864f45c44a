"""Deletions that a person asked for: one object at a time, with one result for each.

Before it: `pods` and `surge`, which choose what to delete. After it: the cluster, which must answer for each object,
and the mirror, which stores what the answers say. `PodOutcome` is the public answer, and what the audit log keeps.

The invariants: a deletion carries the uid of the object that was chosen, so an object that has taken its name since is
safe; and once an answer is lost, the cluster throttles, or the time is up, a run sends nothing more.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import Enum, StrEnum, auto
from functools import partial
from typing import Any, Final

from rollouts.accounts.commands import WorkloadRef
from rollouts.cluster import ClusterError, Conflict, NotFound, Resource, Throttled, Unauthorized, Unavailable
from rollouts.cluster.deletion import Deletion, delete_object, fetch_deletion
from rollouts.cluster.resources import PODS
from rollouts.engine.model.observed import Pod
from rollouts.mirror import ObjectChanges
from rollouts.services.workload_client import WorkloadClient

MAX_SECONDS: Final = 20.0
"""After which a run sends no more deletions."""

# In the audit log: the uids of so many pods that are left; so many outcomes; and so many characters of all messages
# together. With the longest names all of it fits into `audit_values.MAX_VALUE_BYTES`.
_MAX_REST: Final = 1000
_MAX_RECORDED: Final = 500
_MAX_MESSAGE_CHARACTERS: Final = 80_000
_THREADS: Final = 8


class DeletionResult(StrEnum):
    """What happened to a pod, or to an object that owns pods."""

    EVICTED = "Evicted"
    DELETED = "Deleted"
    REFUSED = "Refused"  # by a disruption budget, or by the cluster
    NOT_OUTDATED = "NotOutdated"
    LEAVING = "Leaving"  # it is terminating already
    GONE = "Gone"  # it no longer exists; another object may have its name
    NOT_THERE = "NotThere"  # the workload has no such pod
    UNKNOWN = "Unknown"  # sent, and no answer
    NOT_SENT = "NotSent"


ABORTING_RESULTS: Final = frozenset({DeletionResult.UNKNOWN, DeletionResult.NOT_SENT})
"""After these a command sends nothing more: somebody should check first what was deleted."""
_DECIDED_LOCALLY: Final = frozenset(
    {DeletionResult.NOT_OUTDATED, DeletionResult.LEAVING, DeletionResult.GONE, DeletionResult.NOT_THERE}
)
_NOT_TRIED: Final = "Not tried: the cluster has stopped answering, or answers too slowly."


class DeletionMode(Enum):
    """How pods are deleted."""

    EVICT = auto()  # the cluster asks the disruption budgets
    DELETE = auto()  # no budget is asked; the pod has its grace period
    FORCE_DELETE = auto()  # the cluster does not wait for the kubelet either


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod by name and, where it must be a certain one, by uid."""

    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """What happened to one pod."""

    name: str
    uid: str
    outcome: DeletionResult
    message: str
    # The position of the pod, to find its successor; empty for a pod that the workload does not have.
    clique: str = ""
    index: int = -1


@dataclass(frozen=True, slots=True)
class PodsDeleted:
    """What happened to the pods that a command names."""

    place: WorkloadRef
    version: str  # of the workload
    outcomes: tuple[PodOutcome, ...]
    left: int  # how many more were chosen than one command deletes
    is_dry_run: bool
    record: int | None = None  # the audit entry that has the outcomes; None for a dry run


def make_outcome(pod: PodRef | Pod, result: DeletionResult, message: str) -> PodOutcome:
    """Return what happened to a pod, with its position if it is known."""
    if isinstance(pod, PodRef):
        return PodOutcome(pod.name, pod.uid, result, message)
    return PodOutcome(pod.name, pod.uid, result, message, pod.clique, pod.index)


# ---- sending


class DeletionRun:
    """The deletions of one command; it sends until it aborts or its time is up."""

    def __init__(self, *, is_aborted: bool = False) -> None:
        self._aborted = threading.Event()
        if is_aborted:
            self._aborted.set()
        self._deadline = time.monotonic() + MAX_SECONDS

    def attempt(
        self, send: Callable[[], DeletionResult], explain_missing: Callable[[], tuple[DeletionResult, str]]
    ) -> tuple[DeletionResult, str]:
        """Delete an object; `explain_missing` says what a NotFound or Conflict means for it."""
        if self._aborted.is_set() or time.monotonic() > self._deadline:
            return DeletionResult.NOT_SENT, _NOT_TRIED
        try:
            return send(), ""
        except (NotFound, Conflict):
            return explain_missing()
        except ClusterError as error:
            result, message = _explain_error(error)
            if result in ABORTING_RESULTS:
                self._aborted.set()
            return result, message


def _explain_error(error: ClusterError) -> tuple[DeletionResult, str]:
    if isinstance(error, Throttled):
        budgets = [cause.message for cause in error.causes if cause.reason == "DisruptionBudget"]
        if budgets:
            return DeletionResult.REFUSED, f"A disruption budget does not allow it: {'; '.join(budgets)}"
        return DeletionResult.NOT_SENT, f"The API server is throttling requests: {error}"
    if isinstance(error, Unavailable | Unauthorized):
        return DeletionResult.UNKNOWN, f"{error}. It is not known whether it was deleted: check before you try again."
    return DeletionResult.REFUSED, str(error)


def make_changes(resource: Resource, deletions: Iterable[Deletion]) -> ObjectChanges:
    """Return what the mirror stores after deletions of objects of one kind."""
    known = tuple(deletions)
    current = [one.current for one in known if one.current is not None]
    return ObjectChanges(resource, current, [one.gone for one in known if one.gone is not None])


class PodDeleter:
    """Deletes pods, several at once, and collects how the cluster has them afterwards."""

    def __init__(self, client: WorkloadClient, mode: DeletionMode, *, dry_run: bool) -> None:
        self._deletions: list[Deletion] = []
        self._client = client
        self._mode = mode
        self._dry_run = dry_run
        self._run = DeletionRun()

    def delete_all(self, pods: Sequence[Pod]) -> Iterator[PodOutcome]:
        """Delete pods, and yield what happened to each."""
        with ThreadPoolExecutor(min(_THREADS, len(pods)), thread_name_prefix="pods") as senders:
            yield from senders.map(self._attempt, pods)

    @property
    def changes(self) -> ObjectChanges:
        """The changes for the mirror."""
        return make_changes(PODS, self._deletions)

    def _attempt(self, pod: Pod) -> PodOutcome:
        return make_outcome(pod, *self._run.attempt(partial(self._delete, pod), partial(self._explain_missing, pod)))

    def _explain_missing(self, pod: Pod) -> tuple[DeletionResult, str]:
        found = self._fetch(pod).current
        if found is not None and found["metadata"]["uid"] == pod.uid:
            return DeletionResult.REFUSED, "It was changed at the same time; try again."
        return DeletionResult.GONE, f"It was gone already{'; another pod has its name' if found else ''}."

    def _delete(self, pod: Pod) -> DeletionResult:
        cluster, namespace = self._client.cluster, self._client.place.namespace
        if self._mode is DeletionMode.EVICT:
            cluster.evict(pod.name, namespace=namespace, uid=pod.uid, dry_run=self._dry_run)
            if not self._dry_run:
                self._fetch(pod)  # the answer to an eviction does not show the pod
            return DeletionResult.EVICTED
        grace = 0 if self._mode is DeletionMode.FORCE_DELETE else None
        self._deletions.append(
            delete_object(
                cluster, PODS, pod.name, namespace=namespace, uid=pod.uid, grace_seconds=grace, dry_run=self._dry_run
            )
        )
        return DeletionResult.DELETED

    def _fetch(self, pod: Pod) -> Deletion:
        """Fetch a pod for the mirror; where that fails, the watcher updates the mirror."""
        cluster, namespace = self._client.cluster, self._client.place.namespace
        try:
            found = fetch_deletion(cluster, PODS, pod.name, namespace=namespace, uid=pod.uid, retry=False)
        except ClusterError:
            return Deletion()
        self._deletions.append(found)
        return found


# ---- the audit log


def render_audit_begin(pods: Iterable[Pod]) -> dict[str, Any]:
    """Return what the audit log has before pods are deleted; it stays if the process dies in between."""
    message = "It is not known whether it was deleted: the command was interrupted."
    return render_audit_outcomes([make_outcome(pod, DeletionResult.UNKNOWN, message) for pod in pods])


def render_audit_outcomes(outcomes: Collection[PodOutcome], rest: Sequence[Pod] = ()) -> dict[str, Any]:
    """Return the outcomes as the audit log keeps them, and the pods that are left; `selectors.pod_deletions` reads it.

    Where there are too many, those that needed no request to the cluster are left out first.
    """
    kept = sorted(outcomes, key=lambda one: one.outcome in _DECIDED_LOCALLY)[:_MAX_RECORDED]
    characters = _MAX_MESSAGE_CHARACTERS // max(1, len(kept))
    value = {
        "pods": [{**asdict(one), "message": one.message[:characters]} for one in kept],
        "untold": len(outcomes) - len(kept),
        "left": len(rest),
    }
    return {**value, "rest": [pod.uid for pod in rest[:_MAX_REST]]} if rest else value


def summarize_outcomes(outcomes: Iterable[PodOutcome]) -> str:
    """Return how many pods had each result: "2 Evicted, 1 Gone"."""
    counts = Counter(str(one.outcome) for one in outcomes)
    return ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))
