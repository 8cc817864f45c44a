"""Cases in which an update or a replica once waited for ever; `tests.engine.test_hangs` tests their causes."""

from functools import partial

from rollouts.cluster import Obj
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODCLIQUESETS, PODS, SERVICES
from rollouts.engine.model import names
from rollouts.sandbox.cluster.pod_lifecycle import READY_SECONDS_ANNOTATION
from tests.scenarios.changes import AUTOMATIC, mixed
from tests.scenarios.of_grove import lose
from tests.scenarios.register import scenario
from tests.scenarios.scene import Scene, uids
from tests.scenarios.stage import Stage, clique, group, podcliqueset
from tests.scenarios.statuses import HOLD, POD_SPEC, hold, open_gate


def slow(manifest: Obj, seconds: str = "1") -> Obj:
    """Make pods slow to become Ready, so that a scenario can interfere."""
    for one in manifest["spec"]["template"]["cliques"]:
        one["annotations"] = {READY_SECONDS_ANNOTATION: seconds}
    return manifest


def end_pod(stage: Stage, pod: Obj, phase: str) -> None:
    """End a pod with phase Failed, as the shutdown of a node does."""
    metadata = pod["metadata"]
    stage.witness.killed.add(metadata["uid"])
    status = {
        "status": {"phase": phase, "reason": "NodeShutdown", "conditions": [{"type": "Ready", "status": "False"}]}
    }
    stage.cluster.patch_merge(PODS, metadata["name"], status, namespace=stage.namespace, subresource="status")


