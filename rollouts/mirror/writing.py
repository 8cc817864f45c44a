"""How rows move: forward only, whoever writes and in whatever order.

`rows` says what a row holds; here is when it may take the place of another. The rules are part of the statements, so
the database itself compares and sets, and a row ends the same however writers interleave:

    news          takes the place of a row with a smaller resourceVersion, also when that was another object of the name
    an end        marks an older row gone; it stays for a while as a tombstone, since news from before the end must not
                  bring the object back
    leaving       stays until the object is gone: a deletionTimestamp is never taken back

An end that is told (a DELETED event) carries the resourceVersion of the deletion, and news after it is true: an object
may leave the view of a label selector and come back. An end that is concluded (an answer `NotFound`) has no
resourceVersion; it ends the row of just that uid, and all further news of that uid is late news.

The cost does not depend on how many objects there are: one statement for news and one for ends, a thousand rows each.
"""

import logging
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from django.db import OperationalError, connection, transaction

from rollouts import models
from rollouts.cluster import Obj, Resource
from rollouts.mirror.rows import MIRRORED, Row, Table, make_row

logger = logging.getLogger(__name__)

# SQLite takes 32,766 parameters in a statement; the widest table has 29 columns.
_ROWS_A_STATEMENT: Final = 1000
_TRIES: Final = 5
_DEADLOCK: Final = "40P01"  # PostgreSQL's code


@dataclass(frozen=True, slots=True)
class Changes:
    """What was heard of one kind: objects as they are now, and objects that are gone, as they were last."""

    resource: Resource
    objects: Sequence[Obj] = ()
    gone: Sequence[Obj] = ()


@dataclass(frozen=True, slots=True)
class News:
    """An object whose row says something else than before."""

    resource: Resource
    namespace: str
    name: str
    workload: str  # name of the set it belongs to; its own name for a set, empty for what belongs to none
    is_gone: bool


@dataclass(frozen=True, slots=True)
class _Write:
    """One kind's part of a transaction, as rows in the order of their names."""

    resource: Resource
    table: Table
    rows: Sequence[Row]
    ends: Sequence[Row] = field(default_factory=tuple)


def ensure_cluster(name: str, source: str = "") -> models.Cluster:
    """Return the row of a cluster, made if it is not there."""
    cluster, _ = models.Cluster.objects.get_or_create(name=name, defaults={"source": source})
    if source and cluster.source != source:
        cluster.source = source
        cluster.save(update_fields=["source"])
    return cluster


def store(cluster: models.Cluster, resource: Resource, objects: Iterable[Obj], gone: Iterable[Obj] = ()) -> set[str]:
    """Take in objects of a kind as they are now, and ends; return the keys of the workloads for which it was news.

    An end that was concluded comes as metadata without a resourceVersion.
    """
    return workload_keys(cluster, store_all(cluster, [Changes(resource, tuple(objects), tuple(gone))]))


def store_all(cluster: models.Cluster, changes: Iterable[Changes]) -> list[News]:
    """Take in objects of several kinds in one transaction, and return what of it was news."""
    writes = [_prepare(cluster, part) for part in _merged(changes)]
    if not writes:
        return []
    for attempt in range(_TRIES):
        try:
            with transaction.atomic():
                return [news for write in writes for news in _write(write)]
        except OperationalError as error:
            # Two writers of the same rows have met in opposite order, and the database has sent one of them back.
            if not _is_deadlock(error) or attempt == _TRIES - 1 or connection.in_atomic_block:
                raise
    raise AssertionError("unreachable")


def replace(
    cluster: models.Cluster,
    resource: Resource,
    keys: Collection[tuple[str, str]],
    resource_version: str,
) -> set[str]:
    """Mark as gone what a complete list of a kind does not have; return the keys of the workloads that lost something.

    What is newer than the list stays: it was made after the list was.
    """
    return workload_keys(cluster, end_all_but(cluster, resource, keys, resource_version))


def end_all_but(
    cluster: models.Cluster, resource: Resource, keys: Collection[tuple[str, str]], resource_version: str
) -> list[News]:
    """Do what `replace` does, and return what of it was news."""
    table, version = MIRRORED[resource], int(resource_version)
    listed = keys if isinstance(keys, set | frozenset) else set(keys)
    older = table.model.objects.filter(cluster=cluster, resource_version__lte=version)
    columns = ("id", "namespace", "name", "workload" if table.has_workload else "name")
    missing = sorted(row for row in older.values_list(*columns) if (row[1], row[2]) not in listed)
    for part in _parts(missing):
        # Only what is still as it was read: somebody may have heard of a newer object meanwhile.
        older.filter(id__in=[row[0] for row in part]).update(
            gone_at=time.time(), resource_version=version, end_inferred=False
        )
    return [_news(resource, namespace, name, workload, is_gone=True) for _, namespace, name, workload in missing]


def mark_leaving(cluster: models.Cluster, resource: Resource, namespace: str, name: str, uid: str) -> None:
    """Note that an object was asked to leave, when the answer did not bring the object itself."""
    rows = MIRRORED[resource].model.objects.filter(cluster=cluster, namespace=namespace, name=name, uid=uid)
    rows.update(leaving=True)


def purge(before: float) -> int:
    """Drop the tombstones of what ended before a moment; return how many."""
    return sum(table.model.everything.filter(gone_at__lt=before).delete()[0] for table in MIRRORED.values())


def forget(cluster: models.Cluster) -> None:
    """Drop everything that is known of a cluster's objects, to be listed anew."""
    with transaction.atomic():
        models.Cluster.objects.filter(pk=cluster.pk).update(complete=False)
        for table in MIRRORED.values():
            table.model.everything.filter(cluster=cluster).delete()


