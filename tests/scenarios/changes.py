"""What users do to running workloads: deploy, scale, switch strategies, delete, and make mistakes."""

from functools import partial

from rollouts.cluster import Obj
from rollouts.cluster.resources import EVENTS, PODCLIQUES, PODCLIQUESETS, PODGANGS, PODS
from rollouts.engine.model import names
from rollouts.sandbox.cluster.pod_lifecycle import READY_SECONDS_ANNOTATION
from tests.scenarios.register import scenario
from tests.scenarios.scene import Scene, is_gated, is_leaving, is_placed, uids
from tests.scenarios.stage import OURS, PATIENCE_FOR_NOTHING, Stage, clique, group, podcliqueset, sample
from tests.scenarios.witness import Step

SMALL_SAMPLES = (
    "single-node-aggregated",
    "multi-node-disaggregated-surge",
    "multi-node-disaggregated-no-spare",
    "multi-node-aggregated",
    "interrupted-update",
    "ondelete-training",
)
SILENCE = 3.0  # no controller waits as long before it reacts to a write
AUTOMATIC = ("RollingRecreate", "RollingUpdate", "ReplicaRecreate")


def mixed(strategy: str, replicas: int = 2) -> Obj:
    """Return a set with every level, and budgets where the strategy has them."""
    own = (1, 1) if strategy == "RollingUpdate" else None
    parts = (clique("a", 3, 1, own), clique("l", 1), clique("k", 2, 1), group("g", ("l", "k"), 2, 1, own))
    budget = (1, 1) if strategy == "ReplicaRecreate" else None
    return podcliqueset(*parts, replicas=replicas, strategy=strategy, budget=budget)


# --- deploying ---------------------------------------------------------------------------------------------------


