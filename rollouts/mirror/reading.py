"""One workload as values of the engine: reads rows, and decides which objects belong to the workload.

Before it: `writing`, which keeps the rows. After it: the reconciler, which plans with these values. The number of
queries is constant, whatever the size of the workload. An object with our labels is one of three things:

    ours        its controller is the set, scaling group or PodClique that now has that name
    leaving     its controller is an earlier object of that name, and the garbage collector will delete it. The engine
                waits for it, and neither counts nor deletes it.
    a stranger  no object of Grove's controls it, or its labels do not name its position. It is neither changed nor
                counted.

Children are read before their owners. So an object that is created between two queries is an owner whose children the
next pass finds, and never a child that seems to have lost its owner.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import orjson
from django.db import connection

from rollouts import models
from rollouts.cluster import Obj
from rollouts.engine.model.observed import Clique, Gang, Group, Observed, Pod, ReadyTime, Service
from rollouts.engine.rollout.update import read_progress

Stranger = tuple[str, str]

_NO_OWNER: Final = "It has the labels of this workload, but no object of this workload controls it."
_UNKNOWN_POSITION: Final = "Its labels do not say where it belongs in the workload."


@dataclass(frozen=True, slots=True)
class MirroredWorkload:
    """A workload as the mirror has it."""

    workload_id: int  # of its row
    uid: str
    leaving: bool
    manifest: Obj  # the PodCliqueSet as stored, without managedFields
    observed: Observed
    resource_version: str
    labels: Mapping[str, str]
    unconfirmed_writes: tuple[tuple[str, str, str], ...] = ()  # whose answers were not stored: kind, name, uid
    rejected_writes: Mapping[str, Any] = field(default_factory=dict)  # as `rejected_writes` stores them
    written_by_grove: str = ""  # kind and name of an object that Grove's own operator wrote last
    # Objects that have the workload's labels and do not belong to it: name and why.
    strangers: tuple[Stranger, ...] = ()
    # The strangers without a controller of Grove's, as if the set controlled them, without pods. None: there are none.
    orphans: Observed | None = None

    @property
    def was_acted_on(self) -> bool:
        """Whether a pass has acted on the set: then its pods are kept even if its spec is now invalid."""
        return bool(read_progress(self.observed.status).generation_hash)


@dataclass(frozen=True, slots=True)
class Owners:
    """The possible owners: their uids by name, and the uids of those that the garbage collector will delete."""

    set_uid: str
    groups: Mapping[str, str]
    cliques: Mapping[str, str]
    pending_collection: frozenset[str]


def fetch_workload(cluster: models.Cluster, namespace: str, name: str) -> MirroredWorkload | None:
    """Return a workload with all its objects; None if it does not exist."""
    key = (cluster.pk, namespace, name)
    pods = _fetch(models.Pod, POD, key)
    cliques = _fetch(models.Clique, CLIQUE, key)
    groups = _fetch(models.ScalingGroup, GROUP, key)
    gangs = _fetch(models.Gang, GANG, key)
    services = _fetch(models.Service, SERVICE, key)
    for number, uid, leaving, version, text, in_doubt, refused, ready_times, grove_wrote_set in _fetch(
        models.Workload, _SET, key, workload_column="name"
    ):
        manifest = orjson.loads(text)
        manifest["metadata"]["resourceVersion"] = str(version)
        owners = _compute_owners(uid, groups, cliques)
        strangers: list[Stranger] = []
        observed = Observed(
            status=manifest.get("status") or {},
            cliques=tuple(parse_cliques(cliques, owners, strangers)),
            groups=tuple(parse_groups(groups, owners, strangers)),
            gangs=tuple(parse_gangs(gangs, owners, strangers)),
            services=tuple(parse_services(services, owners, strangers)),
            pods=tuple(parse_pods(pods, owners, strangers)),
            ready_times=tuple(ReadyTime(*one) for one in orjson.loads(ready_times)),
        )
        return MirroredWorkload(
            workload_id=number,
            uid=uid,
            leaving=leaving == 1,
            manifest=manifest,
            observed=observed,
            resource_version=str(version),
            labels=manifest["metadata"].get("labels") or {},
            unconfirmed_writes=tuple((kind, name, uid) for kind, name, uid in orjson.loads(in_doubt)),
            rejected_writes=orjson.loads(refused),
            written_by_grove=f"PodCliqueSet {name}"
            if grove_wrote_set
            else _find_written_by_grove(owners, groups, cliques, gangs),
            strangers=tuple(strangers),
            orphans=_parse_orphans(owners, cliques, groups, gangs, services),
        )
    return None


_Rows = Sequence[tuple[Any, ...]]

# Each query names its columns in the order in which the functions below unpack them.
_SET: Final = (
    *("id", "uid", "leaving", "resource_version", "manifest", "in_doubt", "refused", "ready_times"),
    "written_by_grove",
)
GROUP: Final = (
    *("owner_uid", "name", "uid", "resource_version", "generation", "created", "template", "replica", "replicas"),
    *("template_replicas", "leaving", "status", "template_keys", "written_by_grove"),
)
CLIQUE: Final = (
    *("owner_uid", "name", "uid", "resource_version", "generation", "created", "template", "replica", "group"),
    *("group_replica", "template_hash", "replicas", "template_replicas", "leaving", "status", "template_keys"),
    *("min_available", "written_by_grove"),
)
POD: Final = (
    *("owner_uid", "name", "uid", "clique", "index", "template_hash", "created", "node", "phase", "ready", "leaving"),
    *("gated", "message", "failing", "gone_by", "resource_version"),
    *("scheduled_at", "ready_since", "restarts", "fault"),
)
GANG: Final = (
    "owner_uid",
    "name",
    "uid",
    "resource_version",
    "replica",
    "leaving",
    "pod_groups",
    "status",
    "priority_class",
    "scheduler",
    "written_by_grove",
)
SERVICE: Final = ("owner_uid", "name", "uid", "replica", "leaving", "publish_not_ready_addresses")


def _fetch(
    model: type[models.Mirrored], columns: tuple[str, ...], key: tuple[Any, ...], workload_column: str = "workload"
) -> _Rows:
    """Return rows as the database returns them: conversion by Django's fields would double the time.

    So a boolean may be a 1, and JSON is text.
    """
    with connection.cursor() as cursor:
        cursor.execute(_select_statement(model, columns, workload_column), key)
        rows: _Rows = cursor.fetchall()
    return rows


@cache
def _select_statement(model: type[models.Mirrored], columns: tuple[str, ...], workload_column: str) -> str:
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)  # noqa: SLF001 (public in all but name)
    return (
        f"SELECT {', '.join(map(quote, columns))} FROM {table} "  # noqa: S608 (names of our own)
        f"WHERE cluster_id = %s AND namespace = %s AND {workload_column} = %s AND gone_at IS NULL ORDER BY name"
    )


def _compute_owners(set_uid: str, groups: _Rows, cliques: _Rows) -> Owners:
    """Return the possible owners; of these, groups and PodCliques of another owner will be deleted themselves."""
    doomed = {row[2] for row in groups if row[0] != set_uid}
    group_uids = {row[1]: row[2] for row in groups}
    clique_uids = {}
    for row in cliques:
        clique_uids[row[1]] = row[2]
        owner = group_uids.get(row[8], "") if row[8] else set_uid
        if row[0] != owner or owner in doomed:
            doomed.add(row[2])
    return Owners(set_uid, group_uids, clique_uids, frozenset(doomed))


def _parse_orphans(owners: Owners, cliques: _Rows, groups: _Rows, gangs: _Rows, services: _Rows) -> Observed | None:
    """Return objects that no object of Grove's controls, as if the set controlled them; None if there are none."""
    lost = [[(owners.set_uid, *row[1:]) for row in rows if not row[0]] for rows in (cliques, groups, gangs, services)]
    if not any(lost):
        return None
    return Observed(
        cliques=tuple(parse_cliques(lost[0], owners, [])),
        groups=tuple(parse_groups(lost[1], owners, [])),
        gangs=tuple(parse_gangs(lost[2], owners, [])),
        services=tuple(parse_services(lost[3], owners, [])),
    )


