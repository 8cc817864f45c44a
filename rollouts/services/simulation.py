"""What a change would do, step by step, before anybody makes it: the controller's own plan run to its end.

Before it: a workload as the mirror has it, and a change that somebody considers; what may not be changed so is refused
as the command itself would be. After it: `engine.simulate`, in a simulated cluster that behaves as the caller believes
theirs does. Nothing is written anywhere: a manifest to be applied is shown to the cluster as a dry run.

The invariants: the strategy is the one in force, overrides and all, before and after; and an answer is bounded in time
and size, with what was left out told as such.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rollouts import mirror
from rollouts.audit import Caller, deed
from rollouts.cluster import Obj
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS
from rollouts.commands import Command, Place
from rollouts.effective import Override, compute_effective, list_overrides
from rollouts.engine import simulate as engine
from rollouts.engine.actions import Create, Delete, Kind, Moment, Patch, Wait
from rollouts.engine.findings import Finding
from rollouts.engine.observed import Observed
from rollouts.engine.placing import Node
from rollouts.engine.shape import make_shape
from rollouts.engine.simulate import End, Outcome, Tally
from rollouts.engine.spec import Unreadable, parse_workload
from rollouts.engine.validation import validate_create
from rollouts.engine.workload import Workload
from rollouts.engine.world import Behaviour
from rollouts.mirror import Seen
from rollouts.refusals import ClusterAway, Contradiction, NotThere
from rollouts.services.applying import preview_apply
from rollouts.services.changing import Change, Edit, describe, make_edit, require_expected
from rollouts.services.scaling import describe_scaled
from rollouts.services.sites import Site, open_site, refuse, version_in

SECONDS: Final = 2.0
"""For the simulation itself; what it has not come to by then is left out."""
MOST_PODS: Final = 10_000
MOST_STEPS: Final = 200
"""Steps that are told: the first ones and the last ones."""
MOST_ENTRIES: Final = 20
"""Of one kind within a step: counts of components, moments."""
MOST_COMPONENTS: Final = 200

_STEPS_AT_THE_END: Final = 50
_AT_ONCE: Final = 2
_SECONDS_TO_WAIT: Final = 5.0
# The steps of a simulation keep a processor busy: requests of other people must get their share.
_turns: Final = threading.BoundedSemaphore(_AT_ONCE)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that somebody considers, and the command that would make it."""

    command: Command
    edit: Edit | None = None  # None: a manifest is applied
    manifest: Any = None
    # What is changed about live objects instead of the set.
    observe: Callable[[Workload, Observed], Observed] | None = None


@dataclass(frozen=True, slots=True)
class Belief:
    """How the caller believes the cluster behaves."""

    seconds_to_ready: float = 30.0
    seconds_to_go: float = 5.0
    never_ready: tuple[str, ...] = ()  # cliques whose pods of the changed template never become Ready
    is_full: bool = False  # there is room for the pods that run now, and no more


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A moment at which something changed."""

    at: float  # seconds since the change
    writes: Mapping[str, int]  # how many of each sort: "Create Pod"
    moments: tuple[Moment, ...]
    counts: tuple[Tally, ...]  # of the components whose counts changed
    left_out: int  # moments and counts beyond those that are told


@dataclass(frozen=True, slots=True)
class Lowest:
    """How far a component's availability went down, and its surge up."""

    component: str
    kind: Kind
    wanted: int
    available: int  # before the change
    lowest: int
    most_surge: int


@dataclass(frozen=True, slots=True)
class Simulated:
    """A change, seen to its end."""

    cluster: str
    namespace: str
    name: str
    version: str  # of the workload that it was simulated on; empty for one that is not there yet
    changed: tuple[Change, ...]
    warnings: tuple[Finding, ...]
    starts_update: bool  # the template of some pods is another one
    end: End
    seconds: float  # of the cluster's time
    waits: tuple[Wait, ...]
    components: tuple[Lowest, ...]
    components_left_out: int
    pods_created: int
    pods_deleted: int
    replaced: Mapping[str, int]  # how many of the pods that were there before go, by clique of the template
    steps: tuple[SimulatedStep, ...]
    steps_left_out: int  # in the middle