def workload_keys(cluster: models.Cluster, news: Iterable[News]) -> set[str]:
    """Return the keys of the workloads that the news is about."""
    return {f"{cluster.name}/{part.namespace}/{part.workload}" for part in news if part.workload}


def _is_deadlock(error: OperationalError) -> bool:
    return getattr(error.__cause__, "sqlstate", None) == _DEADLOCK


def _merged(changes: Iterable[Changes]) -> list[Changes]:
    """Join the changes of each kind, and put the kinds in a fixed order: writers meet in the same one."""
    by_kind: dict[Resource, tuple[list[Obj], list[Obj]]] = {}
    for part in changes:
        objects, gone = by_kind.setdefault(part.resource, ([], []))
        objects += part.objects
        gone += part.gone
    return [Changes(resource, *by_kind[resource]) for resource in MIRRORED if resource in by_kind]


def _prepare(cluster: models.Cluster, changes: Changes) -> _Write:
    table = MIRRORED[changes.resource]
    batch = secrets.randbits(62) + 1
    fixed: Row = {"cluster_id": cluster.pk, "gone_at": None, "end_inferred": False, "batch": batch}
    rows = [make_row(table, obj) | fixed for obj in changes.objects]
    ends = [make_row(table, obj) | fixed for obj in changes.gone]
    for row in ends:
        row |= {"gone_at": time.time(), "end_inferred": row["resource_version"] == 0}
    return _Write(changes.resource, table, _newest_of_each_name(rows), _newest_of_each_name(ends))


def _newest_of_each_name(rows: Iterable[Row]) -> list[Row]:
    """Return one row a name, in the order of names: a statement may touch a row once only."""
    newest: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["namespace"], row["name"])
        if key not in newest or row["resource_version"] >= newest[key]["resource_version"]:
            newest[key] = row
    return [newest[key] for key in sorted(newest)]


def _write(write: _Write) -> Iterator[News]:
    for part in _parts(write.rows):
        yield from _execute(write, _news_statement(write.table, len(part)), part, is_gone=False)
    for part in _parts(write.ends):
        yield from _execute(write, _end_statement(write.table, len(part)), part, is_gone=True)


def _execute(write: _Write, statement: str, rows: Sequence[Row], *, is_gone: bool) -> list[News]:
    columns = write.table.columns
    batch = rows[0]["batch"]
    with connection.cursor() as cursor:
        cursor.execute(statement, [row[column] for row in rows for column in columns])
        touched = cursor.fetchall()
    return [_news(write.resource, *row[:3], is_gone=is_gone) for row in touched if row[3] == batch]


def _news(resource: Resource, namespace: str, name: str, workload: str, *, is_gone: bool) -> News:
    return News(resource, namespace, name, workload if resource.namespaced else "", is_gone)


def _parts(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (rows[start : start + _ROWS_A_STATEMENT] for start in range(0, len(rows), _ROWS_A_STATEMENT))


@lru_cache(maxsize=32)
def _news_statement(table: Table, count: int) -> str:
    """Return the statement that takes in news: a row is replaced by a newer one, as long as it may come back."""
    rules = {
        "leaving": "excluded.leaving OR (mirror.leaving AND mirror.uid = excluded.uid)",
        "batch": "CASE WHEN mirror.digest = excluded.digest AND mirror.gone_at IS NULL "
        "THEN mirror.batch ELSE excluded.batch END",
    }
    changed = [column for column in table.columns if column not in _KEY and column not in table.notes]
    return _upsert(
        table,
        count,
        {column: rules.get(column, f"excluded.{_quote(column)}") for column in changed},
        "mirror.resource_version < excluded.resource_version AND NOT "
        "(mirror.gone_at IS NOT NULL AND mirror.end_inferred AND mirror.uid = excluded.uid)",
    )


@lru_cache(maxsize=32)
def _end_statement(table: Table, count: int) -> str:
    """Return the statement that marks as gone; a name nobody knew of gets a tombstone too."""
    return _upsert(
        table,
        count,
        {
            "uid": "excluded.uid",
            "gone_at": "excluded.gone_at",
            "end_inferred": "excluded.resource_version <= mirror.resource_version",
            "resource_version": "CASE WHEN mirror.resource_version < excluded.resource_version "
            "THEN excluded.resource_version ELSE mirror.resource_version END",
            "batch": "CASE WHEN mirror.gone_at IS NULL THEN excluded.batch ELSE mirror.batch END",
        },
        "mirror.resource_version < excluded.resource_version OR (mirror.gone_at IS NULL AND "
        "mirror.uid = excluded.uid AND excluded.resource_version IN (0, mirror.resource_version))",
    )


_KEY: Final = ("cluster_id", "namespace", "name")


def _upsert(table: Table, count: int, changes: dict[str, str], condition: str) -> str:
    """Return an INSERT of so many rows that changes the rows that are there, where the condition holds."""
    name = _quote(table.name)
    places = "(" + ", ".join(["%s"] * len(table.columns)) + ")"
    belongs = "workload" if table.has_workload else "name"
    return (
        f"INSERT INTO {name} AS mirror ({', '.join(map(_quote, table.columns))}) "  # noqa: S608 (names of our own)
        f"VALUES {', '.join([places] * count)} "
        f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET "
        f"{', '.join(f'{_quote(column)} = {value}' for column, value in changes.items())} "
        f"WHERE {condition} RETURNING namespace, name, {belongs}, batch"
    )


def _quote(name: str) -> str:
    return connection.ops.quote_name(name)
