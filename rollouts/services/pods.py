"""Pods deleted by people: outdated ones under OnDelete, each evicted so that disruption budgets are honoured.

Under OnDelete a template reaches the pods that somebody deletes, in their order. So without force only that is done: a
pod that is outdated is evicted, under a strategy that does not do so by itself. Everything else is deleted only with
force, which asks no budget and needs a permission of its own.

A pod that was deleted and does not go, because nobody on its node is left to say that it has ended, is let go of by
force as well (`pods_let_go`): it leaves the record of the cluster, whatever becomes of its containers.

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
from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import Contradiction
from rollouts.cluster import ClusterError, Conflict, NotFound, Obj, Throttled, Unauthorized, Unavailable
from rollouts.cluster.resources import PODS
from rollouts.controller.effective_strategy import compute_effective, list_overrides
from rollouts.engine.manifest.findings import Code, Finding
from rollouts.engine.manifest.parsing import Unreadable, parse_workload
from rollouts.engine.model.observed import Observed, Pod
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.tree.layout import Place as Spot
from rollouts.engine.tree.layout import Shape, make_shape
from rollouts.mirror import Changes
from rollouts.services.audit import Caller, Deed, deed
from rollouts.services.edit import fetch_expected
from rollouts.services.workload_client import Site, open_site, refuse, require_listed, version_in

MOST_PODS: Final = 500
"""Deleted by one command; what is left takes another."""
SECONDS: Final = 20.0
"""After which a command sends no more deletions."""

# On record: so many of the pods that are left, for whoever goes on with them; so many of those that were meant; and of
# what is said of these so many letters together. All of it, with the longest names, fits into `audit.MOST_BYTES`.
_MOST_REST: Final = 1000
_MOST_TOLD: Final = 500
_MOST_LETTERS: Final = 80_000
_SENDERS: Final = 8


class Fate(StrEnum):
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


_NOT_ASKED: Final = frozenset({Fate.NOT_OUTDATED, Fate.LEAVING, Fate.GONE, Fate.NOT_THERE})


@dataclass(frozen=True, slots=True)
class NamedPod:
    """A pod by name, and if it matters which one, by uid."""

    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods by where they are: those to which everything applies that is said."""

    replica: int | None = None  # of the set
    component: str = ""  # a clique or scaling group of the template, or the full name of a PodClique
    node: str = ""

    def takes(self, pod: Pod, spot: Spot) -> bool:
        """Say whether a pod is meant."""
        return (
            self.replica in (None, spot.replica)
            and self.component in ("", spot.clique, spot.group, pod.clique)
            and self.node in ("", pod.node)
        )


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """What became of one pod."""

    name: str
    uid: str
    outcome: Fate
    message: str
    # Where it was, so that whoever takes its place can be found; empty for one that the workload does not have.
    clique: str = ""
    index: int = -1


@dataclass(frozen=True, slots=True)
class PodsDeleted:
    """What became of the pods that were to be deleted."""

    place: Place
    version: str  # of the workload
    outcomes: tuple[PodOutcome, ...]
    left: int  # that were meant as well, and are more than one command deletes
    is_dry_run: bool
    record: int | None = None  # the entry of the audit that has the outcomes; None for a dry run


def pods_delete(
    caller: Caller,
    place: Place,
    chosen: Sequence[NamedPod] | Selection,
    *,
    force: bool = False,
    expected: str | None = None,
    dry_run: bool = False,
) -> PodsDeleted:
    """Delete pods, by name or by where they are."""
    command = Command.DELETE_ANY_PODS if force else Command.DELETE_OUTDATED_PODS
    with deed(caller, command, place, dry_run=dry_run) as it:
        site = open_site(place)
        live = fetch_expected(site, expected)
        shape = _read_shape(site, live, force=force)
        choice = _choose(shape, read_observed(site, live).pods, chosen, force=force)
        manner = Manner.REMOVE if force else Manner.EVICT
        return _carry_out(site, it, version_in(live), choice, manner, dry_run=dry_run)


