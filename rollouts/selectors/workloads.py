"""The list of workloads with its filters and counts, and one row of it.

The list reads columns of the mirror and no manifests. It costs four queries, and one for each cluster, however many
workloads there are: the clusters, the counts by state, the page, the overrides, and the manifests of workloads on the
page that an override matches. A search that matches pods or templates costs two more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from django.db.models import Count, F, QuerySet, Value
from django.db.models.functions import StrIndex
from django.db.models.lookups import GreaterThan

from rollouts import models
from rollouts.accounts.commands import WorkloadRef
from rollouts.manifests.workload_version import version_of
from rollouts.selectors.effective_strategies import (
    OverrideTarget,
    StrategyInForce,
    list_active_overrides,
    list_effective_strategies,
)
from rollouts.selectors.paging import Page, Window
from rollouts.selectors.search import FoundBy, find_matches, matches_term
from rollouts.selectors.timestamps import to_datetime, to_datetime_or_none
from rollouts.selectors.workload_snapshot import find_cluster, make_not_found, visible_clusters
from rollouts.selectors.workload_state import STATE_INDEX, STATES, State, choose_reason

# The orderings of the list, with their columns.
ORDERINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("name",),
    "namespace": ("namespace",),
    "cluster": ("cluster__name",),
    "state": ("state_index",),
    "created": ("created",),
    "replicas": ("replicas",),
    "available": ("available_replicas",),
    "updated": ("updated_replicas",),
    "started": ("update_started_at",),
}
_TIE_BREAKERS: Final = ("namespace", "name", "cluster__name")

_COLUMNS: Final = (
    *("id", "cluster__name", "namespace", "name", "uid", "generation", "labels", "created", "leaving", "replicas"),
    *("available_replicas", "updated_replicas", "strategy", "generation_hash", "update_started_at"),
    *("update_ended_at", "progressing_reason", "stuck_reason", "waits_for", "fault_reason", "state_index"),
)


@dataclass(frozen=True, slots=True)
class WorkloadFilters:
    """Filters; an empty one matches all."""

    clusters: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()  # effective
    states: tuple[State, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()  # all must match
    search: str = ""  # words; see `search`
    ordering: tuple[str, ...] = ()  # keys of ORDERINGS, with a minus for descending


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """A workload in a list."""

    cluster: str
    namespace: str
    name: str
    uid: str
    version: str
    created: datetime
    labels: Mapping[str, str]
    leaving: bool
    state: State
    reason: str  # CamelCase: the reason for the state
    waits_for: str  # CamelCase: what an update in progress waits for; empty: nothing, or it is stuck
    replicas: int
    available_replicas: int
    updated_replicas: int
    strategy: StrategyInForce
    generation_hash: str  # empty until the controller has reconciled it
    update_started_at: datetime | None
    update_ended_at: datetime | None
    # The pod or template that matched the search, if the names do not.
    found_by: FoundBy | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class WorkloadPage:
    """A page of the list, and the counts by state without the filter by state."""

    page: Page[WorkloadSummary]
    totals: Mapping[State, int]


def workload_list(filters: WorkloadFilters, window: Window) -> WorkloadPage:
    """Return a page of workloads with their effective strategies."""
    clusters = visible_clusters()
    overrides = list_active_overrides(clusters)
    rows = _filter(models.Workload.objects.filter(cluster__in=[row.pk for row in clusters.values()]), filters)
    if filters.strategies:
        rows = rows.filter(id__in=_list_ids_with_strategy(rows, filters.strategies, overrides))
    rows = rows.annotate(state_index=STATE_INDEX)
    totals = _count(rows)
    if filters.states:
        rows = rows.filter(state_index__in=[STATES.index(state) for state in filters.states])
    count = sum(number for state, number in totals.items() if not filters.states or state in filters.states)
    lines = list(rows.order_by(*_order(filters.ordering)).values(*_COLUMNS)[window.span])
    strategies = list_effective_strategies([_override_target(line) for line in lines], overrides)
    items = [_summary(line, strategies[line["id"]]) for line in lines]
    met = find_matches(filters.search, items)
    return WorkloadPage(Page([replace(one, found_by=met.get(one.uid)) for one in items], count, window), totals)


def workload_summary(place: WorkloadRef) -> WorkloadSummary:
    """Return one workload as in the list; raises NotFound."""
    cluster = find_cluster(place.cluster)
    rows = models.Workload.objects.filter(cluster=cluster, namespace=place.namespace, name=place.name)
    line = rows.annotate(state_index=STATE_INDEX).values(*_COLUMNS).first()
    if line is None:
        raise make_not_found(place, cluster)
    strategies = list_effective_strategies([_override_target(line)], list_active_overrides([cluster.name]))
    return _summary(line, strategies[line["id"]])


# ---- filters


def _filter(rows: "QuerySet[models.Workload]", filters: WorkloadFilters) -> "QuerySet[models.Workload]":
    equal = {
        "cluster__name__in": filters.clusters,
        "namespace__in": filters.namespaces,
        "name__in": filters.names,
    }
    rows = rows.filter(**{lookup: wanted for lookup, wanted in equal.items() if wanted})
    for label, value in filters.labels:
        rows = rows.filter(_has_label(label, value))
    for word in filters.search.split():
        rows = rows.filter(matches_term(word))
    return rows


def _has_label(label: str, value: str) -> GreaterThan:
    """Return the condition for a label, which searches the JSON text of the labels.

    Neither labels nor their values can contain a quote, so the quoted pair matches only itself. LIKE would ignore case
    on some databases.
    """
    pair = f'"{label}":"{value}"'
    return GreaterThan(StrIndex(F("labels"), Value(pair)), 0)


def _list_ids_with_strategy(
    rows: "QuerySet[models.Workload]", wanted: tuple[str, ...], overrides: Mapping[str, Sequence[Any]]
) -> list[int]:
    columns = ("id", "cluster__name", "namespace", "name", "labels", "strategy", "uid", "generation")
    candidates = [_override_target(line) for line in rows.values(*columns)]
    strategies = list_effective_strategies(candidates, overrides)
    return [one.id for one in candidates if strategies[one.id].type in wanted]


def _count(rows: "QuerySet[Any]") -> dict[State, int]:
    numbers = dict(rows.order_by().values_list("state_index").annotate(number=Count("id")))
    return {state: numbers.get(index, 0) for index, state in enumerate(STATES)}


def _order(ordering: tuple[str, ...]) -> list[str]:
    columns = [
        f"{'-' if word.startswith('-') else ''}{column}"
        for word in ordering
        for column in ORDERINGS[word.removeprefix("-")]
    ]
    named = {column.removeprefix("-") for column in columns}
    # The ordering is always total: with ties, a row could be on two pages, or on none.
    return [*columns, *(column for column in _TIE_BREAKERS if column not in named)]


# ---- rows


def _override_target(line: Mapping[str, Any]) -> OverrideTarget:
    return OverrideTarget(
        id=line["id"],
        cluster=line["cluster__name"],
        namespace=line["namespace"],
        name=line["name"],
        labels=line["labels"],
        strategy=line["strategy"],
        uid=line["uid"],
        generation=line["generation"],
    )


def _summary(line: Mapping[str, Any], strategy: StrategyInForce) -> WorkloadSummary:
    return WorkloadSummary(
        cluster=line["cluster__name"],
        namespace=line["namespace"],
        name=line["name"],
        uid=line["uid"],
        version=version_of(line["uid"], line["generation"]),
        created=to_datetime(line["created"]),
        labels=line["labels"],
        leaving=line["leaving"],
        state=STATES[line["state_index"]],
        reason=choose_reason(line),
        waits_for=line["waits_for"],
        replicas=line["replicas"],
        available_replicas=line["available_replicas"],
        updated_replicas=line["updated_replicas"],
        strategy=strategy,
        generation_hash=line["generation_hash"],
        update_started_at=to_datetime_or_none(line["update_started_at"]),
        update_ended_at=to_datetime_or_none(line["update_ended_at"]),
    )
