"""Random workloads in random clusters: what the preview says of a change, and what then happens in the sandbox.

A case deploys a workload on nodes of its own, asks for the preview of a change, makes the change, and follows it pass
by pass to its end or until it rests unfinished. Where it is stuck, it asks again what becomes of it, now that the first
pods have failed, with nothing supposed; then it presses a remedy that is offered, and follows. Several cases take
turns, each in a namespace of its own: most of their time is waiting for pods.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from django.http import QueryDict
from django.test import RequestFactory

from rollouts import mirror
from rollouts.accounts.commands import Command
from rollouts.cluster import Obj
from rollouts.cluster.resources import NAMESPACES, NODES, PODCLIQUESETS, PODS
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.engine.model.actions import Wait
from rollouts.engine.model.workload import Strategy
from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.plan.wait_codes import find_common_code
from rollouts.engine.rollout.roller import Reason
from rollouts.engine.rollout.units import set_units
from rollouts.engine.simulation.remedy_trials import TRIABLE
from rollouts.engine.simulation.simulate import SimulationEnd
from rollouts.models import Step
from rollouts.queue.results import Requeue
from rollouts.selectors.activity import summarize_waits
from rollouts.selectors.diagnosis import snapshot_diagnosis
from rollouts.selectors.forecast import Assumptions
from rollouts.selectors.revisions import find_previous
from rollouts.selectors.workload_snapshot import read_snapshot
from rollouts.services.audit import Caller
from rollouts.services.changes import Simulable, execute
from rollouts.services.edit import Edit
from rollouts.services.simulation import workload_simulate
from rollouts.services.simulation_report import Simulated
from rollouts.services.workloads import roll_back, set_images
from rollouts.web.commands.forms import EditForm, FormContext
from rollouts.web.commands.pod_deletion import PodDeletionForm
from rollouts.web.commands.remedies import _FORM_BY_REMEDY, SELECTED_FIELD
from tests.controller.loop import observe
from tests.nodes import make_nodes
from tests.scenarios.scene import is_ready
from tests.services.stage import Stage

KINDS = ("roomy", "full", "cordoned", "heterogeneous", "slow", "broken", "crash")
# Seconds, as an annotation of the sandbox says: a quarter of the shorter ones is more than stamps are off by.
READY = 6
SLOW = 13
# Seconds without any news of a pod: longer than the slowest takes, and than a pod is given that never becomes Ready.
RESTS_FOR = 22.0
GIVES_UP_AFTER = 360.0
MOST_LAG = 0.1  # of the seconds that were measured
FOREIGN = {"forecasts": "foreign"}
"""Of pods that are not Grove's."""
# An operator looks so many seconds after it came to rest.
LOOKS_AFTER = 60.0
BUDGETS: tuple[tuple[int | str, int | str], ...] = ((1, 0), (1, 0), (0, 1), (0, 1), (2, 0), (1, 1), ("50%", 0))
FAILING = ("broken", "crash")
AT_WORK: set[str] = set()
"""The namespaces of the cases that take turns: a list is of all of them, as the mirror drops what is not listed."""
_REPLACED = (Reason.OUTDATED, Reason.OUTDATED_UNAVAILABLE)


@dataclass
class Outcome:
    """What happened."""

    stuck: bool = False
    seconds: float = 0.0
    # Of these, those that went by until the controller here noticed something or did several writes in a row. In the
    # product these are milliseconds; here cases take turns, on a machine that may be busy.
    lag: float = 0.0
    lowest: int = 1000  # replicas of the set that were available
    order: list[int] = field(default_factory=list)  # replicas of the set in the order in which they were replaced