def pods_let_go(
    caller: Caller,
    place: Place,
    chosen: Sequence[NamedPod],
    *,
    expected: str | None = None,
    dry_run: bool = False,
) -> PodsDeleted:
    """Have pods gone at once that were deleted and do not go; those that nobody deleted stay."""
    with deed(caller, Command.DELETE_ANY_PODS, place, dry_run=dry_run) as it:
        site = open_site(place)
        live = fetch_expected(site, expected)
        choice = _choose_leaving(_read_shape(site, live, force=True), read_observed(site, live).pods, chosen)
        return _carry_out(site, it, version_in(live), choice, Manner.LET_GO, dry_run=dry_run)


def _carry_out(
    site: Site, it: Deed, version: str, choice: "_Choice", manner: "Manner", *, dry_run: bool
) -> PodsDeleted:
    pods, rest = choice.pods[:MOST_PODS], choice.pods[MOST_PODS:]
    outcomes = choice.outcomes
    if pods:
        it.begin(after=open_record(pods))
        sender = Sender(site, manner, dry_run=dry_run)
        outcomes = [*choice.outcomes, *sender.send(pods)]
        if not dry_run:
            site.take_in([Changes(PODS, sender.found, sender.gone)])
    if outcomes and not dry_run:
        it.done(after=on_record(outcomes, rest), detail=count_fates(outcomes))
    return PodsDeleted(site.place, version, tuple(outcomes), len(rest), dry_run, it.entry)


def open_record(pods: Iterable[Pod]) -> dict[str, Any]:
    """Return what is on record before pods are deleted: if nothing follows, nobody knows what became of them."""
    sentence = "Whether it was deleted is not known: the command was cut off."
    return on_record([_outcome(pod, Fate.UNKNOWN, sentence) for pod in pods])


def on_record(outcomes: Collection[PodOutcome], rest: Sequence[Pod] = ()) -> dict[str, Any]:
    """Return what became of pods as the audit keeps it, and which are left; `selectors.pod_deletions` reads it."""
    # Where not all can be told, it is those that the cluster was not asked about, so they come last.
    kept = sorted(outcomes, key=lambda one: one.outcome in _NOT_ASKED)[:_MOST_TOLD]
    letters = _MOST_LETTERS // max(1, len(kept))
    told = {
        "pods": [{**asdict(one), "message": one.message[:letters]} for one in kept],
        "untold": len(outcomes) - len(kept),
        "left": len(rest),
    }
    return {**told, "rest": [pod.uid for pod in rest[:_MOST_REST]]} if rest else told


def count_fates(outcomes: Iterable[PodOutcome]) -> str:
    """Return how many pods had each fate, in words."""
    told = Counter(str(one.outcome) for one in outcomes)
    return ", ".join(f"{number} {word}" for word, number in sorted(told.items()))


# ---- which pods


def read_workload(site: Site, live: Obj) -> Workload:
    """Return a workload with the strategy in force; raises what cannot be read."""
    overrides = list_overrides(site.place.cluster)
    effective = compute_effective(live, overrides, time.time(), cluster=site.place.cluster)
    workload = parse_workload(effective.manifest)
    if isinstance(workload, Unreadable):
        raise refuse(workload.findings)
    return workload


def read_observed(site: Site, live: Obj) -> Observed:
    """Return what there is of a workload as the mirror has it; raises where that does not know all of it."""
    require_listed(site)
    seen = mirror.read(site.row, site.place.namespace, site.place.name)
    return seen.observed if seen is not None and seen.uid == live["metadata"]["uid"] else Observed()


def _read_shape(site: Site, live: Obj, *, force: bool) -> Shape:
    """Return the workload with its current hashes; raises where nobody but the strategy deletes outdated pods."""
    workload = read_workload(site, live)
    if not force and (sentence := find_obstacle(workload)):
        raise Contradiction(sentence)
    return make_shape(workload)


