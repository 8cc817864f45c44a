"""The strategy in force: what a workload says, and what overrides put in its place (DESIGN section 8).

Before it: a PodCliqueSet as stored, and the overrides of its cluster. After it: the reconciler plans with the manifest
that comes out; pages and API show where each part of it comes from. The one place where overrides are applied.

The invariants: no override reaches anything but the strategy, so none ever starts a rollout; a manifest that can be
acted on stays one, because an override that the engine's rules refuse for this workload is left out and reported; each
part comes from the most specific override that sets it (name before labels before namespace before cluster, then the
newest), and one that is less specific can never push a more specific one out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from django.db import connection
from django.utils import timezone

from rollouts.engine.manifest.validation import Finding, validate_create, validate_update
from rollouts.engine.model.budget import DEFAULT_MAX_SURGE, DEFAULT_MAX_UNAVAILABLE, parse_budget
from rollouts.engine.model.workload import IntOrPercent
from rollouts.models import StrategyOverride

Obj = Mapping[str, Any]
Source = Literal["workload", "default"] | int
"""Where a part comes from: the manifest, nobody, or the override with this id."""

TYPE: Final = "type"
MAX_UNAVAILABLE: Final = "maxUnavailable"
MAX_SURGE: Final = "maxSurge"
_BUDGET: Final = {MAX_UNAVAILABLE: DEFAULT_MAX_UNAVAILABLE, MAX_SURGE: DEFAULT_MAX_SURGE}
_LISTS: Final = ("cliques", "podCliqueScalingGroups")

Part = tuple[str, str]
"""A part of a strategy: the name of a clique or scaling group, empty for the set itself, and the field."""


@dataclass(frozen=True, slots=True)
class Override:
    """What somebody decided about the strategy of some workloads."""

    id: int
    # Whom it hits; what is empty hits all.
    cluster: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    # What it sets. None takes a field out, so that its default counts.
    settings: Mapping[Part, IntOrPercent | None]
    created: float
    expires_at: float | None  # seconds since the epoch; None: never

    @property
    def rank(self) -> tuple[bool | float, ...]:
        """How specific it is; the higher one wins."""
        return bool(self.name), bool(self.labels), bool(self.namespace), bool(self.cluster), self.created, self.id


@dataclass(frozen=True, slots=True)
class Effective:
    """The strategy of a workload as it counts now."""

    manifest: Obj  # the one that was given, with the parts of overrides put in; shares its inner parts
    sources: Mapping[Part, Source]
    # Overrides that hit this workload and would make it invalid, each with what is wrong.
    ignored: tuple[tuple[int, Finding], ...]
    # When the first of the overrides that hit it runs out; None: never.
    until: float | None


def list_overrides(cluster: str) -> list[Override]:
    """Return what is on record for a cluster; what has run out stays on record as history, and out of this."""
    # Every pass asks this; put together by hand it costs a third.
    statement = (
        "SELECT * FROM rollouts_strategyoverride WHERE (cluster = '' OR cluster = %s)"
        " AND (expires_at IS NULL OR expires_at > %s)"
    )
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    return [read_override(row) for row in StrategyOverride.objects.raw(statement, [cluster, now])]


def compute_effective(manifest: Obj, overrides: Iterable[Override], now: float, *, cluster: str) -> Effective:
    """Return the strategy in force of a stored workload."""
    hit_by = [one for one in overrides if hits(one, manifest, cluster) and not _has_run_out(one, now)]
    draft = _Draft(manifest)
    for override in sorted(hit_by, key=lambda one: one.rank, reverse=True):
        draft.take(override)
    until = min((one.expires_at for one in hit_by if one.expires_at is not None), default=None)
    return Effective(draft.manifest, _find_sources(manifest, draft), tuple(draft.ignored), until)


# ---- whom an override hits


def hits(override: Override, manifest: Obj, cluster: str) -> bool:
    """Say whether an override is about a workload; of the manifest only the metadata is looked at."""
    metadata = manifest.get("metadata") or {}
    labels = metadata.get("labels") or {}
    wanted = ((override.cluster, cluster), (override.namespace, metadata.get("namespace")))
    return all(one in ("", is_) for one, is_ in (*wanted, (override.name, metadata.get("name")))) and all(
        labels.get(label) == value for label, value in override.labels.items()
    )


def _has_run_out(override: Override, now: float) -> bool:
    return override.expires_at is not None and override.expires_at <= now


# ---- what it sets


@dataclass(slots=True)
class _Draft:
    """A manifest while overrides are put in, the most specific one first."""

    manifest: Obj
    origin: dict[Part, int] = field(default_factory=dict)  # parts that are set, and by which override
    ignored: list[tuple[int, Finding]] = field(default_factory=list)

    def take(self, override: Override) -> None:
        """Put in what the override sets and no other has set, unless the rules refuse the result."""
        known = _components(self.manifest)
        parts = {
            part: value
            for part, value in override.settings.items()
            if part not in self.origin and (not part[0] or part[0] in known)
        }
        changed = _put(self.manifest, parts)
        found = _new_findings(self.manifest, changed)
        if found:
            self.ignored.extend((override.id, finding) for finding in found)
            return
        self.manifest = changed
        self.origin.update(dict.fromkeys(parts, override.id))


def _new_findings(before: Obj, after: Obj) -> list[Finding]:
    """Return what the rules find wrong after the change and not before: an override answers for itself alone."""
    if before == after:
        return []
    known = {*validate_create(before).errors}
    return [finding for finding in validate_update(before, after).errors if finding not in known]


def _put(manifest: Obj, parts: Mapping[Part, Any]) -> Obj:
    """Return the manifest with these parts of its strategy, everything else shared."""
    spec = manifest.get("spec")
    if not parts or not isinstance(spec, dict):
        return manifest
    by_component: dict[str, dict[str, Any]] = {}
    for (component, name), value in parts.items():
        by_component.setdefault(component, {})[name] = value
    of_set = by_component.pop("", {})
    changed = {**spec}
    if of_set:
        changed["updateStrategy"] = _put_strategy(spec.get("updateStrategy"), of_set)
    if by_component:
        changed["template"] = _put_components(spec["template"], by_component)
    return {**manifest, "spec": changed}


def _put_strategy(former: Any, fields: Mapping[str, Any]) -> Any:
    if former is not None and not isinstance(former, dict):
        return former  # the rules say what is wrong with it
    strategy = {**(former or {})}
    budget = {name: value for name, value in fields.items() if name != TYPE}
    if TYPE in fields:
        strategy[TYPE] = fields[TYPE]
    if budget:
        strategy["rollingUpdate"] = _put_budget(strategy.get("rollingUpdate"), budget)
    return strategy


def _put_components(template: Obj, by_component: Mapping[str, Mapping[str, Any]]) -> Obj:
    changed = {**template}
    for kind in _LISTS:
        if isinstance(template.get(kind), list):
            changed[kind] = [_put_component(entry, by_component) for entry in template[kind]]
    return changed


def _put_component(entry: Any, by_component: Mapping[str, Mapping[str, Any]]) -> Any:
    if not isinstance(entry, dict) or entry.get("name") not in by_component:
        return entry
    fields = by_component[entry["name"]]
    strategy = _put_budget(entry.get("updateStrategy"), fields)
    rest = {name: value for name, value in entry.items() if name != "updateStrategy"}
    # Nothing written is not the same as nothing in it: the latter makes RollingUpdate of a type left out.
    return {**rest, "updateStrategy": strategy} if strategy else rest


def _put_budget(former: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    budget = {**(former if isinstance(former, dict) else {}), **fields}
    return {name: value for name, value in budget.items() if value is not None}


# ---- where each part comes from


def _find_sources(manifest: Obj, draft: _Draft) -> dict[Part, Source]:
    components = _components(manifest)
    spec = manifest.get("spec")
    strategy = _as_dict(_as_dict(spec).get("updateStrategy"))
    written: dict[str, Obj] = {"": {**_as_dict(strategy.get("rollingUpdate")), TYPE: strategy.get(TYPE)}, **components}
    fields = [("", TYPE), *((component, name) for component in written for name in _BUDGET)]
    return {part: draft.origin.get(part) or _source(written[part[0]].get(part[1])) for part in fields}


def _source(value: object) -> Source:
    return "default" if value is None else "workload"


def _components(manifest: Obj) -> dict[str, Obj]:
    """Return the strategies of cliques and scaling groups by name, those left out as empty ones."""
    template = _as_dict(_as_dict(manifest.get("spec")).get("template"))
    entries = [entry for kind in _LISTS for entry in template.get(kind) or () if isinstance(entry, dict)]
    return {str(entry.get("name")): _as_dict(entry.get("updateStrategy")) for entry in entries}


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ---- from the record


def read_override(row: StrategyOverride) -> Override:
    """Return what is on record as a value; a record that makes no sense sets nothing."""
    settings: dict[Part, IntOrPercent | None] = {}
    if row.strategy:
        settings["", TYPE] = row.strategy
    for name, value in ((MAX_UNAVAILABLE, row.max_unavailable), (MAX_SURGE, row.max_surge)):
        if value is not None:
            settings["", name] = parse_budget(value)
    for component, budget in _as_dict(row.components).items():
        # Null in place of a budget takes out what the workload says; its defaults count then.
        named = dict.fromkeys(_BUDGET) if budget is None else _as_dict(budget)
        settings.update(((component, name), parse_budget(named[name])) for name in _BUDGET if name in named)
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