@dataclass
class Result:
    """A preview, and what happened."""

    seed: int
    kind: str
    title: str
    told: Simulated
    seen: Outcome
    again: Simulated | None = None  # where it is stuck: the same, asked then
    offered: tuple[str, ...] = ()
    is_problem: bool = False  # whether the page called it one when an operator looked
    first: str = ""  # what is offered first, on the first card
    pressed: str = ""
    said: Simulated | None = None  # what the page of the remedy said
    after: Outcome | None = None  # what came of pressing it
    left: tuple[str, ...] = ()  # what is waited for in the end that was waited for before, by code

    def find_faults(self) -> list[str]:
        """Return where preview and sandbox disagree."""
        told, seen = self.told, self.seen
        faults = [*self._find_faults_of_remedies()]
        if told.end not in (SimulationEnd.DONE, SimulationEnd.STUCK):
            faults.append(f"end: {told.end} forecast")
        if self.again is not None and self.again.end is not SimulationEnd.STUCK:
            faults.append(f"stuck: {self.again.end} forecast when it was stuck already")
        if (told.end is SimulationEnd.STUCK) != seen.stuck:
            faults.append(f"stuck: {told.end} forecast")
        if told.components[0].lowest != seen.lowest:
            faults.append(f"lowest: {told.components[0].lowest} forecast, {seen.lowest} seen")
        if order_of(told) != seen.order:
            faults.append(f"order: {order_of(told)} forecast, {seen.order} seen")
        # The lag of one component may be time in which another one comes up, so it is taken off or not. Where the
        # machine was too busy to measure anything, a forecast can only be found to be too long.
        least, most = seen.seconds - seen.lag, seen.seconds
        if not seen.stuck and not (0.75 * least if self.is_measured else 0.0) <= told.seconds <= 1.25 * most:
            faults.append(f"seconds: {told.seconds:.1f} forecast, {least:.1f} to {most:.1f} seen")
        return faults

    def _find_faults_of_remedies(self) -> Iterator[str]:
        if self.seen.stuck and self.kind in FAILING and not self.is_problem:
            yield "no problem"
        if self.seen.stuck and self.kind in FAILING and self.first != Remedy.ROLL_BACK:
            yield f"first of what is offered: {self.first}"
        # On cordoned nodes nothing may help but other nodes, and on different ones it depends on who is where.
        if self.seen.stuck and self.kind in (*FAILING, "full") and not self.pressed:
            yield "nothing offered"
        if self.after is None or self.said is None:
            return
        if self.left:
            yield f"{self.pressed} did not end {self.left}"
        if (self.said.end is SimulationEnd.STUCK) != self.after.stuck:
            yield f"{self.pressed}: {self.said.end} said"
        if self.after.lowest < self.said.components[0].lowest:
            yield f"{self.pressed}: {self.said.components[0].lowest} said, {self.after.lowest} seen"

    @property
    def is_measured(self) -> bool:
        """Whether the machine was quiet enough to tell how long it took."""
        return self.seen.stuck or self.seen.lag <= MOST_LAG * self.seen.seconds

    def render(self) -> str:
        """Return it as a row of the table."""
        told, seen = self.told, self.seen
        forecast = "stuck" if told.end is SimulationEnd.STUCK else f"{told.seconds:5.1f} s"
        happened = "stuck" if seen.stuck else f"{seen.seconds - seen.lag:5.1f}-{seen.seconds:.1f} s"
        row = (
            f"{self.title:48} {forecast:>8} {happened:>12}   lowest {told.components[0].lowest} {seen.lowest}"
            f"   order {order_of(told)} {seen.order}"
        )
        return f"{self.seed} {row}   {self._render_remedy()}" if seen.stuck else f"{self.seed} {row}"

    def _render_remedy(self) -> str:
        """Return what was offered, and what came of pressing one of it: the fewest replicas forecast and seen."""
        if self.said is None or self.after is None:
            return f"offered: {', '.join(self.offered) or 'nothing'}"
        came = "another wait" if self.after.stuck else f"complete after {self.after.seconds:.1f} s"
        lowest = f"lowest {self.said.components[0].lowest} {self.after.lowest}"
        return f"{self.pressed} of {', '.join(self.offered)}: {came}, {lowest}"


def order_of(told: Simulated) -> list[int]:
    """Return which replicas of the set a preview replaces, in their order."""
    moments = [moment for step in told.steps for moment in step.moments]
    return _order([moment.component for moment in moments if moment.reason in _REPLACED], told.name)


