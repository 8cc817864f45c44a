"""Take a workload over from Grove's own operator, after that operator is gone.

A deliberate command: as long as a set has Grove's finalizer, or an object of it was last written by Grove's operator,
Grove UI writes nothing to it (`rollouts.mirror.other_operator`). `engine.plan.adoption` says what has to change; here it is sent, each
patch for the very object (uid) in the very state (resourceVersion) that was read. No pod is replaced.

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
from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import CommandRefused, Contradiction, RaceLost
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
from rollouts.engine.manifest.findings import Code, Finding
from rollouts.engine.manifest.parsing import Unreadable, parse_workload
from rollouts.engine.model.actions import Kind
from rollouts.engine.model.names import PART_OF
from rollouts.engine.model.times import parse_time, render_time
from rollouts.engine.plan.adoption import Adoption, AdoptionPlan, LeftAlone, Parts, plan_adoption
from rollouts.live import change_feed
from rollouts.mirror import Changes
from rollouts.mirror.other_operator import (
    FRESH_SECONDS,
    GROVE_MANAGER,
    find_last_write,
    find_other_keeper,
    is_written_by_grove,
    look_for_other_operator,
)
from rollouts.runtime.connections import redis_client
from rollouts.services.audit import Caller, deed
from rollouts.services.edit import Change, Changed, require_expected
from rollouts.services.workload_client import Site, cluster_words, find_site, refuse, version_in

SECONDS: Final = 20.0
"""After which a command to a cluster begins with no further workload."""
_SENDERS: Final = 8
_LEFT_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What a takeover changes, or would change."""

    changed: Changed  # the fields of all objects, each with the kind and name of its object
    objects: int  # that are changed
    pods: int  # that stay as they are
    outdated: int  # pods of another template: an update replaces them afterwards, as the strategy says
    left: tuple[LeftAlone, ...]


def workload_take_over(
    caller: Caller,
    place: Place,
    *,
    expected: str | None = None,
    dry_run: bool = False,
    now: Callable[[], float] = time.time,
) -> TakenOver:
    """Make a workload of Grove's own operator ours, without replacing a pod."""
    with deed(caller, Command.TAKE_OVER_WORKLOAD, place, dry_run=dry_run) as it:
        site = find_site(place)
        _require_no_operator(site, now())
        live = site.fetch()
        require_expected(site, live, expected)
        if live["metadata"].get("deletionTimestamp"):
            raise Contradiction(f"{place.name} is being deleted; it cannot be taken over any more.")
        parts = _list_parts(site)
        _require_silence([live, *parts.groups, *parts.cliques, *parts.gangs], now())
        plan = _make_plan(live, parts, now())
        told = _describe(site, live, plan, dry_run=dry_run)
        if not told.changed.changes:
            return told
        it.begin(before=_on_record(told, "before"), after=_on_record(told, "after"))
        stored = live if dry_run else _carry_out(site, live, parts, plan)
        if not dry_run:
            site.take_in([Changes(PODCLIQUESETS, [stored])])
            it.done(after=_on_record(told, "after"), detail=f"{told.objects} objects, {told.pods} pods, none replaced")
        return told


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """What became of one workload of a cluster."""

    place: Place
    objects: int  # that were changed, or would be
    pods: int  # that stay as they are
    outdated: int
    problem: str  # why it was not taken over; empty: it was


@dataclass(frozen=True, slots=True)
class ClusterTakenOver:
    """What became of the workloads of a cluster that were Grove's."""

    cluster: str
    outcomes: tuple[WorkloadOutcome, ...]
    left: int  # that are more than one command takes over
    is_dry_run: bool


