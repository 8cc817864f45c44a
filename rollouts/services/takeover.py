"""Takes over a workload from Grove's own operator, after that operator has been removed.

This needs a command: while a set has Grove's finalizer, or Grove's operator was the last to write one of its objects,
Grove UI writes nothing to it (`rollouts.mirror.other_operator`). `engine.plan.adoption` computes the changes; this
module sends them, each patch for the object (uid) in the state (resourceVersion) that was read. No pod is replaced.

The order makes an interruption at any point harmless: pods, PodCliques, the other parts, the status of the set, and
last the set itself. Until then no controller acts on the workload, and the same command again continues. The mirror has
every answer before the patch of the set: a reconcile with an older view would consider the pods outdated.
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
    translate_operator_check_errors,
    version_of_object,
)

MAX_SECONDS: Final = 20.0
"""After which a takeover of a cluster starts no further workload."""
_THREADS: Final = 8
_MAX_LEFT_ALONE: Final = 20


@dataclass(frozen=True, slots=True)
class TakeoverResult:
    """What a takeover changes."""

    changed: EditResult  # the fields of all objects, each with the kind and name of its object
    objects: int  # how many it changes
    pods: int  # how many pods the workload has; they keep running
    outdated: int  # pods of another template: an update replaces them later, as the strategy says
    left: tuple[SkippedObject, ...]


def workload_take_over(
    caller: Caller,
    place: WorkloadRef,
    *,
    expected: str | None = None,
    dry_run: bool = False,
    now: Callable[[], float] = time.time,
) -> TakeoverResult:
    """Take over a workload, without replacing a pod."""
    with audited_command(caller, Command.TAKE_OVER_WORKLOAD, place, dry_run=dry_run) as audited:
        client = open_client(place)
        _require_no_operator(client, now())
        live = client.fetch()
        require_expected(client, live, expected)
        if live["metadata"].get("deletionTimestamp"):
            raise InvalidState(f"{place.name} is being deleted and can no longer be taken over.")
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
    """The result for one workload of a cluster."""

    place: WorkloadRef
    problem: str = ""  # why it was not taken over; empty: it was
    version: str = ""  # of the set, before it was taken over; empty with a problem
    objects: int = 0  # how many were changed
    pods: int = 0  # how many pods keep running
    outdated: int = 0
    left_alone: int = 0  # how many objects are not changed, because they belong to others


@dataclass(frozen=True, slots=True)
class ClusterTakeoverResult:
    """The results for the workloads of a cluster that Grove's operator managed."""

    cluster: str
    outcomes: tuple[WorkloadTakeover, ...]
    left: int  # how many are left for another command: there was no time, or they were not expected
    is_dry_run: bool


def cluster_take_over(
    caller: Caller,
    cluster: str,
    *,
    expected: Mapping[WorkloadRef, str] | None = None,
    dry_run: bool = False,
    now: Callable[[], float] = time.time,
) -> ClusterTakeoverResult:
    """Take over every workload of a cluster that Grove's own operator manages; each has audit entries of its own.

    `expected` are the versions that a dry run has shown: only these workloads are taken over, and one that has changed
    since is refused. None: all, as they are.
    """
    with audited_command(caller, Command.TAKE_OVER_WORKLOAD, WorkloadRef(cluster), dry_run=dry_run) as audited:
        client = open_client(WorkloadRef(cluster))
        _require_no_operator(client, now())
        places = _list_grove_workloads(client)
        deadline, outcomes = time.monotonic() + MAX_SECONDS, list[WorkloadTakeover]()
        for place in places if expected is None else filter(expected.__contains__, places):
            if time.monotonic() > deadline:
                break
            version = None if expected is None else f'"{expected[place]}"'
            outcomes.append(_take_over_one(caller, place, expected=version, dry_run=dry_run, now=now))
        taken = sum(not one.problem for one in outcomes)
        if outcomes:
            audited.done(detail=f"{taken} of {len(places)} workloads")
        return ClusterTakeoverResult(cluster, tuple(outcomes), len(places) - len(outcomes), dry_run)


