"""Grove's own scenarios, with its own workloads: rolling recreate, OnDelete, gang scheduling and gang termination.

Grove's tests count deletions that no addition has matched yet; here the witness counts the available units after each
write. Where Grove's tests use a pod that ignores SIGTERM, these need none: pods take a moment to terminate.
"""

from rollouts.cluster import Obj
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESETS
from rollouts.engine.model import names
from tests.scenarios.register import scenario
from tests.scenarios.scene import Scene, is_placed, uids
from tests.scenarios.stage import PATIENCE_FOR_NOTHING, Stage, grove

TERMINATION_DELAY = "3s"


def one_at_a_time(changes: list[str], *indices: int) -> bool:
    """Return whether each of these units was removed and added before the next one changed."""
    pairs = list(zip(changes[::2], changes[1::2], strict=False))
    told = sorted(int(taken.removeprefix("-")) for taken, _ in pairs)
    return len(changes) % 2 == 0 and told == sorted(indices) and all(a[1:] == b[1:] and a[0] == "-" for a, b in pairs)


# --- rolling recreate --------------------------------------------------------------------------------------------


@scenario("RU7 a change of pc-a replaces one pod at a time")
def ru7(stage: Stage) -> None:
    stage.nodes(10)
    name = stage.deploy(grove("workload1"), one_a_node=True)
    mark = stage.witness.mark()
    stage.change(name, "pc-a")
    scene = stage.settle_updated(name)
    assert scene.status(name)["updatedReplicas"] == 1
    assert one_at_a_time(stage.witness.unit_changes(name, f"{name}-0-pc-a", mark), 0, 1)
    assert stage.witness.unit_changes(name, f"{name}-0-sg-x", mark) == []
    stage.witness.assert_rules(name, mark)


@scenario("RU8 a change of pc-b replaces one replica of the scaling group at a time")
def ru8(stage: Stage) -> None:
    stage.nodes(10)
    name = stage.deploy(grove("workload1"), one_a_node=True)
    mark = stage.witness.mark()
    stage.change(name, "pc-b")
    stage.settle_updated(name)
    assert stage.witness.unit_changes(name, f"{name}-0-sg-x", mark) == ["-0", "+0", "-1", "+1"]
    assert stage.witness.unit_changes(name, f"{name}-0-pc-a", mark) == []
    stage.witness.assert_rules(name, mark)


@scenario("RU9 three changes in a row replace one pod and one group replica at a time")
def ru9(stage: Stage) -> None:
    stage.nodes(10)
    name = stage.deploy(grove("workload1"), one_a_node=True)
    mark = stage.witness.mark()
    for clique in ("pc-a", "pc-b", "pc-c"):
        stage.change(name, clique)
    stage.settle_updated(name)
    stage.witness.assert_rules(name, mark)


@scenario("RU10 without room exactly one pod is deleted, and the update ends when there is room")
def ru10(stage: Stage) -> None:
    nodes = stage.nodes(10)
    name = stage.deploy(grove("workload1"), one_a_node=True)
    originals = uids(stage.witness.scene().pods(name))
    mark = stage.witness.mark()
    stage.cordon(*nodes)
    stage.change(name, "pc-a")
    stage.witness.wait(
        lambda scene: len(scene.pods(name)) == 10 and len(originals & uids(scene.pods(name))) == 9,
        "one pod is replaced by one that waits",
    )
    stage.witness.never(
        lambda scene: len(originals & uids(scene.pods(name))) < 9, PATIENCE_FOR_NOTHING, "a second pod was deleted"
    )
    stage.uncordon(*nodes)
    stage.settle_updated(name)
    stage.witness.assert_rules(name, mark)


@scenario("RU11 a set that is scaled out during its update ends with every replica updated")
def ru11(stage: Stage) -> None:
    stage.nodes(30)
    name = stage.deploy(two_replicas(), one_a_node=True)
    mark = stage.witness.mark()
    stage.change(name, "pc-a")
    stage.scale(name, 3)
    scene = stage.settle_updated(name)
    assert scene.status(name)["updatedReplicas"] == 3
    assert len(scene.pods(name)) == 30
    stage.witness.assert_rules(name, mark)


