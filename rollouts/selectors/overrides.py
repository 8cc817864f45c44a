"""Strategy overrides for lists and pages, and those of one workload."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import NotFound
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.override_precedence import StrategyField, matches
from rollouts.models import StrategyOverride
from rollouts.selectors.paging import Page, Window
from rollouts.selectors.workload_snapshot import read_snapshot


@dataclass(frozen=True, slots=True)
class OverrideFilters:
    """Filters; an empty one matches all."""

    cluster: str = ""
    namespace: str = ""
    name: str = ""
    active: bool | None = None


@dataclass(frozen=True, slots=True)
class OverrideItem:
    """A stored override."""

    id: int
    # The workloads that it matches; an empty field matches all.
    cluster: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    strategy: Mapping[str, Any]  # what it sets, as in the body of the API
    reason: str
    author: str  # empty: the account was deleted
    created: datetime
    expires_at: datetime | None
    active: bool
    version: str


@dataclass(frozen=True, slots=True)
class WorkloadOverride:
    """An override in force that matches a workload, and what it sets there."""

    override: OverrideItem
    # The fields that it sets, such as `type` or `decode.maxSurge`; empty: others take precedence, or it is not valid.
    parts: tuple[str, ...]
    findings: tuple[Finding, ...]  # why it is not valid for the workload


def override_list(filters: OverrideFilters, window: Window) -> Page[OverrideItem]:
    """Return a page of overrides, the newest first."""
    rows = _rows(filters)
    return Page([make_item(row) for row in rows[window.span]], rows.count(), window)


def override_detail(number: int) -> OverrideItem:
    """Return one override, in force or ended; raises NotFound."""
    return make_item(find_override(number))


def find_override(number: int) -> StrategyOverride:
    """Return the row of an override, in force or ended; raises NotFound."""
    row = StrategyOverride.objects.select_related("author").filter(pk=number).first()
    if row is None:
        raise NotFound(f"There is no override {number}.")
    return row


def workload_overrides(place: WorkloadRef) -> list[WorkloadOverride]:
    """Return the overrides in force that match a workload, by precedence."""
    snapshot = read_snapshot(place)
    about = [one for one in snapshot.overrides if matches(one, snapshot.mirrored.manifest, place.cluster)]
    alive = [one for one in about if one.expires_at is None or one.expires_at > snapshot.now]
    rows = StrategyOverride.objects.select_related("author").in_bulk([one.id for one in alive])
    return [
        WorkloadOverride(
            make_item(rows[one.id]),
            tuple(_name(part) for part, source in snapshot.effective.sources.items() if source == one.id),
            tuple(finding for number, finding in snapshot.effective.ignored if number == one.id),
        )
        for one in sorted(alive, key=lambda one: one.precedence, reverse=True)
        if one.id in rows
    ]


def make_item(row: StrategyOverride) -> OverrideItem:
    """Return an override for lists and pages."""
    return OverrideItem(
        id=row.pk,
        cluster=row.cluster,
        namespace=row.namespace,
        name=row.name,
        labels=row.selector,
        strategy=row.settings,
        reason=row.reason,
        author=row.author.get_username() if row.author else "",
        created=row.created,
        expires_at=row.expires_at,
        active=row.is_in_force(timezone.now()),
        version=row.version,
    )


def _rows(filters: OverrideFilters) -> QuerySet[StrategyOverride]:
    exact = {name: getattr(filters, name) for name in ("cluster", "namespace", "name") if getattr(filters, name)}
    rows = StrategyOverride.objects.select_related("author").filter(**exact).order_by("-created", "-pk")
    if filters.active is None:
        return rows
    now = timezone.now()
    return rows.in_force(now) if filters.active else rows.ended(now)


def _name(part: StrategyField) -> str:
    return ".".join(filter(None, part))
