"""Checks a draft of a strategy override: what is wrong with it, and what it would change in which workloads.

Before it: API and admin, which build the draft. After it: `overrides`, which stores it if the check finds no error. The
admin form runs the check whenever the user stops typing, so the number of queries is constant and the number of
workloads is limited. The invariant: the preview uses `effective_strategy`, as the reconciler does.

An override may match workloads for which it is not valid: those keep their strategy, and the check names them. An
override that is valid for none of the workloads that it matches is refused, because it would have no effect.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone

from rollouts.accounts.commands import WorkloadRef
from rollouts.controller.effective_strategy import (
    EffectiveStrategy,
    StrategySource,
    compute_effective_strategy,
    parse_override,
)
from rollouts.engine.manifest.field_types import FieldError, StringType, is_dns_label
from rollouts.engine.manifest.findings import Finding, FindingCode, ValidationReport
from rollouts.engine.manifest.override_precedence import Override, StrategyField, matches
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.manifest.schema import BUDGET_FIELDS
from rollouts.engine.manifest.set_manifest import FieldValue as Written
from rollouts.engine.manifest.validation import validate_create
from rollouts.engine.manifest.validation.pods import check_labels
from rollouts.engine.model.budget import parse_budget
from rollouts.engine.model.workload import IntOrPercent, Strategy
from rollouts.engine.rollout.levels import Level, list_levels
from rollouts.models import StrategyOverride, Workload
from rollouts.runtime.connections import configured_cluster_names

MAX_DAYS: Final = 90
"""A change that should last longer belongs in the manifest."""
MAX_REASON_CHARACTERS: Final = 2_000
MAX_COMPONENTS: Final = 128
MAX_CHECKED: Final = 200
"""How many workloads of one override are computed and shown; the others are counted."""
DRAFT_ID: Final = -1
"""The id of a draft among the sources of a strategy."""

_MAX_NAMES: Final = 6
_TYPE: Final = StringType(choices=tuple(Strategy))
_INVALID_NAME: Final = (
    "{field} may contain only lower-case letters, digits and hyphens, at most 63 characters; correct it, or leave it "
    "empty"
)


@dataclass(frozen=True, slots=True)
class OverrideDraft:
    """An override that is not stored yet."""

    # The workloads that it matches; an empty field matches all.
    cluster: str = ""
    namespace: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # What it sets; a part that is empty or None is not set.
    strategy: str = ""
    max_unavailable: IntOrPercent | None = None
    max_surge: IntOrPercent | None = None
    # By clique or scaling group; None in place of a budget removes the one in the manifest.
    components: Mapping[str, Mapping[str, IntOrPercent | None] | None] = field(default_factory=dict)
    reason: str = ""
    expires_at: datetime | None = None

    @property
    def place(self) -> WorkloadRef:
        """The cluster, namespace and workload that it matches; empty parts match all."""
        return WorkloadRef(self.cluster, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class ResolvedStrategy:
    """An effective strategy, level by level."""

    strategy: Strategy
    levels: tuple[Level, ...]
    sources: Mapping[StrategyField, StrategySource]


@dataclass(frozen=True, slots=True)
class AffectedWorkload:
    """What an override would do to one workload."""

    place: WorkloadRef
    # None: the manifest cannot be parsed; `after` also when the draft has errors.
    before: ResolvedStrategy | None
    after: ResolvedStrategy | None
    findings: tuple[Finding, ...] = ()  # errors; with any, the workload keeps its strategy
    warnings: tuple[Finding, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether the effective strategy would change."""
        return None not in (self.before, self.after) and _strategy_key(self.before) != _strategy_key(self.after)


@dataclass(frozen=True, slots=True)
class OverrideCheck:
    """The result of a check."""

    affected: tuple[AffectedWorkload, ...]  # by name
    total: int  # how many workloads it matches, including those that were not computed
    findings: tuple[Finding, ...]  # errors; with any, it is refused
    warnings: tuple[Finding, ...]
    keys: tuple[str, ...]  # of all workloads that it matches, for the queue