@dataclass(frozen=True, slots=True)
class _Case:
    """What is simulated."""

    before: Obj
    after: Obj
    observed: Observed
    warnings: tuple[Finding, ...] = ()
    overrides: tuple[Override, ...] = ()
    is_new: bool = False  # there is nothing of it yet
    now: float = field(default_factory=time.time)

    def workload(self, manifest: Obj, cluster: str) -> Workload:
        """Return a workload with the strategy in force."""
        effective = compute_effective(manifest, self.overrides, self.now, cluster=cluster)
        workload = parse_workload(effective.manifest)
        if isinstance(workload, Unreadable):
            raise refuse(workload.findings)
        return workload


def workload_simulate(
    caller: Caller,
    place: Place,
    proposal: Proposal,
    belief: Belief = Belief(),  # noqa: B008 (frozen)
    *,
    expected: str | None = None,
) -> Simulated:
    """Say what a change would do; whoever asks must be allowed to make it."""
    with deed(caller, proposal.command, place, dry_run=True):
        site = open_site(place)
        case = _make_case(site, proposal, expected)
        before = case.workload(case.before, place.cluster)
        after = case.workload(case.after, place.cluster)
        observed = case.observed if proposal.observe is None else proposal.observe(after, case.observed)
        _require_bearable(after, observed)
        behaviour = _behave(belief, before, after, observed)
        with _turn():
            deadline = time.monotonic() + SECONDS
            outcome = engine.simulate(
                before, observed, after, behaviour, case.now, is_enough=lambda: time.monotonic() > deadline
            )
        starts_update = make_shape(before).generation_hash != make_shape(after).generation_hash
        told = _tell(site, case, outcome, starts_update=starts_update)
        return replace(told, changed=(*told.changed, *_describe_scaled(case.observed, observed)))


# ---- what is simulated


def _make_case(site: Site, proposal: Proposal, expected: str | None) -> _Case:
    overrides = tuple(list_overrides(site.place.cluster))
    seen = _look(site)
    if seen is not None:
        require_expected(site, seen.manifest, expected)
    if proposal.edit is not None:
        if seen is None:
            raise NotThere(f"There is no workload {site.place.name} in the namespace {site.place.namespace}.")
        wanted, warnings = make_edit(seen.manifest, proposal.edit)
        return _Case(seen.manifest, wanted, seen.observed, warnings, overrides)
    live, wanted = preview_apply(site, proposal.manifest)
    report = validate_create(wanted)
    if not report.is_accepted:
        raise refuse(report.errors)
    if live is None or seen is None or live["metadata"]["uid"] != seen.uid:
        return _Case(wanted, wanted, Observed(), report.warnings, overrides, is_new=True)
    return _Case(live, wanted, seen.observed, report.warnings, overrides)


def _look(site: Site) -> Seen | None:
    if not site.row.complete:
        raise ClusterAway(f"What runs in {site.row.name} is not known yet: the cluster is being listed.")
    return mirror.read(site.row, site.place.namespace, site.place.name)


def _require_bearable(workload: Workload, observed: Observed) -> None:
    sizes = {clique.name: clique.replicas for clique in workload.cliques}
    grouped = {name for group in workload.groups for name in group.clique_names}
    of_groups = sum(group.replicas * sum(sizes[name] for name in group.clique_names) for group in workload.groups)
    wanted = workload.replicas * (of_groups + sum(size for name, size in sizes.items() if name not in grouped))
    pods = max(wanted, len(observed.pods))
    if pods > MOST_PODS:
        raise Contradiction(f"This is about {pods} pods, and changes of at most {MOST_PODS} pods are simulated.")


def _behave(belief: Belief, before: Workload, after: Workload, observed: Observed) -> Behaviour:
    """Return the simulated cluster that the caller believes in."""
    former, hashes = make_shape(before).hashes, make_shape(after).hashes
    broken = {hashes[name] for name in belief.never_ready if name in hashes and hashes[name] != former.get(name)}
    behaviour = Behaviour(
        ready_seconds=belief.seconds_to_ready, gone_seconds=belief.seconds_to_go, never_ready=frozenset(broken)
    )
    if not belief.is_full:
        return behaviour
    there = Counter(pod.node for pod in observed.pods if pod.node)
    return replace(behaviour, nodes=tuple(Node(name, pods=number) for name, number in sorted(there.items())))


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """Have a share of the processor for one simulation."""
    if not _turns.acquire(timeout=_SECONDS_TO_WAIT):
        raise Contradiction("Others are simulating changes right now; ask again in a moment.")
    try:
        yield
    finally:
        _turns.release()


