"""Take a workload over from Grove's own operator, after that operator is gone.

A deliberate command: as long as a set has Grove's finalizer, or an object of it was last written by Grove's operator,
Grove UI writes nothing to it (`rollouts.mirror.other_operator`). `engine.plan.adoption` says what has to change; here
it is sent, each patch for the very object (uid) in the very state (resourceVersion) that was read. No pod is replaced.

The order makes every point between two lines a good one to be cut off at: pods, PodCliques, the other parts, the
status of the set, and last of all the set itself. Until then nobody acts on the workload, and the same command again
goes on where this one ended. The mirror has every answer before the set is let go: a pass that followed with an older
view would take the pods for outdated ones.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from rollouts import mirror, models
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import CommandRefused, InvalidState, VersionConflict
from rollouts.cluster import Conflict, Obj
from rollouts.cluster.resources import (
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from rollouts.controller.executor import RESOURCES
from rollouts.engine.manifest.diff import ABSENT, find_differences
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.actions import Kind
from rollouts.engine.model.names import PART_OF
from rollouts.engine.model.times import parse_time, render_time
from rollouts.engine.plan.adoption import Adoption, AdoptionPlan, SkippedObject, WorkloadObjects, plan_adoption
from rollouts.live import change_feed
from rollouts.mirror import ObjectChanges
from rollouts.mirror.other_operator import (
    GROVE_MANAGER,
    RECENT_SECONDS,
    find_grove_management,
    find_last_write,
    find_other_operator_now,
    is_written_by_grove,
)
from rollouts.runtime.connections import redis_client
from rollouts.services.audit import Caller, audited_command
from rollouts.services.edit import Change, EditResult, require_expected
from rollouts.services.workload_client import (
    WorkloadClient,
    invalid_command,
    open_client,
    translate_cluster_errors,
    version_of_object,
)

MAX_SECONDS: Final = 20.0
"""After which a command to a cluster begins with no further workload."""
_THREADS: Final = 8
_MAX_LEFT_ALONE: Final = 20


@dataclass(frozen=True, slots=True)
class TakeoverResult:
    """What a takeover changes, or would change."""

    changed: EditResult  # the fields of all objects, each with the kind and name of its object
    objects: int  # that are changed
    pods: int  # that stay as they are
    outdated: int  # pods of another template: an update replaces them afterwards, as the strategy says
    left: tuple[SkippedObject, ...]


def workload_take_over(
    caller: Caller,
    place: WorkloadRef,
    *,
    expected: str | None = None,
    dry_run: bool = False,
    now: Callable[[], float] = time.time,
) -> TakeoverResult:
    """Make a workload of Grove's own operator ours, without replacing a pod."""
    with audited_command(caller, Command.TAKE_OVER_WORKLOAD, place, dry_run=dry_run) as audited:
        client = open_client(place)
        _require_no_operator(client, now())
        live = client.fetch()
        require_expected(client, live, expected)
        if live["metadata"].get("deletionTimestamp"):
            raise InvalidState(f"{place.name} is being deleted; it cannot be taken over any more.")
        parts = _list_parts(client)
        _require_no_recent_writes([live, *parts.groups, *parts.cliques, *parts.gangs], now())
        plan = _compute_plan(live, parts, now())
        result = _build_result(client, live, plan, dry_run=dry_run)
        if not result.changed.changes:
            return result
        audited.begin(before=_render_audit_side(result, "before"), after=_render_audit_side(result, "after"))
        stored = live if dry_run else _apply_plan(client, live, parts, plan)
        if not dry_run:
            client.write_through([ObjectChanges(PODCLIQUESETS, [stored])])
            audited.done(
                after=_render_audit_side(result, "after"),
                detail=f"{result.objects} objects, {result.pods} pods, none replaced",
            )
        return result


@dataclass(frozen=True, slots=True)
class WorkloadTakeover:
    """What became of one workload of a cluster."""

    place: WorkloadRef
    objects: int  # that were changed, or would be
    pods: int  # that stay as they are
    outdated: int
    problem: str  # why it was not taken over; empty: it was


@dataclass(frozen=True, slots=True)
class ClusterTakeoverResult:
    """What became of the workloads of a cluster that were Grove's."""

    cluster: str
    outcomes: tuple[WorkloadTakeover, ...]
    left: int  # that are more than one command takes over
    is_dry_run: bool


