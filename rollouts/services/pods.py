"""Pods deleted by people: outdated ones under OnDelete, each evicted so that disruption budgets are honoured.

Under OnDelete a template reaches the pods that somebody deletes, in their order. So without force only that is done: a
pod that is outdated is evicted, under a strategy that does not do so by itself. Everything else is deleted only with
force, which asks no budget and needs a permission of its own.

A pod that was deleted and does not go, because nobody on its node is left to say that it has ended, is let go of by
force as well (`pods_delete_stuck`): it leaves the record of the cluster, whatever becomes of its containers.

Which pods there are is read from the mirror, and what is outdated is decided by the template that the cluster has now.
The invariants: a deletion carries the uid of the pod that was looked at, so a pod that has taken its name is safe; what
becomes of each pod is told by itself, and stays on record; and a command is bounded in pods and in time, what is left
being counted.
"""

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any, Final

from rollouts import mirror
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState
from rollouts.cluster import ClusterError, Conflict, NotFound, Obj, Throttled, Unauthorized, Unavailable
from rollouts.cluster.resources import PODS
from rollouts.controller.effective_strategy import compute_effective_strategy, list_overrides
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.observed import Observed, Pod
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.tree.layout import Layout, make_layout
from rollouts.engine.tree.layout import PodCliquePosition as Spot
from rollouts.mirror import ObjectChanges
from rollouts.services.audit import AuditedCommand, Caller, audited_command
from rollouts.services.edit import fetch_expected
from rollouts.services.workload_client import (
    WorkloadClient,
    invalid_command,
    open_writable_client,
    require_synced,
    version_of_object,
)

MAX_PODS: Final = 500
"""Deleted by one command; what is left takes another."""
MAX_SECONDS: Final = 20.0
"""After which a command sends no more deletions."""

# On record: so many of the pods that are left, for whoever goes on with them; so many of those that were meant; and of
# what is said of these so many letters together. All of it, with the longest names, fits into `audit.MAX_VALUE_BYTES`.
_MAX_REST: Final = 1000
_MAX_RECORDED: Final = 500
_MAX_MESSAGE_CHARACTERS: Final = 80_000
_THREADS: Final = 8


class DeletionResult(StrEnum):
    """What became of a pod."""

    EVICTED = "Evicted"
    DELETED = "Deleted"
    REFUSED = "Refused"  # by a disruption budget, or by the cluster
    NOT_OUTDATED = "NotOutdated"
    LEAVING = "Leaving"  # somebody has deleted it already
    GONE = "Gone"  # it is not there any more; another one may have its name
    NOT_THERE = "NotThere"  # the workload has no such pod
    UNKNOWN = "Unknown"  # sent, and no answer
    NOT_SENT = "NotSent"


_DECIDED_LOCALLY: Final = frozenset(
    {DeletionResult.NOT_OUTDATED, DeletionResult.LEAVING, DeletionResult.GONE, DeletionResult.NOT_THERE}
)


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod by name, and if it matters which one, by uid."""

    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods by where they are: those to which everything applies that is said."""

    replica: int | None = None  # of the set
    component: str = ""  # a clique or scaling group of the template, or the full name of a PodClique
    node: str = ""

    def matches(self, pod: Pod, position: Spot) -> bool:
        """Say whether a pod is meant."""
        return (
            self.replica in (None, position.replica)
            and self.component in ("", position.clique, position.group, pod.clique)
            and self.node in ("", pod.node)
        )


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """What became of one pod."""

    name: str
    uid: str
    outcome: DeletionResult
    message: str
    # Where it was, so that whoever takes its place can be found; empty for one that the workload does not have.
    clique: str = ""
    index: int = -1


@dataclass(frozen=True, slots=True)
class PodsDeleted:
    """What became of the pods that were to be deleted."""

    place: WorkloadRef
    version: str  # of the workload
    outcomes: tuple[PodOutcome, ...]
    left: int  # that were meant as well, and are more than one command deletes
    is_dry_run: bool
    record: int | None = None  # the entry of the audit that has the outcomes; None for a dry run


