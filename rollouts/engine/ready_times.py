"""How long pods of a clique take from their node to Ready, measured on the pods that are Ready.

`diagnosis` compares a pod that is not Ready with these times, and `simulate` can start pods as slowly as they really
start (`Behaviour.ready_seconds_of` takes `ReadyTimes.by_clique`). The caller measures once for each look at a workload
and passes the result on; without any measurement `UNMEASURED` is the answer.

What counts as measured and what is usual is decided here, for `diagnosis` and `outlook` alike, so that no page shows
two usual times. The usual time is the mean of the middle half: one pod on a slow node does not change it, and stamps
are whole seconds, so a median of short times would be off by up to one. A pod whose containers were restarted does not
count: it may have become Ready more than once. Pods of the same template count if there are any; else those of the
former template do, because a new image mostly starts like the one before.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from rollouts.engine.observed import Clique, Observed, Pod
from rollouts.engine.values import value

# A pod that seems to have taken longer was Ready before, and is Ready again after a failure: nothing was measured.
LONGEST: Final = 3600.0
# What took less than a second may look like none.
SHORTEST: Final = 0.5


@value
class ReadyTimes:
    """Seconds from the node to Ready."""

    by_clique: Mapping[str, float] = field(default_factory=dict)  # name of the clique in the template
    by_template: Mapping[tuple[str, str], float] = field(default_factory=dict)  # the same and a template hash

    def find(self, clique: str, template_hash: str) -> float | None:
        """Return how long pods of this template usually take; None: nothing was measured."""
        return self.by_template.get((clique, template_hash), self.by_clique.get(clique))


UNMEASURED: Final = ReadyTimes()


def measure_ready_times(observed: Observed) -> ReadyTimes:
    """Return how long the pods that are Ready took, by clique and template."""
    return measure_pods(observed.pods, observed.cliques)


def measure_pods(pods: Iterable[Pod], cliques: Iterable[Clique]) -> ReadyTimes:
    """Return how long these pods took; the PodCliques tell of which clique each pod is."""
    template_of = {clique.name: clique.template for clique in cliques}
    by_clique: dict[str, list[float]] = defaultdict(list)
    by_template: dict[tuple[str, str], list[float]] = defaultdict(list)
    for pod in pods:
        seconds = _measure(pod)
        template = template_of.get(pod.clique)
        if seconds is not None and template is not None:
            by_clique[template].append(seconds)
            by_template[template, pod.template_hash].append(seconds)
    return ReadyTimes(
        by_clique={name: compute_usual(times) for name, times in by_clique.items()},
        by_template={key: compute_usual(times) for key, times in by_template.items()},
    )


def _measure(pod: Pod) -> float | None:
    return measure_start(pod.started, pod.ready_since, pod.restarts) if pod.ready else None


def measure_start(started: float, ready_since: float | None, restarts: int) -> float | None:
    """Return how long a pod that is Ready took from its node to Ready; None: nobody can know any more."""
    if ready_since is None or restarts:
        return None
    seconds = ready_since - started
    return seconds if 0.0 <= seconds <= LONGEST else None


def compute_usual(times: Iterable[float]) -> float:
    """Return how long pods usually take that took so long."""
    return max(SHORTEST, compute_mean(times))


def compute_mean(times: Iterable[float]) -> float:
    """Return the mean of the middle half.

    >>> compute_mean([2, 3, 2, 3, 500])
    2.6666666666666665
    >>> compute_mean([2, 3, 500])
    3.0
    """
    ordered = sorted(times)
    cut = (len(ordered) + 1) // 4
    middle = ordered[cut : len(ordered) - cut]
    return sum(middle) / len(middle)
