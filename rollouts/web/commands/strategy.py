"""Strategy and surge: how an update moves, at the set and at each of its components.

The form holds what the workload itself says; what overrides put in its place is told beside it. Beside each field
stands what the form was filled with (`was.…`): only what somebody has touched is changed. So whoever lost a race gets
the form back with their own entries on top of everybody else's, and takes nothing back that they never looked at.

Before it: `selectors.strategy_detail`, for the numbers that each level comes to. After it:
`engine.manifest.edits.edit_strategy`, in the preview and in the command alike. No rule of strategies stands here: what
is wrong is what the engine finds.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from django.http import QueryDict

from rollouts.accounts.commands import Command
from rollouts.controller.effective_strategy import StrategyField, compute_effective_strategy
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.edits import InvalidEdit
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.manifest.schema import BUDGET_FIELDS
from rollouts.engine.manifest.strategy_parts import MAX_SURGE, MAX_UNAVAILABLE, STRATEGY_TYPE
from rollouts.engine.model.budget import DEFAULT_MAX_SURGE, DEFAULT_MAX_UNAVAILABLE, parse_budget
from rollouts.engine.model.workload import Workload
from rollouts.engine.rollout.levels import LevelKind, list_levels
from rollouts.selectors.strategy_detail import StrategyDetail, StrategyLevel, StrategyPart, snapshot_strategy
from rollouts.services import workloads
from rollouts.services.changes import WorkloadChange
from rollouts.services.edit import EditResult
from rollouts.services.workload_client import invalid_command
from rollouts.web.commands.budget_text import SHADOWED_SENTENCE, STRATEGY_TYPE_TEXTS, is_shadowed, render_level
from rollouts.web.commands.forms import EditForm
from rollouts.web.workload import WorkloadContext

_DEFAULTS: Final = {MAX_UNAVAILABLE: DEFAULT_MAX_UNAVAILABLE, MAX_SURGE: DEFAULT_MAX_SURGE}
_TYPE_PART: Final[StrategyField] = ("", STRATEGY_TYPE)
_MAX_LENGTH: Final = 40
_SET_PATH: Final = re.compile(r"spec\.updateStrategy(?:\.rollingUpdate)?(?:\.(\w+))?")
_COMPONENT_PATH: Final = re.compile(
    r"spec\.template\.(cliques|podCliqueScalingGroups)\[(\d+)\]\.updateStrategy(?:\.(\w+))?"
)


@dataclass(frozen=True, slots=True)
class BudgetField:
    """A field of the form."""

    name: str
    value: str
    former: str  # what the workload says
    default: int  # what counts when it is left out


@dataclass(frozen=True, slots=True)
class LevelRow:
    """A level of the workload, as a line of the form."""

    key: str
    level: StrategyLevel
    units: str  # what its units are
    unavailable: BudgetField
    surge: BudgetField
    meaning: str
    overridden_parts: tuple[tuple[str, StrategyPart], ...]  # fields whose value comes from an override
    shadowed_reason: str  # why nothing can be said of a clique here; empty: it can


class StrategyForm(EditForm):
    """The form has the type, and two numbers for each level."""

    name, title, command = "strategy", "Strategy and surge", Command.EDIT_STRATEGY
    oob_template = "commands/_budget_meanings.html"

    def field_context(self, scene: WorkloadContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show every level, with what the numbers in the form come to."""
        form = _parse_form(scene, given)
        if form is None:
            return {"unreadable": scene.snapshot.findings, "rows": [], "types": [], "fields": []}
        tried = form.preview_strategy(scene)
        return {
            "types": [
                (str(kind), words, str(kind) == form.entered[_TYPE_PART]) for kind, words in STRATEGY_TYPE_TEXTS.items()
            ],
            "was_type": form.from_manifest[_TYPE_PART],
            "type_part": tried.type,
            "ignored": tried.ignored,
            "rows": list(_make_rows(form, tried)),
            "meanwhile": [] if given is None else list(_list_concurrent_changes(form, given)),
            "fields": [STRATEGY_TYPE],
        }

    def parse_change(self, scene: WorkloadContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the edit of just what somebody has touched."""
        form = _parse_form(scene, given)
        if form is None:
            raise invalid_command(scene.snapshot.findings)
        return workloads.edit_strategy(form.list_changes(scene), rehearse=True)

    def find_field(self, scene: WorkloadContext, finding: Finding) -> str:
        """Return the field, or the line, that the path of a finding leads to."""
        if found := _SET_PATH.fullmatch(finding.field):
            return found[1] or "set"
        if found := _COMPONENT_PATH.fullmatch(finding.field):
            entries = scene.snapshot.mirrored.manifest["spec"]["template"].get(found[1]) or []
            index = int(found[2])
            name = entries[index].get("name") if index < len(entries) else None
            return ".".join(filter(None, ("components", name, found[3]))) if name else ""
        return ""

    def success_message(self, changed: EditResult) -> str:
        """Say what was saved."""
        number = len(changed.changes)
        return f"The strategy is saved ({number} field{'s' * (number != 1)} changed) and counts from now on."


@dataclass(frozen=True, slots=True)
class _StrategyEntries:
    """A form as it is filled in, beside what the workload itself says; empty texts are left out."""

    workload: Workload  # as it says itself, without overrides
    from_manifest: Mapping[StrategyField, str]
    entered: Mapping[StrategyField, str]

    def list_changes(self, scene: WorkloadContext) -> dict[str, Any]:
        """Return what is to be changed, as `edits.edit_strategy` takes it."""
        # A type that is left out follows from what else is written: it is put down where that would be another one.
        chosen = self.entered[_TYPE_PART]
        return {**self._list_budgets(), **({} if chosen == self._resulting_type(scene) else {STRATEGY_TYPE: chosen})}

    def _list_budgets(self, *, only_readable: bool = False) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for (component, name), text in self.entered.items():
            value = parse_budget(text) if text else None
            if (
                name == STRATEGY_TYPE
                or text == self.from_manifest[component, name]
                or (only_readable and _is_invalid(name, value))
            ):
                continue
            owner = changes.setdefault("components", {}).setdefault(component, {}) if component else changes
            owner[name] = value
        return changes

    def _resulting_type(self, scene: WorkloadContext) -> str:
        """Return which type the workload would have if nobody chose one."""
        edited = edits.edit_strategy(scene.snapshot.mirrored.manifest, self._list_budgets(only_readable=True))
        workload = edited if isinstance(edited, InvalidEdit) else parse_workload(edited)
        return str((self.workload if isinstance(workload, InvalidEdit | ParseFailure) else workload).strategy)

    def preview_strategy(self, scene: WorkloadContext) -> StrategyDetail:
        """Return the strategy that would be in force, as far as the form can be read."""
        look = scene.snapshot
        changes = {**self._list_budgets(only_readable=True), STRATEGY_TYPE: self.entered[_TYPE_PART]}
        edited = edits.edit_strategy(look.mirrored.manifest, changes)
        if isinstance(edited, InvalidEdit):
            return scene.strategy
        effective = compute_effective_strategy(edited, look.overrides, look.now, cluster=look.cluster.name)
        workload = parse_workload(effective.manifest)
        if isinstance(workload, ParseFailure):
            return scene.strategy
        return snapshot_strategy(scene.ref, replace(look, effective=effective, workload=workload))


def _parse_form(scene: WorkloadContext, given: QueryDict | None) -> _StrategyEntries | None:
    """Return the form; None for a workload that cannot be read."""
    workload = parse_workload(scene.snapshot.mirrored.manifest)
    if isinstance(workload, ParseFailure) or scene.snapshot.workload is None:
        return None
    written = dict(_list_written(workload))
    typed = written if given is None else {part: _parse_entry(given, part, text) for part, text in written.items()}
    return _StrategyEntries(workload, written, typed)


def _list_written(workload: Workload) -> Iterator[tuple[StrategyField, str]]:
    yield _TYPE_PART, str(workload.strategy)
    for level in list_levels(workload):
        budget = level.budget_spec
        yield (level.component, MAX_UNAVAILABLE), _text(budget and budget.max_unavailable)
        yield (level.component, MAX_SURGE), _text(budget and budget.max_surge)


def _parse_entry(given: QueryDict, part: StrategyField, written: str) -> str:
    """Return what somebody has entered; what they have not touched is as the workload has it by now."""
    name = _field_name(part)
    text = given.get(name, written).strip()[:_MAX_LENGTH]
    return written if text == given.get(f"was.{name}") else text


def _list_concurrent_changes(form: _StrategyEntries, given: QueryDict) -> Iterator[tuple[str, str, str]]:
    """Yield which fields others have changed since the form was opened: their names, and what they were and are."""
    for part, now in form.from_manifest.items():
        was = given.get(f"was.{_field_name(part)}")
        if was is not None and was != now:
            component, name = part
            yield f"{name} of {component}" if component else name, was or "left out", now or "left out"


def _make_rows(form: _StrategyEntries, tried: StrategyDetail) -> Iterator[LevelRow]:
    for level in tried.levels:
        parts = ((MAX_UNAVAILABLE, level.max_unavailable), (MAX_SURGE, level.max_surge))
        unavailable, surge = (_make_field(form, (level.component, name)) for name in (MAX_UNAVAILABLE, MAX_SURGE))
        yield LevelRow(
            key=f"components.{level.component}" if level.component else "set",
            level=level,
            units=_describe_units(level, form.workload),
            unavailable=unavailable,
            surge=surge,
            meaning=render_level(level, tried.type.value),
            overridden_parts=tuple((name, part) for name, part in parts if part.source.kind == "override"),
            shadowed_reason=SHADOWED_SENTENCE if is_shadowed(level, tried.levels) else "",
        )


def _make_field(form: _StrategyEntries, part: StrategyField) -> BudgetField:
    return BudgetField(_field_name(part), form.entered[part], form.from_manifest[part], _DEFAULTS[part[1]])


def _describe_units(level: StrategyLevel, workload: Workload) -> str:
    if level.kind is LevelKind.SET:
        return "replicas of the set"
    if level.kind is LevelKind.CLIQUE:
        return "pods"
    names = next(group.clique_names for group in workload.groups if group.name == level.component)
    pods = sum(clique.replicas for clique in workload.cliques if clique.name in names)
    return f"replicas of {pods} pod{'s' * (pods != 1)}"


def _is_invalid(name: str, value: object) -> bool:
    return value is not None and BUDGET_FIELDS[name].find_error(value) is not None


def _field_name(part: StrategyField) -> str:
    """Return the name of a field, which is the way to it in what the API takes."""
    component, name = part
    return f"components.{component}.{name}" if component else name


def _text(value: object) -> str:
    return "" if value is None else str(value)
