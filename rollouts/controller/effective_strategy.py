"""The effective strategy: the strategy of a manifest, with overrides applied (docs/semantics.md, 15 Overrides).

Before it: a PodCliqueSet as stored, and the overrides of its cluster. After it: the reconciler plans with the resulting
manifest; pages and API show where each field comes from. Overrides are applied only here.

The invariants: an override changes nothing but the strategy, so it never starts a rollout; a valid manifest stays
valid, because an override that the engine's rules reject for this workload is ignored and reported; each field comes
from the most specific override that sets it (name before labels before namespace before cluster, then the newest), and
a less specific override never displaces a more specific one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from django.db import connection
from django.utils import timezone

from rollouts.engine.manifest.strategy_parts import MAX_SURGE, MAX_UNAVAILABLE, STRATEGY_TYPE, put_strategy_parts
from rollouts.engine.manifest.validation import Finding, validate_create, validate_update
from rollouts.engine.model.budget import DEFAULT_MAX_SURGE, DEFAULT_MAX_UNAVAILABLE, parse_budget
from rollouts.engine.model.workload import IntOrPercent
from rollouts.models import StrategyOverride

Obj = Mapping[str, Any]
StrategySource = Literal["workload", "default"] | int
"""Where a field comes from: the manifest, a default, or the override with this id."""

_BUDGET_DEFAULTS: Final = {MAX_UNAVAILABLE: DEFAULT_MAX_UNAVAILABLE, MAX_SURGE: DEFAULT_MAX_SURGE}
_COMPONENT_LISTS: Final = ("cliques", "podCliqueScalingGroups")

StrategyField = tuple[str, str]
"""A field of a strategy: the name of a clique or scaling group, empty for the set itself, and the field's name."""


@dataclass(frozen=True, slots=True)
class Override:
    """An override of the strategy of some workloads."""

    id: int
    # Which workloads it matches; an empty value matches all.
    cluster: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    # What it sets. None removes a field, so that the default applies.
    settings: Mapping[StrategyField, IntOrPercent | None]
    created: float
    expires_at: float | None  # seconds since the epoch; None: never

    @property
    def precedence(self) -> tuple[bool | float, ...]:
        """How specific it is; the override with the higher value wins."""
        return bool(self.name), bool(self.labels), bool(self.namespace), bool(self.cluster), self.created, self.id


@dataclass(frozen=True, slots=True)
class EffectiveStrategy:
    """The strategy of a workload that applies now."""

    manifest: Obj  # the given manifest with the fields of overrides; shares the rest of its objects
    sources: Mapping[StrategyField, StrategySource]
    # Overrides that match this workload and would make it invalid, each with what is wrong.
    ignored: tuple[tuple[int, Finding], ...]
    # When the first of the matching overrides expires; None: never.
    next_expiry: float | None


def list_overrides(cluster: str) -> list[Override]:
    """Return the overrides of a cluster that have not expired."""
    # Every pass runs this query; written by hand it takes a third of the time.
    statement = (
        "SELECT * FROM rollouts_strategyoverride WHERE (cluster = '' OR cluster = %s)"
        " AND (expires_at IS NULL OR expires_at > %s)"
    )
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    return [parse_override(row) for row in StrategyOverride.objects.raw(statement, [cluster, now])]


def compute_effective_strategy(
    manifest: Obj, overrides: Iterable[Override], now: float, *, cluster: str
) -> EffectiveStrategy:
    """Return the effective strategy of a stored workload."""
    matching = [one for one in overrides if matches(one, manifest, cluster) and not _has_expired(one, now)]
    merge = _OverrideMerge(manifest)
    for override in sorted(matching, key=lambda one: one.precedence, reverse=True):
        merge.apply(override)
    until = min((one.expires_at for one in matching if one.expires_at is not None), default=None)
    return EffectiveStrategy(merge.manifest, _compute_sources(manifest, merge), tuple(merge.ignored), until)


# ---- which workloads an override matches


def matches(override: Override, manifest: Obj, cluster: str) -> bool:
    """Return whether an override matches a workload; reads only the metadata of the manifest."""
    metadata = manifest.get("metadata") or {}
    labels = metadata.get("labels") or {}
    wanted = ((override.cluster, cluster), (override.namespace, metadata.get("namespace")))
    return all(one in ("", is_) for one, is_ in (*wanted, (override.name, metadata.get("name")))) and all(
        labels.get(label) == value for label, value in override.labels.items()
    )