def _find_written_by_grove(owners: Owners, groups: _Rows, cliques: _Rows, gangs: _Rows) -> str:
    """Return an object that Grove's own operator wrote last, if it stays or a deleted set has left it behind."""
    left_behind = {"", *(uid for owner, _, uid, *_ in groups if not owner)}
    kinds = (("PodCliqueScalingGroup", groups), ("PodClique", cliques), ("PodGang", gangs))
    theirs = ((kind, row) for kind, rows in kinds for row in rows if row[-1])
    for kind, (owner, name, uid, *_) in theirs:
        if owner in left_behind or (
            uid not in owners.pending_collection and (kind != "PodGang" or owner == owners.set_uid)
        ):
            return f"{kind} {name}"
    return ""


def parse_groups(rows: _Rows, owners: Owners, strangers: list[Stranger]) -> Iterator[Group]:
    """Yield the scaling groups of the workload among these rows."""
    for owner, name, uid, version, generation, created, template, replica, *rest in rows:
        if _is_ours(name, owner, replica, strangers):
            replicas, noted, leaving, status, keys, _ = rest
            leaves = leaving == 1 or uid in owners.pending_collection
            yield Group(
                *(name, uid, str(version), generation, created, template, replica, replicas, noted),
                leaving=leaves,
                status=orjson.loads(status),
                template_keys=_split_keys(keys),
            )


