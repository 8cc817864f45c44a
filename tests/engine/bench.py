"""How long planning takes: run `python -m tests.engine.bench`. Prints figures, asserts nothing.

Each figure is the best of several runs in processor time; slower runs measure the load of the machine.
"""

import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.plan.planner import plan
from rollouts.engine.simulation.cluster import ClusterBehaviour, SimulatedCluster
from rollouts.engine.simulation.simulate import SimulationResult, simulate
from tests.engine.simulated import clique, group, run_workload, with_image, workload

BEHAVIOUR = ClusterBehaviour(ready_seconds=30.0, termination_seconds=5.0)
NOW = 1_000_000.0
PLANS, ROLLOUTS = 25, 3  # how often each is measured


def many_replicas(replicas: int) -> Workload:
    """Return a set of many replicas with two pods each, as in Grove's scale test."""
    return workload(clique("worker", 2), replicas=replicas)


def many_pods(cliques: int, pods: int) -> Workload:
    """Return one replica of a few large cliques, a tenth of each replaced at a time."""
    parts = [clique(f"c{index}", pods, 1, ("10%", "10%")) for index in range(cliques)]
    return workload(*parts, strategy=Strategy.ROLLING_UPDATE)


def many_groups(replicas: int, group_replicas: int) -> Workload:
    """Return replicas of a frontend and a group of a leader and three workers, a quarter of it replaced at a time."""
    parts = (clique("frontend", 2, 1), clique("leader", 1), clique("worker", 3))
    members = group("decode", ("leader", "worker"), group_replicas, 1, ("25%", 0))
    return workload(*parts, members, replicas=replicas, strategy=Strategy.ROLLING_UPDATE)


def settle(wanted: Workload) -> Observed:
    world = SimulatedCluster(Observed(), BEHAVIOUR, NOW)
    for _ in run_workload(wanted, world):
        pass
    return world.observed()


def begin(wanted: Workload, observed: Observed, count: int = 20) -> Observed:
    """Return the observed objects after some passes of the update."""
    world = SimulatedCluster(observed, BEHAVIOUR, NOW)
    for _, _ in zip(range(count), run_workload(wanted, world), strict=False):
        pass
    return world.observed()


def best(run: Callable[[], object], times: int) -> float:
    """Return the shortest time in milliseconds."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken) * 1000


def print_figure(what: str, milliseconds: float, more: str = "") -> None:
    sys.stdout.write(f"{what:<66} {milliseconds:10.2f} ms  {more}\n")
    sys.stdout.flush()


def time_plans(name: str, wanted: Workload) -> None:
    observed = settle(wanted)
    print_figure(
        f"plan, settled, {name}", best(lambda: plan(wanted, observed, NOW), PLANS), f"{len(observed.pods)} pods"
    )
    changed = with_image(wanted, "app:v2")
    under_way = begin(changed, observed)
    print_figure(f"plan, mid-rollout, {name}", best(lambda: plan(changed, under_way, NOW), PLANS))


def time_rollout(name: str, wanted: Workload) -> None:
    observed = settle(wanted)
    changed = with_image(wanted, "app:v2")
    outcomes: list[SimulationResult] = []
    taken = best(lambda: outcomes.append(simulate(wanted, observed, changed, BEHAVIOUR, NOW)), ROLLOUTS)
    outcome = outcomes[-1]
    summary = f"{outcome.end}, {outcome.passes} passes, {outcome.pods_created} pods, {outcome.seconds:.0f} s simulated"
    print_figure(f"rollout, {name}", taken, summary)


def machine() -> str:
    """Return a description of the machine, to print with the figures."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return f"{len(models)} × {models[0] if models else platform.processor()}, Python {platform.python_version()}"


def main() -> None:
    """Print the figures."""
    sys.stdout.write(f"{machine()}\n")
    time_plans("1,000 pods: 500 replicas of 2", many_replicas(500))
    time_plans("1,000 pods: 1 replica, 4 cliques of 250", many_pods(4, 250))
    time_plans("1,000 pods: 10 replicas, group of 25 × 4", many_groups(10, 25))
    time_plans("10,000 pods: 5,000 replicas of 2", many_replicas(5000))
    whole = replace(many_replicas(500), strategy=Strategy.REPLICA_RECREATE)
    time_rollout("1,000 pods: 4 cliques of 250, 10 % at a time", many_pods(4, 250))
    time_rollout("1,000 pods: 10 replicas, group of 25 × 4, 25 % at a time", many_groups(10, 25))
    budget = replace(whole.budget, max_unavailable="10%", max_surge=0)
    time_rollout("1,000 pods: 500 replicas of 2, 10 % recreated at a time", replace(whole, budget=budget))
    time_rollout("200 pods: 100 replicas of 2, one pod at a time", many_replicas(100))
    time_rollout("1,000 pods: 500 replicas of 2, one pod at a time", many_replicas(500))


if __name__ == "__main__":
    main()