def _has_expired(override: Override, now: float) -> bool:
    return override.expires_at is not None and override.expires_at <= now


# ---- what an override sets


@dataclass(slots=True)
class _OverrideMerge:
    """A manifest to which overrides are applied, the most specific one first."""

    manifest: Obj
    override_of: dict[StrategyField, int] = field(default_factory=dict)  # by field
    ignored: list[tuple[int, Finding]] = field(default_factory=list)

    def apply(self, override: Override) -> None:
        """Set what this override sets and no other has set, unless the rules reject the result."""
        known = _components(self.manifest)
        parts = {
            part: value
            for part, value in override.settings.items()
            if part not in self.override_of and (not part[0] or part[0] in known)
        }
        changed = _set_parts(self.manifest, parts)
        found = _new_findings(self.manifest, changed)
        if found:
            self.ignored.extend((override.id, finding) for finding in found)
            return
        self.manifest = changed
        self.override_of.update(dict.fromkeys(parts, override.id))


def _new_findings(before: Obj, after: Obj) -> list[Finding]:
    """Return what the rules find wrong after the change and not before: only that is the override's fault."""
    if before == after:
        return []
    known = {*validate_create(before).errors}
    return [finding for finding in validate_update(before, after).errors if finding not in known]


def _set_parts(manifest: Obj, parts: Mapping[StrategyField, Any]) -> Obj:
    """Return the manifest with these fields of its strategy; the rest is shared."""
    spec = manifest.get("spec")
    if not parts or not isinstance(spec, dict):
        return manifest
    by_component: dict[str, dict[str, Any]] = {}
    for (component, name), value in parts.items():
        by_component.setdefault(component, {})[name] = value
    of_set = by_component.pop("", {})
    former = spec.get("updateStrategy")
    if former is not None and not isinstance(former, dict):
        of_set = {}  # validation reports what is wrong with it
    return put_strategy_parts(manifest, of_set, by_component, both_kinds=True)


# ---- where each field comes from


def _compute_sources(manifest: Obj, draft: _OverrideMerge) -> dict[StrategyField, StrategySource]:
    components = _components(manifest)
    spec = manifest.get("spec")
    strategy = _as_dict(_as_dict(spec).get("updateStrategy"))
    written: dict[str, Obj] = {
        "": {**_as_dict(strategy.get("rollingUpdate")), STRATEGY_TYPE: strategy.get(STRATEGY_TYPE)},
        **components,
    }
    fields = [("", STRATEGY_TYPE), *((component, name) for component in written for name in _BUDGET_DEFAULTS)]
    return {part: draft.override_of.get(part) or _source_of_value(written[part[0]].get(part[1])) for part in fields}


def _source_of_value(value: object) -> StrategySource:
    return "default" if value is None else "workload"


def _components(manifest: Obj) -> dict[str, Obj]:
    """Return the strategies of cliques and scaling groups by name, empty for those without one."""
    template = _as_dict(_as_dict(manifest.get("spec")).get("template"))
    entries = [entry for kind in _COMPONENT_LISTS for entry in template.get(kind) or () if isinstance(entry, dict)]
    return {str(entry.get("name")): _as_dict(entry.get("updateStrategy")) for entry in entries}


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ---- from the database


def parse_override(row: StrategyOverride) -> Override:
    """Return a row as a value; a malformed row sets nothing."""
    settings: dict[StrategyField, IntOrPercent | None] = {}
    if row.strategy:
        settings["", STRATEGY_TYPE] = row.strategy
    for name, value in ((MAX_UNAVAILABLE, row.max_unavailable), (MAX_SURGE, row.max_surge)):
        if value is not None:
            settings["", name] = parse_budget(value)
    for component, budget in _as_dict(row.components).items():
        # Null in place of a budget removes the budget of the manifest, so that the defaults apply.
        named = dict.fromkeys(_BUDGET_DEFAULTS) if budget is None else _as_dict(budget)
        settings.update(((component, name), parse_budget(named[name])) for name in _BUDGET_DEFAULTS if name in named)
    return Override(
        id=row.pk,
        cluster=row.cluster,
        namespace=row.namespace,
        name=row.name,
        labels=_as_dict(row.selector),
        settings=settings,
        created=row.created.timestamp(),
        expires_at=row.expires_at.timestamp() if row.expires_at else None,
    )