# ---- what is told of it


def _tell(site: Site, case: _Case, outcome: Outcome, *, starts_update: bool) -> Simulated:
    components = _summarise(outcome)
    first = outcome.steps[: MOST_STEPS - _STEPS_AT_THE_END]
    last = outcome.steps[len(first) :][-_STEPS_AT_THE_END:]
    return Simulated(
        cluster=site.place.cluster,
        namespace=site.place.namespace,
        name=site.place.name,
        version="" if case.is_new else version_in(case.before),
        changed=describe({"metadata": {}} if case.is_new else case.before, case.after),
        warnings=case.warnings,
        starts_update=starts_update,
        end=outcome.end,
        seconds=outcome.seconds,
        waits=outcome.waits[:MOST_ENTRIES],
        components=tuple(components[:MOST_COMPONENTS]),
        components_left_out=max(0, len(components) - MOST_COMPONENTS),
        pods_created=outcome.pods_created,
        pods_deleted=outcome.pods_deleted,
        replaced=_count_replaced(case.observed, outcome),
        steps=tuple(_tell_step(step) for step in (*first, *last)),
        steps_left_out=len(outcome.steps) - len(first) - len(last),
    )


def _describe_scaled(before: Observed, after: Observed) -> Iterator[Change]:
    """Return which live components are scaled, in the words of the command itself."""
    for clique, scaled in zip(before.cliques, after.cliques, strict=True):
        if clique.replicas != scaled.replicas:
            yield describe_scaled(PODCLIQUES, clique.name, clique.replicas, scaled.replicas)
    for group, grown in zip(before.groups, after.groups, strict=True):
        if group.replicas != grown.replicas:
            yield describe_scaled(PODCLIQUESCALINGGROUPS, group.name, group.replicas, grown.replicas)


def _tell_step(step: engine.Step) -> SimulatedStep:
    moments, counts = step.moments[:MOST_ENTRIES], step.tallies[:MOST_ENTRIES]
    left_out = len(step.moments) + len(step.tallies) - len(moments) - len(counts)
    return SimulatedStep(step.at, _count_writes(step.actions), moments, counts, left_out)


def _count_writes(actions: Iterable[object]) -> dict[str, int]:
    """Return how many writes of each sort there are; statuses and gates are no news to anybody."""
    told = (one for one in actions if isinstance(one, Create | Patch | Delete))
    return dict(Counter(f"{type(one).__name__} {one.kind}" for one in told))


def _count_replaced(observed: Observed, outcome: Outcome) -> dict[str, int]:
    """Return how many of the pods that were there before went, by clique; what owns a pod takes it along."""
    deleted = {one.uid for step in outcome.steps for one in step.actions if isinstance(one, Delete)}
    groups = {group.name: group.uid for group in observed.groups}
    owners = {one.name: (one.uid, groups.get(one.group, "")) for one in observed.cliques}
    templates = {one.name: one.template for one in observed.cliques}
    there = (pod for pod in observed.pods if not pod.leaving)
    gone = (pod for pod in there if not deleted.isdisjoint((pod.uid, *owners.get(pod.clique, ()))))
    return dict(Counter(templates.get(pod.clique, pod.clique) for pod in gone))


def _summarise(outcome: Outcome) -> list[Lowest]:
    """Return the components, those first whose availability goes furthest down."""
    found = [
        Lowest(
            component=name,
            kind=tally.kind,
            wanted=tally.wanted,
            available=tally.available,
            lowest=outcome.lowest.get(name, tally.available),
            most_surge=outcome.most_surge.get(name, 0),
        )
        for name, tally in outcome.start.items()
    ]
    return sorted(found, key=lambda one: (one.kind is not Kind.SET, one.lowest - one.available, one.component))
