"""The statuses of PodCliques and scaling groups during an update, as any client can read them from the API."""

from functools import partial
from typing import Any

from rollouts.cluster import Obj
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODGANGS, PODS
from rollouts.engine.model import names
from tests.scenarios.register import scenario
from tests.scenarios.scene import Scene, is_ready
from tests.scenarios.sequences import pods_with, whole_replicas
from tests.scenarios.stage import Stage, clique, podcliqueset

HOLD = "grove-ui-test/hold"
POD_SPEC = "/spec/template/cliques/0/spec/podSpec"


def progress_of(scene: Scene, clique: str) -> dict[str, Any]:
    """Return the update progress of a PodClique."""
    return (scene.get(PODCLIQUES, clique).get("status") or {}).get("updateProgress") or {}


def wait_until_nothing_is_selected(stage: Stage) -> Scene:
    """Wait for the status of the PodClique too: a pass writes it beside that of its set."""
    none = "readyPodsSelectedToUpdate"
    return stage.witness.wait(lambda scene: none not in progress_of(scene, "w-0-a"), "no pod is selected any more")


def index_of(pod: Obj) -> int:
    return int(pod["metadata"]["labels"][names.POD_INDEX])


def is_selection_true(scene: Scene, *, name: str, originals: dict[str, int], selected: int) -> bool:
    """Return whether so many are selected: completed are those whose index has a Ready pod, current are the others."""
    told = progress_of(scene, "w-0-a").get("readyPodsSelectedToUpdate") or {}
    pods = scene.pods(name)
    gone = {one: index for one, index in originals.items() if one not in {pod["metadata"]["name"] for pod in pods}}
    ready = {index_of(pod) for pod in pods if is_ready(pod) and pod["metadata"]["name"] not in originals}
    return (
        len(gone) == selected
        and sorted(told.get("completed") or ()) == sorted(one for one, index in gone.items() if index in ready)
        and sorted(told.get("current") or ()) == sorted(one for one, index in gone.items() if index not in ready)
    )


@scenario("the status of five pods names those that are being replaced and those whose replacement is Ready")
def selection_5_2_1(stage: Stage) -> None:
    nodes = stage.nodes(6)
    name = stage.deploy(pods_with(5, (2, 1)), one_a_node=True)
    originals = {pod["metadata"]["name"]: index_of(pod) for pod in stage.witness.scene().pods(name)}
    node_of = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in stage.witness.scene().pods(name)}
    stage.cordon(*nodes)
    stage.change(name)
    are_two = partial(is_selection_true, name=name, originals=originals, selected=2)
    scene = stage.witness.wait(are_two, "two are being replaced")
    selected = progress_of(scene, "w-0-a")["readyPodsSelectedToUpdate"]
    assert (len(selected["current"]), selected["completed"]) == (2, [])
    assert [originals[one] for one in selected["current"]] == selected["currentIndices"]
    # One new pod after the other gets a node. Each that is available, also the surge, allows one more replacement.
    for number, freed in enumerate(selected["current"], start=3):
        stage.uncordon(node_of[freed])
        stage.witness.wait(partial(is_selection_true, name=name, originals=originals, selected=number), "one more is")
    scene = stage.witness.scene()
    surge = [pod for pod in scene.pods(name) if index_of(pod) == 5 and is_ready(pod)]
    progress = progress_of(scene, "w-0-a")
    assert len(progress["readyPodsSelectedToUpdate"]["completed"]) == progress["updatedReplicas"] == 2 - len(surge)
    stage.uncordon(*nodes)
    stage.settle_updated(name)
    scene = wait_until_nothing_is_selected(stage)
    assert "surgeReplicas" not in scene.get(PODCLIQUES, "w-0-a")["status"]


