"""What is no part of a pod's template follows its edits too: priority of gangs, annotations, autoscaling settings."""

from dataclasses import replace
from typing import Any

import pytest

from rollouts.engine.model.actions import Create, Kind, Patch, WriteStatus
from rollouts.engine.model.names import SCHEDULER
from rollouts.engine.model.workload import CliqueTemplate, GroupTemplate, Strategy, Workload
from rollouts.engine.simulation.cluster import ClusterBehaviour
from tests.engine.simulated import QUICK, Cluster, clique, conditions, group, settled, workload

PARTS = (clique("a", 2, 1), clique("l", 1), group("g", ("l",), 3, 2))


def patches(cluster: Cluster, kind: Kind) -> list[Patch]:
    return [action for action in cluster.actions if isinstance(action, Patch) and action.kind is kind]


def test_the_priority_class_of_gangs_follows_the_set() -> None:
    cluster = settled(workload(*PARTS, strategy=Strategy.ON_DELETE)).edit(priority_class="urgent").settle()
    assert {gang.priority_class for gang in cluster.world.observed().gangs} == {"urgent"}
    cluster.edit(priority_class="").settle()
    assert {gang.priority_class for gang in cluster.world.observed().gangs} == {""}
    assert {str(patch.patch) for patch in patches(cluster, Kind.GANG)} == {
        "{'spec': {'priorityClassName': 'urgent'}}",
        "{'spec': {'priorityClassName': None}}",
    }


def annotated(start: Workload, annotations: dict[str, str]) -> dict[str, Any]:
    return {"groups": tuple(replace(one, annotations=annotations) for one in start.groups)}


def test_annotations_of_a_scaling_group_follow_its_template() -> None:
    start = workload(*PARTS)
    cluster = settled(replace(start, **annotated(start, {"team": "red", "tier": "1"})))
    cluster.edit(**annotated(start, {"team": "blue"})).settle()
    (patch,) = patches(cluster, Kind.GROUP)
    told = patch.patch["metadata"]["annotations"]
    assert {name: told[name] for name in ("team", "tier")} == {"team": "blue", "tier": None}
    assert told["grove.io/template-keys"].startswith("annotations.team,settings=")
    assert "spec" not in patch.patch
    cluster.edit(**annotated(start, {})).settle()
    told = patches(cluster, Kind.GROUP)[-1].patch["metadata"]["annotations"]
    assert told == {"team": None, "grove.io/template-keys": None}
    assert not cluster.deleted()


def test_a_scaling_group_without_annotations_is_not_written_for_them() -> None:
    cluster = settled(workload(*PARTS)).edit().settle()
    assert not patches(cluster, Kind.GROUP)


def test_replicas_and_annotations_of_a_scaling_group_change_in_one_write() -> None:
    start = workload(*PARTS)
    groups = tuple(replace(one, replicas=2, annotations={"team": "red"}) for one in start.groups)
    cluster = settled(start).edit(groups=groups).settle()
    (patch,) = patches(cluster, Kind.GROUP)
    assert patch.patch["spec"] == {"replicas": 2}
    assert {"team", "grove.io/template-replicas"} <= {*patch.patch["metadata"]["annotations"]}


def scaling(template: CliqueTemplate | GroupTemplate, most: int | None) -> CliqueTemplate:
    assert isinstance(template, CliqueTemplate)
    return replace(template, auto_scaling=None if most is None else {"minReplicas": 1, "maxReplicas": most})


@pytest.mark.parametrize("strategy", list(Strategy))
def test_autoscaling_settings_of_a_podclique_follow_its_template_without_an_update(strategy: Strategy) -> None:
    cluster = settled(workload(clique("a", 2, 1), clique("b", 1), replicas=2, strategy=strategy, budget=(1, 0)))
    plain = cluster.workload.cliques
    for most in (4, 5, None):
        cluster.edit(cliques=(scaling(plain[0], most), plain[1])).settle()
        told = [patch for patch in patches(cluster, Kind.CLIQUE) if patch.name == "w-1-a"][-1]
        assert told.patch["spec"]["autoScalingConfig"] == cluster.workload.cliques[0].auto_scaling
        assert told.replaced_fields == (() if most is None else ("spec.autoScalingConfig",))
    assert {patch.name for patch in patches(cluster, Kind.CLIQUE)} == {"w-0-a", "w-1-a"}
    assert not cluster.deleted()
    assert "updateProgress" not in cluster.status


