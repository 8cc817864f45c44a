"""The simulated cluster of a forecast: the real one as the mirror has it, and what somebody supposes otherwise.

Before it: `mirror.read_surroundings` (nodes, other pods, how this workload's pods behaved) and `engine.simulation.pod_behaviour` (what
that lets one expect). After it: `engine.simulation.simulate`, for previews and for remedies alike, so that both are told the same
truth. Every assumption is also a sentence, which stands under the numbers of a forecast.
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
from rollouts.engine.simulation.cluster import ENDLESS_ROOM, Behaviour, TemplateKey
from rollouts.engine.simulation.pod_behaviour import SECONDS_TO_READY, Expectation, Outlook, compute_outlook
from rollouts.engine.simulation.scheduler import Node
from rollouts.engine.tree.layout import make_shape
from rollouts.mirror import Surroundings

SECONDS_TO_GO: Final = 5.0
"""From a pod's deletion to its end, where none was seen to go lately."""

_CLIQUES_TOLD: Final = 8
_TENTHS_BELOW: Final = 10.0  # seconds that are told with a decimal
_SUPPOSED: Final = "you suppose so"


@dataclass(frozen=True, slots=True)
class Belief:
    """How somebody supposes that the cluster behaves; None: as it was measured."""

    seconds_to_ready: float | None = SECONDS_TO_READY
    seconds_to_go: float | None = None
    never_ready: tuple[str, ...] = ()  # cliques whose pods of a new template never become Ready
    all_ready: bool = False  # pods become Ready though others of their template have failed so far
    is_full: bool = False  # there is room for the pods that run now, and no more
    is_unlimited: bool = False  # there is room for every pod