def cluster_take_over(
    caller: Caller, cluster: str, *, dry_run: bool = False, now: Callable[[], float] = time.time
) -> ClusterTakeoverResult:
    """Take over every workload of a cluster that Grove's own operator keeps; each is on record by itself as well."""
    with audited_command(caller, Command.TAKE_OVER_WORKLOAD, WorkloadRef(cluster), dry_run=dry_run) as audited:
        client = open_client(WorkloadRef(cluster))
        _require_no_operator(client, now())
        places = _list_grove_workloads(client)
        deadline, outcomes = time.monotonic() + MAX_SECONDS, list[WorkloadTakeover]()
        for place in places:
            if time.monotonic() > deadline:
                break
            outcomes.append(_take_over_one(caller, place, dry_run=dry_run, now=now))
        taken = sum(not one.problem for one in outcomes)
        if outcomes:
            audited.done(detail=f"{taken} of {len(places)} workloads")
        return ClusterTakeoverResult(cluster, tuple(outcomes), len(places) - len(outcomes), dry_run)


def _take_over_one(caller: Caller, place: WorkloadRef, *, dry_run: bool, now: Callable[[], float]) -> WorkloadTakeover:
    try:
        result = workload_take_over(caller, place, dry_run=dry_run, now=now)
    except CommandRefused as refusal:
        return WorkloadTakeover(place, 0, 0, 0, refusal.sentence)
    return WorkloadTakeover(place, result.objects, result.pods, result.outdated, "")


def _list_grove_workloads(client: WorkloadClient) -> list[WorkloadRef]:
    """Return the workloads of a cluster that are Grove's: by the sets as they are, and by the parts as mirrored."""
    with translate_cluster_errors("list the workloads"):
        sets = client.cluster.list(PODCLIQUESETS).items
    written = {
        part
        for table in (models.ScalingGroup, models.Clique, models.Gang)
        for part in table.objects.filter(cluster=client.cluster_row, written_by_grove=True).values_list(
            "namespace", "workload"
        )
    }
    found = []
    for obj in sets:
        metadata = obj["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if find_grove_management(obj, "one of its parts" if key in written or is_written_by_grove(obj) else ""):
            found.append(WorkloadRef(client.place.cluster, *key))
    return sorted(found, key=str)


def _require_no_operator(client: WorkloadClient, now: float) -> None:
    with translate_cluster_errors("look for another operator"):
        other = find_other_operator_now(client.cluster, client.cluster_row, now)
    if other:
        raise InvalidState(other)


def _require_no_recent_writes(objects: Sequence[Obj], now: float) -> None:
    """Raise while Grove's operator has written a moment ago: it may run without a lease."""
    written = [(find_last_write(obj, GROVE_MANAGER) or "", obj) for obj in objects]
    last, obj = max(written, key=lambda one: one[0])
    at = parse_time(last) if last else None
    if at is not None and now - at < RECENT_SECONDS:
        raise InvalidState(
            f"Grove's own operator wrote {obj['kind']} {obj['metadata']['name']} {max(0, round(now - at))} s ago, "
            f"so it seems to run. Stop it, and try again when it has written nothing for {RECENT_SECONDS:.0f} s."
        )


def _list_parts(client: WorkloadClient) -> WorkloadObjects:
    label = f"{PART_OF}={client.place.name}"

    def list_all(resource: Any) -> list[Obj]:
        items = client.cluster.list(resource, namespace=client.place.namespace, labels=label).items
        return [{"kind": resource.kind, **obj} for obj in items]

    with translate_cluster_errors("list the parts of the workload"):
        return WorkloadObjects(*map(list_all, (PODCLIQUESCALINGGROUPS, PODCLIQUES, PODGANGS, SERVICES, PODS)))


def _compute_plan(live: Obj, parts: WorkloadObjects, now: float) -> AdoptionPlan:
    workload = parse_workload(live)
    if isinstance(workload, ParseFailure):
        raise invalid_command(workload.findings)
    return plan_adoption(workload, live, parts, render_time(now), is_written_by_grove)


# ---- what is changed


def _build_result(client: WorkloadClient, live: Obj, plan: AdoptionPlan, *, dry_run: bool) -> TakeoverResult:
    changes = [change for adoption in _adoptions(plan) for change in _changes_of(adoption)]
    if plan.status is not None:
        former = (live.get("status") or {}).get("currentGenerationHash")
        field = f"PodCliqueSet {client.place.name}: status.currentGenerationHash"
        changes.append(Change(field, former, plan.status["currentGenerationHash"]))
    warnings = tuple(_compute_warnings(plan)) if changes else ()
    changed = EditResult(client.place, version_of_object(live), tuple(changes), warnings, dry_run)
    return TakeoverResult(changed, len([*_adoptions(plan)]), plan.pods, len(plan.outdated), plan.skipped)


def _adoptions(plan: AdoptionPlan) -> Iterator[Adoption]:
    yield from plan.adoptions
    if plan.set_adoption is not None:
        yield plan.set_adoption


def _changes_of(adoption: Adoption) -> Iterator[Change]:
    for one in find_differences(adoption.before, adoption.after):
        before, after = (None if value is ABSENT else value for value in (one.before, one.after))
        yield Change(f"{adoption.kind} {adoption.name}: {one.field}", before, after)


def _compute_warnings(plan: AdoptionPlan) -> Iterator[Finding]:
    if plan.outdated:
        sentence = (
            f"{len(plan.outdated)} of {plan.pods} pods are of another template. The takeover leaves them; afterwards "
            "the update goes on as the strategy says."
        )
        yield Finding("pods", FindingCode.OUTDATED_PODS, sentence)
    for one in plan.skipped[:_MAX_LEFT_ALONE]:
        what = f"{one.kind} {one.name}"
        yield Finding(what, FindingCode.LEFT_ALONE, f"{what} is left alone: {one.reason}.")
    if len(plan.skipped) > _MAX_LEFT_ALONE:
        yield Finding(
            "others", FindingCode.LEFT_ALONE, f"{len(plan.skipped) - _MAX_LEFT_ALONE} more objects are left alone."
        )


def _render_audit_side(result: TakeoverResult, side: str) -> dict[str, Any]:
    fields = {change.field: getattr(change, side) for change in result.changed.changes}
    return {"version": result.changed.version, "fields": fields}


# ---- carrying it out


def _apply_plan(client: WorkloadClient, live: Obj, parts: WorkloadObjects, plan: AdoptionPlan) -> Obj:
    """Send everything in its order, and return the set as it is then."""
    _store_in_mirror(
        client, {Kind.POD: parts.pods, Kind.CLIQUE: parts.cliques, Kind.GROUP: parts.groups, Kind.GANG: parts.gangs}
    )
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="takeover") as senders:
        for kind, members in groupby(plan.adoptions, key=lambda one: one.kind):
            _store_in_mirror(
                client, {kind: [*senders.map(lambda one: _patch(client, one, one.resource_version), members)]}
            )
    if plan.status is not None:
        live = _write_status(client, live, plan.status)
    return live if plan.set_adoption is None else _patch(client, plan.set_adoption, live["metadata"]["resourceVersion"])