def override_check(draft: OverrideDraft, replacing: StrategyOverride | None = None) -> OverrideCheck:
    """Check a draft; `replacing` is the override that it changes."""
    now = timezone.now()
    whom, what, why = [*_check_target(draft)], [*_check_settings(draft)], [*_check_reason_and_expiry(draft, now)]
    if whom:
        return _build_check(draft, (), (), [*whom, *what, *why])
    override = None if what else parse_override(build_row(draft, replacing, now))
    others = _list_other_overrides(now, replacing)
    rows = [*_list_affected(parse_override(build_row(draft, replacing, now, without_settings=True)))]
    manifests = _fetch_manifests([pk for pk, _ in rows[:MAX_CHECKED]])
    former = None if replacing is None else parse_override(replacing)
    found = tuple(
        _compute_affected(place, manifests[pk], _Overrides(others, former, override), now.timestamp())
        for pk, place in rows[:MAX_CHECKED]
        if pk in manifests
    )
    known = [_component_names(manifest) for manifest in manifests.values()]
    unknown = [] if what else [*_check_component_names(draft, known, len(rows))]
    return _build_check(draft, found, [place for _, place in rows], [*what, *why, *unknown])


def build_row(
    draft: OverrideDraft, former: StrategyOverride | None, now: datetime, *, without_settings: bool = False
) -> StrategyOverride:
    """Return the row of a draft without storing it; an end that is missing or in the past becomes None."""
    row = StrategyOverride(
        pk=former.pk if former else DRAFT_ID,
        created=former.created if former else now,
        author=former.author if former else None,
        cluster=draft.cluster,
        namespace=draft.namespace,
        name=draft.name,
        selector={**draft.labels},
        reason=draft.reason.strip(),
        expires_at=draft.expires_at if draft.expires_at and draft.expires_at > now else None,
    )
    if not without_settings:
        row.strategy = draft.strategy
        row.max_unavailable = _text(draft.max_unavailable)
        row.max_surge = _text(draft.max_surge)
        row.components = {
            name: None if budget is None else {part: parse_budget(value) for part, value in budget.items()}
            for name, budget in draft.components.items()
        }
    return row


def list_affected_keys(row: StrategyOverride) -> list[str]:
    """Return the keys of the workloads that an override matches, in force or not."""
    return [place.key for _, place in _list_affected(parse_override(row))]


# ---- errors of the draft itself


def _check_target(draft: OverrideDraft) -> Iterator[Finding]:
    for name in ("namespace", "name"):
        value = getattr(draft, name)
        if value and not is_dns_label(value):
            yield FieldError(FindingCode.INVALID_NAME, _INVALID_NAME).to_finding(name)
    configured = configured_cluster_names()
    if draft.cluster and draft.cluster not in configured:
        there = ", ".join(configured) or "none"
        yield Finding(
            "cluster", FindingCode.UNKNOWN_VALUE, f"no cluster {draft.cluster!r} is configured; there are: {there}"
        )
    yield from check_labels(Written({**draft.labels}, "labels"))


def _check_settings(draft: OverrideDraft) -> Iterator[Finding]:
    budgets = {"maxUnavailable": draft.max_unavailable, "maxSurge": draft.max_surge}
    if not draft.strategy and not draft.components and all(value in (None, "") for value in budgets.values()):
        yield Finding(
            "strategy",
            FindingCode.SETS_NOTHING,
            "an override must set something: a strategy type, a budget, or the budget of a component",
        )
    if draft.strategy and (fault := _TYPE.find_error(draft.strategy)):
        yield fault.to_finding("strategy.type")
    yield from _check_budget(budgets, "strategy")
    if len(draft.components) > MAX_COMPONENTS:
        sentence = f"components may have at most {MAX_COMPONENTS} entries; remove some"
        yield Finding("strategy.components", FindingCode.TOO_MANY, sentence)
    for name, budget in draft.components.items():
        yield from _check_component(name, budget)


