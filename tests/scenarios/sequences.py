"""The acceptance sequences (`docs/semantics.md` 14): which units are added and removed, in which order, how many serve.

`+3s` is a surge unit that is added, `-0` a unit that is removed. Where several units may change at once their order is
left open, and the numbers say what was allowed.
"""

from typing import Any

from rollouts.cluster import Obj
from rollouts.cluster.resources import PODCLIQUESETS, PODGANGS, PODS
from rollouts.engine.model import names
from tests.scenarios.of_grove import one_at_a_time, selected
from tests.scenarios.register import scenario
from tests.scenarios.scene import Scene, uids
from tests.scenarios.stage import PATIENCE_FOR_NOTHING, Stage, clique, group, podcliqueset

NODES = 4


def pods_with(replicas: int, budget: tuple[Any, Any]) -> Obj:
    return podcliqueset(clique("a", replicas, 1, budget), strategy="RollingUpdate")


def group_with(replicas: int, least: int, budget: tuple[Any, Any]) -> Obj:
    parts = (clique("l", 1), clique("k", 2), group("g", ("l", "k"), replicas, least, budget))
    return podcliqueset(*parts, strategy="RollingUpdate")


def whole_replicas(replicas: int, budget: tuple[Any, Any]) -> Obj:
    parts = (clique("a", 2, 1), clique("l", 1), group("g", ("l",), 2))
    return podcliqueset(*parts, replicas=replicas, strategy="ReplicaRecreate", budget=budget)


def roll(stage: Stage, manifest: Obj) -> tuple[str, int]:
    """Deploy, change every template, wait for the end; return the name and the version before the change."""
    stage.nodes(NODES)
    name = stage.deploy(manifest)
    mark = stage.witness.mark()
    stage.change(name)
    stage.settle_updated(name)
    stage.witness.assert_rules(name, mark)
    return name, mark


# --- pods --------------------------------------------------------------------------------------------------------


@scenario("three pods with a surge of one are never fewer than three, and the surge goes last")
def pods_3_0_1(stage: Stage) -> None:
    name, mark = roll(stage, pods_with(3, (0, 1)))
    changes = stage.witness.unit_changes(name, "w-0-a", mark)
    assert (changes[0], changes[-1]) == ("+3s", "-3s")
    assert one_at_a_time(changes[1:-1], 0, 1, 2), changes
    assert (stage.witness.fewest(name, "w-0-a", mark), stage.witness.most(name, "w-0-a", mark)) == (3, 4)


@scenario("ten pods with a quarter and a quarter miss at most two and are at most thirteen")
def pods_percent(stage: Stage) -> None:
    name, mark = roll(stage, pods_with(10, ("25%", "25%")))
    assert stage.witness.fewest(name, "w-0-a", mark) >= 8
    assert stage.witness.most(name, "w-0-a", mark) == 13


# --- replicas of a scaling group -----------------------------------------------------------------------------------


@scenario("three group replicas with a surge of one are replaced in order, each gone before it comes back")
def group_3_3_0_1(stage: Stage) -> None:
    name, mark = roll(stage, group_with(3, 3, (0, 1)))
    assert stage.witness.unit_changes(name, "w-0-g", mark) == ["+3s", "-0", "+0", "-1", "+1", "-2", "+2", "-3s"]
    assert stage.witness.fewest(name, "w-0-g", mark) == 3
    assert gangs_of(stage, name, mark, 3) == {"w-0-g-0"}
    assert_versions_never_meet(stage, name, mark)


@scenario("four group replicas of which two may miss go two at a time")
def group_4_1_2_0(stage: Stage) -> None:
    name, mark = roll(stage, group_with(4, 1, (2, 0)))
    changes = stage.witness.unit_changes(name, "w-0-g", mark)
    assert changes[:2] == ["-0", "-1"]
    assert sorted(changes) == sorted(f"{sign}{index}" for sign in "+-" for index in range(4))
    assert stage.witness.fewest(name, "w-0-g", mark) == 2
    assert_versions_never_meet(stage, name, mark)


@scenario("group replicas beyond the minimum and surge have gangs of their own")
def group_3_2_0_1(stage: Stage) -> None:
    name, mark = roll(stage, group_with(3, 2, (0, 1)))
    assert [gangs_of(stage, name, mark, index) for index in range(4)] == [
        {"w-0"},
        {"w-0"},
        {"w-0-g-0"},
        {"w-0-g-1"},
    ]
    # The gang of the surge is removed with it; pods and gangs have separate watches, and one may lag behind the other.
    stage.witness.wait(
        lambda scene: {gang["metadata"]["name"] for gang in scene.all(PODGANGS, name)} == {"w-0", "w-0-g-0"},
        "the gang of the surge is gone",
    )


