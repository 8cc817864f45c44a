"""Which override of a strategy wins, field by field (`docs/semantics.md` 15).

Before it: `controller.effective_strategy`, which reads the overrides of a cluster. An override matches a workload by
cluster, namespace, name and labels. Each field comes from the most specific matching override that sets it:

    1. by name   2. by labels   3. by namespace   4. by cluster   5. of two that are equally specific, the newest

The invariants: an override changes nothing but the strategy, so it never starts a rollout; a valid manifest stays
valid, because an override that the rules reject for this workload is ignored and reported; and a less specific override
never displaces a more specific one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rollouts.engine.manifest.strategy_parts import put_strategy_parts
from rollouts.engine.manifest.validation import Finding, validate_create, validate_update
from rollouts.engine.model.workload import IntOrPercent

Obj = Mapping[str, Any]

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


@dataclass(slots=True)
class AppliedOverrides:
    """A manifest with overrides applied, the most specific one first."""

    manifest: Obj  # the given manifest with the fields of overrides; shares the rest of its objects
    override_of: dict[StrategyField, int] = field(default_factory=dict)  # by field
    # Overrides that match this workload and would make it invalid, each with what is wrong.
    ignored: list[tuple[int, Finding]] = field(default_factory=list)


def apply_overrides(manifest: Obj, matching: Iterable[Override]) -> AppliedOverrides:
    """Return the manifest with the fields of matching overrides."""
    applied = AppliedOverrides(manifest)
    for override in sorted(matching, key=lambda one: one.precedence, reverse=True):
        _apply(applied, override)
    return applied


def matches(override: Override, manifest: Obj, cluster: str) -> bool:
    """Return whether an override matches a workload; reads only the metadata of the manifest."""
    metadata = manifest.get("metadata") or {}
    labels = metadata.get("labels") or {}
    wanted = ((override.cluster, cluster), (override.namespace, metadata.get("namespace")))
    return all(one in ("", is_) for one, is_ in (*wanted, (override.name, metadata.get("name")))) and all(
        labels.get(label) == value for label, value in override.labels.items()
    )


def has_expired(override: Override, now: float) -> bool:
    """Return whether an override no longer applies."""
    return override.expires_at is not None and override.expires_at <= now


def _apply(applied: AppliedOverrides, override: Override) -> None:
    """Set what this override sets and no other has set, unless the rules reject the result."""
    known = list_component_strategies(applied.manifest)
    parts = {
        part: value
        for part, value in override.settings.items()
        if part not in applied.override_of and (not part[0] or part[0] in known)
    }
    changed = _set_parts(applied.manifest, parts)
    found = _new_findings(applied.manifest, changed)
    if found:
        applied.ignored.extend((override.id, finding) for finding in found)
        return
    applied.manifest = changed
    applied.override_of.update(dict.fromkeys(parts, override.id))


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


def list_component_strategies(manifest: Obj) -> dict[str, Obj]:
    """Return the strategies of cliques and scaling groups by name, empty for those without one."""
    template = _as_dict(_as_dict(manifest.get("spec")).get("template"))
    entries = [entry for kind in _COMPONENT_LISTS for entry in template.get(kind) or () if isinstance(entry, dict)]
    return {str(entry.get("name")): _as_dict(entry.get("updateStrategy")) for entry in entries}


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