@scenario("RU12 a set that is scaled in below the replica at work ends with what is left updated")
def ru12(stage: Stage) -> None:
    stage.nodes(30)
    name = stage.deploy(two_replicas(), one_a_node=True)
    mark = stage.witness.mark()
    for clique in ("pc-a", "pc-b", "pc-c"):
        stage.change(name, clique)
    stage.witness.wait(lambda scene: selected(scene, name) == [1], "replica 1 is at work")
    stage.scale(name, 1)
    scene = stage.settle_updated(name)
    assert scene.status(name)["updatedReplicas"] == 1
    assert len(scene.pods(name)) == 10
    stage.witness.assert_rules(name, mark)


def two_replicas() -> Obj:
    manifest = grove("workload1")
    manifest["spec"]["replicas"] = 2
    return manifest


def selected(scene: Scene, name: str) -> list[int]:
    """Return the replicas of the set that are selected for the update."""
    return [one["replicaIndex"] for one in scene.progress(name).get("currentlyUpdating") or ()]


# --- OnDelete ----------------------------------------------------------------------------------------------------


def assert_nothing_is_deleted(stage: Stage, name: str, originals: set[str]) -> None:
    """Grove's `no auto deletion`: reported as ended at once, nothing selected, no pod touched."""
    scene = stage.witness.wait(
        lambda scene: scene.progress(name).get("updateEndedAt"), "the update is reported as ended"
    )
    progress = scene.progress(name)
    assert progress["updateStartedAt"] == progress["updateEndedAt"]
    assert not progress.get("currentlyUpdating")
    assert progress["totalPodCliquesCount"] > 0
    assert progress.get("updatedPodCliquesCount", 0) <= progress["totalPodCliquesCount"]
    stage.witness.never(
        lambda scene: uids(scene.pods(name)) != originals, PATIENCE_FOR_NOTHING, "a pod was replaced by itself"
    )


def images(pods: list[Obj]) -> list[str]:
    return sorted(pod["spec"]["containers"][0]["image"] for pod in pods)


@scenario("OD1 under OnDelete a change of a clique deletes nothing")
def od1(stage: Stage) -> None:
    stage.nodes(10)
    name = stage.deploy(grove("workload-ondelete"), one_a_node=True)
    originals = uids(stage.witness.scene().pods(name))
    stage.change(name, "pc-a")
    assert_nothing_is_deleted(stage, name, originals)


@scenario("OD2 under OnDelete a deleted pod comes back with the new template")
def od2(stage: Stage) -> None:
    stage.nodes(10)
    name = stage.deploy(grove("workload-ondelete"), one_a_node=True)
    originals = uids(stage.witness.scene().pods(name))
    stage.change(name, "pc-a", tag="new")
    assert_nothing_is_deleted(stage, name, originals)
    stage.kill(stage.witness.scene().pods(name, "pc-a")[0])
    scene = stage.witness.wait(
        lambda scene: len(scene.ready(name)) == 10 and "example:new" in images(scene.ready(name, "pc-a")),
        "the pod is back with the new template",
    )
    assert images(scene.pods(name, "pc-a"))[0] == "example:new"
    assert len(originals & uids(scene.pods(name))) == 9
    stage.witness.wait(
        lambda scene: scene.get(PODCLIQUES, f"{name}-0-pc-a")["status"]["updatedReplicas"] == 1,
        "one pod of the PodClique counts as updated",
    )


@scenario("OD3 under OnDelete scaling in takes the outdated pod")
def od3(stage: Stage) -> None:
    stage.nodes(10)
    name = stage.deploy(grove("workload-ondelete"), one_a_node=True)
    stage.change(name, "pc-a", tag="new")
    stage.witness.wait(lambda scene: scene.progress(name).get("updateEndedAt"), "the update is reported as ended")
    stage.kill(stage.witness.scene().pods(name, "pc-a")[0])
    scene = stage.witness.wait(
        lambda scene: "example:new" in images(scene.ready(name, "pc-a")) and len(scene.ready(name, "pc-a")) == 2,
        "the pod is back with the new template",
    )
    updated = uids(pod for pod in scene.pods(name, "pc-a") if images([pod]) == ["example:new"])
    stage.scale_clique(f"{name}-0-pc-a", 1)
    scene = stage.witness.wait(lambda scene: len(scene.pods(name)) == 9, "one pod is taken away")
    assert uids(scene.pods(name, "pc-a")) == updated


