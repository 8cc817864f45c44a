"""Random workloads in random clusters: what the preview says of a change, and what then happens in the sandbox.

A case deploys a workload on nodes of its own, asks for the preview of a change, makes the change, and follows it pass
by pass to its end or until it rests unfinished. Where it is stuck, it asks again what becomes of it, now that the first
pods have failed, with nothing supposed; then it presses a remedy that its page offers, and follows. Several cases take
turns, each in a namespace of its own: most of their time is waiting for pods.

The kinds in `EXPECTED` are arranged: a scale-out together with the change, surge whose node goes down, OnDelete.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.http import QueryDict
from django.test import RequestFactory

from rollouts import mirror
from rollouts.accounts.commands import Command
from rollouts.cluster import Obj
from rollouts.cluster.resources import NAMESPACES, NODES, PODCLIQUESETS, PODS
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.edits import ImageEdit, InvalidEdit
from rollouts.engine.model.actions import Wait
from rollouts.engine.model.workload import Strategy
from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.plan.wait_codes import WaitCode, find_common_code
from rollouts.engine.rollout.units import set_units
from rollouts.engine.simulation.remedy_trials import TRIABLE
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
from rollouts.services.workloads import roll_back
from rollouts.web.commands.forms import CommandForm, EditForm, FormContext
from rollouts.web.commands.pod_deletion import PodDeletionForm
from rollouts.web.commands.pods import OutdatedPodsForm
from rollouts.web.commands.remedies import _FORM_BY_REMEDY, SELECTED_FIELD, RemedyForm
from tests.controller.loop import observe
from tests.nodes import make_nodes
from tests.scenarios.scene import is_ready
from tests.services.stage import Stage
from tests.web.commands.forecast_results import (
    BY_HAND,
    EXPECTED,
    FAILING,
    LOST,
    REPLACED,
    SCALE_OUT,
    Result,
    Seen,
    order_in,
)
from tests.web.commands.waiting import set_node

KINDS = ("roomy", "full", "cordoned", "heterogeneous", "slow", "broken", "crash")
# Seconds, as an annotation of the sandbox says: a quarter of the shorter ones is more than stamps are off by.
READY = 6
SLOW = 13
# Seconds without any news of a pod: longer than the slowest takes, and than a pod is given that never becomes Ready.
RESTS_FOR = 22.0
# The same where no pod is slow, and where it is clear at once which one never becomes Ready.
ARRANGED_RESTS_FOR = 10.0
GIVES_UP_AFTER = 360.0
FOREIGN = {"forecasts": "foreign"}
"""Of pods that are not Grove's."""
# An operator looks so many seconds after it came to rest.
LOOKS_AFTER = 60.0
BUDGETS: tuple[tuple[int | str, int | str], ...] = ((1, 0), (1, 0), (0, 1), (0, 1), (2, 0), (1, 1), ("50%", 0))
AT_WORK: set[str] = set()
"""The namespaces of the cases that take turns: a list is of all of them, as the mirror drops what is not listed."""


UNCHANGED = Edit(Command.SET_IMAGES, lambda manifest: manifest)
"""No change: what becomes of what is under way."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the workloads of a kind are chosen from."""

    strategies: tuple[Strategy, ...] = (Strategy.ROLLING_RECREATE, Strategy.ROLLING_UPDATE, Strategy.REPLICA_RECREATE)
    replicas: tuple[int, int] = (1, 3)
    budgets: tuple[tuple[int | str, int | str], ...] = BUDGETS
    pods: tuple[int, int] = (2, 3)
    may_have_group: bool = True


LIMITS = {
    SCALE_OUT: Limits((Strategy.ROLLING_RECREATE, Strategy.ROLLING_UPDATE), replicas=(1, 2), budgets=((1, 0),)),
    # The first replica is updated, so the template is known to work when the surge of the second one is lost.
    LOST: Limits((Strategy.ROLLING_UPDATE,), (2, 2), budgets=((0, 1),), pods=(1, 1), may_have_group=False),
    BY_HAND: Limits((Strategy.ON_DELETE,), replicas=(1, 2), budgets=((1, 0),)),
}