def gangs_of(stage: Stage, name: str, since: int, index: int) -> set[str]:
    """Return the gangs to which pods of a group replica have belonged."""
    return {
        pod["metadata"]["labels"][names.GANG]
        for step in stage.witness.steps(since)
        for pod in step.after.pods(name)
        if pod["metadata"]["labels"].get(names.GROUP_REPLICA_INDEX) == str(index)
    }


def assert_versions_never_meet(stage: Stage, name: str, since: int) -> None:
    """Assert that no group replica ever had pods of two templates, terminating ones included."""
    for step in stage.witness.steps(since):
        found: dict[tuple[str, str], set[str]] = {}
        for pod in step.after.all(PODS, name):
            labels = pod["metadata"]["labels"]
            place = labels.get(names.GROUP, ""), labels.get(names.GROUP_REPLICA_INDEX, "")
            found.setdefault(place, set()).add(pod["spec"]["containers"][0]["image"])
        mixed = {place: images for place, images in found.items() if place[0] and len(images) > 1}
        assert not mixed, mixed


# --- replicas of the set -------------------------------------------------------------------------------------------


@scenario("three whole replicas with a surge of one are never fewer than three")
def set_3_0_1(stage: Stage) -> None:
    name, mark = roll(stage, whole_replicas(3, (0, 1)))
    assert stage.witness.unit_changes(name, name, mark) == ["+3s", "-0", "+0", "-1", "+1", "-2", "+2", "-3s"]
    assert stage.witness.fewest(name, name, mark) == 3


@scenario("two whole replicas with a surge of one are never fewer than two")
def set_2_0_1(stage: Stage) -> None:
    name, mark = roll(stage, whole_replicas(2, (0, 1)))
    assert stage.witness.unit_changes(name, name, mark) == ["+2s", "-0", "+0", "-1", "+1", "-2s"]
    assert stage.witness.fewest(name, name, mark) == 2


@scenario("two whole replicas that may both miss go at once")
def set_2_2_0(stage: Stage) -> None:
    name, mark = roll(stage, whole_replicas(2, (2, 0)))
    changes = stage.witness.unit_changes(name, name, mark)
    assert sorted(changes[:2]) == ["-0", "-1"], changes
    assert stage.witness.fewest(name, name, mark) == 0


@scenario("two whole replicas of which one may miss go one at a time")
def set_2_1_0(stage: Stage) -> None:
    name, mark = roll(stage, whole_replicas(2, (1, 0)))
    assert stage.witness.unit_changes(name, name, mark) == ["-0", "+0", "-1", "+1"]
    assert stage.witness.fewest(name, name, mark) == 1


@scenario("five whole replicas of which two may miss with a surge of one are updated two at a time")
def set_5_2_1(stage: Stage) -> None:
    name, mark = roll(stage, whole_replicas(5, (2, 1)))
    assert stage.witness.fewest(name, name, mark) >= 3
    assert stage.witness.most(name, name, mark) <= 6
    listed = [
        len(step.after.progress(name).get("updatingReplicas") or ())
        for step in stage.witness.steps(mark)
        if step.after.has(PODCLIQUESETS, name)
    ]
    assert max(listed) >= 2


@scenario("replicas of the set are updated one after the other, each complete before the next")
def one_replica_after_the_other(stage: Stage) -> None:
    parts = (clique("a", 2, 1), clique("l", 1), group("g", ("l",), 2))
    name, mark = roll(stage, podcliqueset(*parts, replicas=3))
    for step in stage.witness.steps(mark):
        counted = step.after.counts(name)
        at_work = {
            component.split("-")[1]
            for component, count in counted.items()
            if component != name and not count.live == count.wanted == count.available
        }
        assert len(at_work) <= 1, counted


# --- interruption ------------------------------------------------------------------------------------------------