def deploy_sample(file: str, stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(sample(file))
    scene = stage.witness.scene()
    assert scene.status(name)["availableReplicas"] == scene.workload(name).replicas
    assert_gates_open_gang_by_gang(stage, name)
    assert_no_write_is_wasted(stage)


for file in SMALL_SAMPLES:
    scenario(f"the sample {file} is deployed gang by gang")(partial(deploy_sample, file))


def assert_gates_open_gang_by_gang(stage: Stage, name: str) -> None:
    """Assert that a gate opens only for a pod that its gang lists, and for a scaled gang only once its base stands."""
    opened = 0
    for step in stage.witness.steps():
        if (pod := _opened(step)) is not None:
            opened += 1
            labels = pod["metadata"]["labels"]
            assert pod["metadata"]["name"] in _listed(step.before, labels[names.GANG]), "it is not in its gang"
            if base := labels.get(names.BASE_GANG):
                assert _stands(step.before, base), f"the base gang {base} does not stand"
    assert opened >= len(stage.witness.scene().pods(name))


def _opened(step: Step) -> Obj | None:
    """Return the pod whose scheduling gate a write has removed."""
    event = step.event
    before = step.before.tables[PODS].get(event.obj["metadata"]["name"]) if event.resource is PODS else None
    if before is None or event.gone:
        return None
    return event.obj if is_gated(before) and not is_gated(event.obj) else None


def _listed(scene: Scene, gang: str) -> set[str]:
    groups = scene.get(PODGANGS, gang)["spec"]["podgroups"]
    return {reference["name"] for one in groups for reference in one.get("podReferences") or ()}


def _stands(scene: Scene, gang: str) -> bool:
    placed = {pod["metadata"]["name"] for pod in scene.all(PODS) if is_placed(pod) and not is_leaving(pod)}
    return all(
        sum(reference["name"] in placed for reference in one.get("podReferences") or ()) >= one["minReplicas"]
        for one in scene.get(PODGANGS, gang)["spec"]["podgroups"]
    )


def assert_no_write_is_wasted(stage: Stage) -> None:
    """Assert that the writes end once the workload is settled.

    When they end depends on the machine: on a busy one the last statuses may be late.
    """
    stage.wait_for(lambda: stage.witness.seconds_of_silence() > SILENCE, "it is at rest")


# --- scaling -----------------------------------------------------------------------------------------------------


def scale_during_update(strategy: str, stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(mixed(strategy))
    mark = stage.witness.mark()
    stage.change(name)
    stage.witness.wait(lambda scene: scene.progress(name).get("updateStartedAt"), "the update has begun")
    stage.scale(name, 3)
    stage.scale_clique("w-0-a", 5)
    stage.scale_group("w-1-g", 3)
    stage.witness.wait(lambda scene: len(scene.pod_units(name, "w-0-a")) >= 5, "the clique is scaled out")
    stage.change(name)
    stage.scale_clique("w-0-a", 2)
    stage.scale_group("w-1-g", 1)
    stage.scale(name, 2)
    scene = stage.settle(name)
    if strategy != "OnDelete":
        scene = stage.settle_updated(name)
    counted = scene.counts(name)
    assert [counted[one].live for one in (name, "w-0-a", "w-1-a", "w-0-g", "w-1-g")] == [2, 2, 3, 2, 1]
    stage.witness.assert_rules(name, mark)


for strategy in (*AUTOMATIC, "OnDelete"):
    scenario(f"scaling in and out works during {strategy}")(partial(scale_during_update, strategy))


@scenario("scaling to nothing and back leaves one service and one gang a replica")
def scale_to_zero(stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(mixed("RollingUpdate"))
    stage.scale(name, 0)
    stage.settle(name)
    stage.witness.wait(lambda scene: not any(scene.all(kind, name) for kind in OURS), "nothing is left of its replicas")
    stage.scale(name, 1)
    stage.settle(name)


# --- switching ---------------------------------------------------------------------------------------------------


def is_further(name: str, left: int, scene: Scene) -> bool:
    """Return whether fewer pods than `left` are outdated, or none."""
    return len(scene.outdated(name)) < max(left, 1)


@scenario("switching strategies mid-way keeps every budget and ends updated")
def switch_strategies(stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(mixed("RollingRecreate", replicas=3))
    mark = stage.witness.mark()
    stage.change(name)
    stage.witness.wait(lambda scene: scene.outdated(name), "all are outdated")
    for strategy in ("ReplicaRecreate", "OnDelete", "RollingUpdate"):
        left = len(stage.witness.scene().outdated(name))
        if strategy != "RollingUpdate":  # under OnDelete no more will be updated
            stage.witness.wait(partial(is_further, name, left), "some more pods are updated")
        stage.switch(name, strategy)
    stage.settle_updated(name)
    stage.witness.assert_rules(name, mark)


@scenario("switching to OnDelete stops an update, and switching back goes on")
def stop_by_on_delete(stage: Stage) -> None:
    stage.nodes(6)
    manifest = podcliqueset(clique("a", 8, 1))
    # Slow pods: what is left of the update must last until the strategy is switched.
    manifest["spec"]["template"]["cliques"][0]["annotations"] = {READY_SECONDS_ANNOTATION: "1"}
    name = stage.deploy(manifest)
    mark = stage.witness.mark()
    stage.change(name)
    stage.witness.wait(lambda scene: len(scene.outdated(name)) == 6, "two pods are updated")
    stage.switch(name, "OnDelete")
    stage.witness.wait(lambda scene: scene.progress(name).get("updateEndedAt"), "the update is reported as ended")
    scene = stage.witness.wait(lambda scene: len(scene.ready(name)) == 8, "all pods serve")
    left = uids(scene.pods(name))
    assert scene.outdated(name)
    stage.witness.never(lambda scene: uids(scene.pods(name)) != left, PATIENCE_FOR_NOTHING, "a pod was replaced")
    stage.switch(name, "RollingRecreate")
    stage.settle_updated(name)
    stage.witness.assert_rules(name, mark)


# --- broken templates ----------------------------------------------------------------------------------------------


@scenario("a template that never becomes Ready costs one pod, and the next template goes on")
def broken_template(stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(podcliqueset(clique("a", 4, 1)))
    originals = uids(stage.witness.scene().pods(name))
    mark = stage.witness.mark()
    stage.change(name, tag="broken")
    stage.witness.wait(lambda scene: len(originals & uids(scene.pods(name))) == 3, "one pod is replaced")
    stage.witness.never(
        lambda scene: len(scene.ready(name)) < 3, PATIENCE_FOR_NOTHING, "more than one pod was given up for it"
    )
    stage.change(name, tag="mended")
    stage.settle_updated(name)
    stage.witness.assert_rules(name, mark)


# --- deleting ----------------------------------------------------------------------------------------------------


@scenario("deleting a workload during its update leaves nothing, and its name can be used again")
def delete_and_return(stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(mixed("RollingUpdate"))
    stage.change(name)
    stage.witness.wait(lambda scene: scene.progress(name).get("updateStartedAt"), "the update has begun")
    stage.delete(name)
    stage.create(mixed("ReplicaRecreate", replicas=1))
    stage.settle(name)
    stage.delete(name)
    stage.wait_until_nothing_is_left(name)


@scenario("what is not ours is never touched")
def strangers(stage: Stage) -> None:
    stage.nodes(6)
    name = stage.deploy(podcliqueset(clique("a", 2, 1)))
    pod = stage.witness.scene().pods(name)[0]
    labels = {**pod["metadata"]["labels"], names.POD_INDEX: "7"}
    alone = {
        "metadata": {"name": "alone", "namespace": stage.namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "example:v1"}]},
    }
    stranger = stage.cluster.create(PODS, alone)["metadata"]["uid"]
    stage.change(name)
    stage.witness.wait(
        lambda scene: not [one for one in scene.outdated(name) if one != "alone"] and len(scene.ready(name)) >= 2,
        "our own pods are updated",
    )
    stage.delete(name)
    stage.witness.wait(
        lambda scene: not scene.all(PODCLIQUES, name) and len(scene.all(PODS, name)) == 1, "ours is gone"
    )
    assert uids(stage.witness.scene().all(PODS)) == {stranger}


# --- getting it wrong ----------------------------------------------------------------------------------------------


@scenario("an invalid workload gets a condition and an event and is otherwise left alone", needs_real=True)
def invalid(stage: Stage) -> None:
    stage.nodes(1)
    # 10 % of three pods are none, and without surge nothing could be replaced: only the controller can detect that.
    name = stage.create(podcliqueset(clique("a", 3, 1, ("10%", 0)), strategy="RollingUpdate"))
    other = stage.deploy(podcliqueset(clique("a", 1), name="valid"))
    scene = stage.witness.wait(
        lambda scene: [one for one in scene.status(name)["conditions"] if one.get("reason") == "InvalidSpec"],
        "the finding is on the set",
    )
    assert not any(scene.all(kind, name) for kind in OURS)
    stage.wait_for(lambda: "InvalidSpec" in told_of(stage, name), "an event tells it")
    assert "maxUnavailable" in told_of(stage, name)["InvalidSpec"]
    path = "/spec/template/cliques/0/updateStrategy/maxSurge"
    mended = [{"op": "replace", "path": path, "value": 1}]
    stage.patch_json(name, mended)
    stage.settle(name)
    stage.settle(other)


@scenario("another spelling of an amount replaces no pod, and another amount replaces all")
def respelled(stage: Stage) -> None:
    stage.nodes(2)
    name = stage.deploy(podcliqueset(clique("a", 2, 1)))
    request(stage, name, cpu="1", memory="1Gi")
    stage.settle_updated(name)
    stage.wait_for(lambda: "UpdateEnded" in told_of(stage, name), "the end of the update is told")
    before, events = stage.witness.scene(), count_events(stage, "UpdateStarted")
    assert len(events) == 1
    mark = stage.witness.mark()
    request(stage, name, cpu="1000m", memory="1024Mi")
    generation = stage.witness.scene().get(PODCLIQUESETS, name)["metadata"]["generation"]
    stage.witness.wait(lambda scene: scene.status(name)["observedGeneration"] == generation, "the edit is observed")
    stage.witness.never(
        lambda scene: uids(scene.pods(name)) != uids(before.pods(name)), PATIENCE_FOR_NOTHING, "a pod was replaced"
    )
    assert all(step.after.progress(name) == before.progress(name) for step in stage.witness.steps(mark))
    assert count_events(stage, "UpdateStarted") == events
    request(stage, name, cpu="1001m", memory="1024Mi")
    stage.witness.wait(lambda scene: scene.progress(name) != before.progress(name), "an update begins")
    scene = stage.settle_updated(name)
    assert not uids(scene.pods(name)) & uids(before.pods(name))
    stage.wait_for(lambda: len(count_events(stage, "UpdateStarted")) == 2, "the second update is told")


def request(stage: Stage, name: str, **amounts: str) -> None:
    """Set the requests of the pods of the first clique."""
    path = "/spec/template/cliques/0/spec/podSpec/containers/0/resources"
    stage.patch_json(name, [{"op": "add", "path": path, "value": {"requests": amounts}}])


def count_events(stage: Stage, reason: str) -> dict[str, int]:
    """Return the count of each Event with this reason, by its name."""
    events = stage.cluster.list(EVENTS, namespace=stage.namespace).items
    return {one["metadata"]["name"]: one.get("count") or 1 for one in events if one["reason"] == reason}


@scenario("an update tells its steps in events on the set")
def events_of_an_update(stage: Stage) -> None:
    stage.nodes(2)
    name = stage.deploy(podcliqueset(clique("a", 2, 1), replicas=2))
    stage.change(name)
    stage.settle_updated(name)
    wanted = {"UpdateStarted", "ReplicaSelected", "UpdateEnded"}
    stage.wait_for(lambda: wanted <= told_of(stage, name).keys(), "the events are there")


def told_of(stage: Stage, name: str) -> dict[str, str]:
    """Return the messages of the events on the set, by their reasons."""
    events = stage.cluster.list(EVENTS, namespace=stage.namespace).items
    about = [one for one in events if one["involvedObject"].get("kind") == PODCLIQUESETS.kind]
    return {one["reason"]: one["message"] for one in about if one["involvedObject"]["name"] == name}