@scenario("two of five pods are current and one is completed while the surge is held back")
def selection_with_the_surge_held_back(stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(pods_with(5, (2, 1)))
    originals = {pod["metadata"]["name"]: index_of(pod) for pod in stage.witness.scene().pods(name)}
    # A foreign gate in the template blocks every new pod; the surge keeps its own.
    gates = {"op": "add", "path": f"{POD_SPEC}/schedulingGates", "value": [{"name": HOLD}]}
    stage.patch_json(name, [gates])
    two = partial(is_selection_true, name=name, originals=originals, selected=2)
    scene = stage.witness.wait(two, "two are being replaced")
    first, second = progress_of(scene, "w-0-a")["readyPodsSelectedToUpdate"]["current"]
    open_gate(stage, name, originals[first])

    def is_third_selected(scene: Scene) -> bool:
        return len(progress_of(scene, "w-0-a").get("readyPodsSelectedToUpdate", {}).get("current", ())) == 2

    three = partial(is_selection_true, name=name, originals=originals, selected=3)
    scene = stage.witness.wait(lambda scene: three(scene) and is_third_selected(scene), "one more is")
    progress = progress_of(scene, "w-0-a")
    selected = progress["readyPodsSelectedToUpdate"]
    assert (selected["completed"], progress["updatedReplicas"]) == ([first], 1)
    assert second in selected["current"]
    assert selected["currentIndices"] == [originals[one] for one in selected["current"]]
    assert [index_of(pod) for pod in scene.pods(name) if index_of(pod) >= 5 and not is_ready(pod)] == [5]
    stage.patch_json(name, [{"op": "remove", "path": f"{POD_SPEC}/schedulingGates"}])
    stage.settle_updated(name)
    wait_until_nothing_is_selected(stage)


def open_gate(stage: Stage, name: str, index: int) -> None:
    """Remove the foreign gate from the new pod with this index, once the controller has removed its own."""

    def is_held(pod: Obj) -> bool:
        return index_of(pod) == index and pod["spec"].get("schedulingGates") == [{"name": HOLD}]

    held = stage.witness.wait(lambda scene: [pod for pod in scene.pods(name) if is_held(pod)], "only we hold it")
    (pod,) = [pod for pod in held.pods(name) if is_held(pod)]
    operations = [{"op": "remove", "path": "/spec/schedulingGates"}]
    stage.cluster.patch_json(PODS, pod["metadata"]["name"], operations, namespace=stage.namespace)


@scenario("a replica that is emptied does not claim that its pods serve")
def emptied(stage: Stage) -> None:
    stage.nodes(4)
    name = stage.deploy(whole_replicas(2, (1, 0)))
    held = [pod for pod in stage.witness.scene().pods(name) if pod["metadata"]["labels"][names.REPLICA_INDEX] == "0"]
    for pod in held:
        hold(stage, pod, [HOLD])
    mark = stage.witness.mark()
    stage.change(name)
    scene = stage.witness.wait(lambda scene: claims(scene, "w-0") == {0}, "replica 0 claims nothing")
    left = {pod["metadata"]["name"] for pod in scene.all(PODS, name)}
    assert left >= {pod["metadata"]["name"] for pod in held}, "its pods are still on their way out"
    assert scene.get(PODCLIQUES, "w-0-a")["status"]["replicas"] == 0
    # The set is written after its parts.
    stage.witness.wait(lambda scene: scene.status(name)["availableReplicas"] == 1, "the set says so too")
    for pod in held:
        hold(stage, pod, [])
    stage.settle_updated(name)
    for step in stage.witness.steps(mark):
        status = step.after.status(name)
        assert status["updatedReplicas"] <= status["availableReplicas"] <= status["replicas"]


def hold(stage: Stage, pod: Obj, finalizers: list[str]) -> None:
    """Keep a deleted pod with a finalizer, or remove the finalizer."""
    patch = {"metadata": {"finalizers": finalizers}}
    stage.cluster.patch_merge(PODS, pod["metadata"]["name"], patch, namespace=stage.namespace)


def claims(scene: Scene, prefix: str) -> set[int]:
    """Return how many available units the components of a replica report."""
    cliques = [one for one in scene.all(PODCLIQUES) if one["metadata"]["name"].startswith(prefix)]
    groups = [one for one in scene.all(PODCLIQUESCALINGGROUPS) if one["metadata"]["name"].startswith(prefix)]
    return {
        *((one.get("status") or {}).get("readyReplicas", -1) for one in cliques),
        *((one.get("status") or {}).get("availableReplicas", -1) for one in groups),
    }


@scenario("a clique that is scaled to nothing makes its set unavailable, and its gang keeps its minimum")
def scaled_to_nothing(stage: Stage) -> None:
    stage.nodes(4)
    name = stage.deploy(podcliqueset(clique("a", 2), clique("b", 1)))
    stage.scale_clique("w-0-a", 0)
    scene = stage.witness.wait(
        lambda scene: scene.condition(name, "Available").get("reason") == "ScaledBelowMinAvailable", "it says so"
    )
    assert "w-0-a is scaled to 0 pods and its minAvailable is 2" in scene.condition(name, "Available")["message"]
    assert scene.status(name)["availableReplicas"] == 0
    stage.witness.wait(
        lambda scene: (
            {
                one["name"]: (one["minReplicas"], len(one.get("podReferences") or ()))
                for one in scene.get(PODGANGS, "w-0")["spec"]["podgroups"]
            }
            == {"w-0-a": (2, 0), "w-0-b": (1, 1)}
        ),
        "the gang keeps its minimum and lists no pod that is gone",
    )
    stage.scale_clique("w-0-a", 2)
    stage.settle(name)
