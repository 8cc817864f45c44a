"""When a row of the mirror may replace another one: rows only move forward, in whatever order writers come.

`rows` computes the columns of a row. The rules are part of the SQL statements, so the database itself compares and
sets, and a row ends the same however writers interleave:

    a newer state   replaces a row with a smaller resourceVersion, even if that row is another object of the name
    an end          marks an older row as gone; the row stays for a while as a tombstone, so that a state from before
                    the end does not bring the object back
    leaving         stays set until the object is gone: a deletionTimestamp is never removed

An end that the watch reports (DELETED) has the resourceVersion of the deletion, and a state after it counts: an object
may stop matching a label selector and match it again. An end that is inferred (an answer `NotFound`) has no
resourceVersion; it ends only the row of that uid, and every later report of that uid is ignored as late.

One statement writes all states of a kind and one all ends, about a thousand rows each.
"""

import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import orjson
from django.db import OperationalError, connection, transaction

from rollouts import models
from rollouts.cluster import Obj, Resource
from rollouts.manifests.workload_ref import workload_key
from rollouts.mirror.rows import MIRRORED, Row, Table, make_row

_MAX_STATEMENT_VALUES: Final = 32_000  # SQLite accepts 32,766
_MAX_ATTEMPTS: Final = 5
_DEADLOCK: Final = "40P01"  # PostgreSQL's code


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """Objects of one kind in their current state, and the last state of objects that are gone."""

    resource: Resource
    objects: Sequence[Obj] = ()
    gone: Sequence[Obj] = ()


@dataclass(frozen=True, slots=True)
class RowChange:
    """An object whose row has changed."""

    resource: Resource
    namespace: str
    name: str
    workload: str  # name of its PodCliqueSet; a set's own name; empty if it belongs to none
    is_gone: bool


@dataclass(frozen=True, slots=True)
class _Write:
    """The rows of one kind in a transaction, ordered by name."""

    resource: Resource
    table: Table
    rows: Sequence[Row]
    tombstones: Sequence[Row] = field(default_factory=tuple)


def ensure_cluster(name: str, source: str = "") -> models.Cluster:
    """Return the row of a cluster; create it if there is none."""
    cluster, _ = models.Cluster.objects.get_or_create(name=name, defaults={"source": source})
    if source and cluster.source != source:
        cluster.source = source
        cluster.save(update_fields=["source"])
    return cluster


def store(cluster: models.Cluster, resource: Resource, objects: Iterable[Obj], gone: Iterable[Obj] = ()) -> set[str]:
    """Store objects of a kind and ends; return the keys of the workloads whose rows have changed.

    An end that is inferred comes as metadata without a resourceVersion.
    """
    return workload_keys(cluster, store_all(cluster, [ObjectChanges(resource, tuple(objects), tuple(gone))]))


def store_all(cluster: models.Cluster, changes: Iterable[ObjectChanges]) -> list[RowChange]:
    """Store objects and ends of several kinds in one transaction; return the rows that have changed."""
    writes = [_prepare_write(cluster, part) for part in _merge(changes)]
    if not writes:
        return []
    for attempt in range(_MAX_ATTEMPTS):
        try:
            with transaction.atomic():
                return [change for write in writes for change in _write(write)]
        except OperationalError as error:
            # Two writers locked the same rows in opposite order, and the database rolled one of them back.
            if not _is_deadlock(error) or attempt == _MAX_ATTEMPTS - 1 or connection.in_atomic_block:
                raise
    raise AssertionError("unreachable")


def replace(
    cluster: models.Cluster,
    resource: Resource,
    keys: Collection[tuple[str, str]],
    resource_version: str,
) -> set[str]:
    """Mark as gone what a complete list of a kind does not contain; return the keys of the workloads concerned.

    What is newer than the list stays: it was created after the list was made.
    """
    return workload_keys(cluster, mark_missing_gone(cluster, resource, keys, resource_version))