@scenario("a change during an update starts over, and the surge of the old one goes first")
def interrupted_pods(stage: Stage) -> None:
    stage.nodes(NODES)
    name = stage.deploy(pods_with(3, (0, 1)), one_a_node=True)
    mark = stage.witness.mark()
    # There is room for the surge and nothing else, so that the first original stays Pending until the check.
    taken = [pod["spec"]["nodeName"] for pod in stage.witness.scene().pods(name)]
    stage.cordon(*taken)
    stage.change(name)
    stage.witness.wait(
        lambda scene: any(not unit.outdated and not unit.surge for unit in scene.pod_units(name, "w-0-a")),
        "an original is on its way to the new template",
    )
    # The watches of two kinds are not synchronous: the status may be observed later.
    scene = stage.witness.wait(lambda scene: scene.progress(name).get("updateStartedAt"), "the update has begun")
    started = scene.progress(name)["updateStartedAt"]
    again = stage.witness.mark()
    stage.change(name)
    interrupted = stage.witness.wait(
        lambda scene: generation_seen(scene, name) and not scene.progress(name).get("updateEndedAt"),
        "the update starts over",
        since=again,
    )
    assert interrupted.progress(name)["updateStartedAt"] >= started
    stage.uncordon(*taken)
    stage.settle_updated(name)
    changes = stage.witness.unit_changes(name, "w-0-a", again)
    assert changes.index("-3s") < max(changes.index(f"+{index}") for index in range(3)), changes
    assert stage.witness.fewest(name, "w-0-a", mark) == 3
    stage.witness.assert_rules(name, mark)


@scenario("a change while whole replicas are updated with surge starts over")
def interrupted_replicas(stage: Stage) -> None:
    stage.nodes(NODES)
    name = stage.deploy(whole_replicas(2, (0, 1)))
    mark = stage.witness.mark()
    stage.change(name)
    stage.witness.wait(
        lambda scene: any(unit.surge and unit.available for unit in scene.set_units(name)), "the surge serves"
    )
    stage.change(name)
    stage.settle_updated(name)
    assert stage.witness.fewest(name, name, mark) == 2
    stage.witness.assert_rules(name, mark)


@scenario("a change while replica 1 is updated makes replica 0 outdated again")
def interrupted_set(stage: Stage) -> None:
    stage.nodes(NODES)
    parts = (clique("a", 1), clique("l", 1), group("g", ("l",), 1))
    name = stage.deploy(podcliqueset(*parts, replicas=3))
    mark = stage.witness.mark()
    stage.change(name)
    stage.witness.wait(lambda scene: selected(scene, name) == [1], "replica 1 is at work")
    again = stage.witness.mark()
    stage.change(name)
    stage.witness.wait(lambda scene: selected(scene, name) == [0], "replica 0 is at work again", since=again)
    stage.settle_updated(name)
    assert "+0" in stage.witness.unit_changes(name, "w-0-a", again)
    stage.witness.assert_rules(name, mark)


def generation_seen(scene: Scene, name: str) -> bool:
    obj = scene.get(PODCLIQUESETS, name)
    return bool(scene.status(name).get("observedGeneration") == obj["metadata"]["generation"])


# --- OnDelete ----------------------------------------------------------------------------------------------------


@scenario("OnDelete waits for deletions, scaling in takes the outdated, and another strategy rolls the rest")
def on_delete(stage: Stage) -> None:
    stage.nodes(NODES)
    name = stage.deploy(podcliqueset(clique("a", 4, 1), strategy="OnDelete"))
    stage.change(name)
    stage.witness.wait(lambda scene: scene.progress(name).get("updateEndedAt"), "the update is reported as ended")
    # The first by index: an updated one beyond the wanted number would have to make room for a new one afterwards.
    (first,) = (pod for pod in stage.witness.scene().pods(name) if pod["metadata"]["labels"][names.POD_INDEX] == "0")
    stage.kill(first)
    stage.witness.wait(lambda scene: len(scene.ready(name)) == 4 and len(scene.outdated(name)) == 3, "one is updated")
    stage.scale_clique("w-0-a", 3)
    stage.witness.wait(lambda scene: len(scene.pods(name)) == 3 and len(scene.outdated(name)) == 2, "an outdated goes")
    mark = stage.witness.mark()
    stage.switch(name, "RollingRecreate")
    scene = stage.settle_updated(name)
    assert len(stage.witness.unit_changes(name, "w-0-a", mark)) == 4
    stage.witness.assert_rules(name, mark)
    stage.switch(name, "OnDelete")
    stage.change(name)
    stage.witness.wait(lambda scene: len(scene.outdated(name)) == 3, "all are outdated")
    current = uids(scene.pods(name))
    stage.witness.never(lambda scene: uids(scene.pods(name)) != current, PATIENCE_FOR_NOTHING, "a pod was replaced")
