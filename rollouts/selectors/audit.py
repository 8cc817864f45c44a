"""The audit log for lists, pages and export, one entry for each command.

A command that sent something has two rows, which are one entry here: its outcome, with the values from its beginning. A
command with only a beginning is shown as "Begun", because its outcome is unknown. A list costs two queries, an export
one for each thousand rows.
"""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

import orjson
from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from rollouts.accounts.commands import WorkloadRef
from rollouts.manifests.masking import PUBLIC_READER, mask_manifest, without_digests
from rollouts.models import AuditEntry
from rollouts.selectors.paging import Page, Window

_EXPORT_BATCH: Final = 1_000
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class AuditFilters:
    """Filters; an empty one matches all."""

    actor: str = ""
    command: str = ""
    result: str = ""
    cluster: str = ""
    namespace: str = ""
    name: str = ""
    since: datetime | None = None  # from this time on
    until: datetime | None = None  # before this time


@dataclass(frozen=True, slots=True)
class AuditItem:
    """A command in the audit log."""

    id: int
    at: datetime  # when it ended, or began if its outcome is unknown
    began_at: datetime
    actor: str
    token: str  # the name of the API token; empty: none
    via: str
    source_ip: str | None
    request_id: str
    command: str
    cluster: str
    namespace: str
    name: str
    result: str
    detail: str
    before: Any
    after: Any


COLUMNS: Final = tuple(field.name for field in fields(AuditItem))


def audit_list(filters: AuditFilters, window: Window) -> Page[AuditItem]:
    """Return a page of commands, the latest first."""
    rows = audit_rows(filters)
    return Page([_item(row) for row in rows[window.span]], rows.count(), window)


def audit_of_override(number: int) -> list[AuditItem]:
    """Return the commands to an override, the latest first."""
    rows = audit_rows(AuditFilters()).filter(command__in=("create_override", "change_override", "end_override"))
    return [_item(row) for row in rows.filter(after__id=number)]


async def audit_csv(rows: QuerySet[AuditEntry]) -> AsyncIterator[bytes]:
    """Yield a table of rows, the latest first, in chunks, because the audit log may not fit into memory."""
    rows = rows.select_related("begun").order_by("-pk")
    yield _render([COLUMNS])
    last: int | None = None
    while part := await sync_to_async(_read_part)(rows if last is None else rows.filter(pk__lt=last)):
        yield _render([_cell(getattr(item, name)) for name in COLUMNS] for item in part)
        last = part[-1].id


def place_filters(place: WorkloadRef) -> AuditFilters:
    """Return the filter for the commands to one workload."""
    return AuditFilters(cluster=place.cluster, namespace=place.namespace, name=place.name)


def audit_rows(filters: AuditFilters) -> QuerySet[AuditEntry]:
    """Return one row for each command that matches."""
    exact = {
        name: getattr(filters, name)
        for name in ("actor", "command", "result", "cluster", "namespace", "name")
        if getattr(filters, name)
    }
    rows = AuditEntry.objects.filter(outcome__isnull=True, **exact).select_related("begun")
    if filters.since is not None:
        rows = rows.filter(at__gte=filters.since)
    if filters.until is not None:
        rows = rows.filter(at__lt=filters.until)
    return rows


def _read_part(rows: QuerySet[AuditEntry]) -> list[AuditItem]:
    return [_item(row) for row in rows[:_EXPORT_BATCH]]


def _render(lines: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    return text.getvalue().encode()


def _cell(value: object) -> str:
    """Return a value as text that no spreadsheet takes for a formula."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return f"'{text}" if text.startswith(_FORMULA) else text


def _item(row: AuditEntry) -> AuditItem:
    begun = row.begun
    return AuditItem(
        id=row.pk,
        at=row.at,
        began_at=begun.at if begun else row.at,
        actor=row.actor,
        token=row.token,
        via=row.via,
        source_ip=row.source_ip,
        request_id=row.request_id,
        command=row.command,
        cluster=row.cluster,
        namespace=row.namespace,
        name=row.name,
        result=row.result,
        detail=without_digests(row.detail),
        before=mask_recorded(row.before if row.before is not None or begun is None else begun.before),
        after=mask_recorded(row.after if row.after is not None or begun is None else begun.after),
    )


def mask_recorded(value: Any) -> Any:
    """Return a stored value masked for the public, whatever masked it when it was stored."""
    return without_digests(mask_manifest(value, PUBLIC_READER.with_copies()))