def _store_in_mirror(client: WorkloadClient, objects: Mapping[Kind, Sequence[Obj]]) -> None:
    """Put objects into the mirror; raises where that fails, since the next pass must see them."""
    news = mirror.store_all(
        client.cluster_row, [ObjectChanges(RESOURCES[kind], [*some]) for kind, some in objects.items() if some]
    )
    change_feed.publish(redis_client(), mirror.compute_changes(client.cluster_row.name, news))


def _patch(client: WorkloadClient, adoption: Adoption, version: str) -> Obj:
    metadata = {**adoption.patch["metadata"], "uid": adoption.uid, "resourceVersion": version}
    what = f"{adoption.kind} {adoption.name}"
    with _translate_conflict(what, client):
        return client.cluster.patch_merge(
            RESOURCES[adoption.kind], adoption.name, {"metadata": metadata}, namespace=client.place.namespace
        )


def _write_status(client: WorkloadClient, live: Obj, status: Mapping[str, Any]) -> Obj:
    kept = {name: live["metadata"][name] for name in ("namespace", "name", "uid", "resourceVersion")}
    wanted = {"apiVersion": PODCLIQUESETS.api_version, "kind": PODCLIQUESETS.kind, "metadata": kept, "status": status}
    with _translate_conflict(f"PodCliqueSet {client.place.name}", client):
        return client.cluster.update(PODCLIQUESETS, wanted, subresource="status")


@contextlib.contextmanager
def _translate_conflict(what: str, client: WorkloadClient) -> Iterator[None]:
    try:
        with translate_cluster_errors(what, is_write=True):
            yield
    except Conflict as error:
        raise VersionConflict(
            f"{what} was changed while {client.place.name} was taken over. Grove UI leaves {client.place.name} alone "
            "until the command has come to its end: give it again."
        ) from error
