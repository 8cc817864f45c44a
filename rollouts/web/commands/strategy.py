"""Strategy and surge: how an update moves, at the set and at each of its components.

The form holds what the workload itself says; what overrides put in its place is told beside it. Beside each field
stands what the form was filled with (`was.…`): only what somebody has touched is changed. So whoever lost a race gets
the form back with their own entries on top of everybody else's, and takes nothing back that they never looked at.

Before it: `selectors.strategy_detail`, for the numbers that each level comes to. After it: `engine.manifest.edits.edit_strategy`, in
the preview and in the command alike. No rule of strategies stands here: what is wrong is what the engine finds.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from django.http import QueryDict

from rollouts.accounts.commands import Command
from rollouts.controller.effective_strategy import MAX_SURGE, MAX_UNAVAILABLE, TYPE, Part, compute_effective
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.edits import Unfit
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.parsing import Unreadable, parse_workload
from rollouts.engine.manifest.schema import BUDGET
from rollouts.engine.model.budget import DEFAULT_MAX_SURGE, DEFAULT_MAX_UNAVAILABLE, parse_budget
from rollouts.engine.model.workload import Workload
from rollouts.engine.rollout.levels import LevelKind, list_levels
from rollouts.selectors.strategy_detail import StrategyDetail, StrategyLevel, StrategyPart, strategy_in
from rollouts.services.edit import Changed
from rollouts.services.simulation import Proposal
from rollouts.services.workload_client import refuse
from rollouts.services.workloads import workload_edit_strategy
from rollouts.web.commands.budget_text import SHADOWED, TYPES, is_shadowed, say_level
from rollouts.web.commands.forms import Desk, Draft
from rollouts.web.workload import Scene

_DEFAULTS: Final = {MAX_UNAVAILABLE: DEFAULT_MAX_UNAVAILABLE, MAX_SURGE: DEFAULT_MAX_SURGE}
_OF_TYPE: Final[Part] = ("", TYPE)
_LONGEST: Final = 40
# Any time that no restart was made at.
_NEXT_TIME: Final = "the next time"
_OF_SET: Final = re.compile(r"spec\.updateStrategy(?:\.rollingUpdate)?(?:\.(\w+))?")
_OF_COMPONENT: Final = re.compile(
    r"spec\.template\.(cliques|podCliqueScalingGroups)\[(\d+)\]\.updateStrategy(?:\.(\w+))?"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A field of the form."""

    name: str
    value: str
    was: str  # what the workload says
    default: int  # what counts when it is left out


@dataclass(frozen=True, slots=True)
class Row:
    """A level of the workload, as a line of the form."""

    key: str
    level: StrategyLevel
    of: str  # what its units are
    unavailable: Entry
    surge: Entry
    says: str
    overridden: tuple[tuple[str, StrategyPart], ...]  # fields whose value comes from an override
    shadowed: str  # why nothing can be said of a clique here; empty: it can