def _order(components: list[str], name: str) -> list[int]:
    indices = (component.removeprefix(f"{name}-").partition("-")[0] for component in components)
    return [*dict.fromkeys(int(index) for index in indices if index.isdigit())]


class Case:
    """One workload in one cluster."""

    def __init__(self, seed: int, make_stage: Callable[[str, str], Stage], caller: Caller, press: str = "") -> None:
        self._seed, self._dice = seed, random.Random(seed)
        self._caller, self._press = caller, press
        self.kind = KINDS[seed % len(KINDS)]
        self._name = f"f{seed}{press.lower()[:12]}-{random.Random().randrange(10**6)}"
        self._make_stage = make_stage
        self._manifest = self._make_manifest()

    # ---- what is tried

    def _make_manifest(self) -> Obj:
        dice = self._dice
        self._strategy = dice.choice([Strategy.ROLLING_RECREATE, Strategy.ROLLING_UPDATE, Strategy.REPLICA_RECREATE])
        self._replicas = dice.randint(1, 3)
        # The cluster refuses these for one replica: half of it, rounded down, is none, and two are more than there are.
        is_one = self._strategy is Strategy.REPLICA_RECREATE and self._replicas == 1
        self._budget = dice.choice([one for one in BUDGETS if not (is_one and one in (("50%", 0), (2, 0)))])
        budget = {"maxUnavailable": self._budget[0], "maxSurge": self._budget[1]}
        spec: Obj = {"replicas": self._replicas, "updateStrategy": {"type": str(self._strategy)}}
        if self._strategy is Strategy.REPLICA_RECREATE:
            spec["updateStrategy"]["rollingUpdate"] = budget
        inside = {"updateStrategy": budget} if self._strategy is Strategy.ROLLING_UPDATE else {}
        pods = dice.randint(2, 3)
        cliques = [self._clique("web", pods, dice.choice((pods - 1, pods)), **inside)]
        template: Obj = {"cliques": cliques}
        if dice.random() < 0.5:
            cliques += [self._clique("leader", 1, 1), self._clique("worker", 1, 1)]
            group = {"name": "decode", "cliqueNames": ["leader", "worker"], "replicas": 2, "minAvailable": 1, **inside}
            template["podCliqueScalingGroups"] = [group]
        self._pods = self._replicas * (pods + (4 if len(cliques) > 1 else 0))
        metadata = {"name": "chat", "namespace": self._name}
        spec["template"] = template
        return {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": metadata, "spec": spec}

    def _clique(self, name: str, replicas: int, least: int, **more: Any) -> Obj:
        seconds = SLOW if self.kind == "slow" and name == "web" else READY
        container = {"name": "main", "image": "app:v1", "resources": {"requests": {"cpu": "1"}}}
        pod: Obj = {"containers": [container], "nodeSelector": {"case": self._name}}
        if self.kind == "heterogeneous" and name == "web":
            pod["tolerations"] = [{"key": "special", "operator": "Exists"}]
        spec = {"roleName": name, "replicas": replicas, "minAvailable": least, "podSpec": pod}
        annotations = {"sandbox.grove.io/ready-seconds": str(seconds)}
        return {"name": name, "annotations": annotations, "spec": spec, **more}

    def _make_nodes(self, stage: Stage) -> None:
        """Make room: to spare, for just the pods that run, or of different kinds."""
        spare = {"full": 0, "heterogeneous": 0}.get(self.kind, 8)
        self._has_foreign_pod = self._dice.random() < 0.5
        sizes = [self._pods + spare + self._has_foreign_pod]
        # On half of the cordoned clusters there is another node, with room for some.
        if self.kind == "heterogeneous" or (self.kind == "cordoned" and self._dice.random() < 0.5):
            sizes.append(2)
        is_by_cpu = self._dice.random() < 0.5
        for number, size in enumerate(sizes):
            room = {"cpus": size} if is_by_cpu else {"pods": size}
            make_nodes(stage.cluster, [f"{self._name}-{number}"], {"case": self._name}, **room)
            if self._has_foreign_pod and not number:
                self._make_foreign_pod(stage, f"{self._name}-{number}")
        if self.kind == "heterogeneous":
            taint = {"key": "special", "value": "", "effect": "NoSchedule"}
            stage.cluster.patch_merge(NODES, f"{self._name}-1", {"spec": {"taints": [taint]}})

    def _make_foreign_pod(self, stage: Stage, node: str) -> None:
        """Have a pod on a node that is not Grove's, and asks for as much as each of the others; nobody mirrors it."""
        elsewhere = f"{self._name}-foreign"
        stage.cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}})
        container = {"name": "main", "image": "app:v1", "resources": {"requests": {"cpu": "1"}}}
        metadata = {"name": "foreign", "namespace": elsewhere, "labels": FOREIGN}
        spec = {"containers": [container], "nodeName": node}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        stage.cluster.create(PODS, pod)

    def _cordon(self, stage: Stage, *, is_cordoned: bool) -> None:
        stage.cluster.patch_merge(NODES, f"{self._name}-0", {"spec": {"unschedulable": is_cordoned or None}})

    # ---- how it goes; whoever drives it goes on after each yield

    def run(self) -> Iterator[Result | None]:
        """Go through all of it; the last of what is yielded is the result."""
        stage = self._make_stage(self._name, "chat")
        AT_WORK.add(self._name)
        stage.cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._name}})
        self._make_nodes(stage)
        stage.cluster.create(PODCLIQUESETS, self._manifest)
        yield from self._deploy(stage)
        if self.kind == "cordoned":
            self._cordon(stage, is_cordoned=True)
        tag = self.kind if self.kind in ("broken", "crash") else "v2"
        images = [ImageEdit("web", f"app:{tag}", "main")]
        never = ("web",) if tag != "v2" else ()
        self._observe(stage)
        # The watcher does so once a minute: of all nodes at once.
        (label,) = FOREIGN.items()
        mirror.store_foreign_requests(stage.loop.row, stage.cluster.list(PODS, labels="=".join(label)).items)
        change = set_images(images)
        belief = Assumptions(seconds_to_ready=None, never_ready=never)
        told = workload_simulate(self._caller, stage.place, change, belief)
        before = Step.objects.filter(rollout__namespace=self._name).count()
        execute(self._caller, stage.place, set_images(images))
        seen = Outcome()
        yield from self._follow(stage, seen)
        seen.order = self._read_order(before)
        unavailable, surge = self._budget
        title = f"{self.kind} {self._strategy} R{self._replicas} U{unavailable} S{surge}"
        result = Result(self._seed, self.kind, title, told, seen)
        if seen.stuck:
            unchanged = Edit(Command.SET_IMAGES, lambda manifest: manifest)
            result.again = workload_simulate(self._caller, stage.place, unchanged, Assumptions(seconds_to_ready=None))
            yield from self._remedy(stage, result)
        AT_WORK.discard(self._name)
        yield result

    def _deploy(self, stage: Stage) -> Iterator[None]:
        """Deploy it, and have a pod go, so that it is known how long that takes."""
        deployed, again = Outcome(), Outcome()
        yield from self._follow(stage, deployed)
        pod = stage.loop.pods()[0]["metadata"]
        stage.cluster.delete(PODS, pod["name"], namespace=self._name, uid=pod["uid"])
        while not (len(stage.loop.pods()) == self._pods and all(map(is_ready, stage.loop.pods()))):
            self._observe(stage)
            stage.loop.take_pass()
            yield
        yield from self._follow(stage, again)
        assert not deployed.stuck, self._name
        assert not again.stuck, self._name

    def _observe(self, stage: Stage) -> None:
        observe(stage.cluster, stage.loop.row, among=AT_WORK)
        mirror.store(stage.loop.row, NODES, stage.cluster.list(NODES, labels=f"case={self._name}").items)

    def _follow(self, stage: Stage, seen: Outcome) -> Iterator[None]:
        """Take passes until everything is there, or nothing has happened for long."""
        began = at_rest_since = time.monotonic()
        former: Any = None
        looked_at = began
        while True:
            turn = time.monotonic() - looked_at
            looked_at = time.monotonic()
            self._observe(stage)
            look = read_snapshot(stage.place)
            assert look.workload is not None
            assert look.planner_input is not None
            whole = look.workload.strategy is Strategy.REPLICA_RECREATE
            units = set_units(look.planner_input.tree.replicas.values(), whole=whole, wanted=look.workload.replicas)
            seen.lowest = min(seen.lowest, sum(one.available and not one.leaving for one in units))
            now = time.monotonic()
            pods = tuple((pod.uid, pod.ready, pod.node, pod.leaving) for pod in look.mirrored.observed.pods)
            if pods != former:
                former, at_rest_since = pods, now
                seen.lag += turn / 2 + now - looked_at
            if stage.loop.is_complete():
                seen.seconds = now - began
                return
            if now - at_rest_since > RESTS_FOR:
                seen.stuck = True
                return
            assert now - began < GIVES_UP_AFTER, (self._name, self.kind, stage.loop.outcomes[-2:])
            # A step is several passes, which follow each other at once.
            if isinstance(stage.loop.take_pass(), Requeue):
                seen.lag += time.monotonic() - now
                looked_at = time.monotonic()
                continue
            yield

    def _read_order(self, before: int) -> list[int]:
        steps = Step.objects.filter(rollout__namespace=self._name).order_by("at", "id")[before:]
        return _order([step.component for step in steps if step.reason in _REPLACED], "chat")

    # ---- remedies

    def _remedy(self, stage: Stage, result: Result) -> Iterator[None]:
        waits = self._diagnose(stage)
        by_remedy = {remedy: wait for wait in reversed(waits) for remedy in wait.remedies if remedy in TRIABLE}
        result.offered = tuple(sorted(by_remedy))
        notes = summarize_waits(waits)
        result.is_problem = any(note.is_problem for note in notes)
        result.first = next((code for note in notes[:1] for code, _, _ in note.remedies), "")
        if not by_remedy:
            return
        pressed = self._press or next(iter(by_remedy))
        assert pressed in by_remedy, (pressed, result.offered)
        wait, result.pressed = by_remedy[pressed], pressed
        change, carry_out = self._read_remedy(stage, Remedy(pressed), wait)
        result.said = workload_simulate(self._caller, stage.place, change, Assumptions(seconds_to_ready=None))
        carry_out()
        result.after = Outcome()
        yield from self._follow(stage, result.after)
        left = {find_common_code(one.code) for one in self._diagnose(stage) if result.after.stuck}
        result.left = tuple({find_common_code(one.code) for one in waits if pressed in one.remedies} & left)

    def _diagnose(self, stage: Stage) -> tuple[Wait, ...]:
        """Return what is waited for when an operator looks."""
        look = read_snapshot(stage.place)
        return snapshot_diagnosis(stage.place, replace(look, now=look.now + LOOKS_AFTER)).waits

    def _read_remedy(self, stage: Stage, remedy: Remedy, wait: Wait) -> tuple[Simulable, Callable[[], Any]]:
        """Return what the page of a remedy proposes as it is opened, and its button."""
        place, caller = stage.place, self._caller
        if remedy is Remedy.ROLL_BACK:
            seen = read_snapshot(place).mirrored
            former = find_previous(place.cluster, seen.uid, seen.observed.status.get("currentGenerationHash") or "")
            assert former is not None
            back = roll_back(place, former.number)
            return back, partial(execute, caller, place, back)
        form = _FORM_BY_REMEDY[remedy]
        scene = FormContext(place, QueryDict(f"component={wait.component}"))
        chosen = [row.value for row, is_chosen in form.field_context(scene, None)["rows"] if is_chosen]
        given = QueryDict(mutable=True)
        given.setlist(SELECTED_FIELD, chosen)
        if isinstance(form, EditForm):
            change = form.parse_change(scene, given)
            return change, partial(execute, caller, place, change)
        assert isinstance(form, PodDeletionForm)
        request = RequestFactory().post("/", {SELECTED_FIELD: chosen})
        version = f'"{scene.snapshot.version}"'
        return form.parse_change(scene, given), lambda: form.delete_pods(caller, request, scene, {}, version)