def test_autoscaling_settings_and_a_new_template_come_in_one_write() -> None:
    cluster = settled(workload(clique("a", 2, 1)))
    cluster.edit(cliques=(scaling(cluster.workload.cliques[0], 4),)).update().settle()
    (patch,) = patches(cluster, Kind.CLIQUE)
    assert {*patch.patch["spec"]} == {"podSpec", "autoScalingConfig"}
    assert patch.replaced_fields == ("spec.podSpec", "spec.autoScalingConfig")


def test_a_gang_says_who_places_its_pods() -> None:
    def named(scheduler: str) -> set[str]:
        parts = [replace(clique("a", 1), pod_spec={**clique("a", 1).pod_spec, "schedulerName": scheduler})]
        cluster = Cluster(workload(*parts))
        cluster.settle()
        made = [one.manifest for one in cluster.actions if isinstance(one, Create) and one.kind is Kind.GANG]
        return {one["metadata"]["labels"]["grove.io/scheduler-name"] for one in made}

    assert named("kai-scheduler") == {"kai-scheduler"}
    assert named("") == {"default-scheduler"}


def test_a_gang_of_an_earlier_version_gets_the_name_of_its_scheduler() -> None:
    cluster = settled(workload(*PARTS, replicas=2))
    assert not cluster.plan().actions
    nameless = {"metadata": {"labels": {SCHEDULER: ""}}}
    gangs = cluster.world.observed().gangs
    cluster.world.apply([Patch(Kind.GANG, one.name, one.uid, one.resource_version, nameless) for one in gangs])
    assert {gang.scheduler for gang in cluster.world.observed().gangs} == {""}
    cluster.settle()
    assert {gang.scheduler for gang in cluster.world.observed().gangs} == {"default-scheduler"}
    assert {patch.name for patch in patches(cluster, Kind.GANG)} == {gang.name for gang in gangs}
    assert {str(patch.patch) for patch in patches(cluster, Kind.GANG)} == {
        "{'metadata': {'labels': {'grove.io/scheduler-name': 'default-scheduler'}}}"
    }
    assert not cluster.deleted()


def test_scheduler_and_priority_class_of_a_gang_change_in_one_write() -> None:
    cluster = settled(workload(clique("a", 1), strategy=Strategy.ON_DELETE))
    (plain,) = cluster.workload.cliques
    scheduled = replace(plain, pod_spec={**plain.pod_spec, "schedulerName": "kai-scheduler"})
    cluster.edit(cliques=(scheduled,), priority_class="urgent").settle()
    (patch,) = patches(cluster, Kind.GANG)
    assert patch.patch == {
        "metadata": {"labels": {SCHEDULER: "kai-scheduler"}},
        "spec": {"priorityClassName": "urgent"},
    }


def test_a_gang_tells_how_far_it_is_from_the_beginning() -> None:
    cluster = Cluster(workload(*PARTS), QUICK)
    seen: list[tuple[str, str, str]] = []
    for _ in cluster.passes():
        for gang in cluster.world.observed().gangs:
            if gang.name == "w-0" and gang.status:
                state = (gang.status["phase"], *conditions(gang.status)["Initialized"])
                seen += [state] if state not in seen else []
    created = ("True", "PodGangPodsCreated")
    assert seen == [("Pending", *created), ("Starting", *created), ("Running", *created)]


def test_a_gang_whose_pods_are_not_all_created_says_so() -> None:
    cluster = Cluster(workload(clique("a", 3, 1)))
    cluster.run_until(lambda cluster: len(cluster.live_pods()) == 3)
    for pod in cluster.live_pods()[1:]:
        cluster.world.remove(pod.name)
    for _ in range(2):
        planned = cluster.plan()
        cluster.carry_out([one for one in planned.actions if not (isinstance(one, Create) and one.kind is Kind.POD)])
    (gang,) = cluster.world.observed().gangs
    assert conditions(gang.status)["Initialized"] == ("False", "PodGangPodsCreationPending")