class EditStrategy(Desk):
    """The form has the type, and two numbers for each level."""

    name, title, command = "strategy", "Strategy and surge", Command.EDIT_STRATEGY
    updates = "steering/_strategy_rows.html"

    def fill_in(self, scene: Scene, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show every level, with what the numbers in the form come to."""
        form = _read_form(scene, given)
        if form is None:
            return {"unreadable": scene.look.findings, "rows": [], "types": [], "fields": []}
        tried = form.try_out(scene)
        return {
            "types": [(str(kind), words, str(kind) == form.typed[_OF_TYPE]) for kind, words in TYPES.items()],
            "was_type": form.written[_OF_TYPE],
            "type_part": tried.type,
            "ignored": tried.ignored,
            "rows": list(_rows(form, tried)),
            "meanwhile": [] if given is None else list(_list_meanwhile(form, given)),
            "fields": [TYPE],
        }

    def read(self, scene: Scene, given: QueryDict, **about: Any) -> Draft:
        """Return the edit of just what somebody has touched."""
        form = _read_form(scene, given)
        if form is None:
            raise refuse(scene.look.findings)
        changes = form.list_changes(scene)
        return Draft(
            partial(workload_edit_strategy, place=scene.place, changes=changes),
            Proposal(self.command, partial(edits.edit_strategy, changes=changes), rehearse=_renew_pods),
        )

    def find_field(self, scene: Scene, finding: Finding) -> str:
        """Return the field, or the line, that the path of a finding leads to."""
        if found := _OF_SET.fullmatch(finding.field):
            return found[1] or "set"
        if found := _OF_COMPONENT.fullmatch(finding.field):
            entries = scene.look.seen.manifest["spec"]["template"].get(found[1]) or []
            index = int(found[2])
            name = entries[index].get("name") if index < len(entries) else None
            return ".".join(filter(None, ("components", name, found[3]))) if name else ""
        return ""

    def say_done(self, changed: Changed) -> str:
        """Say what was saved."""
        number = len(changed.changes)
        return f"The strategy is saved ({number} field{'s' * (number != 1)} changed) and counts from now on."


@dataclass(frozen=True, slots=True)
class _Form:
    """A form as it is filled in, beside what the workload itself says; empty texts are left out."""

    workload: Workload  # as it says itself, without overrides
    written: Mapping[Part, str]
    typed: Mapping[Part, str]

    def list_changes(self, scene: Scene) -> dict[str, Any]:
        """Return what is to be changed, as `edits.edit_strategy` takes it."""
        # A type that is left out follows from what else is written: it is put down where that would be another one.
        chosen = self.typed[_OF_TYPE]
        return {**self._list_budgets(), **({} if chosen == self._type_after(scene) else {TYPE: chosen})}

    def _list_budgets(self, *, only_readable: bool = False) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for (component, name), text in self.typed.items():
            value = parse_budget(text) if text else None
            if name == TYPE or text == self.written[component, name] or (only_readable and _is_wrong(name, value)):
                continue
            owner = changes.setdefault("components", {}).setdefault(component, {}) if component else changes
            owner[name] = value
        return changes

    def _type_after(self, scene: Scene) -> str:
        """Return which type the workload would have if nobody chose one."""
        edited = edits.edit_strategy(scene.look.seen.manifest, self._list_budgets(only_readable=True))
        workload = edited if isinstance(edited, Unfit) else parse_workload(edited)
        return str((self.workload if isinstance(workload, Unfit | Unreadable) else workload).strategy)

    def try_out(self, scene: Scene) -> StrategyDetail:
        """Return the strategy that would be in force, as far as the form can be read."""
        look = scene.look
        changes = {**self._list_budgets(only_readable=True), TYPE: self.typed[_OF_TYPE]}
        edited = edits.edit_strategy(look.seen.manifest, changes)
        if isinstance(edited, Unfit):
            return scene.strategy
        effective = compute_effective(edited, look.overrides, look.now, cluster=look.cluster.name)
        workload = parse_workload(effective.manifest)
        if isinstance(workload, Unreadable):
            return scene.strategy
        return strategy_in(scene.place, replace(look, effective=effective, workload=workload))


def _renew_pods(manifest: dict[str, Any]) -> dict[str, Any] | Unfit:
    """Give every pod another template, as the next rollout may."""
    return edits.restart(manifest, at=_NEXT_TIME)


def _read_form(scene: Scene, given: QueryDict | None) -> _Form | None:
    """Return the form; None for a workload that cannot be read."""
    workload = parse_workload(scene.look.seen.manifest)
    if isinstance(workload, Unreadable) or scene.look.workload is None:
        return None
    written = dict(_list_written(workload))
    typed = written if given is None else {part: _take(given, part, text) for part, text in written.items()}
    return _Form(workload, written, typed)


def _list_written(workload: Workload) -> Iterator[tuple[Part, str]]:
    yield _OF_TYPE, str(workload.strategy)
    for level in list_levels(workload):
        budget = level.written
        yield (level.component, MAX_UNAVAILABLE), _text(budget and budget.max_unavailable)
        yield (level.component, MAX_SURGE), _text(budget and budget.max_surge)


def _take(given: QueryDict, part: Part, written: str) -> str:
    """Return what somebody has entered; what they have not touched is as the workload has it by now."""
    name = _field(part)
    text = given.get(name, written).strip()[:_LONGEST]
    return written if text == given.get(f"was.{name}") else text


def _list_meanwhile(form: _Form, given: QueryDict) -> Iterator[tuple[str, str, str]]:
    """Yield which fields others have changed since the form was opened: their names, and what they were and are."""
    for part, now in form.written.items():
        was = given.get(f"was.{_field(part)}")
        if was is not None and was != now:
            component, name = part
            yield f"{name} of {component}" if component else name, was or "left out", now or "left out"


def _rows(form: _Form, tried: StrategyDetail) -> Iterator[Row]:
    for level in tried.levels:
        parts = ((MAX_UNAVAILABLE, level.max_unavailable), (MAX_SURGE, level.max_surge))
        unavailable, surge = (_make_entry(form, (level.component, name)) for name in (MAX_UNAVAILABLE, MAX_SURGE))
        yield Row(
            key=f"components.{level.component}" if level.component else "set",
            level=level,
            of=_describe(level, form.workload),
            unavailable=unavailable,
            surge=surge,
            says=say_level(level, tried.type.value),
            overridden=tuple((name, part) for name, part in parts if part.source.kind == "override"),
            shadowed=SHADOWED if is_shadowed(level, tried.levels) else "",
        )


def _make_entry(form: _Form, part: Part) -> Entry:
    return Entry(_field(part), form.typed[part], form.written[part], _DEFAULTS[part[1]])


def _describe(level: StrategyLevel, workload: Workload) -> str:
    if level.kind is LevelKind.SET:
        return "replicas of the set"
    if level.kind is LevelKind.CLIQUE:
        return "pods"
    names = next(group.clique_names for group in workload.groups if group.name == level.component)
    pods = sum(clique.replicas for clique in workload.cliques if clique.name in names)
    return f"replicas of {pods} pod{'s' * (pods != 1)}"


def _is_wrong(name: str, value: object) -> bool:
    return value is not None and BUDGET[name].fault(value) is not None


def _field(part: Part) -> str:
    """Return the name of a field, which is the way to it in what the API takes."""
    component, name = part
    return f"components.{component}.{name}" if component else name


def _text(value: object) -> str:
    return "" if value is None else str(value)