def cluster_take_over(
    caller: Caller, cluster: str, *, dry_run: bool = False, now: Callable[[], float] = time.time
) -> ClusterTakenOver:
    """Take over every workload of a cluster that Grove's own operator keeps; each is on record by itself as well."""
    with deed(caller, Command.TAKE_OVER_WORKLOAD, Place(cluster), dry_run=dry_run) as it:
        site = find_site(Place(cluster))
        _require_no_operator(site, now())
        places = _list_kept(site)
        deadline, outcomes = time.monotonic() + SECONDS, list[WorkloadOutcome]()
        for place in places:
            if time.monotonic() > deadline:
                break
            outcomes.append(_take_over_one(caller, place, dry_run=dry_run, now=now))
        taken = sum(not one.problem for one in outcomes)
        if outcomes:
            it.done(detail=f"{taken} of {len(places)} workloads")
        return ClusterTakenOver(cluster, tuple(outcomes), len(places) - len(outcomes), dry_run)


def _take_over_one(caller: Caller, place: Place, *, dry_run: bool, now: Callable[[], float]) -> WorkloadOutcome:
    try:
        told = workload_take_over(caller, place, dry_run=dry_run, now=now)
    except CommandRefused as refusal:
        return WorkloadOutcome(place, 0, 0, 0, refusal.sentence)
    return WorkloadOutcome(place, told.objects, told.pods, told.outdated, "")