def pods_delete(
    caller: Caller,
    place: WorkloadRef,
    chosen: Sequence[PodRef] | Selection,
    *,
    force: bool = False,
    expected: str | None = None,
    dry_run: bool = False,
) -> PodsDeleted:
    """Delete pods, by name or by where they are."""
    command = Command.DELETE_ANY_PODS if force else Command.DELETE_OUTDATED_PODS
    with audited_command(caller, command, place, dry_run=dry_run) as audited:
        client = open_writable_client(place)
        live = fetch_expected(client, expected)
        shape = _read_shape(client, live, force=force)
        choice = _choose_targets(shape, read_observed(client, live).pods, chosen, force=force)
        mode = DeletionMode.DELETE if force else DeletionMode.EVICT
        return _delete_targets(client, audited, version_of_object(live), choice, mode, dry_run=dry_run)


def pods_delete_stuck(
    caller: Caller,
    place: WorkloadRef,
    chosen: Sequence[PodRef],
    *,
    expected: str | None = None,
    dry_run: bool = False,
) -> PodsDeleted:
    """Have pods gone at once that were deleted and do not go; those that nobody deleted stay."""
    with audited_command(caller, Command.DELETE_ANY_PODS, place, dry_run=dry_run) as audited:
        client = open_writable_client(place)
        live = fetch_expected(client, expected)
        choice = _choose_terminating(_read_shape(client, live, force=True), read_observed(client, live).pods, chosen)
        return _delete_targets(
            client, audited, version_of_object(live), choice, DeletionMode.FORCE_DELETE, dry_run=dry_run
        )


def _delete_targets(
    client: WorkloadClient,
    audited: AuditedCommand,
    version: str,
    choice: "_Targets",
    mode: "DeletionMode",
    *,
    dry_run: bool,
) -> PodsDeleted:
    pods, rest = choice.pods[:MAX_PODS], choice.pods[MAX_PODS:]
    outcomes = choice.outcomes
    if pods:
        audited.begin(after=render_audit_begin(pods))
        sender = PodDeleter(client, mode, dry_run=dry_run)
        outcomes = [*choice.outcomes, *sender.delete_all(pods)]
        if not dry_run:
            client.write_through([ObjectChanges(PODS, sender.found, sender.gone)])
    if outcomes and not dry_run:
        audited.done(after=render_audit_outcomes(outcomes, rest), detail=summarize_outcomes(outcomes))
    return PodsDeleted(client.place, version, tuple(outcomes), len(rest), dry_run, audited.entry_id)


def render_audit_begin(pods: Iterable[Pod]) -> dict[str, Any]:
    """Return what is on record before pods are deleted: if nothing follows, nobody knows what became of them."""
    sentence = "Whether it was deleted is not known: the command was cut off."
    return render_audit_outcomes([_outcome(pod, DeletionResult.UNKNOWN, sentence) for pod in pods])


def render_audit_outcomes(outcomes: Collection[PodOutcome], rest: Sequence[Pod] = ()) -> dict[str, Any]:
    """Return what became of pods as the audit keeps it, and which are left; `selectors.pod_deletions` reads it."""
    # Where not all can be told, it is those that the cluster was not asked about, so they come last.
    kept = sorted(outcomes, key=lambda one: one.outcome in _DECIDED_LOCALLY)[:_MAX_RECORDED]
    letters = _MAX_MESSAGE_CHARACTERS // max(1, len(kept))
    told = {
        "pods": [{**asdict(one), "message": one.message[:letters]} for one in kept],
        "untold": len(outcomes) - len(kept),
        "left": len(rest),
    }
    return {**told, "rest": [pod.uid for pod in rest[:_MAX_REST]]} if rest else told


def summarize_outcomes(outcomes: Iterable[PodOutcome]) -> str:
    """Return how many pods had each fate, in words."""
    told = Counter(str(one.outcome) for one in outcomes)
    return ", ".join(f"{number} {word}" for word, number in sorted(told.items()))


# ---- which pods


def read_workload(client: WorkloadClient, live: Obj) -> Workload:
    """Return a workload with the strategy in force; raises what cannot be read."""
    overrides = list_overrides(client.place.cluster)
    effective = compute_effective_strategy(live, overrides, time.time(), cluster=client.place.cluster)
    workload = parse_workload(effective.manifest)
    if isinstance(workload, ParseFailure):
        raise invalid_command(workload.findings)
    return workload


def read_observed(client: WorkloadClient, live: Obj) -> Observed:
    """Return what there is of a workload as the mirror has it; raises where that does not know all of it."""
    require_synced(client)
    seen = mirror.fetch_workload(client.cluster_row, client.place.namespace, client.place.name)
    return seen.observed if seen is not None and seen.uid == live["metadata"]["uid"] else Observed()


