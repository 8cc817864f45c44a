"""What a change would do, step by step, before anybody makes it: the controller's own plan run to its end.

Before it: a workload as the mirror has it, and a change that somebody considers; what may not be changed so is refused
as the command itself would be. After it: `engine.simulation.simulate`, in the cluster as `forecast` reads it from the mirror, but
for what the caller supposes otherwise; `simulation_report` tells what came of it. Nothing is written anywhere: a manifest to be
applied is shown to the cluster as a dry run.

A change of the strategy starts no update by itself. It is judged by the next one then: a rehearsal, under the strategy
as it would be and, to compare, as it is (`Proposal.rehearse`). Where an update is at work already, it is told what
becomes of that one, and what would become of it without the change.

The invariants: the strategy is the one in force, overrides and all, before and after; and an answer is bounded in time,
with what it has not come to told as such.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rollouts import mirror
from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import Contradiction, NotThere
from rollouts.cluster import Obj
from rollouts.controller.effective_strategy import Override, compute_effective, list_overrides
from rollouts.controller.pod_counts import count_desired
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.parsing import Unreadable, parse_workload
from rollouts.engine.model.actions import Delete
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Workload
from rollouts.engine.simulation import simulate as engine
from rollouts.manifests.masking import Reader
from rollouts.mirror import Seen
from rollouts.selectors.forecast import Belief, make_forecast, read_cluster
from rollouts.services.apply import preview_apply
from rollouts.services.audit import Caller, deed, reader_for
from rollouts.services.edit import Edit, make_edit, require_expected
from rollouts.services.simulation_report import Considered, Run, Simulated, tell, tell_former
from rollouts.services.workload_client import Site, find_site, refuse, require_listed

SECONDS: Final = 2.0
"""For the simulation itself; what it has not come to by then is left out."""
MOST_PODS: Final = 10_000
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
    # What is deleted by hand, of that which is observed.
    delete: Callable[[Workload, Observed], tuple[Delete, ...]] | None = None
    # A rollout to judge the change by if it starts none: an edit on top of it, and of what is there now.
    rehearse: Edit | None = None


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

    def consider(self, place: Place, reader: Reader) -> Considered:
        """Return the change itself, for who considers it."""
        return Considered(place, self.before, self.after, self.observed, self.is_new, self.warnings, reader)


class _Stage:
    """A workload as it is now, for changes to be run on."""

    def __init__(
        self,
        caller: Caller,
        case: _Case,
        site: Site,
        proposal: Proposal,
        belief: Belief,
    ) -> None:
        """Put the strategy in force in, before and after."""
        self._caller, self._place = caller, site.place
        self._case, self._belief = case, belief
        self.before, self.after = self._read(case.before), self._read(case.after)
        self.observed = case.observed if proposal.observe is None else proposal.observe(self.after, case.observed)
        self._surroundings = read_cluster(site.row, site.place.namespace, self.before, case.observed, case.now)
        self._first = () if proposal.delete is None else proposal.delete(self.after, self.observed)

    def edit(self, manifest: Obj, edit: Edit) -> Workload:
        """Return the workload that another edit makes of a manifest."""
        edited, _ = make_edit(self._caller, self._place, manifest, edit)
        return self._read(edited)

    def run(self, after: Workload) -> Run:
        """Run a change to its end, for as long as anybody waits for it."""
        forecast = make_forecast(self.before, after, self.observed, self._surroundings, self._belief)
        deadline = time.monotonic() + SECONDS
        outcome = engine.simulate(
            self.before,
            self.observed,
            after,
            forecast.behaviour,
            self._case.now,
            first=self._first,
            requests=self._surroundings.requests,
            is_enough=lambda: time.monotonic() > deadline,
        )
        return Run(self.before, after, self.observed, outcome, forecast)

    def _read(self, manifest: Obj) -> Workload:
        effective = compute_effective(manifest, self._case.overrides, self._case.now, cluster=self._place.cluster)
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
        site = find_site(place)
        case = _make_case(caller, site, proposal, expected)
        stage = _Stage(caller, case, site, proposal, belief)
        _require_bearable(stage.after, stage.observed)
        with _turn():
            return _follow(stage, case.consider(place, reader_for(caller, place)), proposal)


def _follow(stage: _Stage, change: Considered, proposal: Proposal) -> Simulated:
    """Run a change to its end; where a rollout is named to judge it by, with it and without it."""
    run = stage.run(stage.after)
    if proposal.rehearse is None:
        return tell(change, run)
    if not run.is_idle:
        return replace(tell(change, run), former=tell_former(stage.run(stage.before)))
    with_it, without_it = (stage.run(stage.edit(one, proposal.rehearse)) for one in (change.after, change.before))
    told = tell(change, with_it)
    return replace(told, is_rehearsal=True, starts_update=False, former=tell_former(without_it))


# ---- what is simulated


def _make_case(caller: Caller, site: Site, proposal: Proposal, expected: str | None) -> _Case:
    overrides = tuple(list_overrides(site.place.cluster))
    seen = _look(site)
    if seen is not None:
        require_expected(site, seen.manifest, expected)
    if proposal.edit is not None:
        if seen is None:
            raise NotThere(f"There is no workload {site.place.name} in the namespace {site.place.namespace}.")
        wanted, warnings = make_edit(caller, site.place, seen.manifest, proposal.edit)
        return _Case(seen.manifest, wanted, seen.observed, warnings, overrides)
    live, wanted, report = preview_apply(caller, site, proposal.manifest)
    if live is None or seen is None or live["metadata"]["uid"] != seen.uid:
        return _Case(wanted, wanted, Observed(), report.warnings, overrides, is_new=True)
    return _Case(live, wanted, seen.observed, report.warnings, overrides)


def _look(site: Site) -> Seen | None:
    require_listed(site)
    return mirror.read(site.row, site.place.namespace, site.place.name)


def _require_bearable(workload: Workload, observed: Observed) -> None:
    """Raise where there would be too many pods: as the template says, as live components are scaled to, or now.

    It is arithmetic alone, however large the numbers are: a simulation of them would be at work for long, and take much
    memory, before it is first asked whether it is enough.
    """
    pods = max(count_desired(workload, Observed()), count_desired(workload, observed), len(observed.pods))
    if pods > MOST_PODS:
        raise Contradiction(f"This is about {pods:,} pods, and changes of at most {MOST_PODS:,} pods are simulated.")


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """Have a share of the processor for one simulation."""
    if not _turns.acquire(timeout=_SECONDS_TO_WAIT):
        raise Contradiction("Others are simulating changes right now; ask again in a moment.")
    try:
        yield
    finally:
        _turns.release()