@scenario("OD4 under OnDelete a change of a clique of a scaling group deletes nothing")
def od4(stage: Stage) -> None:
    stage.nodes(10)
    name = stage.deploy(grove("workload-ondelete"), one_a_node=True)
    originals = uids(stage.witness.scene().pods(name))
    stage.change(name, "pc-b")
    assert_nothing_is_deleted(stage, name, originals)


@scenario("OD5 under OnDelete a deleted pod of a scaling group comes back with the new template")
def od5(stage: Stage) -> None:
    stage.nodes(10)
    name = stage.deploy(grove("workload-ondelete"), one_a_node=True)
    originals = uids(stage.witness.scene().pods(name))
    stage.change(name, "pc-c", tag="new")
    assert_nothing_is_deleted(stage, name, originals)
    stage.kill(stage.witness.scene().pods(name, "pc-c")[0])
    scene = stage.witness.wait(
        lambda scene: len(scene.ready(name)) == 10 and "example:new" in images(scene.ready(name, "pc-c")),
        "the pod is back with the new template",
    )
    assert images(scene.pods(name, "pc-c")).count("example:new") == 1
    assert len(originals & uids(scene.pods(name))) == 9


# --- gang scheduling ---------------------------------------------------------------------------------------------


def placed(scene: Scene, name: str, clique: str = "") -> int:
    return sum(map(is_placed, scene.pods(name, clique)))


@scenario("GS1 a gang waits until all of it fits, and then runs on distinct nodes")
def gs1(stage: Stage) -> None:
    nodes = stage.nodes(10)
    stage.cordon(nodes[0])
    name = stage.create(grove("workload1"), one_a_node=True)
    stage.witness.wait(lambda scene: len(scene.pods(name)) == 10, "ten pods are there")
    stage.witness.never(lambda scene: placed(scene, name), PATIENCE_FOR_NOTHING, "a part of the gang was placed")
    stage.uncordon(nodes[0])
    scene = stage.settle(name)
    assert len({pod["spec"]["nodeName"] for pod in scene.pods(name)}) == 10


@scenario("GS5 the minimum of a gang runs first, and the rest when there is room")
def gs5(stage: Stage) -> None:
    nodes = stage.nodes(10)
    stage.cordon(*nodes[:8])
    name = stage.create(grove("workload2"), one_a_node=True)
    stage.witness.wait(lambda scene: len(scene.pods(name)) == 10, "ten pods are there")
    stage.witness.never(lambda scene: placed(scene, name), PATIENCE_FOR_NOTHING, "a part of the gang was placed")
    stage.uncordon(nodes[0])
    stage.witness.wait(lambda scene: len(scene.ready(name)) == 3, "the minimum runs")
    stage.witness.never(lambda scene: placed(scene, name) > 3, PATIENCE_FOR_NOTHING, "more than the minimum was placed")
    scene = stage.witness.scene()
    assert [placed(scene, name, clique) for clique in ("pc-a", "pc-b", "pc-c")] == [1, 1, 1]
    first = [pod for pod in scene.pods(name) if is_placed(pod)]
    assert not [pod for pod in first if names.BASE_GANG in pod["metadata"]["labels"]], "a scaled gang went first"
    stage.uncordon(*nodes[1:8])
    stage.settle(name)


# --- gang termination --------------------------------------------------------------------------------------------


def with_short_delay(manifest: Obj) -> Obj:
    manifest["spec"]["template"]["terminationDelay"] = TERMINATION_DELAY
    return manifest


