"""Scale: the replicas of the set and of the components in its template, or of one live component of one replica.

All changes of the template are one write. A live component is an object of its own, which an autoscaler may scale, so
it is a command of its own: a form that asks for both is refused, and nothing is changed.

Each field keeps what it showed at first (`was_…`), so that only changed fields are sent. Where many pods are deleted or
created, the user has to confirm the number.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.http import QueryDict

from rollouts.accounts.commands import Command
from rollouts.accounts.errors import CommandRefused
from rollouts.controller.pod_counts import count_desired
from rollouts.engine.manifest.edits import InvalidEdit
from rollouts.engine.manifest.field_types import MAX_INT32
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.workload import Workload
from rollouts.engine.rollout.levels import LevelKind
from rollouts.selectors.strategy_detail import StrategyLevel
from rollouts.selectors.tree import CliqueNode, GroupNode, WorkloadTree
from rollouts.services import workloads
from rollouts.services.changes import WorkloadChange
from rollouts.services.edit import EditResult
from rollouts.services.scaling import ScaleLive, scale_observed
from rollouts.services.workload_client import invalid_command
from rollouts.web.commands.budget_text import SHADOWED_SENTENCE, is_shadowed
from rollouts.web.commands.forms import EditForm
from rollouts.web.workload import WorkloadContext

_TEMPLATE_PREFIX: Final = "replicas_"  # and the component; empty for the set
_SHADOWED_PREFIX: Final = "shadowed_"  # and the component: a field that is never sent
_FORMER_PREFIX: Final = "was_"
_LIVE_PREFIX: Final = "live_"
_LIVE_FIELDS: Final = ("component", "replica", "replicas")
_COMPONENT_PATH: Final = re.compile(r"spec\.template\.(cliques|podCliqueScalingGroups)\[(\d+)\]")
_MIXED_SCALES_SENTENCE: Final = "change either the template or one live component in one command"
_UNIT_NAMES: Final = {
    LevelKind.SET: "replicas",
    LevelKind.GROUP: "group replicas per replica",
    LevelKind.CLIQUE: "pods per replica",
}
_CONFIRM_NEW_PODS: Final = 10  # new pods


@dataclass(frozen=True, slots=True)
class NumberField:
    """A number of the template."""

    component: str  # empty: the set
    kind: str  # of the component, in words
    unit: str  # what the number counts
    name: str  # of the field
    current: int
    former: str  # what the field showed at first
    value: str
    running_text: str  # how many are available, in words
    scaled_replicas: tuple["ScaledReplica", ...]  # replicas where the live component has another number
    shadowed_reason: str  # why it cannot be changed here; empty: it can


@dataclass(frozen=True, slots=True)
class ScaledReplica:
    """A live component with another number than the template."""

    replica: int  # of the set
    replicas: int


class ScaleForm(EditForm):
    """The form has a number for each level, and one for a live component."""

    name, title, submit_label, command = "scale", "Scale", "Scale", Command.SCALE_WORKLOAD
    unchanged_text = "Change a number to see what it would do."

    def field_context(self, context: WorkloadContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show every level with its number of available units."""
        numbers = [_make_number_field(context, level, given) for level in context.strategy.levels]
        named = [one for one in numbers if not one.shadowed_reason]
        return {
            "numbers": numbers,
            "components": [one for one in named if one.component],
            "last_replica": max(0, context.tree.wanted - 1),
            "live": {
                name: "" if given is None else given.get(f"{_LIVE_PREFIX}{name}", "").strip() for name in _LIVE_FIELDS
            },
            "fields": [*(one.name for one in named), *(f"{_LIVE_PREFIX}{name}" for name in _LIVE_FIELDS)],
        }

    def parse_change(self, context: WorkloadContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the changed numbers of the template, or the number of a live component."""
        numbers, live = _parse_numbers(given), _parse_live_scale(given)
        if live is None:
            return workloads.scale_template(numbers)
        if numbers:
            raise invalid_command(
                [Finding(f"{_LIVE_PREFIX}component", FindingCode.UNKNOWN_VALUE, _MIXED_SCALES_SENTENCE)]
            )
        return live

    def confirmation_text(self, context: WorkloadContext, given: QueryDict, **about: Any) -> str:
        """Ask for a confirmation where many pods are deleted or created."""
        try:
            return _render_confirmation(*_count_wanted_pods(context, _parse_numbers(given), _parse_live_scale(given)))
        except CommandRefused:
            return ""  # the form has errors

    def find_field(self, context: WorkloadContext, finding: Finding) -> str:
        """Return the field of a finding, by its path in the manifest."""
        if finding.field.startswith((_TEMPLATE_PREFIX, _LIVE_PREFIX)):
            return finding.field
        if finding.field in _LIVE_FIELDS:
            return f"{_LIVE_PREFIX}{finding.field}"
        if finding.field == "spec.replicas":
            return _TEMPLATE_PREFIX
        if found := _COMPONENT_PATH.match(finding.field):
            return _field_of_component(context, found[1], int(found[2]))
        return ""

    def success_message(self, changed: EditResult) -> str:
        """Return the old and new numbers."""
        numbers = [change for change in changed.changes if change.field.endswith("replicas")]
        return f"Scaled: {', '.join(f'{change.before} → {change.after}' for change in numbers)} replicas."


# ---- the fields


def _field_of_component(context: WorkloadContext, kind: str, index: int) -> str:
    """Return the field of a clique or scaling group by its index in the manifest; empty: it has none."""
    entries = context.snapshot.mirrored.manifest["spec"]["template"].get(kind) or []
    name = entries[index].get("name") if index < len(entries) else None
    levels = [level for level in context.strategy.levels if level.component == name]
    wanted = LevelKind.CLIQUE if kind == "cliques" else LevelKind.GROUP
    has_field = any(level.kind is wanted and not is_shadowed(level, levels) for level in levels)
    return f"{_TEMPLATE_PREFIX}{name}" if has_field else ""


def _make_number_field(context: WorkloadContext, level: StrategyLevel, given: QueryDict | None) -> NumberField:
    shadowed = SHADOWED_SENTENCE if is_shadowed(level, context.strategy.levels) else ""
    name, now = f"{_SHADOWED_PREFIX if shadowed else _TEMPLATE_PREFIX}{level.component}", str(level.replicas)
    was, value = (
        (now, now) if given is None else (given.get(f"{_FORMER_PREFIX}{name}", now), given.get(name, now).strip())
    )
    if value == was or shadowed:
        was = value = now  # without a change it shows the present number
    return NumberField(
        component=level.component,
        kind=_render_kind(context.snapshot.workload, level),
        unit=_UNIT_NAMES[level.kind],
        name=name,
        current=level.replicas,
        former=was,
        value=value,
        running_text=_render_running(context.tree, level),
        scaled_replicas=tuple(_list_scaled(context.tree, level)),
        shadowed_reason=shadowed,
    )


def _render_kind(workload: Workload | None, level: StrategyLevel) -> str:
    if level.kind is not LevelKind.GROUP or workload is None:
        return "the set" if level.kind is LevelKind.SET else "clique"
    members = next(group.clique_names for group in workload.groups if group.name == level.component)
    pods = sum(clique.replicas for clique in workload.cliques if clique.name in members)
    return f"scaling group of {pods} pod{'s' * (pods != 1)}"


def _render_running(tree: WorkloadTree, level: StrategyLevel) -> str:
    if level.kind is LevelKind.SET:
        wanted = [replica for replica in tree.replicas if not replica.surge]
        return f"{sum(replica.available for replica in wanted)} of {tree.wanted} available"
    parts = [part for index, part in _live_parts(tree, level) if index < tree.wanted]
    unit = "pods" if level.kind is LevelKind.CLIQUE else "group replicas"
    return f"{sum(map(_count_available, parts))} of {sum(part.wanted for part in parts)} {unit} available"


def _list_scaled(tree: WorkloadTree, level: StrategyLevel) -> Iterator[ScaledReplica]:
    for index, part in _live_parts(tree, level) if level.component else ():
        if part.exists and part.wanted != level.replicas:
            yield ScaledReplica(index, part.wanted)


def _live_parts(tree: WorkloadTree, level: StrategyLevel) -> Iterator[tuple[int, CliqueNode | GroupNode]]:
    for replica in tree.replicas:
        parts: Sequence[CliqueNode | GroupNode] = replica.cliques if level.kind is LevelKind.CLIQUE else replica.groups
        for part in parts:
            if part.template == level.component:
                yield replica.index, part


def _count_available(part: CliqueNode | GroupNode) -> int:
    if isinstance(part, CliqueNode):
        return min(part.available_pods, part.wanted)
    return sum(one.available for one in part.replicas if not one.surge)


# ---- the changes


def _parse_numbers(given: QueryDict) -> dict[str, int]:
    """Return the changed numbers of the template, by component."""
    fields = {field: given.get(field, "").strip() for field in given if field.startswith(_TEMPLATE_PREFIX)}
    changed = {field: text for field, text in fields.items() if text != given.get(f"{_FORMER_PREFIX}{field}")}
    return {field.removeprefix(_TEMPLATE_PREFIX): number for field, number in _parse_all(changed).items()}


def _parse_live_scale(given: QueryDict) -> ScaleLive | None:
    """Return the number of a live component; None: its fields are empty."""
    texts = {name: given.get(f"{_LIVE_PREFIX}{name}", "").strip() for name in _LIVE_FIELDS}
    if not any(texts.values()):
        return None
    if not texts["component"]:
        raise invalid_command([Finding(f"{_LIVE_PREFIX}component", FindingCode.FIELD_MISSING, "choose a component")])
    numbers = _parse_all({f"{_LIVE_PREFIX}{name}": texts[name] for name in ("replica", "replicas")})
    return ScaleLive(texts["component"], numbers[f"{_LIVE_PREFIX}replica"], numbers[f"{_LIVE_PREFIX}replicas"])


def _parse_all(texts: Mapping[str, str]) -> dict[str, int]:
    """Return numbers by field; raises ValidationFailed for all that are not numbers."""
    wrong = [field for field, text in texts.items() if not _is_number(text)]
    if wrong:
        sentence = f"this must be a whole number from 0 to {MAX_INT32}"
        raise invalid_command([Finding(field, FindingCode.WRONG_TYPE, sentence) for field in wrong])
    return {field: int(text) for field, text in texts.items()}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_INT32)) and int(text) <= MAX_INT32


# ---- the confirmation


def _count_wanted_pods(context: WorkloadContext, numbers: Mapping[str, int], live: ScaleLive | None) -> tuple[int, int]:
    """Return how many pods are wanted before and after the change."""
    workload, observed = context.snapshot.workload, context.snapshot.mirrored.observed
    tried = workloads.scale_template(numbers).function(context.snapshot.mirrored.manifest)
    after = tried if isinstance(tried, InvalidEdit) else parse_workload(tried)
    if workload is None or isinstance(after, InvalidEdit | ParseFailure):
        return 0, 0
    before = count_desired(workload, observed)
    if live is not None:
        return before, count_desired(workload, scale_observed(workload, observed, live))
    return before, count_desired(after, observed, renewed=numbers)


def _render_confirmation(before: int, after: int) -> str:
    """Return the sentence to confirm for a change of the number of pods; empty: none.

    >>> _render_confirmation(26, 0)
    'This deletes all 26 pods, and nothing serves until the workload is scaled up again.'
    >>> _render_confirmation(26, 13)
    'This deletes 13 of 26 pods.'
    >>> _render_confirmation(4, 44)
    'This creates 40 pods: 44 instead of 4.'
    >>> _render_confirmation(26, 20), _render_confirmation(4, 8), _render_confirmation(0, 8)
    ('', '', '')
    """
    if before and not after:
        return f"This deletes all {before:,} pods, and nothing serves until the workload is scaled up again."
    if before > 1 and after <= before / 2:
        return f"This deletes {before - after:,} of {before:,} pods."
    if after > 2 * before and after - before >= _CONFIRM_NEW_PODS:
        return f"This creates {after - before:,} pods: {after:,} instead of {before:,}."
    return ""