def _check_component(name: str, budget: Mapping[str, Any] | None) -> Iterator[Finding]:
    path = f"strategy.components.{name}"
    if not is_dns_label(name):
        sentence = f"{name[:63]!r} is not a valid name of a clique or scaling group"
        yield Finding("strategy.components", FindingCode.INVALID_NAME, sentence)
        return
    if budget is None:
        return
    if unknown := sorted(budget.keys() - BUDGET_FIELDS.keys()):
        yield Finding(
            path, FindingCode.UNKNOWN_VALUE, f"a component has only maxUnavailable and maxSurge, not {unknown[0][:63]}"
        )
    if not budget:
        sentence = "this sets nothing; write maxUnavailable or maxSurge, or null to remove the budget of the manifest"
        yield Finding(path, FindingCode.SETS_NOTHING, sentence)
    yield from _check_budget({key: value for key, value in budget.items() if key in BUDGET_FIELDS}, path)


def _check_budget(budget: Mapping[str, IntOrPercent | None], path: str) -> Iterator[Finding]:
    for name, value in budget.items():
        if value not in (None, "") and (fault := BUDGET_FIELDS[name].find_error(parse_budget(value))):
            yield fault.to_finding(f"{path}.{name}")


def _check_reason_and_expiry(draft: OverrideDraft, now: datetime) -> Iterator[Finding]:
    if not draft.reason.strip():
        yield Finding(
            "reason",
            FindingCode.FIELD_MISSING,
            "give a reason: other users need it to decide whether the override is still needed",
        )
    elif len(draft.reason) > MAX_REASON_CHARACTERS:
        yield FieldError(
            FindingCode.TOO_LONG, f"{{field}} may have at most {MAX_REASON_CHARACTERS} characters"
        ).to_finding("reason")
    if draft.expires_at is None:
        yield Finding("expires_at", FindingCode.FIELD_MISSING, f"choose an end, at most {MAX_DAYS} days from now")
    elif draft.expires_at <= now:
        yield Finding("expires_at", FindingCode.OUT_OF_RANGE, "this time is in the past; choose a later one")
    elif draft.expires_at > now + timedelta(days=MAX_DAYS):
        sentence = f"choose an end at most {MAX_DAYS} days from now; a longer change belongs in the manifest"
        yield Finding("expires_at", FindingCode.OUT_OF_RANGE, sentence)


def _check_component_names(draft: OverrideDraft, known: Sequence[frozenset[str]], total: int) -> Iterator[Finding]:
    """Yield the components that no matching workload has; with no workload now, any name is accepted."""
    if not known or len(known) < total:
        return
    everything = sorted(frozenset[str]().union(*known))
    for name in sorted(draft.components.keys() - {*everything}):
        there = ", ".join(everything[:_MAX_NAMES]) + (", …" if len(everything) > _MAX_NAMES else "")
        sentence = f"no workload that it matches has a clique or scaling group {name!r}; they have {there}"
        yield Finding(f"strategy.components.{name}", FindingCode.UNKNOWN_COMPONENT, sentence)


# ---- the workloads that it matches


def _list_affected(override: Override) -> Iterator[tuple[int, WorkloadRef]]:
    """Yield the matching workloads with their row ids, by name."""
    given = {"cluster__name": override.cluster, "namespace": override.namespace, "name": override.name}
    rows = (
        Workload.objects.filter(
            cluster__name__in=configured_cluster_names(), **{name: value for name, value in given.items() if value}
        )
        .order_by("cluster__name", "namespace", "name")
        .values_list("pk", "cluster__name", "namespace", "name", "labels")
    )
    for pk, cluster, namespace, name, labels in rows:
        metadata = {"namespace": namespace, "name": name, "labels": labels}
        if matches(override, {"metadata": metadata}, cluster):
            yield pk, WorkloadRef(cluster, namespace, name)