def _read_shape(client: WorkloadClient, live: Obj, *, force: bool) -> Layout:
    """Return the workload with its current hashes; raises where nobody but the strategy deletes outdated pods."""
    workload = read_workload(client, live)
    if not force and (sentence := find_obstacle(workload)):
        raise InvalidState(sentence)
    return make_layout(workload)


def find_obstacle(workload: Workload) -> str:
    """Return why nobody but the strategy deletes outdated pods, except by force; empty: people do."""
    if workload.strategy is Strategy.ON_DELETE:
        return ""
    return f"{workload.strategy} replaces outdated pods by itself; change the strategy to OnDelete, or use force."


@dataclass(slots=True)
class _Targets:
    """Pods to delete, and what is known of the others without asking."""

    pods: list[Pod] = field(default_factory=list)
    outcomes: list[PodOutcome] = field(default_factory=list)


def _choose_targets(
    shape: Layout, pods: Iterable[Pod], chosen: Sequence[PodRef] | Selection, *, force: bool
) -> _Targets:
    if isinstance(chosen, Selection):
        _require_known_component(shape, chosen)
        return _Targets(choose_candidates(shape, pods, chosen, force=force))
    placed = _locate_pods(shape, pods)
    choice = _Targets()
    for one in {one.name: one for one in chosen}.values():
        pod, position = placed.get(one.name, (None, None))
        if pod is None or position is None:
            choice.outcomes.append(_outcome(one, DeletionResult.NOT_THERE, "The workload has no pod of that name."))
        elif one.uid not in ("", pod.uid):
            choice.outcomes.append(_outcome(one, DeletionResult.GONE, "That pod is gone; another one has its name."))
        elif pod.leaving:
            choice.outcomes.append(_outcome(pod, DeletionResult.LEAVING, "It has been deleted and is on its way out."))
        elif not force and not _is_outdated(shape, pod, position):
            sentence = "It is of the current template; only with force it is deleted all the same."
            choice.outcomes.append(_outcome(pod, DeletionResult.NOT_OUTDATED, sentence))
        else:
            choice.pods.append(pod)
    return choice


def choose_candidates(shape: Layout, pods: Iterable[Pod], selection: Selection, *, force: bool) -> list[Pod]:
    """Return the pods that a command would delete, by their places."""
    placed = _locate_pods(shape, pods)
    found = [pod for pod, position in placed.values() if selection.matches(pod, position) and not pod.leaving]
    ordered = sorted(found, key=lambda pod: (placed[pod.name][1].replica, pod.clique, pod.index))
    return [pod for pod in ordered if force or _is_outdated(shape, pod, placed[pod.name][1])]


def _locate_pods(shape: Layout, pods: Iterable[Pod]) -> dict[str, tuple[Pod, Spot]]:
    return {pod.name: (pod, position) for pod in pods if (position := shape.find_position(pod.clique)) is not None}


def _choose_terminating(shape: Layout, pods: Iterable[Pod], chosen: Sequence[PodRef]) -> _Targets:
    placed = _locate_pods(shape, pods)
    choice = _Targets()
    for one in {one.name: one for one in chosen}.values():
        pod, _ = placed.get(one.name, (None, None))
        if pod is None or one.uid not in ("", pod.uid):
            choice.outcomes.append(_outcome(one, DeletionResult.GONE, "It was gone already."))
        elif not pod.leaving:
            choice.outcomes.append(
                _outcome(pod, DeletionResult.REFUSED, "Nobody has deleted it, so it is not on its way out.")
            )
        else:
            choice.pods.append(pod)
    return choice


def _is_outdated(shape: Layout, pod: Pod, position: Spot) -> bool:
    return pod.template_hash != shape.hashes[position.clique]


def _require_known_component(shape: Layout, selection: Selection) -> None:
    name = selection.component
    if name and name not in shape.cliques and name not in shape.groups and shape.find_position(name) is None:
        sentence = "the set has no clique and no scaling group of that name; correct the name"
        raise invalid_command([Finding("selection.clique", FindingCode.UNKNOWN_COMPONENT, sentence)])


def _outcome(pod: PodRef | Pod, fate: DeletionResult, message: str) -> PodOutcome:
    if isinstance(pod, PodRef):
        return PodOutcome(pod.name, pod.uid, fate, message)
    return PodOutcome(pod.name, pod.uid, fate, message, pod.clique, pod.index)


