"""Workloads in a simulated cluster, for tests: created, changed and observed in a few words.

A state is written as in `docs/semantics.md`, by index: `0` available, `0*` outdated, `3s` surge, `1?` not available.
Leaving units are not written. The states are computed from pods and PodCliques here, independently of the planner that
the tests check.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from rollouts.engine.manifest.parsing import parse_workload
from rollouts.engine.model import names
from rollouts.engine.model.actions import Action, Delete, Kind, Plan, Wait
from rollouts.engine.model.hashing import compute_template_hash
from rollouts.engine.model.observed import Clique, Observed, Pod
from rollouts.engine.model.workload import BudgetSpec, CliqueTemplate, GroupTemplate, Strategy, Workload
from rollouts.engine.plan.planner import plan_tree
from rollouts.engine.simulation.cluster import ClusterBehaviour, RejectedWrite, SimulatedCluster
from rollouts.engine.simulation.incremental_tree import IncrementalTree
from rollouts.engine.simulation.simulate import IDLE_LIMIT, SimulatedPass, find_next_time, run_passes
from rollouts.engine.tree.layout import Layout, make_layout
from rollouts.engine.tree.tree_builder import build_tree
from tests.engine.disturbed import DisturbedCluster

PASSES_AT_MOST = 4000
QUICK = ClusterBehaviour(ready_seconds=10.0, termination_seconds=2.0)


def clique(
    name: str,
    replicas: int,
    min_available: int | None = None,
    budget: tuple[Any, Any] | None = None,
    requests: dict[str, str] | None = None,
) -> CliqueTemplate:
    """Return a clique of the template; its image is v1."""
    container: dict[str, Any] = {"name": "main", "image": "app:v1"}
    if requests:
        container["resources"] = {"requests": requests}
    return CliqueTemplate(
        name=name,
        role_name=name,
        labels={},
        annotations={},
        pod_spec={"containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30},
        replicas=replicas,
        min_available=replicas if min_available is None else min_available,
        starts_after=(),
        auto_scaling=None,
        budget=None if budget is None else BudgetSpec(*budget),
    )


def group(
    name: str,
    clique_names: tuple[str, ...],
    replicas: int,
    min_available: int = 1,
    budget: tuple[Any, Any] | None = None,
) -> GroupTemplate:
    """Return a scaling group of the template."""
    return GroupTemplate(
        name=name,
        clique_names=clique_names,
        replicas=replicas,
        min_available=min_available,
        annotations={},
        budget=None if budget is None else BudgetSpec(*budget),
    )


def workload(
    *parts: CliqueTemplate | GroupTemplate,
    replicas: int = 1,
    strategy: Strategy = Strategy.ROLLING_RECREATE,
    budget: tuple[Any, Any] | None = None,
    termination_delay: float = 4 * 3600.0,
) -> Workload:
    """Return a set named `w` of these cliques and groups."""
    blank = _blank()
    return replace(
        blank,
        replicas=replicas,
        strategy=strategy,
        budget=BudgetSpec(*budget) if budget else BudgetSpec(),
        cliques=tuple(part for part in parts if isinstance(part, CliqueTemplate)),
        groups=tuple(part for part in parts if isinstance(part, GroupTemplate)),
        termination_delay=termination_delay,
    )


@lru_cache(maxsize=1)
def _blank() -> Workload:
    pod = {"containers": [{"name": "main", "image": "app:v1"}]}
    spec = {"replicas": 1, "template": {"cliques": [{"name": "x", "spec": {"roleName": "x", "podSpec": pod}}]}}
    metadata = {"name": "w", "namespace": "default", "uid": "set-uid", "generation": 1}
    parsed = parse_workload({"metadata": metadata, "spec": spec})
    assert isinstance(parsed, Workload), parsed
    return parsed


def with_image(workload: Workload, image: str, *cliques: str) -> Workload:
    """Return the workload with another image in these cliques, or in all."""
    changed = tuple(
        _with_image(clique, image) if not cliques or clique.name in cliques else clique for clique in workload.cliques
    )
    return replace(workload, cliques=changed, generation=workload.generation + 1)


def _with_image(clique: CliqueTemplate, image: str) -> CliqueTemplate:
    container = {**clique.pod_spec["containers"][0], "image": image}
    return replace(clique, pod_spec={**clique.pod_spec, "containers": [container]})


_hashed: deque[tuple[Workload, dict[str, str]]] = deque(maxlen=16)


def hashes(workload: Workload) -> dict[str, str]:
    """Return the current hash of every clique of the template; the last ones are cached."""
    for known, computed in tuple(_hashed):
        if known is workload:
            return computed
    computed = {one.name: compute_template_hash(one, workload.priority_class) for one in workload.cliques}
    _hashed.append((workload, computed))
    return computed


@dataclass(frozen=True, slots=True)
class Unit:
    """A live pod or replica as the tests see it."""

    index: int
    outdated: bool
    available: bool

    def render(self, wanted: int) -> str:
        surge = "s" if self.index >= wanted else ""
        return f"{self.index}{surge}{'*' if self.outdated else ''}{'' if self.available else '?'}"


class View:
    """The observed objects by level, counted by the words of `docs/semantics.md` 1."""

    def __init__(self, workload: Workload, observed: Observed) -> None:
        self.workload = workload
        self.observed = observed
        self.hashes = hashes(workload)
        self.templates = {clique.name: clique for clique in workload.cliques}
        self.members = {name for group in workload.groups for name in group.clique_names}
        self.groups = {group.name: group for group in observed.groups if not group.leaving}
        # A PodClique whose group is gone will be garbage-collected, although it has no deletionTimestamp yet.
        self.cliques = {
            clique.name: clique
            for clique in observed.cliques
            if not clique.leaving and (not clique.group or clique.group in self.groups)
        }
        self.pods: dict[str, list[Pod]] = defaultdict(list)
        for pod in observed.pods:
            if not pod.leaving:
                self.pods[pod.clique].append(pod)
        self._of_replica: dict[int, list[Clique]] = defaultdict(list)
        for one in self.cliques.values():
            self._of_replica[one.replica].append(one)
        self._group_units: dict[str, list[Unit]] = {}

    def pod_units(self, clique: str, template: str) -> list[Unit]:
        current = self.hashes[template]
        return [Unit(pod.index, pod.template_hash != current, pod.available) for pod in self.pods[clique]]

    def group_units(self, group: str, template: GroupTemplate) -> list[Unit]:
        if group not in self._group_units:
            found: dict[int, list[Clique]] = defaultdict(list)
            for clique in self.cliques.values():
                if clique.group == group:
                    found[clique.group_replica].append(clique)
            self._group_units[group] = [self._group_unit(index, found[index], template) for index in found]
        return self._group_units[group]

    def _group_unit(self, index: int, cliques: list[Clique], template: GroupTemplate) -> Unit:
        outdated = any(self._is_outdated(clique) for clique in cliques)
        serving = {clique.template for clique in cliques if self._stands(clique)}
        return Unit(index, outdated, serving == set(template.clique_names))

    def _is_outdated(self, clique: Clique) -> bool:
        current = self.hashes[clique.template]
        return clique.template_hash != current or any(pod.template_hash != current for pod in self.pods[clique.name])

    def _stands(self, clique: Clique) -> bool:
        available = sum(pod.available for pod in self.pods[clique.name])
        return available >= min(self.templates[clique.template].min_available, clique.replicas)

    def set_units(self) -> list[Unit]:
        return [self._set_unit(index) for index in sorted(self._of_replica)]

    def _set_unit(self, index: int) -> Unit:
        cliques = self._of_replica[index]
        live = [clique for clique in cliques if clique.group or self.pods[clique.name]]
        outdated = any(self._is_outdated(clique) for clique in live)
        standing = {clique.template for clique in cliques if not clique.group and self._stands(clique)}
        available = standing == set(self.templates) - self.members and all(
            self._group_stands(index, template) for template in self.workload.groups
        )
        return Unit(index, outdated, available)

    def _group_stands(self, replica: int, template: GroupTemplate) -> bool:
        name = names.group_name(self.workload.name, replica, template.name)
        if name not in self.groups:
            return False
        available = sum(unit.available for unit in self.group_units(name, template))
        return available >= min(template.min_available, self.groups[name].replicas)

    def wanted_pods(self, clique: str) -> int:
        return self.cliques[clique].replicas if clique in self.cliques else 0

    def pods_text(self, clique: str, template: str) -> str:
        return _render(self.pod_units(clique, template), self.wanted_pods(clique))

    def group_text(self, group: str, template: str) -> str:
        wanted = self.groups[group].replicas if group in self.groups else 0
        form = next(one for one in self.workload.groups if one.name == template)
        return _render(self.group_units(group, form), wanted)

    def set_text(self) -> str:
        units = [unit for unit in self.set_units() if self._has_something(unit.index)]
        return _render(units, self.workload.replicas)

    def _has_something(self, index: int) -> bool:
        return any(self.pods[clique.name] or clique.group for clique in self._of_replica[index])


def _render(units: list[Unit], wanted: int) -> str:
    return " ".join(unit.render(wanted) for unit in sorted(units, key=lambda unit: unit.index))


def run_workload(
    workload: Workload, cluster: SimulatedCluster, idle_limit: float = IDLE_LIMIT
) -> Iterator[SimulatedPass]:
    """Run the passes of a workload, from the objects in the cluster."""
    return run_passes(IncrementalTree(make_layout(workload), cluster), cluster, idle_limit)


@dataclass
class Cluster:
    """A workload in a simulated cluster, and a record of all actions."""

    workload: Workload
    behaviour: ClusterBehaviour = QUICK
    world: DisturbedCluster = field(init=False)
    actions: list[Action] = field(default_factory=list)
    refused: list[RejectedWrite] = field(default_factory=list)
    last: Plan | None = None
    _shape: Layout | None = None

    def __post_init__(self) -> None:
        self.world = DisturbedCluster(Observed(), self.behaviour, now=1_000_000.0)

    @property
    def view(self) -> View:
        return View(self.workload, self.world.observed())

    @property
    def status(self) -> Any:
        return self.world.status

    @property
    def progress(self) -> Any:
        return self.world.status.get("updateProgress") or {}

    @property
    def waits(self) -> tuple[Wait, ...]:
        assert self.last is not None
        return self.last.waits

    def plan(self) -> Plan:
        if self._shape is None or self._shape.workload is not self.workload:
            self._shape = make_layout(self.workload)  # templates are hashed once, not for each of many plans
        tree = build_tree(self._shape, self.world.observed())
        self.last = plan_tree(self._shape, tree, self.world.status, self.world.now)
        return self.last

    def step(self) -> Plan:
        """Plan once and carry it out."""
        planned = self.plan()
        self.carry_out(planned.actions)
        return planned

    def carry_out(self, actions: Iterable[Action]) -> None:
        """Carry out the actions of a plan, or some of them."""
        actions = tuple(actions)
        self.actions += actions
        self.refused += self.world.apply(actions)

    def passes(self, patience: float = IDLE_LIMIT) -> Iterator[Plan]:
        """Plan and carry out, advance the time when there is nothing to do, and end when nothing happens any more."""
        for number, one in enumerate(run_workload(self.workload, self.world, patience)):
            assert number < PASSES_AT_MOST, f"no end: {one.plan.actions}"
            self.last = one.plan
            self.actions += one.plan.actions
            self.refused += one.rejected
            yield one.plan
        assert self.last is not None
        assert not self.last.actions, f"never content: {self.last.actions}"

    def wait(self) -> bool:
        """Advance the time after a plan with nothing to do; return False if nothing will happen."""
        assert self.last is not None
        moment = find_next_time(self.last, self.world, self.world.now)
        if moment is None:
            return False
        self.world.advance(moment)
        return True

    def fork(self) -> "Cluster":
        """Return a copy of this cluster with an empty record."""
        other = Cluster(self.workload, self.behaviour)
        other.world = self.world.fork()
        other._shape = self._shape
        return other

    def begin_from(self, observed: Observed) -> None:
        """Go on from other observed objects."""
        self.world = DisturbedCluster(observed, self.behaviour, self.world.now)

    def settle(self) -> "Cluster":
        """Run until nothing happens any more."""
        for _ in self.passes():
            pass
        return self

    def run_for(self, seconds: float) -> "Cluster":
        """Run for a time; plan again when a plan asks for it."""
        until = self.world.now + seconds
        while True:
            planned = self.step()
            moment = self.world.now if planned.actions else find_next_time(planned, self.world, until)
            if moment is None or moment > until:
                self.world.advance(until)
                return self
            self.world.advance(moment)

    def run_until(self, reached: Callable[["Cluster"], bool]) -> "Cluster":
        """Run until a condition holds."""
        if reached(self):
            return self
        for _ in self.passes():
            if reached(self):
                return self
        raise AssertionError(f"never came: {[wait.text for wait in self.waits]}")

    def update(self, image: str = "app:v2", *cliques: str) -> "Cluster":
        """Change the template of these cliques, or of all."""
        self.workload = with_image(self.workload, image, *cliques)
        return self

    def edit(self, **fields: Any) -> "Cluster":
        """Change other fields of the set."""
        self.workload = replace(self.workload, generation=self.workload.generation + 1, **fields)
        return self

    def states(self, text: Callable[[View], str]) -> list[str]:
        """Run on and return the states, without repetitions."""
        states = [text(self.view)]
        for _ in self.passes():
            state = text(self.view)
            if state != states[-1]:
                states.append(state)
        return states

    def deleted(self, kind: Kind = Kind.POD) -> list[Delete]:
        """Return what was deleted so far, in order."""
        return [action for action in self.actions if isinstance(action, Delete) and action.kind is kind]

    def live_pods(self, prefix: str = "") -> list[Pod]:
        pods = [pod for pod in self.world.pods.values() if pod.clique.startswith(prefix) and not pod.leaving]
        return sorted(pods, key=lambda pod: (pod.clique, pod.index))


def settled(workload: Workload, behaviour: ClusterBehaviour = QUICK) -> Cluster:
    """Return a cluster in which the workload is complete, with an empty record.

    Many tests begin with the same workload: it is deployed once, and each test gets a copy.
    """
    running = _bring_up(_Start(repr((workload, behaviour)), workload, behaviour))
    cluster = running.fork()
    cluster.last, cluster.refused = running.last, [*running.refused]
    return cluster


def conditions(status: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the conditions of a status, each with its reason."""
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


@dataclass(frozen=True)
class _Start:
    text: str  # says all: workloads hold manifests, so they have no hash
    workload: Workload = field(compare=False)
    behaviour: ClusterBehaviour = field(compare=False)


@lru_cache(maxsize=64)
def _bring_up(start: _Start) -> Cluster:
    return Cluster(start.workload, start.behaviour).settle()