def _take_over_one(
    caller: Caller, place: WorkloadRef, *, expected: str | None, dry_run: bool, now: Callable[[], float]
) -> WorkloadTakeover:
    try:
        result = workload_take_over(caller, place, expected=expected, dry_run=dry_run, now=now)
    except CommandRefused as refusal:
        return WorkloadTakeover(place, refusal.sentence)
    return WorkloadTakeover(
        place,
        version=result.changed.version,
        objects=result.objects,
        pods=result.pods,
        outdated=result.outdated,
        left_alone=len(result.left),
    )


def _list_grove_workloads(client: WorkloadClient) -> list[WorkloadRef]:
    """Return the workloads that Grove's operator manages: by their sets in the cluster, and by mirrored parts."""
    with translate_cluster_errors("workloads"):
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
    with translate_operator_check_errors():
        other = find_other_operator_now(client.cluster, client.cluster_row, now)
    if other:
        raise InvalidState(other)


def _require_no_recent_writes(objects: Sequence[Obj], now: float) -> None:
    """Raise InvalidState if Grove's operator wrote recently: it may run without a lease."""
    written = [(find_last_write(obj, GROVE_MANAGER) or "", obj) for obj in objects]
    last, obj = max(written, key=lambda one: one[0])
    at = parse_time(last) if last else None
    if at is not None and now - at < RECENT_SECONDS:
        raise InvalidState(
            f"Grove's own operator wrote {obj['kind']} {obj['metadata']['name']} {max(0, round(now - at))} s ago, "
            f"so it still runs. Stop it, and try again when it has written nothing for {RECENT_SECONDS:.0f} s."
        )


def _list_parts(client: WorkloadClient) -> WorkloadObjects:
    label = f"{PART_OF}={client.place.name}"

    def list_all(resource: Any) -> list[Obj]:
        items = client.cluster.list(resource, namespace=client.place.namespace, labels=label).items
        return [{"kind": resource.kind, **obj} for obj in items]

    with translate_cluster_errors("parts of the workload"):
        return WorkloadObjects(*map(list_all, (PODCLIQUESCALINGGROUPS, PODCLIQUES, PODGANGS, SERVICES, PODS)))


def _compute_plan(live: Obj, parts: WorkloadObjects, now: float) -> AdoptionPlan:
    workload = parse_workload(live)
    if isinstance(workload, ParseFailure):
        raise invalid_command(workload.findings)
    return plan_adoption(workload, live, parts, render_time(now), is_written_by_grove)


# ---- the changes


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
            f"{len(plan.outdated)} of {plan.pods} pods run another template. The takeover does not replace them; "
            "afterwards the update strategy decides when pods are replaced."
        )
        yield Finding("pods", FindingCode.OUTDATED_PODS, sentence)
    for one in plan.skipped[:_MAX_LEFT_ALONE]:
        what = f"{one.kind} {one.name}"
        yield Finding(what, FindingCode.LEFT_ALONE, f"{what} is not changed: {one.reason}.")
    if len(plan.skipped) > _MAX_LEFT_ALONE:
        yield Finding(
            "others", FindingCode.LEFT_ALONE, f"{len(plan.skipped) - _MAX_LEFT_ALONE} more objects are not changed."
        )


def _render_audit_side(result: TakeoverResult, side: str) -> dict[str, Any]:
    fields = {change.field: getattr(change, side) for change in result.changed.changes}
    return {"version": result.changed.version, "fields": fields}


# ---- sending them


def _apply_plan(client: WorkloadClient, live: Obj, parts: WorkloadObjects, plan: AdoptionPlan) -> Obj:
    """Send all patches in their order, and return the set afterwards."""
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
    """Store objects in the mirror; raises when that fails, because the next reconcile must see them."""
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
            f"{what} was changed during the takeover of {client.place.name}. Grove UI does not manage the "
            "workload until the takeover is complete: send the command again."
        ) from error