class Case:
    """One workload in one cluster."""

    def __init__(
        self, seed: int, make_stage: Callable[[str, str], Stage], caller: Caller, press: str = "", kind: str = ""
    ) -> None:
        """`press` is the remedy to press; empty: the first. `kind` is the kind; empty: by the seed."""
        self._seed, self._dice = seed, random.Random(seed)
        self._caller, self._press = caller, press
        self.kind = kind or KINDS[seed % len(KINDS)]
        self._limits = LIMITS.get(self.kind, Limits())
        self._name = f"f{seed}{press.lower()[:12]}-{random.Random().randrange(10**6)}"
        self._make_stage = make_stage
        self._manifest = self._make_manifest()

    # ---- what is tried

    def _make_manifest(self) -> Obj:
        dice, limits = self._dice, self._limits
        self._strategy = dice.choice(limits.strategies)
        self._replicas = dice.randint(*limits.replicas)
        # The cluster refuses these for one replica: half of it, rounded down, is none, and two are more than there are.
        is_one = self._strategy is Strategy.REPLICA_RECREATE and self._replicas == 1
        self._budget = dice.choice([one for one in limits.budgets if not (is_one and one in (("50%", 0), (2, 0)))])
        budget = {"maxUnavailable": self._budget[0], "maxSurge": self._budget[1]}
        spec: Obj = {"replicas": self._replicas, "updateStrategy": {"type": str(self._strategy)}}
        if self._strategy is Strategy.REPLICA_RECREATE:
            spec["updateStrategy"]["rollingUpdate"] = budget
        inside = {"updateStrategy": budget} if self._strategy is Strategy.ROLLING_UPDATE else {}
        pods = dice.randint(*limits.pods)
        cliques = [self._clique("web", pods, max(1, dice.choice((pods - 1, pods))), **inside)]
        template: Obj = {"cliques": cliques}
        if dice.random() < 0.5 and limits.may_have_group:
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
        spare = 0 if self.kind in ("full", "heterogeneous", SCALE_OUT, LOST) else 8
        self._has_foreign_pod = self._dice.random() < 0.5
        sizes = [self._pods + spare + self._has_foreign_pod]
        # On half of the cordoned clusters there is another node, with room for some.
        if self.kind == "heterogeneous" or (self.kind == "cordoned" and self._dice.random() < 0.5):
            sizes.append(2)
        if self.kind == LOST:
            sizes += [1, 2]  # for surge: the second one, and once that is lost, the third one
        is_by_cpu = self._dice.random() < 0.5
        for number, size in enumerate(sizes):
            room = {"cpus": size} if is_by_cpu else {"pods": size}
            make_nodes(stage.cluster, [f"{self._name}-{number}"], {"case": self._name}, **room)
            if self._has_foreign_pod and not number:
                self._make_foreign_pod(stage, f"{self._name}-{number}")
        if self.kind == "heterogeneous":
            taint = {"key": "special", "value": "", "effect": "NoSchedule"}
            stage.cluster.patch_merge(NODES, f"{self._name}-1", {"spec": {"taints": [taint]}})
        if self.kind == LOST:
            self._cordon(stage, 1)
            self._cordon(stage, 2)

    def _make_foreign_pod(self, stage: Stage, node: str) -> None:
        """Have a pod on a node that is not Grove's, and asks for as much as each of the others; nobody mirrors it."""
        elsewhere = f"{self._name}-foreign"
        stage.cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}})
        container = {"name": "main", "image": "app:v1", "resources": {"requests": {"cpu": "1"}}}
        metadata = {"name": "foreign", "namespace": elsewhere, "labels": FOREIGN}
        spec = {"containers": [container], "nodeName": node}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        stage.cluster.create(PODS, pod)

    def _cordon(self, stage: Stage, node: int = 0, *, is_cordoned: bool = True) -> None:
        stage.cluster.patch_merge(NODES, f"{self._name}-{node}", {"spec": {"unschedulable": is_cordoned or None}})

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
            self._cordon(stage)
        change, never = self._choose_change()
        if self.kind == LOST:
            execute(self._caller, stage.place, change)
            yield from self._lose_surge(stage)
            change = UNCHANGED
        self._observe(stage)
        # The watcher does so once a minute: of all nodes at once.
        (label,) = FOREIGN.items()
        mirror.store_foreign_requests(stage.loop.row, stage.cluster.list(PODS, labels="=".join(label)).items)
        belief = Assumptions(seconds_to_ready=None, never_ready=never)
        told = workload_simulate(self._caller, stage.place, change, belief)
        before = Step.objects.filter(rollout__namespace=self._name).count()
        execute(self._caller, stage.place, change)
        seen = Seen()
        yield from self._follow(stage, seen, by_hand=self.kind == BY_HAND)
        seen.order = self._read_order(before)
        unavailable, surge = self._budget
        title = f"{self.kind} {self._strategy} R{self._replicas} U{unavailable} S{surge}"
        result = Result(self._seed, self.kind, title, told, seen)
        if seen.stuck:
            result.again = workload_simulate(self._caller, stage.place, UNCHANGED, Assumptions(seconds_to_ready=None))
        if seen.stuck or self.kind == BY_HAND:
            yield from self._remedy(stage, result)
        AT_WORK.discard(self._name)
        yield result

    def _choose_change(self) -> tuple[Edit, tuple[str, ...]]:
        """Return the change, and the cliques whose new pods never become Ready, as the preview is told."""
        tag = self.kind if self.kind in FAILING else "v2"
        image = partial(edits.set_images, images=[ImageEdit("web", f"app:{tag}", "main")])
        never = ("web",) if self.kind in FAILING else ()
        if self.kind != SCALE_OUT:
            return Edit(Command.SET_IMAGES, image), never

        def scale_out(manifest: Obj) -> Obj | InvalidEdit:
            changed = image(manifest)
            return changed if isinstance(changed, InvalidEdit) else edits.scale(changed, self._replicas + 1)

        return Edit(Command.SET_IMAGES, scale_out), never

    def _lose_surge(self, stage: Stage) -> Iterator[None]:
        """Go on until surge of the second replica is on the node that only surge fits on; have that node down then."""
        node = f"{self._name}-1"
        self._cordon(stage, 1, is_cordoned=False)
        while not any(_is_surge_on(pod, node) for pod in stage.loop.pods()):
            assert not stage.loop.is_complete(), "no surge came to its node"
            self._observe(stage)
            stage.loop.take_pass()
            yield
        set_node(stage.cluster, node, is_up=False)
        self._cordon(stage, 2, is_cordoned=False)

    def _deploy(self, stage: Stage) -> Iterator[None]:
        """Deploy it, and have a pod go, so that it is known how long that takes."""
        deployed, again = Seen(), Seen()
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

    def _follow(self, stage: Stage, seen: Seen, *, by_hand: bool = False) -> Iterator[None]:
        """Take passes until everything is there, or nothing has happened for long; `by_hand`: or waits for deletion."""
        rests_for = ARRANGED_RESTS_FOR if self.kind in EXPECTED else RESTS_FOR
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
            if stage.loop.is_complete() or (by_hand and _awaits_deletion(stage)):
                seen.seconds = now - began
                return
            if now - at_rest_since > rests_for:
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
        return order_in([step.component for step in steps if step.reason in REPLACED], "chat")

    # ---- remedies

    def _remedy(self, stage: Stage, result: Result) -> Iterator[None]:
        waits = self._diagnose(stage)
        notes = summarize_waits(waits)
        cards = {code: component for note in notes for code, _, component in note.remedies if code in TRIABLE}
        result.offered = tuple(sorted(cards))
        result.is_problem = any(note.is_problem for note in notes)
        result.first = next((code for note in notes[:1] for code, _, _ in note.remedies), "")
        if not cards:
            return
        pressed = self._press or next(iter(cards))
        assert pressed in cards, (pressed, result.offered)
        result.pressed = pressed
        change, carry_out = self._read_remedy(stage, Remedy(pressed), cards[pressed])
        result.said = workload_simulate(self._caller, stage.place, change, Assumptions(seconds_to_ready=None))
        carry_out()
        result.after = Seen()
        yield from self._follow(stage, result.after)
        left = {find_common_code(one.code) for one in self._diagnose(stage) if result.after.stuck}
        result.left = tuple({find_common_code(one.code) for one in waits if pressed in one.remedies} & left)

    def _diagnose(self, stage: Stage) -> tuple[Wait, ...]:
        """Return what is waited for when an operator looks."""
        look = read_snapshot(stage.place)
        return snapshot_diagnosis(stage.place, replace(look, now=look.now + LOOKS_AFTER)).waits

    def _read_remedy(self, stage: Stage, remedy: Remedy, component: str) -> tuple[Simulable, Callable[[], Any]]:
        """Return what the page of a remedy proposes as it is opened, and its button."""
        place, caller = stage.place, self._caller
        if remedy is Remedy.ROLL_BACK:
            seen = read_snapshot(place).mirrored
            former = find_previous(place.cluster, seen.uid, seen.observed.status.get("currentGenerationHash") or "")
            assert former is not None
            back = roll_back(place, former.number)
            return back, partial(execute, caller, place, back)
        form: CommandForm = OutdatedPodsForm()
        field, chosen = "pod", self._list_outdated(stage)
        if remedy is not Remedy.DELETE_OUTDATED_PODS:
            form, field = _FORM_BY_REMEDY[remedy], SELECTED_FIELD
        scene = FormContext(place, QueryDict(f"component={component}"))
        if isinstance(form, RemedyForm):
            chosen = [row.value for row, is_chosen in form.field_context(scene, None)["rows"] if is_chosen]
        given = QueryDict(mutable=True)
        given.setlist(field, chosen)
        if isinstance(form, EditForm):
            change = form.parse_change(scene, given)
            return change, partial(execute, caller, place, change)
        assert isinstance(form, PodDeletionForm)
        request = RequestFactory().post("/", {field: chosen})
        version = f'"{scene.snapshot.version}"'
        return form.parse_change(scene, given), lambda: form.delete_pods(caller, request, scene, {}, version)

    def _list_outdated(self, stage: Stage) -> list[str]:
        """Return the boxes of the outdated pods, all of them ticked."""
        look = read_snapshot(stage.place)
        names = {
            name for wait in self._diagnose(stage) if wait.code == WaitCode.AWAITING_DELETION for name in wait.units
        }
        return [f"{pod.name}/{pod.uid}" for pod in look.mirrored.observed.pods if pod.name in names]


def _is_surge_on(pod: Obj, node: str) -> bool:
    """Whether a pod of the second replica is on a node."""
    is_of_second: bool = pod["metadata"]["name"].startswith("chat-1-")
    return is_of_second and pod["spec"].get("nodeName") == node


def _awaits_deletion(stage: Stage) -> bool:
    """Whether the controller has seen the change, and waits for somebody to delete pods."""
    is_seen: bool = stage.loop.status().get("observedGeneration") == stage.stored()["metadata"]["generation"]
    return is_seen and stage.loop.condition("Progressing").get("reason") == WaitCode.AWAITING_DELETION