class About(StrEnum):
    """What an assumption is about."""

    ROOM = "Room"
    OTHER_PODS = "OtherPods"
    NOT_SIMULATED = "NotSimulated"
    READY = "Ready"
    NEVER_READY = "NeverReady"
    TERMINATION = "Termination"


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that a forecast rests on."""

    about: About
    text: str


@dataclass(frozen=True, slots=True)
class Pace:
    """How long new pods are expected to take."""

    seconds_to_ready: float  # of the slowest clique
    is_measured: bool  # on pods that run, or that did


@dataclass(frozen=True, slots=True)
class Forecast:
    """A cluster to simulate in."""

    behaviour: Behaviour
    pace: Pace
    never_ready: tuple[str, ...]  # cliques of the template that are expected never to become Ready
    assumptions: tuple[Assumption, ...]


def read_cluster(
    cluster: models.Cluster, namespace: str, workload: Workload, observed: Observed, now: float
) -> Surroundings:
    """Return what surrounds a workload of which this is observed."""
    templates = {clique.name: clique.template for clique in observed.cliques}
    told = {clique.name: clique.pod_spec.get("terminationGracePeriodSeconds") for clique in workload.cliques}
    grace = {name: float(seconds) for name, seconds in told.items() if isinstance(seconds, int)}
    return mirror.read_surroundings(cluster, (namespace, workload.name), templates, grace, now)


def make_forecast(
    before: Workload,
    after: Workload,
    observed: Observed,
    surroundings: Surroundings,
    belief: Belief = Belief(seconds_to_ready=None),  # noqa: B008 (frozen)
) -> Forecast:
    """Return the cluster to simulate a change in, and what is assumed about it."""
    outlook = compute_outlook(before, after, surroundings.records, observed.measured)
    wanted = make_shape(after).hashes
    current = [one for one in outlook.cliques if wanted.get(one.clique) == one.template_hash]
    broken, never = _find_never_ready(belief, before, after, observed, outlook)
    gone = surroundings.seconds_to_go if belief.seconds_to_go is None else belief.seconds_to_go
    ready = belief.seconds_to_ready
    behaviour = Behaviour(
        nodes=_choose_nodes(belief, observed, surroundings),
        ready_seconds=SECONDS_TO_READY if ready is None else ready,
        ready_seconds_of=outlook.ready_seconds_of if ready is None else {},
        on_node_for=outlook.on_node_for if ready is None and not belief.all_ready else {},
        never_ready=broken,
        gone_seconds=SECONDS_TO_GO if gone is None else gone,
    )
    return Forecast(
        behaviour=behaviour,
        pace=_choose_pace(belief, current),
        never_ready=tuple(one.clique for one in never),
        assumptions=(
            *_tell_room(belief, surroundings),
            *_tell_unsimulated(after),
            *_tell_ready(belief, [one for one in current if one.key not in broken]),
            *_tell_never(never),
            *_tell_termination(belief, surroundings),
        ),
    )


def _choose_nodes(belief: Belief, observed: Observed, surroundings: Surroundings) -> tuple[Node, ...]:
    if belief.is_full:
        there = Counter(pod.node for pod in observed.pods if pod.node)
        known = {node.name: node for node in surroundings.nodes}
        kept = ((known.get(name, Node(name)), number) for name, number in sorted(there.items()))
        return tuple(replace(node, pods=number, resources={}, is_closed=False) for node, number in kept)
    return ENDLESS_ROOM if belief.is_unlimited or not surroundings.nodes else surroundings.nodes


def _find_never_ready(
    belief: Belief, before: Workload, after: Workload, observed: Observed, outlook: Outlook
) -> tuple[frozenset[str | TemplateKey], list[Expectation]]:
    """Return what never becomes Ready, as templates and names of pods, and of which cliques that is told."""
    hashes = make_shape(after).hashes
    current = {one.clique: one for one in outlook.cliques if hashes.get(one.clique) == one.template_hash}
    assumed = {} if belief.all_ready else {name: one for name, one in current.items() if one.never}
    former = make_shape(before).hashes
    templates = {clique.name: clique.template for clique in observed.cliques}
    # What an update at work brings is as new as what the change itself does.
    running = {(templates.get(pod.clique, ""), pod.template_hash) for pod in observed.pods}
    rolling = {name for name, template_hash in running if name in hashes and hashes[name] != template_hash}
    new = {name for name in hashes if hashes[name] != former.get(name)} | rolling
    supposed = [name for name in belief.never_ready if name in new and name not in assumed]
    told = [*assumed.values(), *(replace(current[name], never=_SUPPOSED) for name in supposed)]
    lost: frozenset[str | TemplateKey] = frozenset() if belief.all_ready else outlook.never_ready
    return lost | {one.key for one in told}, told


def _choose_pace(belief: Belief, current: list[Expectation]) -> Pace:
    if belief.seconds_to_ready is not None or not current:
        return Pace(SECONDS_TO_READY if belief.seconds_to_ready is None else belief.seconds_to_ready, is_measured=False)
    slowest = max(current, key=lambda one: one.seconds)
    return Pace(slowest.seconds, is_measured=slowest.pods > 0)


# ---- in words


def _tell_room(belief: Belief, surroundings: Surroundings) -> Iterator[Assumption]:
    nodes = len(surroundings.nodes)
    if belief.is_full:
        yield Assumption(About.ROOM, "You suppose that there is room for the pods that run now, and no more.")
    elif belief.is_unlimited:
        yield Assumption(About.ROOM, "You suppose that there is room for every pod.")
    elif not nodes:
        yield Assumption(About.ROOM, "No nodes are known, so room is not limited.")
    else:
        closed = {"cordoned": surroundings.cordoned, "not ready": surroundings.not_ready}
        told = ", ".join(f"{number} {words}" for words, number in closed.items() if number)
        takes = nodes - sum(closed.values())
        yield Assumption(
            About.ROOM,
            f"{takes} of {nodes} node{'s' * (nodes != 1)} take{'s' * (takes == 1)} new pods"
            f"{f' ({told})' if told else ''}, as far as taints, selectors and the requests of other pods let them.",
        )
        if not surroundings.counts_foreign:
            yield Assumption(About.OTHER_PODS, "Pods that Grove does not manage are not counted yet.")


def _tell_unsimulated(after: Workload) -> Iterator[Assumption]:
    found: dict[tuple[str, ...], list[str]] = {}
    for clique in after.cliques:
        if features := list_unsimulated(clique.pod_spec):
            found.setdefault(features, []).append(clique.name)
    for features, names in found.items():
        more = f" and {len(names) - _CLIQUES_TOLD} more" if len(names) > _CLIQUES_TOLD else ""
        text = f"Not simulated: {', '.join(features)} of {', '.join(names[:_CLIQUES_TOLD])}{more}."
        yield Assumption(About.NOT_SIMULATED, text)


def _tell_ready(belief: Belief, current: list[Expectation]) -> Iterator[Assumption]:
    if belief.seconds_to_ready is not None:
        yield Assumption(About.READY, f"New pods take {_say(belief.seconds_to_ready)} to become Ready.")
        return
    for one in current[:_CLIQUES_TOLD]:
        source = f"measured on {one.pods} pod{'s' * (one.pods != 1)}" if one.pods else "assumed: none was measured yet"
        yield Assumption(About.READY, f"New pods of {one.clique} take {_say(one.seconds)} to become Ready, {source}.")
    if len(current) > _CLIQUES_TOLD:
        slowest = max(one.seconds for one in current)
        others = len(current) - _CLIQUES_TOLD
        yield Assumption(About.READY, f"New pods of {others} more cliques take at most {_say(slowest)}.")


def _tell_never(never: list[Expectation]) -> Iterator[Assumption]:
    for one in never[:_CLIQUES_TOLD]:
        yield Assumption(About.NEVER_READY, f"New pods of {one.clique} never become Ready ({one.never}).")


def _tell_termination(belief: Belief, surroundings: Surroundings) -> Iterator[Assumption]:
    if belief.seconds_to_go is not None:
        yield Assumption(About.TERMINATION, f"Deleted pods take {_say(belief.seconds_to_go)} to end.")
    elif surroundings.seconds_to_go is None:
        yield Assumption(About.TERMINATION, f"Deleted pods take {_say(SECONDS_TO_GO)} to end, assumed.")
    else:
        number, seconds = surroundings.pods_gone, _say(surroundings.seconds_to_go)
        counted = f"measured on {number} pod{'s' * (number != 1)}"
        yield Assumption(About.TERMINATION, f"Deleted pods take {seconds} to end, {counted}.")


def _say(seconds: float) -> str:
    """Say a number of seconds, with a decimal where it matters.

    >>> [_say(seconds) for seconds in (0.5, 2.04, 30.0, 600.0)]
    ['0.5 s', '2 s', '30 s', '600 s']
    """
    return f"{seconds:.1f}".removesuffix(".0") + " s" if seconds < _TENTHS_BELOW else f"{seconds:.0f} s"
