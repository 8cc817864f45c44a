"""The simulated cluster of a forecast: the real one from the mirror, with the assumptions of the caller.

Before it: `mirror.fetch_cluster_snapshot` (nodes, other pods, how pods of this workload behaved) and
`engine.simulation.pod_behaviour` (what to expect from that). After it: `engine.simulation.simulate`, for previews and
for remedies, so that both use the same numbers. Every assumption is also a sentence, which is shown below the forecast.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from rollouts import mirror, models
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Workload
from rollouts.engine.scheduling.constraints import list_unsimulated
from rollouts.engine.simulation.cluster import UNLIMITED_NODES, ClusterBehaviour, TemplateKey
from rollouts.engine.simulation.pod_behaviour import (
    DEFAULT_READY_SECONDS,
    CliqueExpectation,
    ExpectedBehaviour,
    compute_expected_behaviour,
)
from rollouts.engine.simulation.scheduler import SimulatedNode
from rollouts.engine.tree.layout import make_layout
from rollouts.mirror import ClusterSnapshot

DEFAULT_TERMINATION_SECONDS: Final = 5.0
"""How long a pod takes to terminate, if none was measured lately."""

_MAX_CLIQUES_SHOWN: Final = 8
_DECIMALS_BELOW_SECONDS: Final = 10.0  # shorter durations have a decimal
_ASSUMED_BY_USER: Final = "your assumption"


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Assumptions of the caller about the cluster; None: as measured."""

    seconds_to_ready: float | None = DEFAULT_READY_SECONDS
    seconds_to_terminate: float | None = None
    never_ready: tuple[str, ...] = ()  # cliques whose new pods never become Ready
    all_ready: bool = False  # pods become Ready even if others of their template fail now
    is_full: bool = False  # there is room for the pods that run now, and no more
    is_unlimited: bool = False  # there is room for every pod


class AssumptionKind(StrEnum):
    """The subject of an assumption."""

    ROOM = "Room"
    OTHER_PODS = "OtherPods"
    NOT_SIMULATED = "NotSimulated"
    READY = "Ready"
    NEVER_READY = "NeverReady"
    TERMINATION = "Termination"


@dataclass(frozen=True, slots=True)
class Assumption:
    """An assumption of a forecast."""

    about: AssumptionKind
    text: str


@dataclass(frozen=True, slots=True)
class Pace:
    """How long new pods take to become Ready."""

    seconds_to_ready: float  # of the slowest clique
    is_measured: bool  # on pods of this workload


@dataclass(frozen=True, slots=True)
class Forecast:
    """A simulated cluster."""

    behaviour: ClusterBehaviour
    pace: Pace
    never_ready: tuple[str, ...]  # cliques of the template whose new pods never become Ready
    assumptions: tuple[Assumption, ...]


def fetch_surroundings(
    cluster: models.Cluster, namespace: str, workload: Workload, observed: Observed, now: float
) -> ClusterSnapshot:
    """Return the nodes and other pods around a workload."""
    templates = {clique.name: clique.template for clique in observed.cliques}
    seconds_by_clique = {
        clique.name: clique.pod_spec.get("terminationGracePeriodSeconds") for clique in workload.cliques
    }
    grace = {name: float(seconds) for name, seconds in seconds_by_clique.items() if isinstance(seconds, int)}
    return mirror.fetch_cluster_snapshot(cluster, (namespace, workload.name), templates, grace, now)


