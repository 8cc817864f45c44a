"""What a change would do, step by step, before anybody makes it: the controller's own plan run to its end.

Before it: a workload as the mirror has it, and a change that somebody considers; what may not be changed so is refused
as the command itself would be. After it: `engine.simulation.simulate`, in the cluster as `forecast` reads it from the
mirror, but for what the caller supposes otherwise; `simulation_report` tells what came of it. Nothing is written
anywhere: a manifest to be applied is shown to the cluster as a dry run.

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
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState, NotFound
from rollouts.cluster import Obj
from rollouts.controller.effective_strategy import Override, compute_effective_strategy, list_overrides
from rollouts.controller.pod_counts import count_desired
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.actions import Delete
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Workload
from rollouts.engine.simulation import simulate as engine
from rollouts.manifests.masking import Reader
from rollouts.mirror import MirroredWorkload
from rollouts.selectors.forecast import Assumptions, compute_forecast, fetch_surroundings
from rollouts.services.apply import preview_apply
from rollouts.services.audit import Caller, audited_command, reader_for
from rollouts.services.edit import EditFunction, evaluate_edit, require_expected
from rollouts.services.simulation_report import Simulated, SimulatedChange, SimulationRun, build_baseline, build_report
from rollouts.services.workload_client import WorkloadClient, invalid_command, open_client, require_synced

MAX_SECONDS: Final = 2.0
"""For the simulation itself; what it has not come to by then is left out."""
MAX_PODS: Final = 10_000
_MAX_CONCURRENT: Final = 2
_SLOT_WAIT_SECONDS: Final = 5.0
# The steps of a simulation keep a processor busy: requests of other people must get their share.
_slots: Final = threading.BoundedSemaphore(_MAX_CONCURRENT)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that somebody considers, and the command that would make it."""

    command: Command
    edit: EditFunction | None = None  # None: a manifest is applied
    manifest: Any = None
    # What is changed about live objects instead of the set.
    change_observed: Callable[[Workload, Observed], Observed] | None = None
    # What is deleted by hand, of that which is observed.
    plan_deletions: Callable[[Workload, Observed], tuple[Delete, ...]] | None = None
    # A rollout to judge the change by if it starts none: an edit on top of it, and of what is there now.
    rehearsal: EditFunction | None = None


@dataclass(frozen=True, slots=True)
class _SimulationInput:
    """What is simulated."""

    before: Obj
    after: Obj
    observed: Observed
    warnings: tuple[Finding, ...] = ()
    overrides: tuple[Override, ...] = ()
    is_new: bool = False  # there is nothing of it yet
    now: float = field(default_factory=time.time)

    def to_simulated_change(self, place: WorkloadRef, reader: Reader) -> SimulatedChange:
        """Return the change itself, for who considers it."""
        return SimulatedChange(place, self.before, self.after, self.observed, self.is_new, self.warnings, reader)


class _Simulator:
    """A workload as it is now, for changes to be run on."""

    def __init__(
        self,
        caller: Caller,
        case: _SimulationInput,
        client: WorkloadClient,
        proposal: Proposal,
        assumptions: Assumptions,
    ) -> None:
        """Put the strategy in force in, before and after."""
        self._caller, self._place = caller, client.place
        self._case, self._belief = case, assumptions
        self.before, self.after = self._read(case.before), self._read(case.after)
        self.observed = (
            case.observed if proposal.change_observed is None else proposal.change_observed(self.after, case.observed)
        )
        self._surroundings = fetch_surroundings(
            client.cluster_row, client.place.namespace, self.before, case.observed, case.now
        )
        self._first = () if proposal.plan_deletions is None else proposal.plan_deletions(self.after, self.observed)

    def edit(self, manifest: Obj, edit: EditFunction) -> Workload:
        """Return the workload that another edit makes of a manifest."""
        edited, _ = evaluate_edit(self._caller, self._place, manifest, edit)
        return self._read(edited)

    def run(self, after: Workload) -> SimulationRun:
        """Run a change to its end, for as long as anybody waits for it."""
        forecast = compute_forecast(self.before, after, self.observed, self._surroundings, self._belief)
        deadline = time.monotonic() + MAX_SECONDS
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
        return SimulationRun(self.before, after, self.observed, outcome, forecast)

    def _read(self, manifest: Obj) -> Workload:
        effective = compute_effective_strategy(
            manifest, self._case.overrides, self._case.now, cluster=self._place.cluster
        )
        workload = parse_workload(effective.manifest)
        if isinstance(workload, ParseFailure):
            raise invalid_command(workload.findings)
        return workload


