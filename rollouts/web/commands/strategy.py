"""Strategy and surge: the strategy type, and the budgets of the set and of each component.

The fields have the values of the manifest; values from overrides are shown beside them. Each field keeps what it showed
at first (`was.…`), so that only changed fields are sent. So after a conflict the user gets the form back with their own
entries on top of the changes of others, and reverts nothing that they have not seen.

Before it: `selectors.strategy_detail`, with the resolved numbers of each level. After it: `workloads.edit_strategy`,
for preview and command. No rule of strategies is here: the engine finds the errors.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from django.http import QueryDict

from rollouts.accounts.commands import Command
from rollouts.controller.effective_strategy import compute_effective_strategy
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.edits import InvalidEdit
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.override_precedence import StrategyField
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
    former: str  # the value in the manifest
    default: int  # the value when the field is empty


@dataclass(frozen=True, slots=True)
class LevelRow:
    """A level of the workload, as a row of the form."""

    key: str
    level: StrategyLevel
    units: str  # what the budget counts
    unavailable: BudgetField
    surge: BudgetField
    meaning: str
    overridden_parts: tuple[tuple[str, StrategyPart], ...]  # fields with a value from an override
    shadowed_reason: str  # why the clique cannot be changed here; empty: it can


class StrategyForm(EditForm):
    """The form has the type, and two numbers for each level."""

    name, title, command = "strategy", "Strategy and surge", Command.EDIT_STRATEGY
    oob_template = "commands/_budget_meanings.html"

    def field_context(self, context: WorkloadContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show every level, with what its budget means."""
        form = _parse_form(context, given)
        if form is None:
            return {"unreadable": context.snapshot.findings, "rows": [], "types": [], "fields": []}
        tried = form.preview_strategy(context)
        return {
            "types": [
                (str(kind), words, str(kind) == form.entered[_TYPE_PART]) for kind, words in STRATEGY_TYPE_TEXTS.items()
            ],
            "was_type": form.from_manifest[_TYPE_PART],
            "type_part": tried.type,
            "ignored": tried.ignored,
            "rows": list(_make_rows(form, tried)),
            "concurrent_changes": [] if given is None else list(_list_concurrent_changes(form, given)),
            "fields": [STRATEGY_TYPE],
        }

    def parse_change(self, context: WorkloadContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the edit of the changed fields."""
        form = _parse_form(context, given)
        if form is None:
            raise invalid_command(context.snapshot.findings)
        return workloads.edit_strategy(form.list_changes(context), rehearse=True)

    def find_field(self, context: WorkloadContext, finding: Finding) -> str:
        """Return the field, or the row, of a finding, by its path in the manifest."""
        if found := _SET_PATH.fullmatch(finding.field):
            return found[1] or "set"
        if found := _COMPONENT_PATH.fullmatch(finding.field):
            entries = context.snapshot.mirrored.manifest["spec"]["template"].get(found[1]) or []
            index = int(found[2])
            name = entries[index].get("name") if index < len(entries) else None
            return ".".join(filter(None, ("components", name, found[3]))) if name else ""
        return ""

    def success_message(self, changed: EditResult) -> str:
        """Return how many fields changed."""
        number = len(changed.changes)
        return f"The strategy is saved ({number} field{'s' * (number != 1)} changed) and in force now."


@dataclass(frozen=True, slots=True)
class _StrategyEntries:
    """The entries of the form, and the values of the manifest; an empty text means that the field is left out."""

    workload: Workload  # without overrides
    from_manifest: Mapping[StrategyField, str]
    entered: Mapping[StrategyField, str]

    def list_changes(self, context: WorkloadContext) -> dict[str, Any]:
        """Return the changed fields, as `edits.edit_strategy` takes them."""
        # A type that is left out follows from the other fields, so it is written only where it differs from that.
        chosen = self.entered[_TYPE_PART]
        return {**self._list_budgets(), **({} if chosen == self._resulting_type(context) else {STRATEGY_TYPE: chosen})}

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

    def _resulting_type(self, context: WorkloadContext) -> str:
        """Return the type that follows from the other fields."""
        edited = edits.edit_strategy(context.snapshot.mirrored.manifest, self._list_budgets(only_readable=True))
        workload = edited if isinstance(edited, InvalidEdit) else parse_workload(edited)
        return str((self.workload if isinstance(workload, InvalidEdit | ParseFailure) else workload).strategy)

    def preview_strategy(self, context: WorkloadContext) -> StrategyDetail:
        """Return the effective strategy with the entries of the form that are valid."""
        snapshot = context.snapshot
        changes = {**self._list_budgets(only_readable=True), STRATEGY_TYPE: self.entered[_TYPE_PART]}
        edited = edits.edit_strategy(snapshot.mirrored.manifest, changes)
        if isinstance(edited, InvalidEdit):
            return context.strategy
        effective = compute_effective_strategy(edited, snapshot.overrides, snapshot.now, cluster=snapshot.cluster.name)
        workload = parse_workload(effective.manifest)
        if isinstance(workload, ParseFailure):
            return context.strategy
        return snapshot_strategy(context.ref, replace(snapshot, effective=effective, workload=workload))


def _parse_form(context: WorkloadContext, given: QueryDict | None) -> _StrategyEntries | None:
    """Return the entries; None for a manifest that cannot be parsed."""
    workload = parse_workload(context.snapshot.mirrored.manifest)
    if isinstance(workload, ParseFailure) or context.snapshot.workload is None:
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
    """Return an entry; a field without a change has the present value."""
    name = _field_name(part)
    text = given.get(name, written).strip()[:_MAX_LENGTH]
    return written if text == given.get(f"was.{name}") else text


def _list_concurrent_changes(form: _StrategyEntries, given: QueryDict) -> Iterator[tuple[str, str, str]]:
    """Yield the fields that others have changed since the form was opened, with their old and new values."""
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
    """Return the name of a field, which is its path in the body of the API."""
    component, name = part
    return f"components.{component}.{name}" if component else name


def _text(value: object) -> str:
    return "" if value is None else str(value)
