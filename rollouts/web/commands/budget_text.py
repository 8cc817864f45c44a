"""The budgets of a strategy in words: how many units are replaced at a time, and how many keep serving.

Before it: `selectors.strategy_detail`, which has the resolved numbers of each level. The invariant: every number here
is one that the roller uses.
"""

from collections.abc import Iterable
from typing import Final

from rollouts.engine.model.workload import Strategy
from rollouts.engine.rollout.levels import LevelKind
from rollouts.selectors.strategy_detail import StrategyLevel

STRATEGY_TYPE_TEXTS: Final = {
    Strategy.ROLLING_RECREATE: "One replica of the set at a time, one unit of each component at a time. No settings.",
    Strategy.ROLLING_UPDATE: "One replica of the set at a time, each component within its own budget.",
    Strategy.REPLICA_RECREATE: "Whole replicas of the set: no replica ever has pods of two versions.",
    Strategy.ON_DELETE: "Replaces a pod only after you delete it.",
}
"""What each type does, in one sentence."""

UNIT_NAMES: Final = {LevelKind.SET: "replica", LevelKind.CLIQUE: "pod", LevelKind.GROUP: "replica"}
"""The unit that a budget counts at each level."""
_NUMBER_WORDS: Final = ("no", "one", "two", "three", "four", "five", "six")


SHADOWED_SENTENCE: Final = "A scaling group has the same name as this clique, so change the clique in the manifest."


def is_shadowed(level: StrategyLevel, levels: Iterable[StrategyLevel]) -> bool:
    """Return whether a clique has the name of a scaling group: then every edit of that name means the group."""
    return level.kind is LevelKind.CLIQUE and any(
        other.kind is LevelKind.GROUP and other.component == level.component for other in levels
    )


def render_level(level: StrategyLevel, strategy: str | int | None) -> str:
    """Return what an update may do at a level."""
    if strategy == Strategy.ON_DELETE:
        return "OnDelete does not use this budget: a pod is replaced only after you delete it."
    if level.resolved_max_unavailable is None or level.resolved_max_surge is None:
        return f"{strategy} does not use this budget: the component is replaced with its replica of the set."
    if level.kind is LevelKind.SET and not level.is_used:
        # Whether a replica serves during its update depends on the budgets of its components.
        return f"{strategy} does not use this budget: it updates one replica of the set at a time."
    words = render_budget(level.kind, level.replicas, level.resolved_max_unavailable, level.resolved_max_surge)
    if not level.is_used:
        return f"{strategy} does not use this budget: {words}."
    percentages = [
        f"{part.value} of {level.replicas} → {number}"
        for part, number in (
            (level.max_unavailable, level.resolved_max_unavailable),
            (level.max_surge, level.resolved_max_surge),
        )
        if isinstance(part.value, str)
    ]
    text = f"{', '.join(percentages)}: {words}" if percentages else words
    return f"{text[:1].upper()}{text[1:]}."


def render_budget(kind: LevelKind, replicas: int, max_unavailable: int, max_surge: int) -> str:
    """Return what two resolved numbers mean for so many units.

    >>> render_budget(LevelKind.CLIQUE, 3, 1, 0)
    'one pod at a time; 2 of 3 keep serving'
    >>> render_budget(LevelKind.GROUP, 4, 0, 1)
    'one extra replica first; all 4 keep serving'
    >>> render_budget(LevelKind.SET, 5, 2, 1)
    'two replicas at a time and one extra; 3 of 5 keep serving'
    >>> render_budget(LevelKind.SET, 2, 2, 0)
    'both replicas at once; no replica serves during the update'
    >>> render_budget(LevelKind.CLIQUE, 1, 0, 1)
    'one extra pod first; the original keeps serving'
    """
    unit = UNIT_NAMES[kind]
    if not replicas:
        return f"there is no {unit} to replace"
    extra = f"{_render_number(max_surge)} extra"
    if not max_unavailable:
        return (
            f"{extra} {_pluralize(max_surge, unit)} first; {_render_all(replicas)} keep{'s' * (replicas == 1)} serving"
        )
    beside = f" and {extra}" if max_surge else ""
    if max_unavailable == replicas:
        whole = f"the only {unit}" if replicas == 1 else f"{_render_all(replicas)} {unit}s at once"
        return f"{whole}{beside}; no {unit} serves during the update"
    left = replicas - max_unavailable
    at_a_time = f"{_render_number(max_unavailable)} {_pluralize(max_unavailable, unit)} at a time"
    return f"{at_a_time}{beside}; {left} of {replicas} keep{'s' * (left == 1)} serving"


def _render_all(number: int) -> str:
    return {1: "the original", 2: "both"}.get(number, f"all {number}")


def _render_number(number: int) -> str:
    return _NUMBER_WORDS[number] if number < len(_NUMBER_WORDS) else str(number)


def _pluralize(number: int, word: str) -> str:
    return word if number == 1 else f"{word}s"