def _list_kept(site: Site) -> list[Place]:
    """Return the workloads of a cluster that are Grove's: by the sets as they are, and by the parts as mirrored."""
    with cluster_words("list the workloads"):
        sets = site.cluster.list(PODCLIQUESETS).items
    written = {
        part
        for table in (models.ScalingGroup, models.Clique, models.Gang)
        for part in table.objects.filter(cluster=site.row, written_by_grove=True).values_list("namespace", "workload")
    }
    found = []
    for obj in sets:
        metadata = obj["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if find_other_keeper(obj, "one of its parts" if key in written or is_written_by_grove(obj) else ""):
            found.append(Place(site.place.cluster, *key))
    return sorted(found, key=str)


def _require_no_operator(site: Site, now: float) -> None:
    with cluster_words("look for another operator"):
        other = look_for_other_operator(site.cluster, site.row, now)
    if other:
        raise Contradiction(other)


def _require_silence(objects: Sequence[Obj], now: float) -> None:
    """Raise while Grove's operator has written a moment ago: it may run without a lease."""
    written = [(find_last_write(obj, GROVE_MANAGER) or "", obj) for obj in objects]
    last, obj = max(written, key=lambda one: one[0])
    at = parse_time(last) if last else None
    if at is not None and now - at < FRESH_SECONDS:
        raise Contradiction(
            f"Grove's own operator wrote {obj['kind']} {obj['metadata']['name']} {max(0, round(now - at))} s ago, "
            f"so it seems to run. Stop it, and try again when it has written nothing for {FRESH_SECONDS:.0f} s."
        )


def _list_parts(site: Site) -> Parts:
    label = f"{PART_OF}={site.place.name}"

    def list_all(resource: Any) -> list[Obj]:
        items = site.cluster.list(resource, namespace=site.place.namespace, labels=label).items
        return [{"kind": resource.kind, **obj} for obj in items]

    with cluster_words("list the parts of the workload"):
        return Parts(*map(list_all, (PODCLIQUESCALINGGROUPS, PODCLIQUES, PODGANGS, SERVICES, PODS)))


def _make_plan(live: Obj, parts: Parts, now: float) -> AdoptionPlan:
    workload = parse_workload(live)
    if isinstance(workload, Unreadable):
        raise refuse(workload.findings)
    return plan_adoption(workload, live, parts, render_time(now), is_written_by_grove)


# ---- what is changed


def _describe(site: Site, live: Obj, plan: AdoptionPlan, *, dry_run: bool) -> TakenOver:
    changes = [change for adoption in _adoptions(plan) for change in _changes_of(adoption)]
    if plan.status is not None:
        former = (live.get("status") or {}).get("currentGenerationHash")
        field = f"PodCliqueSet {site.place.name}: status.currentGenerationHash"
        changes.append(Change(field, former, plan.status["currentGenerationHash"]))
    warnings = tuple(_warn(plan)) if changes else ()
    changed = Changed(site.place, version_in(live), tuple(changes), warnings, dry_run)
    return TakenOver(changed, len([*_adoptions(plan)]), plan.pods, len(plan.outdated), plan.left)


def _adoptions(plan: AdoptionPlan) -> Iterator[Adoption]:
    yield from plan.parts
    if plan.the_set is not None:
        yield plan.the_set


def _changes_of(adoption: Adoption) -> Iterator[Change]:
    for one in find_differences(adoption.before, adoption.after):
        before, after = (None if value is ABSENT else value for value in (one.before, one.after))
        yield Change(f"{adoption.kind} {adoption.name}: {one.field}", before, after)


def _warn(plan: AdoptionPlan) -> Iterator[Finding]:
    if plan.outdated:
        sentence = (
            f"{len(plan.outdated)} of {plan.pods} pods are of another template. The takeover leaves them; afterwards "
            "the update goes on as the strategy says."
        )
        yield Finding("pods", Code.OUTDATED_PODS, sentence)
    for one in plan.left[:_LEFT_SHOWN]:
        what = f"{one.kind} {one.name}"
        yield Finding(what, Code.LEFT_ALONE, f"{what} is left alone: {one.why}.")
    if len(plan.left) > _LEFT_SHOWN:
        yield Finding("others", Code.LEFT_ALONE, f"{len(plan.left) - _LEFT_SHOWN} more objects are left alone.")


def _on_record(told: TakenOver, side: str) -> dict[str, Any]:
    fields = {change.field: getattr(change, side) for change in told.changed.changes}
    return {"version": told.changed.version, "fields": fields}


# ---- carrying it out


def _carry_out(site: Site, live: Obj, parts: Parts, plan: AdoptionPlan) -> Obj:
    """Send everything in its order, and return the set as it is then."""
    _store(site, {Kind.POD: parts.pods, Kind.CLIQUE: parts.cliques, Kind.GROUP: parts.groups, Kind.GANG: parts.gangs})
    with ThreadPoolExecutor(_SENDERS, thread_name_prefix="takeover") as senders:
        for kind, members in groupby(plan.parts, key=lambda one: one.kind):
            _store(site, {kind: [*senders.map(lambda one: _patch(site, one, one.resource_version), members)]})
    if plan.status is not None:
        live = _write_status(site, live, plan.status)
    return live if plan.the_set is None else _patch(site, plan.the_set, live["metadata"]["resourceVersion"])


def _store(site: Site, objects: Mapping[Kind, Sequence[Obj]]) -> None:
    """Put objects into the mirror; raises where that fails, since the next pass must see them."""
    news = mirror.store_all(site.row, [Changes(RESOURCES[kind], [*some]) for kind, some in objects.items() if some])
    change_feed.publish(redis_client(), mirror.changes_of(site.row.name, news))


def _patch(site: Site, adoption: Adoption, version: str) -> Obj:
    metadata = {**adoption.patch["metadata"], "uid": adoption.uid, "resourceVersion": version}
    what = f"{adoption.kind} {adoption.name}"
    with _unless_changed(what, site):
        return site.cluster.patch_merge(
            RESOURCES[adoption.kind], adoption.name, {"metadata": metadata}, namespace=site.place.namespace
        )


def _write_status(site: Site, live: Obj, status: Mapping[str, Any]) -> Obj:
    kept = {name: live["metadata"][name] for name in ("namespace", "name", "uid", "resourceVersion")}
    wanted = {"apiVersion": PODCLIQUESETS.api_version, "kind": PODCLIQUESETS.kind, "metadata": kept, "status": status}
    with _unless_changed(f"PodCliqueSet {site.place.name}", site):
        return site.cluster.update(PODCLIQUESETS, wanted, subresource="status")


@contextlib.contextmanager
def _unless_changed(what: str, site: Site) -> Iterator[None]:
    try:
        with cluster_words(what, is_write=True):
            yield
    except Conflict as error:
        raise RaceLost(
            f"{what} was changed while {site.place.name} was taken over. Grove UI leaves {site.place.name} alone until "
            "the command has come to its end: give it again."
        ) from error