def find_obstacle(workload: Workload) -> str:
    """Return why nobody but the strategy deletes outdated pods, except by force; empty: people do."""
    if workload.strategy is Strategy.ON_DELETE:
        return ""
    return f"{workload.strategy} replaces outdated pods by itself; change the strategy to OnDelete, or use force."


@dataclass(slots=True)
class _Choice:
    """Pods to delete, and what is known of the others without asking."""

    pods: list[Pod] = field(default_factory=list)
    outcomes: list[PodOutcome] = field(default_factory=list)


def _choose(shape: Shape, pods: Iterable[Pod], chosen: Sequence[NamedPod] | Selection, *, force: bool) -> _Choice:
    if isinstance(chosen, Selection):
        _require_known(shape, chosen)
        return _Choice(list_candidates(shape, pods, chosen, force=force))
    placed = _place_all(shape, pods)
    choice = _Choice()
    for one in {one.name: one for one in chosen}.values():
        pod, spot = placed.get(one.name, (None, None))
        if pod is None or spot is None:
            choice.outcomes.append(_outcome(one, Fate.NOT_THERE, "The workload has no pod of that name."))
        elif one.uid not in ("", pod.uid):
            choice.outcomes.append(_outcome(one, Fate.GONE, "That pod is gone; another one has its name."))
        elif pod.leaving:
            choice.outcomes.append(_outcome(pod, Fate.LEAVING, "It has been deleted and is on its way out."))
        elif not force and not _is_outdated(shape, pod, spot):
            sentence = "It is of the current template; only with force it is deleted all the same."
            choice.outcomes.append(_outcome(pod, Fate.NOT_OUTDATED, sentence))
        else:
            choice.pods.append(pod)
    return choice


def list_candidates(shape: Shape, pods: Iterable[Pod], selection: Selection, *, force: bool) -> list[Pod]:
    """Return the pods that a command would delete, by their places."""
    placed = _place_all(shape, pods)
    found = [pod for pod, spot in placed.values() if selection.takes(pod, spot) and not pod.leaving]
    ordered = sorted(found, key=lambda pod: (placed[pod.name][1].replica, pod.clique, pod.index))
    return [pod for pod in ordered if force or _is_outdated(shape, pod, placed[pod.name][1])]


def _place_all(shape: Shape, pods: Iterable[Pod]) -> dict[str, tuple[Pod, Spot]]:
    return {pod.name: (pod, spot) for pod in pods if (spot := shape.place(pod.clique)) is not None}


def _choose_leaving(shape: Shape, pods: Iterable[Pod], chosen: Sequence[NamedPod]) -> _Choice:
    placed = _place_all(shape, pods)
    choice = _Choice()
    for one in {one.name: one for one in chosen}.values():
        pod, _ = placed.get(one.name, (None, None))
        if pod is None or one.uid not in ("", pod.uid):
            choice.outcomes.append(_outcome(one, Fate.GONE, "It was gone already."))
        elif not pod.leaving:
            choice.outcomes.append(_outcome(pod, Fate.REFUSED, "Nobody has deleted it, so it is not on its way out."))
        else:
            choice.pods.append(pod)
    return choice


def _is_outdated(shape: Shape, pod: Pod, spot: Spot) -> bool:
    return pod.template_hash != shape.hashes[spot.clique]


def _require_known(shape: Shape, selection: Selection) -> None:
    name = selection.component
    if name and name not in shape.cliques and name not in shape.groups and shape.place(name) is None:
        sentence = "the set has no clique and no scaling group of that name; correct the name"
        raise refuse([Finding("selection.clique", Code.UNKNOWN_COMPONENT, sentence)])


def _outcome(pod: NamedPod | Pod, fate: Fate, message: str) -> PodOutcome:
    if isinstance(pod, NamedPod):
        return PodOutcome(pod.name, pod.uid, fate, message)
    return PodOutcome(pod.name, pod.uid, fate, message, pod.clique, pod.index)


# ---- what becomes of them