def compute_forecast(
    before: Workload,
    after: Workload,
    observed: Observed,
    surroundings: ClusterSnapshot,
    assumptions: Assumptions = Assumptions(seconds_to_ready=None),  # noqa: B008 (frozen)
) -> Forecast:
    """Return the cluster to simulate a change in, and its assumptions."""
    outlook = compute_expected_behaviour(before, after, surroundings.records, observed.ready_times)
    wanted = make_layout(after).hashes
    current = [one for one in outlook.cliques if wanted.get(one.clique) == one.template_hash]
    broken, never = _find_never_ready(assumptions, before, after, observed, outlook)
    gone = (
        surroundings.termination_seconds
        if assumptions.seconds_to_terminate is None
        else assumptions.seconds_to_terminate
    )
    ready = assumptions.seconds_to_ready
    behaviour = ClusterBehaviour(
        nodes=_choose_nodes(assumptions, observed, surroundings),
        ready_seconds=DEFAULT_READY_SECONDS if ready is None else ready,
        ready_seconds_of=outlook.ready_seconds_of if ready is None else {},
        seconds_on_node=outlook.seconds_on_node if ready is None and not assumptions.all_ready else {},
        never_ready=broken,
        termination_seconds=DEFAULT_TERMINATION_SECONDS if gone is None else gone,
    )
    return Forecast(
        behaviour=behaviour,
        pace=_choose_pace(assumptions, current),
        never_ready=tuple(one.clique for one in never),
        assumptions=(
            *_describe_room(assumptions, surroundings),
            *_describe_unsimulated(after),
            *_describe_ready(assumptions, [one for one in current if one.key not in broken]),
            *_describe_never_ready(never),
            *_describe_termination(assumptions, surroundings),
        ),
    )


def _choose_nodes(given: Assumptions, observed: Observed, surroundings: ClusterSnapshot) -> tuple[SimulatedNode, ...]:
    if given.is_full:
        there = Counter(pod.node for pod in observed.pods if pod.node)
        known = {node.name: node for node in surroundings.nodes}
        kept = ((known.get(name, SimulatedNode(name)), number) for name, number in sorted(there.items()))
        return tuple(replace(node, pods=number, resources={}, is_exhaustive=False) for node, number in kept)
    return UNLIMITED_NODES if given.is_unlimited or not surroundings.is_complete else surroundings.nodes


def _find_never_ready(
    given: Assumptions, before: Workload, after: Workload, observed: Observed, outlook: ExpectedBehaviour
) -> tuple[frozenset[str | TemplateKey], list[CliqueExpectation]]:
    """Return the templates and pods that never become Ready, and their cliques."""
    hashes = make_layout(after).hashes
    current = {one.clique: one for one in outlook.cliques if hashes.get(one.clique) == one.template_hash}
    assumed = {} if given.all_ready else {name: one for name, one in current.items() if one.never_ready_reason}
    former = make_layout(before).hashes
    templates = {clique.name: clique.template for clique in observed.cliques}
    # Pods of an update in progress are as new as those of the change.
    running = {(templates.get(pod.clique, ""), pod.template_hash) for pod in observed.pods}
    rolling = {name for name, template_hash in running if name in hashes and hashes[name] != template_hash}
    new = {name for name in hashes if hashes[name] != former.get(name)} | rolling
    supposed = [name for name in given.never_ready if name in new and name not in assumed]
    never = [*assumed.values(), *(replace(current[name], never_ready_reason=_ASSUMED_BY_USER) for name in supposed)]
    lost: frozenset[str | TemplateKey] = frozenset() if given.all_ready else outlook.never_ready
    return lost | {one.key for one in never}, never


def _choose_pace(given: Assumptions, current: list[CliqueExpectation]) -> Pace:
    if given.seconds_to_ready is not None or not current:
        return Pace(
            DEFAULT_READY_SECONDS if given.seconds_to_ready is None else given.seconds_to_ready, is_measured=False
        )
    slowest = max(current, key=lambda one: one.seconds)
    return Pace(slowest.seconds, is_measured=slowest.pods > 0)


# ---- sentences


