"""Pods deleted by HTTP, and the strategy edited: what bodies may say, and what is answered."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission

from rollouts.models import User
from tests.api.actors import Actor, make_actors
from tests.api.calling import Api, make_api
from tests.api.scene import Scene

pytestmark = pytest.mark.django_db


@pytest.fixture
def api(scene: Scene) -> Api:
    """An administrator, and a workload with outdated pods."""
    return make_api()


def uids(scene: Scene) -> set[str]:
    """Return the uids of the pods that stay."""
    return {pod["metadata"]["uid"] for pod in scene.pods()}


def test_outdated_pods_are_evicted_one_by_one_by_name_and_uid(api: Api, scene: Scene) -> None:
    pod = next(pod["metadata"] for pod in scene.pods() if "frontend" in pod["metadata"]["name"])
    answer = api.post("pods/delete/", {"pods": [{"name": pod["name"], "uid": pod["uid"]}, {"name": "nobody"}]})
    assert answer.status == 200, answer.body
    assert [(one["name"], one["outcome"]) for one in answer.body["pods"]] == [
        ("nobody", "NotThere"),
        (pod["name"], "Evicted"),
    ]
    assert answer.body["left"] == 0
    assert pod["uid"] not in uids(scene)
    assert answer.headers["ETag"] == f'"{answer.body["version"]}"'


def test_a_pod_that_has_taken_the_name_is_not_evicted_in_its_place(api: Api, scene: Scene) -> None:
    pod = scene.pods()[0]["metadata"]
    answer = api.post("pods/delete/", {"pods": [{"name": pod["name"], "uid": "of-a-former-one"}]})
    assert answer.body["pods"][0]["outcome"] == "Gone"
    assert pod["uid"] in uids(scene)


def test_a_repeated_eviction_is_answered_alike(api: Api, scene: Scene) -> None:
    first = api.post("pods/delete/", {"selection": {"all": True}}, Idempotency_Key="one")
    again = api.post("pods/delete/", {"selection": {"all": True}}, Idempotency_Key="one")
    assert (first.body, again.headers["Idempotent-Replayed"]) == (again.body, "true")


def test_an_answer_of_a_deletion_by_force_is_not_repeated_to_who_may_only_evict(scene: Scene) -> None:
    make_actors()
    olga, account = Api(Actor.OPERATOR.token), User.objects.get(username=Actor.OPERATOR.account)
    body = {"pods": [{"name": "nobody"}], "force": True}
    first = olga.post("pods/delete/", body, Idempotency_Key="one")
    again = olga.post("pods/delete/", body, Idempotency_Key="one")
    assert (first.status, first.body, again.headers["Idempotent-Replayed"]) == (200, again.body, "true")
    lesser = Group.objects.create(name="evicting")
    lesser.permissions.set(Permission.objects.filter(codename__in=("view_workload", "delete_outdated_pods")))
    account.groups.set([lesser])
    refused = olga.post("pods/delete/", body, Idempotency_Key="one")
    assert (refused.status, "Idempotent-Replayed" in refused.headers) == (403, False)
    assert "lacks the permission delete_any_pods" in refused.body["detail"]
    assert olga.post("pods/delete/", {**body, "force": False}).status == 200


BAD: list[tuple[Any, str]] = [
    ({}, "pods"),
    ({"pods": []}, "pods"),
    ({"pods": [{"name": "a"}], "selection": {"all": True}}, "pods"),
    ({"pods": [{"uid": "a"}]}, "pods[0].name"),
    ({"pods": [{"name": 7}]}, "pods[0].name"),
    ({"pods": [{"name": "a", "force": True}]}, "pods[0].force"),
    ({"pods": "all"}, "pods"),
    ({"pods": [{"name": "a"}] * 501}, "pods"),
    ({"selection": {}}, "selection"),
    ({"selection": {"all": False}}, "selection"),
    ({"selection": {"all": "yes"}}, "selection.all"),
    ({"selection": {"replica": "0"}}, "selection.replica"),
    ({"selection": {"replica": -1}}, "selection.replica"),
    ({"selection": {"replica": True}}, "selection.replica"),
    ({"selection": {"replica": 10**30}}, "selection.replica"),
    ({"selection": {"clique": "nobody"}}, "selection.clique"),
    ({"selection": {"nodes": "a"}}, "selection.nodes"),
    ({"selection": {"all": True}, "force": "yes"}, "force"),
    ([], ""),
    ("all", ""),
    (None, ""),
    (7, ""),
]


@pytest.mark.parametrize(("body", "field"), BAD)
def test_a_body_that_says_something_else_deletes_nothing(api: Api, scene: Scene, body: Any, field: str) -> None:
    before = uids(scene)
    answer = api.post("pods/delete/", b"null" if body is None else body)
    assert 400 <= answer.status < 500, answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert any(one.startswith(field) for one in answer.fields), answer.body
    assert uids(scene) == before


# ---- the strategy


def test_the_strategy_is_edited_and_read_at_one_address(api: Api, scene: Scene) -> None:
    seen = api.call("GET", "strategy/")
    assert seen.status == 200, seen.body
    body = {"components": {"frontend": {"maxSurge": 1, "maxUnavailable": "25%"}, "decode": None}}
    answer = api.call("PATCH", "strategy/", body, If_Match=seen.headers["ETag"])
    assert answer.status == 200, answer.body
    assert [one["code"] for one in answer.body["warnings"]] == ["BudgetUnused"]
    clique = scene.stored()["spec"]["template"]["cliques"][0]
    assert clique["updateStrategy"] == {"maxSurge": 1, "maxUnavailable": "25%"}
    assert api.call("PATCH", "strategy/", body, If_Match=seen.headers["ETag"]).status == 412
    back = api.call("PATCH", "strategy/", {"components": {"frontend": None}}, If_Match=answer.headers["ETag"])
    assert back.status == 200
    assert "updateStrategy" not in scene.stored()["spec"]["template"]["cliques"][0]


BAD_STRATEGIES: list[tuple[Any, str]] = [
    ({"type": "Quickly"}, "type"),
    ({"type": 7}, "type"),
    ({"maxSurge": "many"}, "spec.updateStrategy.rollingUpdate.maxSurge"),
    ({"maxSurge": 1.5}, "maxSurge"),
    ({"maxSurge": True}, "maxSurge"),
    ({"maxSurge": -1}, "spec.updateStrategy.rollingUpdate.maxSurge"),
    ({"maxSurge": 10**12}, "spec.updateStrategy.rollingUpdate.maxSurge"),
    ({"components": []}, "components"),
    ({"components": {"frontend": 7}}, "components.frontend"),
    ({"components": {"frontend": {"maxsurge": 1}}}, "components.frontend.maxsurge"),
    ({"components": {"frontend": {"maxUnavailable": 0}}}, "spec.template.cliques[0].updateStrategy"),
    ({"components": {"nobody": {}}}, "components.nobody"),
    ({"components": {"leader": {"maxSurge": 1}}}, "spec.template.cliques[1].updateStrategy"),
    ({"strategy": "OnDelete"}, "strategy"),
]


@pytest.mark.parametrize(("body", "field"), BAD_STRATEGIES)
def test_a_strategy_that_breaks_a_rule_changes_nothing(api: Api, scene: Scene, body: Any, field: str) -> None:
    before = scene.stored()
    answer = api.call("PATCH", "strategy/", body)
    assert answer.status == 422, answer.body
    assert field in answer.fields, answer.body
    assert scene.stored() == before
