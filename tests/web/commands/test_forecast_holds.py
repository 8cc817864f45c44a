"""What the preview says is what then happens in the sandbox: stuck or not, in which order, how low, how long.

    EXAMPLES_TIMES=6 pytest -s tests/web/commands/test_forecast_holds.py

prints a table of 79 cases, and insists on a machine that is quiet enough to measure how long each takes. Seeds in a row
are of one kind after the other, so each run has a case of each kind; of the arranged kinds it has one for each remedy.
What rests unfinished is tried again with each further remedy that is offered.
"""

import contextlib
import itertools
import os
import secrets
import threading
from collections.abc import Callable, Iterator

import pytest

from rollouts.cluster import ClusterClient, Watch
from rollouts.cluster.resources import PODS
from rollouts.runtime import connections
from rollouts.selectors import remedies
from rollouts.services.audit import Caller
from tests.services.stage import Stage
from tests.thoroughness import examples
from tests.web.commands.forecast_results import EXPECTED, Result
from tests.web.commands.forecasts import KINDS, Case

pytestmark = pytest.mark.django_db

# Most of the time of a case is waiting. Where durations are measured, fewer take turns.
AT_ONCE = 6 if examples(1) == 1 else 4
CASES = len(KINDS)
# Without news of a pod a case may go on all the same: it takes its passes, or has rested for long enough.
LOOKS_EVERY = 0.5
# Tried in every run: an update that replaces all pods at once by an image that never becomes Ready.
REPLACED_AT_ONCE = 26


@pytest.fixture(autouse=True)
def _time_for_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each remedy be tried to its end, however busy the machine is: what runs out of time is not offered."""
    monkeypatch.setattr(remedies, "MAX_SECONDS", 60.0)


@pytest.fixture
def make_stage(cluster: ClusterClient) -> Callable[[str, str], Stage]:
    """Return how a case gets its workload."""
    return lambda namespace, name: Stage(cluster, namespace, name, connections.cluster_names()[0])


@pytest.fixture
def news(cluster: ClusterClient) -> Iterator[threading.Event]:
    """What is set whenever something happens to a pod."""
    happened, watch = threading.Event(), Watch(cluster, PODS)

    def hear() -> None:
        for _ in watch:
            happened.set()

    with contextlib.ExitStack() as stack:
        hearing = threading.Thread(target=hear)
        stack.callback(hearing.join)
        stack.callback(watch.stop)
        hearing.start()
        yield happened


def run_all(cases: list[Case], news: threading.Event, at_once: int = AT_ONCE) -> list[Result]:
    """Run cases, of which some take turns, and return what came of each."""
    results: list[Result] = []
    waiting = iter([case.run() for case in cases])
    running = list(itertools.islice(waiting, at_once))
    while running:
        news.wait(LOOKS_EVERY)
        news.clear()
        for one in [*running]:
            found = next(one, None)
            if isinstance(found, Result):
                results.append(found)
                print(found.render())  # noqa: T201 (the table)
                running.remove(one)
                running += itertools.islice(waiting, 1)
    return results


@pytest.mark.usefixtures("redis")
def test_a_forecast_holds_in_the_sandbox(
    make_stage: Callable[[str, str], Stage], caller: Caller, news: threading.Event
) -> None:
    first = int(os.environ.get("FORECAST_SEED") or secrets.randbelow(10**6))
    seeds = range(first, first + examples(CASES))
    arranged = [(seed, press, kind) for seed in seeds[: examples(1)] for kind in EXPECTED for press in EXPECTED[kind]]
    # Slow ones take longest, so they begin first.
    others = sorted([REPLACED_AT_ONCE, *seeds], key=lambda seed: KINDS[seed % len(KINDS)] != "slow")
    cases = [*((seed, "", "") for seed in others), *arranged]
    results = run_all([Case(seed, make_stage, caller, press, kind) for seed, press, kind in cases], news)
    if examples(1) > 1:
        busy = [one for one in results if not one.is_measured]
        alone = run_all([Case(one.seed, make_stage, caller) for one in busy], news, at_once=1)
        assert all(one.is_measured for one in alone), "the machine is too busy to measure how long a rollout takes"
        results = [one for one in results if one.is_measured] + alone
    done = {(one.seed, one.kind, one.pressed) for one in results}
    more = {(one.seed, one.kind, press) for one in results for press in one.offered} - done
    results += run_all([Case(seed, make_stage, caller, press, kind) for seed, kind, press in sorted(more)], news)
    faults = {f"{one.seed} {one.title} {one.pressed}": found for one in results if (found := one.find_faults())}
    assert not faults