def _describe_room(given: Assumptions, surroundings: ClusterSnapshot) -> Iterator[Assumption]:
    nodes = len(surroundings.nodes)
    if given.is_full:
        yield Assumption(AssumptionKind.ROOM, "Your assumption: there is room for the pods that run now, and no more.")
    elif given.is_unlimited:
        yield Assumption(AssumptionKind.ROOM, "Your assumption: there is room for every pod.")
    elif not surroundings.is_complete:
        text = "The nodes of the cluster are still being listed, so room is not limited."
        yield Assumption(AssumptionKind.ROOM, text)
    elif not nodes:
        yield Assumption(AssumptionKind.ROOM, "The cluster has no nodes, so there is no room for new pods.")
    else:
        closed = {"cordoned": surroundings.cordoned, "not ready": surroundings.not_ready}
        reasons = ", ".join(f"{number} {words}" for words, number in closed.items() if number)
        takes = nodes - sum(closed.values())
        yield Assumption(
            AssumptionKind.ROOM,
            f"{takes} of {nodes} node{'s' * (nodes != 1)} take{'s' * (takes == 1)} new pods"
            f"{f' ({reasons})' if reasons else ''}, as far as taints, selectors and the requests of other pods allow.",
        )
        if not surroundings.counts_foreign:
            yield Assumption(AssumptionKind.OTHER_PODS, "Pods that Grove does not manage are not counted yet.")


def _describe_unsimulated(after: Workload) -> Iterator[Assumption]:
    found: dict[tuple[str, ...], list[str]] = {}
    for clique in after.cliques:
        if features := list_unsimulated(clique.pod_spec):
            found.setdefault(features, []).append(clique.name)
    for features, names in found.items():
        more = f" and {len(names) - _MAX_CLIQUES_SHOWN} more" if len(names) > _MAX_CLIQUES_SHOWN else ""
        text = f"Not simulated: {', '.join(features)} of {', '.join(names[:_MAX_CLIQUES_SHOWN])}{more}."
        yield Assumption(AssumptionKind.NOT_SIMULATED, text)


def _describe_ready(given: Assumptions, current: list[CliqueExpectation]) -> Iterator[Assumption]:
    if given.seconds_to_ready is not None:
        yield Assumption(
            AssumptionKind.READY, f"New pods take {_render_seconds(given.seconds_to_ready)} to become Ready."
        )
        return
    for one in current[:_MAX_CLIQUES_SHOWN]:
        source = (
            f"measured on {one.pods} pod{'s' * (one.pods != 1)}" if one.pods else "assumed, since no pod was measured"
        )
        yield Assumption(
            AssumptionKind.READY,
            f"New pods of {one.clique} take {_render_seconds(one.seconds)} to become Ready ({source}).",
        )
    if len(current) > _MAX_CLIQUES_SHOWN:
        slowest = max(one.seconds for one in current)
        others = len(current) - _MAX_CLIQUES_SHOWN
        yield Assumption(
            AssumptionKind.READY, f"New pods of {others} more cliques take at most {_render_seconds(slowest)}."
        )


def _describe_never_ready(never: list[CliqueExpectation]) -> Iterator[Assumption]:
    for one in never[:_MAX_CLIQUES_SHOWN]:
        yield Assumption(
            AssumptionKind.NEVER_READY, f"New pods of {one.clique} never become Ready ({one.never_ready_reason})."
        )


def _describe_termination(given: Assumptions, surroundings: ClusterSnapshot) -> Iterator[Assumption]:
    if given.seconds_to_terminate is not None:
        yield Assumption(
            AssumptionKind.TERMINATION, f"Deleted pods take {_render_seconds(given.seconds_to_terminate)} to terminate."
        )
    elif surroundings.termination_seconds is None:
        yield Assumption(
            AssumptionKind.TERMINATION,
            f"Deleted pods take {_render_seconds(DEFAULT_TERMINATION_SECONDS)} to terminate (assumed).",
        )
    else:
        number, seconds = surroundings.terminated_pods, _render_seconds(surroundings.termination_seconds)
        counted = f"measured on {number} pod{'s' * (number != 1)}"
        yield Assumption(AssumptionKind.TERMINATION, f"Deleted pods take {seconds} to terminate ({counted}).")


def _render_seconds(seconds: float) -> str:
    """Return a number of seconds, with a decimal for short ones.

    >>> [_render_seconds(seconds) for seconds in (0.5, 2.04, 30.0, 600.0)]
    ['0.5 s', '2 s', '30 s', '600 s']
    """
    return f"{seconds:.1f}".removesuffix(".0") + " s" if seconds < _DECIMALS_BELOW_SECONDS else f"{seconds:.0f} s"
