"""Gang termination: recreates replicas that are below their minimum for too long (`docs/semantics.md` 10).

The conditions that `status` has written say how long; `planner` carries the decision out, and `status` then resets the
conditions. The invariants: only a component that is below its minimum now is terminated; one that was never scheduled
is not, since it would only return to the queue that it waits in; no replica is terminated while an automatic update
replaces parts of it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rollouts.engine.model.conditions import BREACHED, SCALED_BELOW, SCHEDULED, TERMINATING, find_condition
from rollouts.engine.model.observed import Group
from rollouts.engine.model.times import parse_time
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Workload
from rollouts.engine.rollout.steps import ReplicaStep, SetStep
from rollouts.engine.tree.availability import CliqueView, GroupView


@value
class Termination:
    """Which replicas are recreated now, and when the next one is due."""

    replicas: Mapping[int, str]  # of the set: the index, and the name of the component below its minimum
    group_replicas: Mapping[str, str]  # of scaling groups: the name, and the PodClique below its minimum
    due_at: float | None  # when the next one is due


_NOTHING: Final = Termination({}, {}, None)


def decide_termination(workload: Workload, steps: SetStep, now: float) -> Termination:
    """Return the replicas with a component that is below its minimum for the termination delay."""
    idle = [step for step in steps.replicas if not step.is_at_work]
    if not idle:
        return _NOTHING
    replicas: dict[int, str] = {}
    parts: dict[str, str] = {}
    due = []
    for step in idle:
        for name, since, part in _list_breaches(step):
            at = since + workload.termination_delay
            if at > now:
                due.append(at)
            elif part is None:
                replicas.setdefault(step.replica.index, name)
            else:
                parts.setdefault(part, name)
    return Termination(replicas, parts, min(due, default=None))


def is_breached(view: CliqueView) -> bool:
    """Whether a clique has fewer scheduled pods that do not fail than its minimum, or than its scale if that is less.

    Recreating a clique that is scaled below its minimum would not help.
    """
    least = view.attainable_minimum
    if view.scheduled < least:
        return True
    return view.available < least and count_healthy(view) < least


def count_healthy(view: CliqueView) -> int:
    """Count the scheduled pods that are Ready or still starting."""
    return sum(bool(pod.node) and (pod.ready or not pod.failing) for pod in view.live)


def is_group_breached(view: GroupView) -> bool:
    """Whether a scaling group has fewer replicas without a breach than its minimum, or than its scale."""
    fine = 0
    for index in range(view.wanted):
        part = view.replicas.get(index)
        fine += part is not None and (part.is_available or not any(map(is_breached, part.cliques)))
    return fine < view.attainable_minimum


def _list_breaches(step: ReplicaStep) -> Iterator[tuple[str, float, str | None]]:
    """Yield each breach: component, since when, and the group replica if recreating that is enough."""
    is_scheduled = step.replica.is_anything_scheduled
    for view in step.replica.cliques:
        since = _breached_since(view, is_scheduled=is_scheduled)
        if since is not None:
            yield view.name, since, None
    for group in step.replica.groups:
        if group.group is None or not group.is_live or all(one.is_available for one in group.replicas.values()):
            continue
        if is_group_breached(group):
            since = _group_breached_since(group.group, is_scheduled=is_scheduled)
            if since is not None:
                yield group.name, since, None
        else:
            yield from _list_group_replica_breaches(group)


def _list_group_replica_breaches(group: GroupView) -> Iterator[tuple[str, float, str | None]]:
    for part in group.replicas.values():
        for view in part.cliques:
            since = _breached_since(view, is_scheduled=part.is_anything_scheduled)
            if since is not None:
                yield view.name, since, part.name


def _breached_since(view: CliqueView, *, is_scheduled: bool) -> float | None:
    """Return since when a PodClique that was scheduled once is below its minimum.

    A pod with a node in what would be recreated says that it was, since a gang is scheduled whole: the only pod of the
    PodClique may be lost before any status says so. A condition with the time of the creation says how it began
    (`status`); a later one, that it was different before.
    """
    clique = view.clique
    if clique is None or clique.leaving or not is_breached(view):
        return None
    scheduled = find_condition(clique.status, SCHEDULED)
    changed = parse_time(scheduled.get("lastTransitionTime"))
    has_changed = changed is not None and changed > clique.created
    was_scheduled = is_scheduled or scheduled.get("status") == "True" or has_changed
    return _breach_since(find_condition(clique.status, BREACHED)) if was_scheduled else None


def _group_breached_since(group: Group, *, is_scheduled: bool) -> float | None:
    """Return since when a scaling group that was scheduled or fine once is below its minimum.

    One that was terminated keeps its flag until it has its minimum again, and is not terminated again before that.
    """
    if find_condition(group.status, TERMINATING):
        return None
    since = _breach_since(find_condition(group.status, BREACHED))
    was_scheduled = is_scheduled or (since is not None and since > group.created)
    return since if was_scheduled else None


def _breach_since(condition: Mapping[str, Any]) -> float | None:
    """Return since when a breach holds; None if there is none, or if it is only the scale."""
    is_breach = condition.get("status") == "True" and condition.get("reason") != SCALED_BELOW
    return parse_time(condition.get("lastTransitionTime")) if is_breach else None
