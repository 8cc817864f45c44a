"""How long pods of a clique take from their node to Ready, measured on Ready pods.

`diagnosis` compares a pod that is not Ready with these times, and `simulate` starts pods as slowly as they really start
(`ClusterBehaviour.ready_seconds_of` takes `ReadyTimes.by_clique`). The caller measures once a pass and passes the
result on; `UNMEASURED` stands for no measurement.

This module alone decides which pods are measured and which time is usual, for `diagnosis` and `pod_behaviour`, so that
no two pages show different times. The usual time is the mean of the middle half: one pod on a slow node does not change
it, and since timestamps are whole seconds, a median of short times would be off by up to one. A pod with restarted
containers is not measured, because it may have become Ready more than once. Pods of the same template are preferred;
without any, those of the former template count, because a new image mostly starts like the previous one.

An update may replace all pods of a clique at once. So the reconciler records the measured times on the workload's row
before it deletes pods (`choose_recorded`); recorded times count where no pod is left to measure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from typing import Final

from rollouts.engine.model.container_faults import CRASH_LOOP_RESTARTS, is_stable
from rollouts.engine.model.observed import Clique, Observed, Pod, ReadyTime
from rollouts.engine.model.values import value

# A pod that seems to have taken longer was Ready before and recovered from a failure: that is no measurement.
MAX_SECONDS: Final = 3600.0
# Timestamps are whole seconds, so a shorter time may look like 0.
MIN_SECONDS: Final = 0.5
# How long a pod may take if no pod like it has been measured.
READY_WITHIN: Final = 600.0
# Templates recorded for each clique: the current one, the former one, and one more.
TEMPLATES_KEPT: Final = 3
# A time that differs by a smaller fraction is not recorded again.
_SIGNIFICANT_CHANGE: Final = 0.1


@value
class RestartedPod:
    """A Ready pod with so many restarts that it may be between two crashes."""

    replica: int  # of the set
    clique: str  # name of its PodClique
    restarts: int
    ready_since: float


@value
class ReadyTimes:
    """How many seconds pods take from their node to Ready."""

    by_clique: Mapping[str, float] = field(default_factory=dict)  # name of the clique in the template
    by_template: Mapping[tuple[str, str], float] = field(default_factory=dict)  # the same with a template hash
    measured: tuple[ReadyTime, ...] = ()  # the measured times, without the recorded ones
    restarted: tuple[RestartedPod, ...] = ()

    def find(self, clique: str, template_hash: str) -> float | None:
        """Return how long pods of a template usually take; None: unknown."""
        return self.by_template.get((clique, template_hash), self.by_clique.get(clique))

    def list_unstable(self, now: float) -> list[RestartedPod]:
        """Return the Ready pods that may be between two crashes."""
        return [one for one in self.restarted if not is_stable(one.restarts, now - one.ready_since)]


UNMEASURED: Final = ReadyTimes()


def measure_ready_times(observed: Observed) -> ReadyTimes:
    """Return how long Ready pods took, by clique and template; recorded times fill the gaps."""
    found, recorded = measure_pods(observed.pods, observed.cliques), observed.ready_times
    if not recorded:
        return found
    return replace(
        found,
        by_clique={**{one.clique: one.seconds for one in recorded}, **found.by_clique},
        by_template={**{(one.clique, one.template_hash): one.seconds for one in recorded}, **found.by_template},
    )


def measure_pods(pods: Iterable[Pod], cliques: Iterable[Clique]) -> ReadyTimes:
    """Return how long these pods took; the PodCliques say which clique each pod belongs to."""
    clique_of = {clique.name: clique for clique in cliques}
    by_clique: dict[str, list[float]] = defaultdict(list)
    by_template: dict[tuple[str, str], list[float]] = defaultdict(list)
    restarted: list[RestartedPod] = []
    for pod in pods:
        clique = clique_of.get(pod.clique)
        if clique is None or not pod.ready or pod.ready_since is None:
            continue
        if pod.restarts >= CRASH_LOOP_RESTARTS:
            restarted.append(RestartedPod(clique.replica, clique.name, pod.restarts, pod.ready_since))
        seconds = measure_start(pod.started_at, pod.ready_since, pod.restarts)
        if seconds is not None:
            by_clique[clique.template].append(seconds)
            by_template[clique.template, pod.template_hash].append(seconds)
    measured = tuple(
        ReadyTime(*key, compute_usual_seconds(times), len(times)) for key, times in sorted(by_template.items())
    )
    return ReadyTimes(
        by_clique={name: compute_usual_seconds(times) for name, times in by_clique.items()},
        by_template={(one.clique, one.template_hash): one.seconds for one in measured},
        measured=measured,
        restarted=tuple(restarted),
    )


def choose_recorded(
    recorded: tuple[ReadyTime, ...], measured: Iterable[ReadyTime], cliques: Collection[str]
) -> tuple[ReadyTime, ...]:
    """Return the times to record for a workload with these cliques: the recorded ones, with significant changes."""
    kept = {(one.clique, one.template_hash): one for one in recorded}
    for one in measured:
        key = one.clique, one.template_hash
        former = kept.get(key)
        if former is None or _is_significant(one, former):
            kept.pop(key, None)  # so that the newest is the last
            kept[key] = one
    by_clique: dict[str, list[ReadyTime]] = defaultdict(list)
    for one in kept.values():
        by_clique[one.clique].append(one)
    last = {one for found in by_clique.values() for one in found[-TEMPLATES_KEPT:]}
    return tuple(one for one in kept.values() if one in last and one.clique in cliques)


def _is_significant(now: ReadyTime, former: ReadyTime) -> bool:
    """Whether a time differs, or is that of many more pods. A time of fewer pods never counts: it says less."""
    if now.pods < former.pods:
        return False
    return now.pods >= 2 * former.pods or abs(now.seconds - former.seconds) > _SIGNIFICANT_CHANGE * former.seconds


def measure_start(started: float, ready_since: float | None, restarts: int) -> float | None:
    """Return how long a Ready pod took from its node to Ready; None if its timestamps no longer tell."""
    if ready_since is None or restarts:
        return None
    seconds = ready_since - started
    return seconds if 0.0 <= seconds <= MAX_SECONDS else None


def compute_usual_seconds(times: Iterable[float]) -> float:
    """Return the usual time of pods that took these times."""
    return max(MIN_SECONDS, compute_interquartile_mean(times))


def compute_interquartile_mean(times: Iterable[float]) -> float:
    """Return the mean of the middle half.

    >>> compute_interquartile_mean([2, 3, 2, 3, 500])
    2.6666666666666665
    >>> compute_interquartile_mean([2, 3, 500])
    3.0
    """
    ordered = sorted(times)
    cut = (len(ordered) + 1) // 4
    middle = ordered[cut : len(ordered) - cut]
    return sum(middle) / len(middle)