def update_with_an_ended_pod(strategy: str, phase: str, stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(slow(mixed(strategy)))
    stage.change(name)
    stage.witness.wait(lambda scene: scene.progress(name).get("updateStartedAt"), "the update has begun")
    # Replica 1: its turn has not come. A wanted pod, as surge is removed in any case.
    scene = stage.witness.scene()
    chosen = next(unit for unit in scene.pod_units(name, "w-1-a") if unit.outdated and not unit.surge)
    pod = next(one for one in scene.pods(name, "a") if one["metadata"]["uid"] in chosen.identity)
    end_pod(stage, pod, phase)
    scene = stage.settle_updated(name)
    assert pod["metadata"]["uid"] not in uids(scene.pods(name))


for strategy in AUTOMATIC:
    for phase in ("Failed", "Succeeded"):
        told = partial(update_with_an_ended_pod, strategy, phase)
        scenario(f"{strategy} goes on though a pod ends as {phase}")(told)


@scenario("a pod that ends under OnDelete is replaced by one of the current template")
def end_under_on_delete(stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(mixed("OnDelete"))
    stage.change(name)
    stage.witness.wait(lambda scene: scene.progress(name).get("updateEndedAt"), "the update is left to people")
    pod = stage.witness.scene().pods(name, "a")[0]
    end_pod(stage, pod, "Succeeded")
    stage.witness.wait(lambda scene: pod["metadata"]["uid"] not in uids(scene.pods(name)), "it is gone")
    scene = stage.settle(name)
    assert len(scene.outdated(name)) == len(scene.pods(name)) - 1


@scenario("a scaling group ends its update though surge is forbidden half-way")
def forbid_surge(stage: Stage) -> None:
    stage.nodes(6)
    parts = (clique("l", 1), group("g", ("l",), 3, 3, (1, 1)))
    name = stage.deploy(slow(podcliqueset(*parts, strategy="RollingUpdate")))
    mark = stage.witness.mark()
    stage.change(name)
    stage.witness.wait(partial(has_gap_and_surge, name), "originals are missing while surge is there")
    budget = {"maxUnavailable": 1, "maxSurge": 0}
    path = "/spec/template/podCliqueScalingGroups/0/updateStrategy"
    stage.patch_json(name, [{"op": "replace", "path": path, "value": budget}])
    stage.settle_updated(name)
    stage.witness.assert_rules(name, mark)


def has_gap_and_surge(name: str, scene: Scene) -> bool:
    """Whether an original is missing, another one is not available, and surge is there: `0? 2 3s` or `0 3s`."""
    units = {unit.index: unit for unit in scene.group_units(name, "w-0-g")}
    originals = [units[index] for index in range(3) if index in units]
    return 3 in units and len(originals) < 3 and sum(unit.available for unit in originals) < 2


@scenario("a scaling group that is scaled in while two of its gang are missing ends its update")
def scale_in_while_two_are_missing(stage: Stage) -> None:
    """The replica beyond what is wanted may not go before the pending one is up, and that one waits for its gang."""
    nodes = stage.nodes(4)
    name = stage.deploy(podcliqueset(clique("l", 1), group("g", ("l",), 4, 2)), one_a_node=True)
    pods = {pod["metadata"]["labels"][names.GROUP_REPLICA_INDEX]: pod for pod in stage.witness.scene().pods(name)}
    mark = stage.witness.mark()
    stage.cordon(pods["0"]["spec"]["nodeName"])
    stage.change(name)
    stage.witness.wait(lambda scene: group_text(scene, name) == "0? 1* 2* 3*", "replica 0 finds no node")
    hold(stage, pods["1"], [HOLD])
    lose(stage, pods["1"])
    stage.witness.wait(lambda scene: group_text(scene, name) == "0? 2* 3*", "replica 1 is on its way out")
    stage.scale_group("w-0-g", 3)
    stage.witness.wait(is_scale_observed, "the scale is observed")
    hold(stage, pods["1"], [])
    stage.uncordon(*nodes)
    stage.settle_updated(name)
    stage.witness.assert_rules(name, mark)


def group_text(scene: Scene, name: str) -> str:
    return scene.view(name).group_text("w-0-g", "g")


def is_scale_observed(scene: Scene) -> bool:
    obj = scene.get(PODCLIQUESCALINGGROUPS, "w-0-g")
    return bool(obj["status"].get("observedGeneration") == obj["metadata"]["generation"])


@scenario("a replica whose objects somebody deletes by hand comes back")
def delete_by_hand(stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(mixed("RollingUpdate"))
    for kind, target in ((PODCLIQUES, "w-1-a"), (PODCLIQUESCALINGGROUPS, "w-1-g"), (SERVICES, "w-1")):
        stage.witness.killed.update(uids(stage.witness.scene().pods(name)))
        stage.cluster.delete(kind, target, namespace=stage.namespace)
    stage.settle(name)


@scenario("a clique that is scaled in while its replica is recreated completes the update")
def scale_in_while_recreated(stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(podcliqueset(clique("a", 3, 1), strategy="ReplicaRecreate", budget=(1, 0)))
    # A foreign scheduling gate in the new template blocks index 0, so scaling in removes that pod.
    gates = [{"op": "add", "path": f"{POD_SPEC}/schedulingGates", "value": [{"name": HOLD}]}]
    stage.patch_json(name, gates)
    for index in (1, 2):
        open_gate(stage, name, index)
    stage.witness.wait(lambda scene: ready_indices(scene, name) == {1, 2}, "two of the new pods are Ready")
    stage.scale_clique("w-0-a", 2)
    scene = stage.settle(name)
    assert ready_indices(scene, name) == {1, 2}
    assert scene.status(name)["updatedReplicas"] == 1


def ready_indices(scene: Scene, name: str) -> set[int]:
    return {unit.index for unit in scene.pod_units(name, "w-0-a") if unit.available and not unit.outdated}


@scenario("an outdated replica of a scaling group that loses a pod is replaced before its turn")
def replace_before_its_turn(stage: Stage) -> None:
    stage.nodes(6)
    parts = (clique("a", 6, 1), clique("l", 2), group("g", ("l",), 2, 1))
    name = stage.deploy(slow(podcliqueset(*parts, replicas=2)))
    mark = stage.witness.mark()
    stage.change(name)
    stage.witness.wait(lambda scene: len(scene.outdated(name)) < 20, "the update of replica 0 is under way")
    stage.kill(next(pod for pod in stage.witness.scene().pods(name) if "w-1-g-1-l" in pod["metadata"]["name"]))
    scene = stage.witness.wait(
        lambda scene: [unit.index for unit in scene.group_units(name, "w-1-g") if not unit.outdated] == [1],
        "the replica of the scaling group is replaced",
    )
    assert [one["replicaIndex"] for one in scene.progress(name)["updatingReplicas"]] == [0]
    stage.settle_updated(name)
    stage.witness.assert_rules(name, mark)


@scenario("a set that is deleted without its objects and created again adopts them")
def adopt(stage: Stage) -> None:
    stage.nodes(6)
    manifest = mixed("RollingUpdate")
    name = stage.deploy(manifest)
    before = uids(stage.witness.scene().pods(name))
    stage.cluster.delete(PODCLIQUESETS, name, namespace=stage.namespace, propagation="Orphan")
    stage.witness.wait(lambda scene: not scene.has(PODCLIQUESETS, name), "the set is gone")
    stage.create(manifest)
    scene = stage.settle(name)
    assert uids(scene.pods(name)) == before
    stage.delete(name)
    stage.wait_until_nothing_is_left(name)