# ---- what becomes of them


class DeletionMode(Enum):
    """How pods are deleted."""

    EVICT = auto()  # disruption budgets are asked
    DELETE = auto()  # nobody is asked; the pod may end by itself first
    FORCE_DELETE = auto()  # nor is it waited for whoever runs it


ABORTING_RESULTS: Final = frozenset({DeletionResult.UNKNOWN, DeletionResult.NOT_SENT})
"""After which nothing more is sent: what was asked before should be looked at first."""
NOT_TRIED_MESSAGE: Final = "It was not tried: the cluster answers no more, or too slowly."


def explain_error(error: ClusterError) -> tuple[DeletionResult, str]:
    """Return what a failed deletion means for what was to be deleted, and the sentence that says so."""
    if isinstance(error, Throttled):
        budgets = [cause.message for cause in error.causes if cause.reason == "DisruptionBudget"]
        if budgets:
            return DeletionResult.REFUSED, f"A disruption budget is in the way: {'; '.join(budgets)}"
        return DeletionResult.NOT_SENT, f"The cluster asks to be left alone for a while: {error}"
    if isinstance(error, Unavailable | Unauthorized):
        return DeletionResult.UNKNOWN, f"{error}. Whether it was deleted is not known: look before you repeat it."
    return DeletionResult.REFUSED, str(error)


class PodDeleter:
    """Deletes pods, some at once, and gathers what is learnt of them."""

    def __init__(self, client: WorkloadClient, mode: DeletionMode, *, dry_run: bool) -> None:
        """Be ready to delete pods of a place."""
        self.found: list[Obj] = []  # pods as they are by now
        self.gone: list[Obj] = []
        self._site = client
        self._manner = mode
        self._dry_run = dry_run
        self._stopped = threading.Event()
        self._deadline = time.monotonic() + MAX_SECONDS

    def delete_all(self, pods: Sequence[Pod]) -> Iterator[PodOutcome]:
        """Delete pods, and say of each what became of it."""
        with ThreadPoolExecutor(min(_THREADS, len(pods)), thread_name_prefix="pods") as senders:
            yield from senders.map(self._attempt, pods)

    def _attempt(self, pod: Pod) -> PodOutcome:
        if self._stopped.is_set() or time.monotonic() > self._deadline:
            return _outcome(pod, DeletionResult.NOT_SENT, NOT_TRIED_MESSAGE)
        try:
            return _outcome(pod, self._delete(pod), "")
        except (NotFound, Conflict):
            return self._explain_missing(pod)
        except ClusterError as error:
            fate, sentence = explain_error(error)
            if fate in ABORTING_RESULTS:
                self._stopped.set()
            return _outcome(pod, fate, sentence)

    def _explain_missing(self, pod: Pod) -> PodOutcome:
        """Say what became of a pod that was not there as it was looked at."""
        found = self._refetch(pod)
        if found is not None and found["metadata"]["uid"] == pod.uid:
            return _outcome(pod, DeletionResult.REFUSED, "Somebody else changed it at the same moment; try again.")
        return _outcome(
            pod, DeletionResult.GONE, f"It was gone already{'; another one has its name' if found else ''}."
        )

    def _delete(self, pod: Pod) -> DeletionResult:
        cluster, namespace = self._site.cluster, self._site.place.namespace
        if self._manner is DeletionMode.EVICT:
            cluster.evict(pod.name, namespace=namespace, uid=pod.uid, dry_run=self._dry_run)
        else:
            grace = 0 if self._manner is DeletionMode.FORCE_DELETE else None
            cluster.delete(PODS, pod.name, namespace=namespace, uid=pod.uid, grace_seconds=grace, dry_run=self._dry_run)
        if not self._dry_run:
            self._refetch(pod)
        return DeletionResult.EVICTED if self._manner is DeletionMode.EVICT else DeletionResult.DELETED

    def _refetch(self, pod: Pod) -> Obj | None:
        """Learn how a pod stands, for the mirror; the watcher brings it if this does not."""
        try:
            found = self._site.cluster.get(PODS, pod.name, namespace=self._site.place.namespace, retry=False)
        except NotFound:
            self.gone.append(self._reference(pod))
            return None
        except ClusterError:
            return None
        self.found.append(found)
        return found

    def _reference(self, pod: Pod) -> Obj:
        return {"metadata": {"namespace": self._site.place.namespace, "name": pod.name, "uid": pod.uid}}