def workload_simulate(
    caller: Caller,
    place: WorkloadRef,
    proposal: Proposal,
    assumptions: Assumptions = Assumptions(),  # noqa: B008 (frozen)
    *,
    expected: str | None = None,
) -> Simulated:
    """Say what a change would do; whoever asks must be allowed to make it."""
    with audited_command(caller, proposal.command, place, dry_run=True):
        client = open_client(place)
        case = _build_input(caller, client, proposal, expected)
        simulator = _Simulator(caller, case, client, proposal, assumptions)
        _require_pod_limit(simulator.after, simulator.observed)
        with _simulation_slot():
            return _run_proposal(simulator, case.to_simulated_change(place, reader_for(caller, place)), proposal)


def _run_proposal(simulator: _Simulator, change: SimulatedChange, proposal: Proposal) -> Simulated:
    """Run a change to its end; where a rollout is named to judge it by, with it and without it."""
    run = simulator.run(simulator.after)
    if proposal.rehearsal is None:
        return build_report(change, run)
    if not run.changes_nothing:
        return replace(build_report(change, run), former=build_baseline(simulator.run(simulator.before)))
    with_it, without_it = (
        simulator.run(simulator.edit(one, proposal.rehearsal)) for one in (change.after, change.before)
    )
    result = build_report(change, with_it)
    return replace(result, is_rehearsal=True, starts_update=False, former=build_baseline(without_it))


# ---- what is simulated


def _build_input(caller: Caller, client: WorkloadClient, proposal: Proposal, expected: str | None) -> _SimulationInput:
    overrides = tuple(list_overrides(client.place.cluster))
    seen = _read_mirrored(client)
    if seen is not None:
        require_expected(client, seen.manifest, expected)
    if proposal.edit is not None:
        if seen is None:
            raise NotFound(f"There is no workload {client.place.name} in the namespace {client.place.namespace}.")
        wanted, warnings = evaluate_edit(caller, client.place, seen.manifest, proposal.edit)
        return _SimulationInput(seen.manifest, wanted, seen.observed, warnings, overrides)
    live, wanted, report = preview_apply(caller, client, proposal.manifest)
    if live is None or seen is None or live["metadata"]["uid"] != seen.uid:
        return _SimulationInput(wanted, wanted, Observed(), report.warnings, overrides, is_new=True)
    return _SimulationInput(live, wanted, seen.observed, report.warnings, overrides)


def _read_mirrored(client: WorkloadClient) -> MirroredWorkload | None:
    require_synced(client)
    return mirror.fetch_workload(client.cluster_row, client.place.namespace, client.place.name)


def _require_pod_limit(workload: Workload, observed: Observed) -> None:
    """Raise where there would be too many pods: as the template says, as live components are scaled to, or now.

    It is arithmetic alone, however large the numbers are: a simulation of them would be at work for long, and take much
    memory, before it is first asked whether it is enough.
    """
    pods = max(count_desired(workload, Observed()), count_desired(workload, observed), len(observed.pods))
    if pods > MAX_PODS:
        raise InvalidState(f"This is about {pods:,} pods, and changes of at most {MAX_PODS:,} pods are simulated.")


@contextlib.contextmanager
def _simulation_slot() -> Iterator[None]:
    """Have a share of the processor for one simulation."""
    if not _slots.acquire(timeout=_SLOT_WAIT_SECONDS):
        raise InvalidState("Others are simulating changes right now; ask again in a moment.")
    try:
        yield
    finally:
        _slots.release()