def parse_cliques(rows: _Rows, owners: Owners, strangers: list[Stranger]) -> Iterator[Clique]:
    """Yield the PodCliques of the workload among these rows."""
    doomed, parse = owners.pending_collection, orjson.loads
    for owner, name, uid, version, generation, created, template, replica, group, part, *rest in rows:
        if _is_ours(name, owner, min(replica, part) if group else replica, strangers):
            template_hash, replicas, noted, leaving, status, keys, minimum, _ = rest
            yield Clique(
                *(name, uid, str(version), generation, created, template, replica, group, part, template_hash),
                *(replicas, noted, leaving == 1 or uid in doomed, parse(status)),
                _split_keys(keys),
                minimum,
            )


def parse_pods(rows: _Rows, owners: Owners, strangers: list[Stranger]) -> Iterator[Pod]:
    """Yield the pods of the workload among these rows."""
    cliques, doomed = owners.cliques, owners.pending_collection
    for owner, name, uid, clique, index, template_hash, created, node, phase, ready, leaving, *rest in rows:
        if not _is_ours(name, owner, index if clique else -1, strangers):
            continue
        gated, message, failing, gone_by, version, scheduled_at, ready_since, restarts, fault = rest
        leaves = leaving == 1 or cliques.get(clique) != owner or owner in doomed
        yield Pod(
            *(name, uid, clique, index, template_hash, created, node, phase),
            *(ready == 1, leaves, gated == 1, message, failing == 1, gone_by, str(version)),
            *(scheduled_at, ready_since, restarts, *_parse_fault(fault)),
        )


def _parse_fault(text: str) -> tuple[str, str]:
    """Return the fault of a container and its detail."""
    fault, _, detail = text.partition(": ")
    return fault, detail


def parse_gangs(rows: _Rows, owners: Owners, strangers: list[Stranger]) -> Iterator[Gang]:
    """Yield the gangs of the workload among these rows."""
    for owner, name, uid, version, replica, leaving, pod_groups, status, priority_class, scheduler, _ in rows:
        if _is_ours(name, owner, replica, strangers):
            groups = {clique: (least, tuple(pods)) for clique, (least, pods) in orjson.loads(pod_groups).items()}
            leaves = leaving == 1 or owner != owners.set_uid
            told = orjson.loads(status)
            yield Gang(name, uid, str(version), replica, leaves, groups, told, priority_class, scheduler)


def _split_keys(keys: str) -> tuple[str, ...]:
    return tuple(filter(None, keys.split(","))) if keys else ()


def parse_services(rows: _Rows, owners: Owners, strangers: list[Stranger]) -> Iterator[Service]:
    """Yield the services of the workload among these rows."""
    for owner, name, uid, replica, leaving, publish in rows:
        if _is_ours(name, owner, replica, strangers):
            yield Service(name, uid, replica, leaving == 1 or owner != owners.set_uid, publish == 1)


def _is_ours(name: str, owner: str, position: int, strangers: list[Stranger]) -> bool:
    """Return whether an object belongs to the workload and has a position in it; else add it to the strangers."""
    if owner and position >= 0:
        return True
    strangers.append((name, _UNKNOWN_POSITION if owner else _NO_OWNER))
    return False
