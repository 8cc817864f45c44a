"""The effect of an override as a table for the form: one row for each workload, with its strategy before and after."""

from collections.abc import Iterator
from dataclasses import dataclass

from rollouts.engine.manifest.findings import Finding
from rollouts.engine.rollout.levels import Level, LevelKind
from rollouts.services.override_preview import AffectedWorkload, OverrideCheck, ResolvedStrategy

_KINDS = {
    LevelKind.SET: ("replica", "replicas"),
    LevelKind.CLIQUE: ("pod", "pods"),
    LevelKind.GROUP: ("group", "groups"),
}


@dataclass(frozen=True, slots=True)
class LevelRow:
    """A level of a workload, before and after."""

    name: str
    units: str  # number and kind of its units, such as "3 pods"
    before: str
    after: str

    @property
    def changes(self) -> bool:
        """Return whether the budget of this level changes."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class AffectedRow:
    """A workload, before and after."""

    place: str
    before: str  # the type of its strategy
    after: str
    levels: tuple[LevelRow, ...]  # levels whose budgets are used or change
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    state: str  # changes, same, refused, or unreadable


@dataclass(frozen=True, slots=True)
class CheckTable:
    """The whole table with a summary."""

    summary: str
    rows: tuple[AffectedRow, ...]
    more: int  # matching workloads that are not shown
    warnings: tuple[Finding, ...]


def make_table(check: OverrideCheck) -> CheckTable:
    """Return the table for a check."""
    rows = tuple(_row(hit) for hit in check.affected)
    return CheckTable(_summarize(check, rows), rows, check.total - len(rows), check.warnings)


def list_components(check: OverrideCheck) -> list[str]:
    """Return the names of all cliques and scaling groups of the matching workloads."""
    levels = (level for hit in check.affected if hit.before for level in hit.before.levels)
    return sorted({level.component for level in levels if level.component})


def _summarize(check: OverrideCheck, rows: tuple[AffectedRow, ...]) -> str:
    if not check.total:
        return "It matches no workload."
    states = [row.state for row in rows]
    matched = "1 workload" if check.total == 1 else f"{check.total} workloads"
    kept = "its strategy" if states.count("refused") == 1 else "their strategies"
    outcomes = [
        f"{states.count(state)} {words}"
        for state, words in (
            ("changes", "would change"),
            ("same", "would stay unchanged"),
            ("refused", f"would break a rule and keep {kept}"),
            ("unreadable", "with a manifest that is not valid"),
        )
        if state in states
    ]
    return f"It matches {matched}: {', '.join(outcomes)}." if outcomes else f"It matches {matched}."


def _row(hit: AffectedWorkload) -> AffectedRow:
    if hit.before is None:
        return AffectedRow(str(hit.place), "", "", (), hit.findings, hit.warnings, "unreadable")
    after = hit.after or hit.before
    levels = tuple(_levels(hit.before, after))
    state = "refused" if hit.findings else "changes" if hit.changes else "same" if hit.after else "unknown"
    return AffectedRow(
        str(hit.place), str(hit.before.strategy), str(after.strategy), levels, hit.findings, hit.warnings, state
    )


def _levels(before: ResolvedStrategy, after: ResolvedStrategy) -> Iterator[LevelRow]:
    for old, new in zip(before.levels, after.levels, strict=True):
        if old.budget == new.budget and not new.is_used:
            continue
        units = f"{old.replicas} {_KINDS[old.kind][old.replicas != 1]}"
        yield LevelRow(old.component or "set", units, _render_level(old), _render_level(new))


def _render_level(level: Level) -> str:
    if level.budget is None:
        return "no automatic updates"
    return f"maxUnavailable {level.budget.max_unavailable}, maxSurge {level.budget.max_surge}"