def lose(stage: Stage, pod: Obj) -> str:
    """Cordon a pod's node and delete the pod."""
    node: str = pod["spec"]["nodeName"]
    stage.cordon(node)
    stage.kill(pod)
    return node


@scenario("GT1 a gang below its minimum is recreated after the delay")
def gt1(stage: Stage) -> None:
    stage.nodes(10)
    name = stage.deploy(with_short_delay(grove("workload1-gt")), one_a_node=True)
    originals = uids(stage.witness.scene().pods(name))
    node = lose(stage, stage.witness.scene().pods(name, "pc-a")[0])
    stage.witness.wait(lambda scene: len(scene.pods(name)) == 10 and not originals & uids(scene.pods(name)), "all new")
    stage.uncordon(node)
    stage.settle(name)


@scenario("GT3 a gang is left alone while it has its minimum and recreated when it has not")
def gt3(stage: Stage) -> None:
    stage.nodes(10)
    name = stage.deploy(with_short_delay(grove("workload2-gt")), one_a_node=True)
    originals = uids(stage.witness.scene().pods(name))
    first, second = stage.witness.scene().pods(name, "pc-a")
    nodes = [lose(stage, first)]
    stage.witness.wait(lambda scene: len(scene.pods(name)) == 10 and len(scene.ready(name)) == 9, "nine run")
    stage.witness.never(
        lambda scene: len(originals & uids(scene.pods(name))) < 9, 5.0, "the gang was recreated above its minimum"
    )
    nodes.append(lose(stage, second))
    stage.witness.wait(lambda scene: len(scene.pods(name)) == 10 and not originals & uids(scene.pods(name)), "all new")
    stage.uncordon(*nodes)
    stage.settle(name)


# --- which replica goes first --------------------------------------------------------------------------------------


def selections(stage: Stage, name: str, since: int) -> list[int]:
    """Return the replicas of the set in the order in which the update selected them."""
    found: list[int] = []
    for step in stage.witness.steps(since):
        if step.event.resource is PODCLIQUESETS:
            found += [index for index in selected(step.after, name) if found[-1:] != [index]]
    return found


@scenario("a replica with nothing scheduled is updated before the others")
def unscheduled_first(stage: Stage) -> None:
    nodes = stage.nodes(30)
    stage.cordon(*nodes[20:])
    manifest = two_replicas()
    manifest["spec"]["replicas"] = 3
    name = stage.create(manifest, one_a_node=True)
    scene = stage.witness.wait(lambda scene: len(scene.ready(name)) == 20, "two of three replicas run")
    ready = {pod["metadata"]["labels"][names.REPLICA_INDEX] for pod in scene.ready(name)}
    (waiting,) = {0, 1, 2} - set(map(int, ready))
    mark = stage.witness.mark()
    stage.change(name, "pc-a")
    stage.witness.wait(lambda scene: selected(scene, name) == [waiting], "the replica that waits is at work")
    stage.uncordon(*nodes[20:])
    stage.settle_updated(name)
    assert selections(stage, name, mark) == [waiting, *sorted({0, 1, 2} - {waiting})]


@scenario("a replica below its minimum is updated before the healthy ones")
def breached_first(stage: Stage) -> None:
    stage.nodes(20)
    name = stage.deploy(two_replicas(), one_a_node=True)
    last = [pod for pod in stage.witness.scene().pods(name, "pc-a") if _replica(pod) == 1]
    node = lose(stage, last[0])
    stage.witness.wait(
        lambda scene: _condition(scene.get(PODCLIQUES, f"{name}-1-pc-a"), "MinAvailableBreached") == "True",
        "replica 1 is below its minimum",
    )
    mark = stage.witness.mark()
    stage.change(name, "pc-a")
    stage.witness.wait(lambda scene: selected(scene, name), "a replica is selected")
    stage.uncordon(node)
    stage.settle_updated(name)
    assert selections(stage, name, mark) == [1, 0]


def _replica(pod: Obj) -> int:
    return int(pod["metadata"]["labels"][names.REPLICA_INDEX])


def _condition(obj: Obj, kind: str) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"] == kind), "")