def _fetch_manifests(pks: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    return dict(Workload.objects.filter(pk__in=pks).values_list("pk", "manifest"))


def _list_other_overrides(now: datetime, replacing: StrategyOverride | None) -> list[Override]:
    rows = StrategyOverride.objects.in_force(now)
    return [parse_override(row) for row in rows if replacing is None or row.pk != replacing.pk]


# ---- what it changes


@dataclass(frozen=True, slots=True)
class _Overrides:
    """The overrides in force before and after the change."""

    others: Sequence[Override]
    former: Override | None  # the override that is changed
    draft: Override | None  # None: it has errors

    @property
    def before(self) -> list[Override]:
        return [*self.others, *([self.former] if self.former else [])]

    @property
    def after(self) -> list[Override]:
        return [*self.others, *([self.draft] if self.draft else [])]


def _compute_affected(
    place: WorkloadRef, manifest: Mapping[str, Any], overrides: _Overrides, now: float
) -> AffectedWorkload:
    was = compute_effective_strategy(manifest, overrides.before, now, cluster=place.cluster)
    before = _resolve_strategy(was)
    if before is None or overrides.draft is None:
        return AffectedWorkload(place, before, None)
    will = compute_effective_strategy(manifest, overrides.after, now, cluster=place.cluster)
    findings = tuple(finding for number, finding in will.ignored if number == overrides.draft.id)
    warnings = () if findings else _compute_warnings(overrides.draft, was, will)
    return AffectedWorkload(place, before, _resolve_strategy(will), findings, tuple(warnings))


def _resolve_strategy(effective: EffectiveStrategy) -> ResolvedStrategy | None:
    workload = parse_workload(effective.manifest)
    if isinstance(workload, ParseFailure):
        return None
    return ResolvedStrategy(workload.strategy, list_levels(workload), effective.sources)


def _compute_warnings(draft: Override, was: EffectiveStrategy, will: EffectiveStrategy) -> Iterator[Finding]:
    """Yield warnings: parts that another override sets, overrides that stop being valid, and warnings of the result."""
    for part in draft.settings:
        winner = will.sources.get(part)
        if isinstance(winner, int) and winner != draft.id:
            what = " ".join(filter(None, part))
            yield Finding(
                _field_path(part),
                FindingCode.OUTRANKED,
                f"override {winner} is more specific and sets {what}",
            )
    ignored_before = {number for number, _ in was.ignored}
    for number, finding in will.ignored:
        if number not in ignored_before:
            yield Finding(
                "", FindingCode.PUSHED_OUT, f"override {number} would no longer be valid here: {finding.message}"
            )
    if will.manifest != was.manifest:
        known = {*validate_create(was.manifest).warnings}
        yield from (one for one in validate_create(will.manifest).warnings if one not in known)


def _build_check(
    draft: OverrideDraft, found: Sequence[AffectedWorkload], places: Sequence[WorkloadRef], findings: Iterable[Finding]
) -> OverrideCheck:
    errors, warnings = [*findings], []
    refused = [hit for hit in found if hit.findings]
    if refused and len(refused) == len(found) == len(places):
        errors.append(_refused_everywhere(refused))
    if not places and not errors:
        sentence = "no workload matches now; the override applies to workloads that match later"
        warnings.append(Finding("", FindingCode.HITS_NOTHING, sentence))
    report = ValidationReport.of(errors, warnings)
    return OverrideCheck(
        tuple(found), len(places), report.errors, report.warnings, tuple(place.key for place in places)
    )


def _refused_everywhere(refused: Sequence[AffectedWorkload]) -> Finding:
    first = refused[0]
    whom = "the only workload" if len(refused) == 1 else f"all {len(refused)} workloads"
    sentence = f"the override is not valid for {whom} that it matches; {first.place}: {first.findings[0].message}"
    return Finding("strategy", FindingCode.REFUSED_EVERYWHERE, sentence)


def _component_names(manifest: Mapping[str, Any]) -> frozenset[str]:
    workload = parse_workload(manifest)
    if isinstance(workload, ParseFailure):
        return frozenset()
    return frozenset([*(clique.name for clique in workload.cliques), *(group.name for group in workload.groups)])


def _strategy_key(in_force: ResolvedStrategy | None) -> object:
    return in_force and (in_force.strategy, in_force.levels)


def _field_path(part: StrategyField) -> str:
    component, name = part
    return f"strategy.components.{component}.{name}" if component else f"strategy.{name}"


def _text(value: IntOrPercent | None) -> str | None:
    return None if value in (None, "") else str(value)
