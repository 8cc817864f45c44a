"""Shows what a change would do, step by step: it runs the controller's own plan to its end.

Before it: a workload from the mirror, and a change; a change that the command would refuse is refused here with the
same error. After it: `engine.simulation.simulate`, in the cluster that `selectors.forecast` reads from the mirror, with
the caller's assumptions; `simulation_report` builds the answer. Nothing is written: an apply is sent as a dry run.

A change of the strategy starts no update by itself. `Edit.rehearsal` then stands for the next update: it runs with the
new strategy and, to compare, with the present one. When an update is in progress, the report is about that update, with
the change and without it.

The invariants: the strategy before and after is the effective one, with all overrides; and a simulation has a time
limit, and reports when it has not come to its end.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from rollouts import mirror
from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import InvalidState, NotFound
from rollouts.cluster import Obj
from rollouts.controller.effective_strategy import compute_effective_strategy, list_overrides
from rollouts.controller.pod_counts import count_desired
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.override_precedence import Override
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Workload
from rollouts.engine.simulation import simulate as engine
from rollouts.manifests.masking import Reader
from rollouts.mirror import MirroredWorkload
from rollouts.selectors.forecast import Assumptions, compute_forecast, fetch_surroundings
from rollouts.services.apply import preview_apply
from rollouts.services.audit import Caller, audited_command, reader_for
from rollouts.services.changes import Apply, DeletePods, ForgetPods, Simulable
from rollouts.services.edit import Edit, EditFunction, evaluate_edit, require_expected
from rollouts.services.scaling import ScaleLive, scale_observed
from rollouts.services.simulation_report import Simulated, SimulatedChange, SimulationRun, build_baseline, build_report
from rollouts.services.workload_client import WorkloadClient, invalid_command, open_client, require_synced

MAX_SECONDS: Final = 2.0
"""The time limit of a simulation."""
MAX_PODS: Final = 10_000
_MAX_CONCURRENT: Final = 2
_SLOT_WAIT_SECONDS: Final = 5.0
# A simulation keeps a processor busy, and other requests need their share.
_slots: Final = threading.BoundedSemaphore(_MAX_CONCURRENT)


@dataclass(frozen=True, slots=True)
class _SimulationInput:
    """What is simulated."""

    before: Obj
    after: Obj
    observed: Observed
    warnings: tuple[Finding, ...] = ()
    overrides: tuple[Override, ...] = ()
    is_new: bool = False  # the workload does not exist yet
    now: float = field(default_factory=time.time)

    def to_simulated_change(self, place: WorkloadRef, reader: Reader) -> SimulatedChange:
        """Return the change for the report."""
        return SimulatedChange(place, self.before, self.after, self.observed, self.is_new, self.warnings, reader)


class _Simulator:
    """A workload and its cluster now, to run changes on."""

    def __init__(
        self,
        caller: Caller,
        case: _SimulationInput,
        client: WorkloadClient,
        change: Simulable,
        assumptions: Assumptions,
    ) -> None:
        """Compute the effective strategy before and after the change."""
        self._caller, self._place = caller, client.place
        self._case, self._assumptions = case, assumptions
        self.before, self.after = self._read(case.before), self._read(case.after)
        self.observed = _change_observed(change, self.after, case.observed)
        self._surroundings = fetch_surroundings(
            client.cluster_row, client.place.namespace, self.before, case.observed, case.now
        )
        self._first = change.deletions(self.after, self.observed) if isinstance(change, DeletePods) else ()

    def edit(self, manifest: Obj, edit: EditFunction) -> Workload:
        """Return the workload after another edit of a manifest."""
        edited, _ = evaluate_edit(self._caller, self._place, manifest, edit)
        return self._read(edited)

    def run(self, after: Workload) -> SimulationRun:
        """Run a change to its end, or until the time limit."""
        forecast = compute_forecast(self.before, after, self.observed, self._surroundings, self._assumptions)
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
    change: Simulable,
    assumptions: Assumptions = Assumptions(),  # noqa: B008 (frozen)
    *,
    expected: str | None = None,
) -> Simulated:
    """Return what a change would do; the caller needs the permission to make it."""
    with audited_command(caller, change.command, place, dry_run=True):
        client = open_client(place)
        case = _build_input(caller, client, change, expected)
        simulator = _Simulator(caller, case, client, change, assumptions)
        _require_pod_limit(simulator.after, simulator.observed)
        with _simulation_slot():
            rehearsal = change.rehearsal if isinstance(change, Edit) else None
            return _run(simulator, case.to_simulated_change(place, reader_for(caller, place)), rehearsal)


def _run(simulator: _Simulator, simulated: SimulatedChange, rehearsal: EditFunction | None) -> Simulated:
    """Run a change to its end; with a rehearsal, compare it with the same run without the change."""
    run = simulator.run(simulator.after)
    if rehearsal is None:
        return build_report(simulated, run)
    if not run.changes_nothing:
        return replace(build_report(simulated, run), former=build_baseline(simulator.run(simulator.before)))
    with_it, without_it = (simulator.run(simulator.edit(one, rehearsal)) for one in (simulated.after, simulated.before))
    result = build_report(simulated, with_it)
    return replace(result, is_rehearsal=True, starts_update=False, former=build_baseline(without_it))


# ---- the input


def _build_input(caller: Caller, client: WorkloadClient, change: Simulable, expected: str | None) -> _SimulationInput:
    overrides = tuple(list_overrides(client.place.cluster))
    seen = _read_mirrored(client)
    if seen is not None:
        require_expected(client, seen.manifest, expected)
    if isinstance(change, Apply):
        live, wanted, report = preview_apply(caller, client, change.manifest)
        if live is None or seen is None or live["metadata"]["uid"] != seen.uid:
            return _SimulationInput(wanted, wanted, Observed(), report.warnings, overrides, is_new=True)
        return _SimulationInput(live, wanted, seen.observed, report.warnings, overrides)
    if seen is None:
        raise NotFound(f"There is no workload {client.place.name} in the namespace {client.place.namespace}.")
    function = change.function if isinstance(change, Edit) else _leave_unedited
    wanted, warnings = evaluate_edit(caller, client.place, seen.manifest, function)
    return _SimulationInput(seen.manifest, wanted, seen.observed, warnings, overrides)


def _leave_unedited(manifest: Obj) -> Obj:
    return manifest


def _change_observed(change: Simulable, workload: Workload, observed: Observed) -> Observed:
    """Return the observed objects as a change of live objects leaves them."""
    match change:
        case ScaleLive():
            return scale_observed(workload, observed, change)
        case ForgetPods():
            return replace(observed, pods=tuple(pod for pod in observed.pods if pod.uid not in change.uids))
        case _:
            return observed


def _read_mirrored(client: WorkloadClient) -> MirroredWorkload | None:
    require_synced(client)
    return mirror.fetch_workload(client.cluster_row, client.place.namespace, client.place.name)


def _require_pod_limit(workload: Workload, observed: Observed) -> None:
    """Raise InvalidState for too many pods: by the template, by the scale of live components, or now.

    This only counts: a simulation of that many pods would run long and need much memory before its first check of the
    time limit.
    """
    pods = max(count_desired(workload, Observed()), count_desired(workload, observed), len(observed.pods))
    if pods > MAX_PODS:
        raise InvalidState(f"This change affects about {pods:,} pods. A simulation covers at most {MAX_PODS:,}.")


@contextlib.contextmanager
def _simulation_slot() -> Iterator[None]:
    """Wait for one of the few simulations that run at once."""
    if not _slots.acquire(timeout=_SLOT_WAIT_SECONDS):
        raise InvalidState("Other simulations are running. Try again in a moment.")
    try:
        yield
    finally:
        _slots.release()
