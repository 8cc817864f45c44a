"""Pods that were deleted and do not go, let go of by HTTP: they leave the record of the cluster, and no others."""

from typing import Any

import pytest

from rollouts.cluster import Obj
from rollouts.models import AuditEntry
from tests.api.calling import Api, make_api
from tests.api.scene import Scene

pytestmark = pytest.mark.django_db


@pytest.fixture
def api(scene: Scene) -> Api:
    """An administrator, and a workload with pods."""
    return make_api()


def is_there(scene: Scene, pod: Obj) -> bool:
    """Say whether the cluster knows a pod, be it on its way out."""
    return pod["metadata"]["uid"] in {one["metadata"]["uid"] for one in (*scene.pods(), *scene.lost_pods())}


def named(pod: Obj) -> dict[str, str]:
    """Return a pod as bodies name it."""
    return {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}


def test_a_pod_that_does_not_go_is_let_go_and_one_that_nobody_deleted_stays(api: Api, scene: Scene) -> None:
    lost = scene.lose_pod()
    stays = scene.pods()[-1]
    body = {"pods": [named(lost), named(stays), {"name": "nobody"}, {**named(lost), "name": "other"}]}
    tried = api.post("pods/let-go/?dry_run=true", body)
    assert (tried.status, tried.body["dry_run"], is_there(scene, lost)) == (200, True, True), tried.body
    assert not AuditEntry.objects.exists()
    answer = api.post("pods/let-go/", body, If_Match=tried.headers["ETag"])
    assert answer.status == 200, answer.body
    assert {one["name"]: one["outcome"] for one in answer.body["pods"]} == {
        lost["metadata"]["name"]: "Deleted",
        stays["metadata"]["name"]: "Refused",
        "nobody": "Gone",
        "other": "Gone",
    }
    assert (is_there(scene, lost), is_there(scene, stays)) == (False, True)
    assert answer.headers["ETag"] == f'"{answer.body["version"]}"'
    entries = AuditEntry.objects.filter(request_id=answer.body["request_id"]).order_by("id")
    assert [(entry.command, entry.result, entry.via) for entry in entries] == [
        ("delete_any_pods", "Begun", "api"),
        ("delete_any_pods", "Done", "api"),
    ]
    after: Any = entries[1].after
    assert {one["name"] for one in after["pods"]} == {one["name"] for one in answer.body["pods"]}


def test_a_pod_that_has_taken_the_name_is_not_let_go_in_its_place(api: Api, scene: Scene) -> None:
    lost = scene.lose_pod()
    answer = api.post("pods/let-go/", {"pods": [{**named(lost), "uid": "of-a-former-one"}]})
    assert (answer.body["pods"][0]["outcome"], is_there(scene, lost)) == ("Gone", True)


def test_a_pod_is_let_go_once_however_often_it_is_asked_for(api: Api, scene: Scene) -> None:
    body = {"pods": [named(scene.lose_pod())]}
    first = api.post("pods/let-go/", body, Idempotency_Key="one")
    again = api.post("pods/let-go/", body, Idempotency_Key="one")
    assert first.body["pods"][0]["outcome"] == "Deleted"
    assert (first.body, again.headers["Idempotent-Replayed"]) == (again.body, "true")
    assert api.post("pods/let-go/", body).body["pods"][0]["outcome"] == "Gone"


def test_another_state_than_the_one_that_was_seen_lets_nothing_go(api: Api, scene: Scene) -> None:
    lost = scene.lose_pod()
    answer = api.post("pods/let-go/", {"pods": [named(lost)]}, If_Match='"another.1"')
    assert (answer.status, is_there(scene, lost)) == (412, True)


BAD_TO_LET_GO: list[tuple[Any, str]] = [
    ({}, "pods"),
    ({"pods": []}, "pods"),
    ({"pods": "all"}, "pods"),
    ({"pods": None}, "pods"),
    ({"pods": [{}]}, "pods[0].name"),
    ({"pods": [{"name": ""}]}, "pods[0].name"),
    ({"pods": [{"name": 7}]}, "pods[0].name"),
    ({"pods": [{"name": "a", "uid": 7}]}, "pods[0].uid"),
    ({"pods": [{"name": "a", "mark": "b"}]}, "pods[0].mark"),
    ({"pods": [{"name": "a"}] * 501}, "pods"),
    ({"pods": [{"name": "a"}], "force": True}, "force"),
    ({"selection": {"all": True}}, "selection"),
    ([], ""),
    (7, ""),
]


@pytest.mark.parametrize(("body", "field"), BAD_TO_LET_GO)
def test_a_body_that_says_something_else_lets_nothing_go(api: Api, body: Any, field: str) -> None:
    answer = api.post("pods/let-go/", body)
    assert answer.status == 422, answer.body
    assert any(one.startswith(field) for one in answer.fields), answer.body
    assert not AuditEntry.objects.exists()
