"""What is scaled below its minimum is not available and says why; it is not recreated for it, and can be updated."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rollouts.engine.model.actions import Kind, Wait
from rollouts.engine.model.observed import Pod
from rollouts.engine.model.workload import Strategy
from rollouts.engine.scheduling.placement import NO_DEMAND, Demand
from rollouts.engine.simulation.cluster import UNLIMITED_NODES
from rollouts.engine.simulation.scheduler import Placement, SimulatedScheduler
from tests.engine.simulated import Cluster, clique, conditions, group, settled, workload

CODE = "ScaledBelowMinAvailable"
PARTS = (clique("a", 2), clique("l", 2), group("g", ("l",), 2, 2))
SCALES = {
    "a clique to nothing": (Kind.CLIQUE, "w-0-a", 0),
    "a clique to one": (Kind.CLIQUE, "w-0-a", 1),
    "a scaling group": (Kind.GROUP, "w-0-g", 1),
    "a clique of a scaling group": (Kind.CLIQUE, "w-0-g-1-l", 1),
}


def scaled(kind: Kind, name: str, replicas: int, **fields: Any) -> Cluster:
    cluster = settled(workload(*PARTS, replicas=2, **fields))
    cluster.world.scale(kind, name, replicas)
    return cluster.settle()


def scale_waits(cluster: Cluster) -> list[Wait]:
    return [wait for wait in cluster.waits if wait.code == CODE]


def condition_of(cluster: Cluster, kind: str) -> Any:
    return next(one for one in cluster.status["conditions"] if one["type"] == kind)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_the_set_is_not_available_and_says_which_scale_caused_it(scale: tuple[Kind, str, int]) -> None:
    cluster = scaled(*scale)
    assert (cluster.status["replicas"], cluster.status["availableReplicas"]) == (2, 1)
    (wait,) = scale_waits(cluster)
    assert (wait.component, wait.is_problem) == (scale[1], True)
    told = condition_of(cluster, "Available")
    assert (told["status"], told["reason"]) == ("False", CODE)
    assert wait.text in told["message"]
    assert conditions(cluster.status)["Progressing"] == ("False", CODE)


def test_the_sentence_names_the_scale_the_minimum_and_the_way_out() -> None:
    (wait,) = scale_waits(scaled(*SCALES["a clique to one"]))
    assert wait.text == "w-0-a is scaled to 1 pod and its minAvailable is 2: scale it to 2 or more."


def test_a_scale_in_a_replica_of_a_group_that_its_set_can_do_without_is_named_too() -> None:
    cluster = settled(workload(clique("a", 1), clique("l", 1), group("g", ("l",), 3, 1)))
    cluster.world.scale(Kind.CLIQUE, "w-0-g-2-l", 0)
    cluster.settle()
    (wait,) = scale_waits(cluster)
    assert wait.text == "w-0-g-2-l is scaled to 0 pods and its minAvailable is 1: scale it to 1 or more."
    told = conditions(cluster.status)
    assert (told["Available"][0], told["Progressing"]) == ("True", ("False", CODE))
    cluster.world.scale(Kind.CLIQUE, "w-0-g-2-l", 1)
    cluster.settle()
    assert (scale_waits(cluster), conditions(cluster.status)["Progressing"]) == ([], ("False", "Complete"))


def test_every_scale_that_causes_it_is_named() -> None:
    cluster = scaled(*SCALES["a clique to one"])
    cluster.world.scale(Kind.GROUP, "w-1-g", 1)
    cluster.settle()
    texts = [wait.text for wait in scale_waits(cluster)]
    assert len(texts) == 2
    assert condition_of(cluster, "Available")["message"] == " ".join(["0 of 2 replicas are available.", *texts])
    assert condition_of(cluster, "Progressing")["message"] == " ".join(texts)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_the_minimum_of_its_gang_stays(scale: tuple[Kind, str, int]) -> None:
    before = {gang.name: gang for gang in settled(workload(*PARTS, replicas=2)).world.observed().gangs}
    for gang in scaled(*scale).world.observed().gangs:
        least = {name: count for name, (count, _) in gang.pod_groups.items()}
        assert least == {name: count for name, (count, _) in before[gang.name].pod_groups.items()}


def test_pods_that_are_gone_are_struck_out_of_the_gang() -> None:
    cluster = scaled(*SCALES["a scaling group"])
    (base,) = [gang for gang in cluster.world.observed().gangs if gang.name == "w-0"]
    assert base.pod_groups["w-0-g-1-l"] == (2, ())
    assert base.status["phase"] == "Pending"


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_the_component_says_that_it_is_below_its_minimum_and_why(scale: tuple[Kind, str, int]) -> None:
    cluster = scaled(*scale)
    observed = cluster.world.observed()
    stored = {one.name: one.status for one in observed.cliques} | {one.name: one.status for one in observed.groups}
    assert conditions(stored[scale[1]])["MinAvailableBreached"] == ("True", CODE)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_it_is_not_recreated_for_it_however_long_it_lasts(scale: tuple[Kind, str, int]) -> None:
    cluster = scaled(*scale, termination_delay=60.0)
    before = {pod.uid for pod in cluster.live_pods()}
    cluster.run_for(3600.0)
    assert {pod.uid for pod in cluster.live_pods()} == before
    assert not [delete for delete in cluster.deleted() if delete.reason == "GangTerminated"]


def test_the_termination_delay_begins_when_something_breaks_and_not_with_the_scale() -> None:
    cluster = scaled(*SCALES["a clique to one"], termination_delay=600.0)
    cluster.run_for(3600.0)
    cluster.world.set_ready(cluster.live_pods("w-0-a")[0].name, ready=False)
    cluster.run_for(590.0)
    assert not [delete for delete in cluster.deleted() if delete.reason == "GangTerminated"]
    cluster.run_for(20.0)
    assert [delete for delete in cluster.deleted() if delete.reason == "GangTerminated"]


def test_it_is_available_again_once_it_is_scaled_out() -> None:
    cluster = scaled(*SCALES["a clique to nothing"])
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 2)
    cluster.settle()
    assert cluster.status["availableReplicas"] == 2
    assert not cluster.waits
    assert conditions(cluster.status)["Progressing"] == ("False", "Complete")


def place_each(
    rooms: SimulatedScheduler, waiting: Sequence[Pod], _gangs: object, _pods: object, demands: Mapping[str, Demand]
) -> Placement:
    """Place pod by pod on the one node there is, as a scheduler that knows no gangs does."""
    (node,) = UNLIMITED_NODES
    for pod in waiting:
        rooms.reserve(pod.name, node.name, demands.get(pod.name, NO_DEMAND))
    return Placement(tuple((pod.name, node.name) for pod in waiting), ())


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_an_update_completes_by_pods(
    scale: tuple[Kind, str, int], strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimulatedScheduler, "place", place_each)
    cluster = scaled(*scale, strategy=strategy, budget=(1, 0)).update().settle()
    if strategy is Strategy.ON_DELETE:
        for pod in cluster.live_pods():
            cluster.world.delete(Kind.POD, pod.name)
        cluster.settle()
    assert {pod.template_hash for pod in cluster.live_pods()} == {*cluster.view.hashes.values()}
    assert all(pod.ready for pod in cluster.live_pods())
    assert cluster.progress["updateEndedAt"]
    assert conditions(cluster.status)["UpdateStuck"][0] == "False"
    if scale != SCALES["a clique of a scaling group"] or strategy is Strategy.ON_DELETE:  # else it was made anew
        assert cluster.status["availableReplicas"] == 1
        assert scale_waits(cluster)


@pytest.mark.parametrize("strategy", [one for one in Strategy if one is not Strategy.ON_DELETE])
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("replica", [0, 1])
def test_an_update_completes_though_a_component_is_scaled_below_in_the_middle_of_it(
    scale: tuple[Kind, str, int], strategy: Strategy, replica: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimulatedScheduler, "place", place_each)
    kind, name, count = scale
    # Of the clique s one pod is replaced at a time, and its replica serves meanwhile.
    parts = (clique("s", 3, 1), *PARTS)
    cluster = settled(workload(*parts, replicas=3, strategy=strategy, budget=(1, 0))).update("app:v2", "s")
    cluster.run_until(
        lambda cluster: bool(cluster.deleted()) and any(not pod.ready for pod in cluster.live_pods("w-0"))
    )
    observed = cluster.world.observed()
    there = {one.name for one in observed.cliques} | {one.name for one in observed.groups}
    name = name.replace("w-0", f"w-{replica}")
    if name in there:
        cluster.world.scale(kind, name, count)
    cluster.settle()
    assert cluster.progress["updateEndedAt"]
    assert {pod.template_hash for pod in cluster.live_pods()} == {*cluster.view.hashes.values()}


@pytest.mark.parametrize("scale", ["a clique to one", "a scaling group"])
def test_a_scheduler_that_insists_on_the_minimum_is_named_as_the_blocker(scale: str) -> None:
    cluster = scaled(*SCALES[scale]).update().settle()
    assert "updateEndedAt" not in cluster.progress
    told = {wait.code: wait.text for wait in cluster.waits if wait.is_problem}
    assert "PodGang w-0 is placed all or nothing: pod group " in told["ReplicaUnschedulable"]
    assert SCALES[scale][1] in told[CODE]
    assert conditions(cluster.status)["UpdateStuck"] == ("True", "ReplicaUnschedulable")