def test_a_gang_that_was_created_whole_stays_initialized_while_its_pods_are_replaced() -> None:
    cluster = settled(workload(*PARTS)).update()
    seen = set()
    for _ in cluster.passes():
        for gang in cluster.world.observed().gangs:
            if gang.status:
                seen.add((gang.status["phase"], conditions(gang.status)["Initialized"][0]))
    assert {initialized for _, initialized in seen} == {"True"}
    assert {phase for phase, _ in seen} >= {"Pending", "Starting", "Running"}


REPORTED: list[tuple[str, dict[str, Any]]] = [
    ("Scheduled", {}),
    ("Ready", {}),
    ("Unhealthy", {}),
    ("DisruptionTarget", {}),
    ("example.com/Packed", {}),
    ("", {"placementScore": 0.5}),
    ("", {}),  # the phase alone
]


def report(cluster: Cluster, kind: str, others: dict[str, Any]) -> Any:
    """Write what a scheduler reports into the status of the gang w-0; returns the status."""
    gang = find_gang(cluster)
    reported = {"type": kind, "status": "True", "reason": "Told", "message": "", "lastTransitionTime": "x"}
    own = [one for one in gang.status["conditions"] if one["type"] != kind]
    status = {**gang.status, **others, "phase": "Starting", "conditions": [*own, reported] if kind else own}
    cluster.world.apply([WriteStatus(Kind.GANG, gang.name, gang.uid, status)])
    return status


def find_gang(cluster: Cluster) -> Any:
    return next(one for one in cluster.world.observed().gangs if one.name == "w-0")


@pytest.mark.parametrize(("kind", "others"), REPORTED)
def test_how_far_a_gang_is_stays_what_its_scheduler_reports(kind: str, others: dict[str, Any]) -> None:
    cluster = settled(workload(*PARTS), ClusterBehaviour(ready_seconds=5.0, termination_seconds=2.0))
    told = report(cluster, kind, others)
    cluster.settle()
    noted = find_gang(cluster).status
    assert noted["phase"] == "Starting"
    assert {name: noted[name] for name in others} == others
    assert conditions(noted) == conditions(told)
    # Whatever the scheduler reports from now on, and whatever becomes of the pods, the phase is not written again.
    for _ in cluster.update().passes():
        assert find_gang(cluster).status["phase"] == "Starting"
    assert find_gang(cluster).status == noted
    status = {**noted, "phase": "Running"}
    cluster.world.apply([WriteStatus(Kind.GANG, "w-0", find_gang(cluster).uid, status)])
    for _ in cluster.update("app:v3").passes():
        assert find_gang(cluster).status == status


def test_a_scheduler_and_the_controller_do_not_take_turns() -> None:
    cluster = settled(workload(*PARTS))
    writes = 0
    for _ in range(5):
        report(cluster, "", {})
        writes += len(cluster.step().actions)
    assert writes == 1
    assert find_gang(cluster).status["conditions"][0]["message"].endswith("A scheduler reports the phase.")


def test_a_gang_from_before_the_message_told_of_the_phase_follows_its_pods() -> None:
    cluster = settled(workload(*PARTS))
    gang = find_gang(cluster)
    (told,) = gang.status["conditions"]
    status = {"phase": "Pending", "conditions": [{**told, "message": "All its pods have been created."}]}
    cluster.world.apply([WriteStatus(Kind.GANG, gang.name, gang.uid, status)])
    cluster.settle()
    assert find_gang(cluster).status == gang.status


def test_the_gang_of_an_emptied_replica_does_not_claim_to_run() -> None:
    cluster = settled(workload(*PARTS, strategy=Strategy.REPLICA_RECREATE)).update()
    cluster.run_until(lambda cluster: not cluster.live_pods() and not cluster.plan().actions)
    phases = {gang.name: gang.status["phase"] for gang in cluster.world.observed().gangs}
    assert phases["w-0"] == "Pending"