def mark_missing_gone(
    cluster: models.Cluster, resource: Resource, keys: Collection[tuple[str, str]], resource_version: str
) -> list[RowChange]:
    """Do what `replace` does, but return the rows that have changed."""
    table, version = MIRRORED[resource], int(resource_version)
    listed = keys if isinstance(keys, set | frozenset) else set(keys)
    older = table.model.objects.filter(cluster=cluster, resource_version__lte=version)
    columns = ("id", "namespace", "name", "workload" if table.has_workload else "name")
    missing = sorted(row for row in older.values_list(*columns) if (row[1], row[2]) not in listed)
    for part in _split(missing, 1):
        # Only rows that have not changed since they were read: another writer may have stored a newer object.
        older.filter(id__in=[row[0] for row in part]).update(
            gone_at=time.time(), resource_version=version, end_inferred=False
        )
    return [
        _make_row_change(resource, namespace, name, workload, is_gone=True) for _, namespace, name, workload in missing
    ]


def delete_tombstones(before: float) -> int:
    """Delete the tombstones of objects that ended before a time; return how many."""
    return sum(table.model.everything.filter(gone_at__lt=before).delete()[0] for table in MIRRORED.values())


def delete_objects(cluster: models.Cluster) -> None:
    """Delete all rows of a cluster's objects, so that they are listed again."""
    with transaction.atomic():
        models.Cluster.objects.filter(pk=cluster.pk).update(complete=False)
        for table in MIRRORED.values():
            table.model.everything.filter(cluster=cluster).delete()


def workload_keys(cluster: models.Cluster, row_changes: Iterable[RowChange]) -> set[str]:
    """Return the keys of the workloads whose rows have changed."""
    return {workload_key(cluster.name, change.namespace, change.workload) for change in row_changes if change.workload}


def _is_deadlock(error: OperationalError) -> bool:
    return getattr(error.__cause__, "sqlstate", None) == _DEADLOCK


def _merge(changes: Iterable[ObjectChanges]) -> list[ObjectChanges]:
    """Join the changes of each kind, in a fixed order of kinds: all writers lock rows in that order."""
    by_kind: dict[Resource, tuple[list[Obj], list[Obj]]] = {}
    for part in changes:
        objects, gone = by_kind.setdefault(part.resource, ([], []))
        objects += part.objects
        gone += part.gone
    return [ObjectChanges(resource, *by_kind[resource]) for resource in MIRRORED if resource in by_kind]


def _prepare_write(cluster: models.Cluster, changes: ObjectChanges) -> _Write:
    table = MIRRORED[changes.resource]
    batch = secrets.randbits(62) + 1
    fixed: Row = {"cluster_id": cluster.pk, "gone_at": None, "end_inferred": False, "batch": batch}
    rows = [make_row(table, obj) | fixed for obj in changes.objects]
    tombstones = [make_row(table, obj) | fixed for obj in changes.gone]
    for row in tombstones:
        row |= {"gone_at": time.time(), "end_inferred": row["resource_version"] == 0}
    return _Write(changes.resource, table, _newest_by_name(rows), _newest_by_name(tombstones))


def _newest_by_name(rows: Iterable[Row]) -> list[Row]:
    """Return one row for each name, ordered by name: a statement may change a row only once."""
    newest: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["namespace"], row["name"])
        if key not in newest or row["resource_version"] >= newest[key]["resource_version"]:
            newest[key] = row
    return [newest[key] for key in sorted(newest)]


def _write(write: _Write) -> Iterator[RowChange]:
    width = len(write.table.columns) - len(_SHARED_COLUMNS)
    for part in _split(write.rows, width):
        yield from _execute(write, _upsert_rule(write.table), part, is_gone=False)
    for part in _split(write.tombstones, width):
        yield from _execute(write, _TOMBSTONE_RULE, part, is_gone=True)