class Manner(Enum):
    """How pods are deleted."""

    EVICT = auto()  # disruption budgets are asked
    REMOVE = auto()  # nobody is asked; the pod may end by itself first
    LET_GO = auto()  # nor is it waited for whoever runs it


STOPPING: Final = frozenset({Fate.UNKNOWN, Fate.NOT_SENT})
"""After which nothing more is sent: what was asked before should be looked at first."""
NOT_TRIED: Final = "It was not tried: the cluster answers no more, or too slowly."


def explain(error: ClusterError) -> tuple[Fate, str]:
    """Return what a failed deletion means for what was to be deleted, and the sentence that says so."""
    if isinstance(error, Throttled):
        budgets = [cause.message for cause in error.causes if cause.reason == "DisruptionBudget"]
        if budgets:
            return Fate.REFUSED, f"A disruption budget is in the way: {'; '.join(budgets)}"
        return Fate.NOT_SENT, f"The cluster asks to be left alone for a while: {error}"
    if isinstance(error, Unavailable | Unauthorized):
        return Fate.UNKNOWN, f"{error}. Whether it was deleted is not known: look before you repeat it."
    return Fate.REFUSED, str(error)


class Sender:
    """Deletes pods, some at once, and gathers what is learnt of them."""

    def __init__(self, site: Site, manner: Manner, *, dry_run: bool) -> None:
        """Be ready to delete pods of a place."""
        self.found: list[Obj] = []  # pods as they are by now
        self.gone: list[Obj] = []
        self._site = site
        self._manner = manner
        self._dry_run = dry_run
        self._stopped = threading.Event()
        self._deadline = time.monotonic() + SECONDS

    def send(self, pods: Sequence[Pod]) -> Iterator[PodOutcome]:
        """Delete pods, and say of each what became of it."""
        with ThreadPoolExecutor(min(_SENDERS, len(pods)), thread_name_prefix="pods") as senders:
            yield from senders.map(self._attempt, pods)

    def _attempt(self, pod: Pod) -> PodOutcome:
        if self._stopped.is_set() or time.monotonic() > self._deadline:
            return _outcome(pod, Fate.NOT_SENT, NOT_TRIED)
        try:
            return _outcome(pod, self._delete(pod), "")
        except (NotFound, Conflict):
            return self._missed(pod)
        except ClusterError as error:
            fate, sentence = explain(error)
            if fate in STOPPING:
                self._stopped.set()
            return _outcome(pod, fate, sentence)

    def _missed(self, pod: Pod) -> PodOutcome:
        """Say what became of a pod that was not there as it was looked at."""
        found = self._look(pod)
        if found is not None and found["metadata"]["uid"] == pod.uid:
            return _outcome(pod, Fate.REFUSED, "Somebody else changed it at the same moment; try again.")
        return _outcome(pod, Fate.GONE, f"It was gone already{'; another one has its name' if found else ''}.")

    def _delete(self, pod: Pod) -> Fate:
        cluster, namespace = self._site.cluster, self._site.place.namespace
        if self._manner is Manner.EVICT:
            cluster.evict(pod.name, namespace=namespace, uid=pod.uid, dry_run=self._dry_run)
        else:
            grace = 0 if self._manner is Manner.LET_GO else None
            cluster.delete(PODS, pod.name, namespace=namespace, uid=pod.uid, grace_seconds=grace, dry_run=self._dry_run)
        if not self._dry_run:
            self._look(pod)
        return Fate.EVICTED if self._manner is Manner.EVICT else Fate.DELETED

    def _look(self, pod: Pod) -> Obj | None:
        """Learn how a pod stands, for the mirror; the watcher brings it if this does not."""
        try:
            found = self._site.cluster.get(PODS, pod.name, namespace=self._site.place.namespace, repeat=False)
        except NotFound:
            self.gone.append(self._reference(pod))
            return None
        except ClusterError:
            return None
        self.found.append(found)
        return found

    def _reference(self, pod: Pod) -> Obj:
        return {"metadata": {"namespace": self._site.place.namespace, "name": pod.name, "uid": pod.uid}}
