"""The views of one workload: detail, manifest, strategy, diagnosis and history."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from rollouts import models
from rollouts.accounts.commands import WorkloadRef
from rollouts.models import StrategyOverride
from rollouts.selectors.diagnosis import diagnosis_detail
from rollouts.selectors.strategy_detail import strategy_detail
from tests.api.read import fleet

pytestmark = [pytest.mark.database, pytest.mark.django_db]

PLACE = WorkloadRef("sandbox", "default", "chat")
CHAT = "/api/v1/workloads/sandbox/default/chat/"


@pytest.fixture
def row() -> models.Cluster:
    """The row of the cluster."""
    return fleet.make_cluster()


@pytest.fixture
def person(client: Client, django_user_model: Any, redis: Any) -> Client:
    """An account with the role viewer."""
    client.force_login(django_user_model.objects.create_superuser("ada"))
    return client


def chat(**fields: Any) -> Any:
    """Return a workload with a clique and a scaling group."""
    cliques = [fleet.clique("router", 10), fleet.clique("leader", 1)]
    return fleet.podcliqueset("chat", cliques=cliques, groups=[fleet.group("decode", ["leader"], 4)], **fields)


# ---- versions


def test_an_answer_is_repeated_by_304_until_anything_of_it_changes(person: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    for path in (CHAT, f"{CHAT}manifest/"):
        first = person.get(path)
        assert first["ETag"].startswith('"uid-chat.1.')
        again = person.get(path, headers={"If-None-Match": first["ETag"]})
        assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    before = person.get(CHAT)["ETag"]
    models.Workload.objects.update(available_replicas=1)
    after = person.get(CHAT, headers={"If-None-Match": before})
    assert after.status_code == 200
    assert json.loads(after.content)["version"] == "uid-chat.1"


# ---- what has no effect


def test_fields_without_effect_are_told_with_what_does_not_happen(person: Client, row: models.Cluster) -> None:
    manifest = chat()
    fleet.store_parts(row, manifest)
    assert json.loads(person.get(CHAT).content)["unsupported"] == []
    manifest["spec"]["paused"] = True
    manifest["metadata"]["resourceVersion"] = "1000000"
    fleet.store_sets(row, [manifest])
    (told,) = json.loads(person.get(CHAT).content)["unsupported"]
    assert (told["field"], told["code"]) == ("spec.paused", "Unsupported")
    assert "does not pause updates yet" in told["message"]


# ---- surge


def test_a_whole_replica_beyond_the_number_is_one_unit_of_surge(person: Client, row: models.Cluster) -> None:
    manifest = chat(replicas=2)
    fleet.store_parts(row, manifest, surge=True)
    pod = ("chat-0-router-00010", "chat-0-router", 1)
    assert _list_surge(person) == [pod]
    fleet.scale_set(row, manifest, 1)
    assert _list_surge(person) == [pod, ("chat-1", "chat", 14)]


def _list_surge(person: Client) -> list[tuple[str, str, int]]:
    body = json.loads(person.get(f"{CHAT}surge/").content)
    assert body["count"] == len(body["results"])
    return [(one["name"], one["component"], len(one["pods"])) for one in body["results"]]


# ---- detail and manifest


def test_the_detail_tells_components_conditions_and_progress(person: Client, row: models.Cluster) -> None:
    manifest = chat(state="needs-attention")
    manifest["status"]["updateProgress"] = {
        "updateStartedAt": fleet.CREATED,
        "updatedPodCliquesCount": 1,
        "totalPodCliquesCount": 2,
        "updatingReplicas": [{"replicaIndex": 0, "updateStartedAt": fleet.CREATED}],
    }
    fleet.store_sets(row, [manifest])
    detail = json.loads(person.get(CHAT).content)
    assert [one["name"] for one in detail["components"]] == ["router", "leader", "decode"]
    assert detail["components"][1]["group"] == "decode"
    assert detail["conditions"][1]["message"] == "No room."
    assert detail["progress"]["updating"] == [{"index": 0, "since": fleet.CREATED}]
    assert (detail["state"], detail["reason"]) == ("needs-attention", "SurgeUnschedulable")


def test_the_manifest_is_the_one_of_the_cluster_with_secrets_hidden(person: Client, row: models.Cluster) -> None:
    manifest = chat()
    manifest["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "hunter2"}
    container = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
    container["env"] = [{"name": "PASSWORD", "value": "hunter2"}]
    fleet.store_sets(row, [manifest])
    for path in (CHAT, f"{CHAT}manifest/"):
        assert b"hunter2" not in person.get(path).content
    shown = json.loads(person.get(f"{CHAT}manifest/").content)
    assert shown["metadata"]["resourceVersion"] == manifest["metadata"]["resourceVersion"]
    assert shown["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["env"][0]["name"] == "PASSWORD"


@pytest.mark.parametrize("odd", [None, "text", 3, [1], {"a": None}])
def test_an_odd_status_does_not_keep_a_workload_from_being_shown(odd: Any, person: Client, row: models.Cluster) -> None:
    manifest = chat()
    manifest["status"] |= {"conditions": odd, "updateProgress": odd}
    manifest["metadata"]["annotations"] = odd
    fleet.store_sets(row, [manifest])
    assert person.get(CHAT).status_code == 200
    assert person.get(f"{CHAT}manifest/").status_code == 200


@pytest.mark.parametrize("path", ["", "tree/", "manifest/", "diagnosis/", "rollouts/", "revisions/", "revisions/1/"])
def test_what_is_not_there_is_404_with_a_sentence(path: str, person: Client, row: models.Cluster) -> None:
    answer = person.get(f"/api/v1/workloads/sandbox/default/nobody/{path}")
    assert answer.status_code == 404
    assert "nobody" in json.loads(answer.content)["detail"]


def test_before_a_cluster_is_listed_nobody_concludes_that_something_is_missing(
    person: Client, row: models.Cluster
) -> None:
    models.Cluster.objects.update(complete=False)
    detail = json.loads(person.get(CHAT).content)["detail"]
    assert "are still being listed" in detail


# ---- strategy


def test_the_strategy_tells_each_part_with_its_source_and_what_it_comes_to(row: models.Cluster) -> None:
    manifest = chat(updateStrategy={"type": "RollingUpdate"})
    manifest["spec"]["template"]["cliques"][0]["updateStrategy"] = {"maxUnavailable": "25%", "maxSurge": "25%"}
    fleet.store_parts(row, manifest)
    override = StrategyOverride.objects.create(
        name="chat",
        components={"decode": {"maxSurge": 2}},
        reason="before the launch",
        expires_at=timezone.now() + timedelta(days=1),
    )
    detail = strategy_detail(PLACE)
    assert (detail.type.value, detail.type.source.kind) == ("RollingUpdate", "workload")
    of_set, router, decode = detail.levels
    assert (of_set.component, of_set.is_used, of_set.resolved_max_unavailable) == ("", False, 1)
    assert (router.max_unavailable.value, router.resolved_max_unavailable, router.resolved_max_surge) == ("25%", 2, 3)
    assert (decode.max_unavailable.value, decode.max_unavailable.source.kind) == (1, "default")
    assert (decode.max_surge.value, decode.max_surge.source.kind) == (2, "override")
    assert (decode.max_surge.source.override, decode.max_surge.source.reason) == (override.pk, "before the launch")
    assert detail.until == override.expires_at


def test_a_component_that_is_scaled_otherwise_is_resolved_once_more(row: models.Cluster) -> None:
    manifest = chat(updateStrategy={"type": "RollingUpdate"})
    manifest["spec"]["template"]["podCliqueScalingGroups"][0]["updateStrategy"] = {"maxUnavailable": "50%"}
    fleet.store_parts(row, manifest)
    models.ScalingGroup.objects.update(replicas=8)
    *_, decode = strategy_detail(PLACE).levels
    assert (decode.replicas, decode.resolved_max_unavailable) == (4, 2)
    assert [(one.name, one.replicas, one.max_unavailable) for one in decode.live] == [("chat-0-decode", 8, 4)]


def test_an_override_that_would_make_it_invalid_is_shown_as_ignored(row: models.Cluster) -> None:
    fleet.store_parts(row, chat(updateStrategy={"type": "RollingUpdate"}))
    StrategyOverride.objects.create(
        components={"router": {"maxUnavailable": 0}}, reason="no", expires_at=timezone.now() + timedelta(days=1)
    )
    detail = strategy_detail(PLACE)
    assert [(one.reason, "maxUnavailable" in one.finding.message) for one in detail.ignored] == [("no", True)]


# ---- diagnosis


def test_the_diagnosis_is_what_the_controller_would_wait_for(row: models.Cluster) -> None:
    fleet.store_parts(row, chat(updateStrategy={"type": "OnDelete"}), outdated=[0])
    found = diagnosis_detail(PLACE)
    waits = {wait.component: wait for wait in found.waits if wait.code == "AwaitingDeletion"}
    assert len(waits["chat-0-router"].units) == 10
    assert waits["chat-0-router"].remedies == ("DeleteOutdatedPods",)
    assert not waits["chat-0-router"].is_problem


def test_a_pod_that_finds_no_node_is_named(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    models.Pod.objects.filter(name="chat-0-router-00000").update(
        ready=False, node="", phase="Pending", message="0/4 nodes are available"
    )
    (wait,) = diagnosis_detail(PLACE).waits
    assert (wait.code, wait.units, wait.is_problem) == ("ReplicaUnschedulable", ("chat-0-router-00000",), True)
    assert "0/4 nodes are available" in wait.text


def test_nothing_is_diagnosed_of_a_workload_that_goes(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    models.Workload.objects.update(leaving=True)
    found = diagnosis_detail(PLACE)
    assert (found.waits, found.obstacle) == ((), "chat is being deleted.")


def test_the_trouble_with_a_cluster_is_the_first_thing_to_know(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    models.Cluster.objects.update(trouble_code="Unreachable", trouble="It does not answer.")
    assert diagnosis_detail(PLACE).obstacle == "It does not answer."


def test_another_operator_is_why_nothing_moves(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    models.Cluster.objects.update(other_operator="Grove's own operator runs in this cluster.")
    assert diagnosis_detail(PLACE).obstacle == "Grove's own operator runs in this cluster."


def test_an_installation_that_only_observes_says_that_it_moves_nothing(row: models.Cluster, settings: Settings) -> None:
    fleet.store_parts(row, chat())
    assert diagnosis_detail(PLACE).obstacle == ""
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, observe=True)
    assert "only observes (OBSERVE is set)" in diagnosis_detail(PLACE).obstacle


DENIED = (
    'create PodGang default/chat-0: podgangs.scheduler.grove.io "chat-0" already exists (409 AlreadyExists). '
    "Delete or rename the existing object. Grove UI tries again after growing delays."
)


def condition(kind: str, status: str, reason: str, message: str) -> Any:
    """Return a condition as the controller writes it."""
    since = fleet.CREATED
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def test_a_write_that_the_cluster_rejects_is_told_beside_the_waits(person: Client, row: models.Cluster) -> None:
    manifest = chat()
    manifest["status"]["conditions"] = [condition("WriteDenied", "True", "AlreadyExists", DENIED)]
    fleet.store_parts(row, manifest)
    models.Pod.objects.filter(name="chat-0-router-00000").update(ready=False, node="", phase="Pending")
    body = json.loads(person.get(f"{CHAT}diagnosis/").content)
    (fault,) = body["faults"]
    assert (fault["type"], fault["reason"], fault["message"]) == ("WriteDenied", "AlreadyExists", DENIED)
    assert fault["since"] == fleet.CREATED
    assert [wait["code"] for wait in body["waits"]] == ["ReplicaUnschedulable"]
    assert body["obstacle"] == ""


def test_a_rejection_that_quotes_a_secret_is_told_without_it(person: Client, row: models.Cluster) -> None:
    manifest = chat()
    container = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
    container["env"] = [{"name": "PASSWORD", "value": "correct horse"}]
    told = "create Pod default/chat-0: Invalid value: correct horse (422 Invalid)"
    manifest["status"]["conditions"] = [condition("WriteDenied", "True", "Invalid", told)]
    fleet.store_parts(row, manifest)
    for path in (CHAT, f"{CHAT}diagnosis/"):
        answer = person.get(path).content
        assert b"Invalid value: " in answer
        assert b"correct horse" not in answer


def test_a_new_set_with_an_invalid_manifest_is_left_alone_and_nothing_is_planned_for_it(row: models.Cluster) -> None:
    manifest = chat()
    invalid = condition("Valid", "False", "InvalidSpec", "spec.replicas: must be 1 or more")
    manifest["status"] = {"conditions": [invalid]}
    fleet.store_sets(row, [manifest])
    found = diagnosis_detail(PLACE)
    assert [(fault.type, fault.message) for fault in found.faults] == [("Valid", "spec.replicas: must be 1 or more")]
    assert found.obstacle == "The manifest is not valid, so the controller does nothing until you correct it."
    assert (found.steps, found.waits, found.findings) == (0, (), ())


def test_a_set_that_was_acted_on_is_planned_for_although_its_manifest_is_invalid_now(row: models.Cluster) -> None:
    manifest = chat()
    manifest["status"]["conditions"] = [condition("Valid", "False", "InvalidSpec", "spec.replicas: must be 1 or more")]
    fleet.store_sets(row, [manifest])
    found = diagnosis_detail(PLACE)
    assert [fault.type for fault in found.faults] == ["Valid"]
    assert found.obstacle == ""
    assert found.steps > 0


# ---- history


def test_rollouts_tell_revisions_and_how_long_they_moved(person: Client, row: models.Cluster) -> None:
    manifest = chat()
    fleet.store_sets(row, [manifest])
    newest = fleet.make_history(row, manifest, 3)[-1]
    models.Rollout.objects.filter(pk=newest.pk).update(
        ended=None, outcome="Stuck", observed_at=timezone.now() - timedelta(hours=1), progressing_seconds=5
    )
    body = json.loads(person.get(f"{CHAT}rollouts/").content)
    first, second, _ = body["results"]
    assert (first["from_revision"], first["to_revision"], first["outcome"]) == (2, 3, "Stuck")
    assert first["progressing_seconds"] == 5
    assert first["waiting_seconds"] >= 3600
    assert second["outcome"] == "Complete"
    under_way = json.loads(person.get(f"{CHAT}rollouts/?outcome=Complete").content)
    assert under_way["count"] == 2


@pytest.mark.parametrize(
    ("available", "updated", "told"),
    [(12, 9, 9), (12, 14, 10), (7, 9, 7)],
)
def test_no_more_pods_are_updated_than_are_desired_and_available(
    person: Client, row: models.Cluster, available: int, updated: int, told: int
) -> None:
    (made,) = fleet.make_history(row, chat(), 1)
    models.Sample.objects.create(
        rollout=made, at=made.started, desired=10, available=available, updated=updated, surge=2, floor=9
    )
    (sample,) = json.loads(person.get(f"{CHAT}rollouts/{made.pk}/").content)["samples"]
    assert (sample["available"], sample["updated"]) == (available, told)


def test_the_history_of_a_workload_that_is_gone_is_still_told(person: Client, row: models.Cluster) -> None:
    (made,) = fleet.make_history(row, chat(), 1, steps=3)
    assert json.loads(person.get(f"{CHAT}rollouts/").content)["count"] == 1
    timeline = json.loads(person.get(f"{CHAT}rollouts/{made.pk}/timeline/").content)
    assert timeline["count"] == 3
    assert json.loads(person.get(f"{CHAT}timeline/").content)["results"] == timeline["results"][::-1]


def test_a_rollout_of_another_workload_is_not_told_under_this_one(person: Client, row: models.Cluster) -> None:
    fleet.store_sets(row, [chat()])
    (made,) = fleet.make_history(row, fleet.podcliqueset("other"), 1)
    assert person.get(f"{CHAT}rollouts/{made.pk}/").status_code == 404
    assert person.get(f"{CHAT}rollouts/{made.pk}/timeline/").status_code == 404


def _revisions(row: models.Cluster, *values: str) -> None:
    manifest = chat()
    fleet.store_sets(row, [manifest])
    for number, value in enumerate(values):
        template = json.loads(json.dumps(manifest["spec"]["template"]))
        template["cliques"][0]["spec"]["podSpec"]["containers"][0]["env"] = [{"name": "KEY", "value": value}]
        models.Revision.objects.create(
            cluster="sandbox",
            namespace="default",
            name="chat",
            workload_uid="uid-chat",
            number=number + 1,
            generation_hash=f"hash-{number}",
            template=template,
            created=timezone.now(),
        )


def test_a_diff_shows_that_a_secret_changed_and_not_what_it_is(person: Client, row: models.Cluster) -> None:
    _revisions(row, "hunter1", "hunter2")
    answer = person.get(f"{CHAT}revisions/2/diff/")
    diff = json.loads(answer.content)
    assert (diff["before"], diff["after"], diff["changed_cliques"]) == (1, 2, ["router"])
    assert b"hunter" not in answer.content
    assert "-          value: ‹hidden " in diff["text"]
    assert "+          value: ‹hidden " in diff["text"]
    assert b"hunter" not in person.get(f"{CHAT}revisions/1/").content


@pytest.mark.parametrize(("path", "pair"), [("1", (3, 1)), ("3", (2, 3)), ("2", (3, 2)), ("2/?against=1", (1, 2))])
def test_without_another_one_a_revision_is_compared_with_the_newest(
    path: str, pair: tuple[int, int], person: Client, row: models.Cluster
) -> None:
    _revisions(row, "a", "b", "c")
    number, _, query = path.partition("/")
    diff = json.loads(person.get(f"{CHAT}revisions/{number}/diff/{query}").content)
    assert (diff["before"], diff["after"]) == pair


def test_the_only_revision_differs_from_nothing(person: Client, row: models.Cluster) -> None:
    _revisions(row, "a")
    diff = json.loads(person.get(f"{CHAT}revisions/1/diff/").content)
    assert (diff["text"], diff["changed_cliques"]) == ("", [])
    assert person.get(f"{CHAT}revisions/1/diff/?against=7").status_code == 404


@pytest.mark.parametrize("path", ["workloads/sandbox/default/a%00b/", "workloads/sandbox/x%00/chat/", "clusters/a%00/"])
def test_a_name_that_nothing_can_have_is_a_path_that_leads_nowhere(path: str, person: Client) -> None:
    answer = person.get(f"/api/v1/{path}")
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