def _execute(write: _Write, rule: str, rows: Sequence[Row], *, is_gone: bool) -> list[RowChange]:
    """Insert rows, or change existing ones as the rule says; return the rows that have changed."""
    table = write.table
    source, parameters = (_from_json if connection.vendor == "postgresql" else _from_values)(table, rows)
    workload_column = "workload" if table.has_workload else "name"
    statement = (
        f"INSERT INTO {_quote(table.name)} AS mirror ({_render_columns(table)}) {source} "
        f"ON CONFLICT ({', '.join(_KEY_COLUMNS)}) DO UPDATE SET {rule} "
        f"RETURNING namespace, name, {workload_column}, batch"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        touched = cursor.fetchall()
    batch = rows[0]["batch"]
    return [_make_row_change(write.resource, *row[:3], is_gone=is_gone) for row in touched if row[3] == batch]


def _from_values(table: Table, rows: Sequence[Row]) -> tuple[str, list[Any]]:
    """Pass each value as a parameter, except those that all rows share: SQLite limits the number of parameters."""
    same = {column: str(int(rows[0][column])) for column in _SHARED_COLUMNS}
    places = f"({', '.join(same.get(column, '%s') for column in table.columns)})"
    own = [column for column in table.columns if column not in same]
    return f"VALUES {', '.join([places] * len(rows))}", [row[column] for row in rows for column in own]


def _from_json(table: Table, rows: Sequence[Row]) -> tuple[str, list[Any]]:
    """Pass all rows as one JSON text: PostgreSQL takes five times as long if each value is a parameter."""
    typed = ", ".join(f"{_quote(field.attname)} {field.db_type(connection)}" for field in table.fields)
    source = f"SELECT {_render_columns(table)} FROM json_to_recordset(%s::json) AS news({typed})"  # noqa: S608
    return source, [orjson.dumps(rows).decode()]


def _make_row_change(resource: Resource, namespace: str, name: str, workload: str, *, is_gone: bool) -> RowChange:
    return RowChange(resource, namespace, name, workload if resource.namespaced else "", is_gone)


def _split(rows: Sequence[Any], width: int) -> Iterator[Sequence[Any]]:
    """Yield the rows in parts that fit into a statement; `width` is the number of values in a row."""
    count = _MAX_STATEMENT_VALUES // width
    return (rows[start : start + count] for start in range(0, len(rows), count))


_KEY_COLUMNS: Final = ("cluster_id", "namespace", "name")
_SHARED_COLUMNS: Final = ("cluster_id", "batch")  # the same in all rows of a statement, and always integers


@cache
def _upsert_rule(table: Table) -> str:
    """Return how a state replaces a row: if it is newer, and not a late report of an object that is gone."""
    rules = {
        "leaving": "excluded.leaving OR (mirror.leaving AND mirror.uid = excluded.uid)",
        "batch": "CASE WHEN mirror.digest = excluded.digest AND mirror.gone_at IS NULL "
        "THEN mirror.batch ELSE excluded.batch END",
    }
    changed = [column for column in table.columns if column not in _KEY_COLUMNS and column not in table.initial_values]
    return (
        ", ".join(f"{_quote(column)} = {rules.get(column, f'excluded.{_quote(column)}')}" for column in changed)
        + " WHERE mirror.resource_version < excluded.resource_version AND NOT "
        "(mirror.gone_at IS NOT NULL AND mirror.end_inferred AND mirror.uid = excluded.uid)"
    )


# How an end changes a row: it marks the row as gone and keeps the rest. An unknown object begins as a tombstone.
_TOMBSTONE_RULE: Final = (
    "uid = excluded.uid, gone_at = excluded.gone_at, "
    "end_inferred = excluded.resource_version <= mirror.resource_version, "
    "resource_version = CASE WHEN mirror.resource_version < excluded.resource_version "
    "THEN excluded.resource_version ELSE mirror.resource_version END, "
    "batch = CASE WHEN mirror.gone_at IS NULL THEN excluded.batch ELSE mirror.batch END "
    "WHERE mirror.resource_version < excluded.resource_version OR (mirror.gone_at IS NULL AND "
    "mirror.uid = excluded.uid AND excluded.resource_version IN (0, mirror.resource_version))"
)


@cache
def _render_columns(table: Table) -> str:
    return ", ".join(map(_quote, table.columns))


def _quote(name: str) -> str:
    return connection.ops.quote_name(name)
