"""Commands by HTTP: their answers, their preconditions, and that a repeated command runs once."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from rollouts.accounts.tokens import digest_of
from rollouts.cluster import ClusterClient, Unavailable
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.mirror.other_operator import GROVE_FINALIZER
from rollouts.models import ApiToken, AuditEntry, Call, NamespaceGrant, User, Workload
from tests.api.actors import Actor, make_actors
from tests.api.calling import HERE, Api, make_api
from tests.api.scene import CLUSTER, NAME, NAMESPACE, Scene

pytestmark = pytest.mark.django_db

IMAGES = {"images": [{"clique": "frontend", "image": "example:v3"}]}
IMAGE = "spec.template.cliques[0].spec.podSpec.containers[0].image"
_numbers = iter(range(10, 10_000))


@pytest.fixture
def api(scene: Scene) -> Api:
    """An administrator, and a workload."""
    return make_api()


def images() -> dict[str, Any]:
    """Return a command that has not been given yet."""
    return {"images": [{"clique": "frontend", "image": f"example:v{next(_numbers)}"}]}


def test_changing_an_image_is_answered_with_what_changed(api: Api, scene: Scene) -> None:
    wanted = images()
    before = scene.stored()
    answer = api.post("images/", wanted)
    after = scene.stored()
    assert answer.status == 200, answer.body
    (change,) = answer.body["changed"]
    containers = [obj["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"] for obj in (before, after)]
    assert change == {"field": IMAGE, "before": containers[0][0]["image"], "after": wanted["images"][0]["image"]}
    assert containers[1][0]["image"] == wanted["images"][0]["image"]
    metadata = after["metadata"]
    assert answer.body["version"] == f"{metadata['uid']}.{metadata['generation']}"
    assert answer.headers["ETag"] == f'"{answer.body["version"]}"'
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.body["request_id"] == answer.headers["X-Request-Id"]
    row = Workload.objects.get(name="chat")
    assert row.manifest["spec"] == after["spec"]


def test_the_audit_names_the_request(api: Api) -> None:
    answer = api.post("images/", images())
    entries = AuditEntry.objects.filter(request_id=answer.body["request_id"]).order_by("id")
    assert [entry.result for entry in entries] == ["Begun", "Done"]
    assert entries[0].via == "api"


def test_a_dry_run_is_answered_and_not_carried_out(api: Api, scene: Scene) -> None:
    before = scene.stored()
    answer = api.post("images/?dry_run=true", images())
    assert answer.status == 200
    assert answer.body["dry_run"] is True
    assert [one["field"] for one in answer.body["changed"]] == [IMAGE]
    assert scene.stored() == before


# ---- what a command depends on


def test_the_state_that_was_seen_is_the_condition(api: Api, scene: Scene) -> None:
    first = api.post("images/", images())
    second = api.post("images/", images(), If_Match=first.headers["ETag"])
    assert second.status == 200
    before = scene.stored()
    third = api.post("images/", images(), If_Match=first.headers["ETag"])
    assert third.status == 412
    assert third.body["type"] == "urn:grove-ui:problem:race-lost"
    # The second command is on record, so the third learns what it changed.
    assert third.body["changed"] == [IMAGE]
    assert scene.stored() == before


@pytest.mark.parametrize("tag", ["*", '"x", {etag}', "{long}"])
def test_if_match_may_name_several_states_any_or_an_answer_of_them(api: Api, tag: str) -> None:
    etag = api.post("images/", images()).headers["ETag"]
    named = tag.format(etag=etag, long=f'{etag[:-1]}.0123abcd"')
    assert api.post("images/", images(), If_Match=named).status == 200


@pytest.mark.parametrize("tag", ['"x"', "", "garbage", 'W/"a.1"'])
def test_a_state_that_never_was_is_not_the_present_one(api: Api, scene: Scene, tag: str) -> None:
    before = scene.stored()
    assert api.post("images/", images(), If_Match=tag).status == 412
    assert scene.stored() == before


# ---- the same command twice


def test_a_repeated_command_is_carried_out_once_and_answered_alike(api: Api, scene: Scene) -> None:
    wanted = {"components": ["frontend"]}
    first = api.post("restart/", wanted, Idempotency_Key="one")
    generation = scene.stored()["metadata"]["generation"]
    second = api.post("restart/", wanted, Idempotency_Key="one")
    assert (first.status, second.status) == (200, 200)
    assert first.body == second.body
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert second.headers["ETag"] == first.headers["ETag"]
    assert scene.stored()["metadata"]["generation"] == generation


def test_a_kept_answer_is_repeated_only_to_those_who_may_still_give_the_command(scene: Scene) -> None:
    make_actors()
    olga, grant = Api(Actor.OPERATOR.token), NamespaceGrant.objects.get(user__username="olga")
    wanted = {"components": ["frontend"]}
    assert olga.post("restart/", wanted, Idempotency_Key="one").status == 200
    assert olga.post("restart/", wanted, Idempotency_Key="one").headers["Idempotent-Replayed"] == "true"
    generation = scene.stored()["metadata"]["generation"]
    grant.delete()
    refused = olga.post("restart/", wanted, Idempotency_Key="one")
    assert (refused.status, "no grant for the namespace team-a" in refused.body["detail"]) == (403, True)
    assert "Idempotent-Replayed" not in refused.headers
    entry = AuditEntry.objects.latest("id")
    assert (entry.actor, entry.command, entry.namespace, entry.result) == (
        *("olga", "restart_workload", "team-a", "Refused"),
    )
    NamespaceGrant.objects.create(user=User.objects.get(username="olga"), namespace="team-a")
    assert olga.post("restart/", wanted, Idempotency_Key="one").headers["Idempotent-Replayed"] == "true"
    narrow = ApiToken.objects.create(
        user=User.objects.get(username="olga"), name="n", digest=digest_of("grove_n"), commands=["set_images"]
    )
    refused = Api("grove_n").post("restart/", wanted, Idempotency_Key="one")
    assert (refused.status, narrow.name in AuditEntry.objects.latest("id").token) == (403, True)
    assert scene.stored()["metadata"]["generation"] == generation


@pytest.mark.parametrize("change", ["body", "path", "query"])
def test_a_key_stands_for_one_command(api: Api, scene: Scene, change: str) -> None:
    wanted = images()
    assert api.post("images/", wanted, Idempotency_Key="one").status == 200
    before = scene.stored()
    paths = {"path": "restart/", "query": "images/?dry_run=true"}
    body = {"body": images(), "path": {}}.get(change, wanted)
    other = api.post(paths.get(change, "images/"), body, Idempotency_Key="one")
    assert other.status == 422
    assert other.fields == ["Idempotency-Key"]
    assert scene.stored() == before


def test_the_key_of_another_person_is_another_key(api: Api) -> None:
    wanted = images()
    api.post("images/", wanted, Idempotency_Key="one")
    other = make_api("eve").post("images/", wanted, Idempotency_Key="one")
    assert "Idempotent-Replayed" not in other.headers


def test_what_was_refused_leaves_the_key_free(api: Api) -> None:
    assert api.post("images/", {"images": [{"clique": "nobody", "image": "a"}]}, Idempotency_Key="one").status == 422
    assert api.post("images/", images(), Idempotency_Key="one").status == 200


def test_a_command_that_is_still_at_work_is_not_given_twice(api: Api, scene: Scene) -> None:
    wanted = images()
    assert api.post("images/", wanted, Idempotency_Key="one").status == 200
    before = scene.stored()
    Call.objects.update(finished=None)
    answer = api.post("images/", wanted, Idempotency_Key="one")
    assert answer.status == 409
    assert "still running" in answer.body["detail"]
    assert scene.stored() == before


def test_the_key_of_a_process_that_was_killed_is_free_after_a_while(api: Api, scene: Scene) -> None:
    wanted = images()
    api.post("images/", wanted, Idempotency_Key="one")
    Call.objects.update(finished=None, tried=timezone.now() - timedelta(minutes=3))
    again = api.post("images/", wanted, Idempotency_Key="one")
    # It had been carried out before the process was killed, so there is nothing left to do.
    assert (again.status, again.body["changed"]) == (200, [])
    assert api.post("images/", wanted, Idempotency_Key="one").headers["Idempotent-Replayed"] == "true"


def test_two_restarts_within_a_second_are_two(api: Api) -> None:
    assert api.post("restart/", {}).body["version"] != api.post("restart/", {}).body["version"]


def test_a_restart_whose_process_was_killed_is_not_done_twice(api: Api, scene: Scene) -> None:
    api.post("restart/", {}, Idempotency_Key="one")
    before = scene.stored()
    hour = timedelta(hours=1)
    Call.objects.update(finished=None, tried=timezone.now() - hour)
    again = api.post("restart/", {}, Idempotency_Key="one")
    assert (again.status, again.body["changed"]) == (200, [])
    assert scene.stored()["spec"] == before["spec"]


def test_a_restart_whose_outcome_is_not_known_is_not_done_twice(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, outages = ClusterClient.patch_json, [Unavailable("the answer was lost")]

    def lose_an_answer(self: ClusterClient, *args: Any, **kwargs: Any) -> Any:
        answer = send(self, *args, **kwargs)
        if outages:
            raise outages.pop()
        return answer

    monkeypatch.setattr(ClusterClient, "patch_json", lose_an_answer)
    lost = api.post("restart/", {}, Idempotency_Key="one")
    assert lost.status == 503
    assert "not known" in lost.body["detail"]
    before = scene.stored()
    again = api.post("restart/", {}, Idempotency_Key="one")
    assert (again.status, again.body["changed"]) == (200, [])
    assert scene.stored()["spec"] == before["spec"]
    assert [entry.result for entry in AuditEntry.objects.order_by("id")] == ["Begun", "Failed", "Done"]


def test_old_answers_are_dropped(api: Api) -> None:
    api.post("images/", images(), Idempotency_Key="one")
    Call.objects.update(started=timezone.now() - timedelta(days=2))
    api.post("images/", images(), Idempotency_Key="two")
    assert [call.key for call in Call.objects.all()] == ["two"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "é"])
def test_a_key_that_is_none_is_named(api: Api, key: str) -> None:
    answer = api.post("images/", images(), Idempotency_Key=key)
    assert (answer.status, answer.fields) == (400, ["Idempotency-Key"])


def test_a_parameter_that_nobody_knows_is_refused(api: Api, scene: Scene) -> None:
    before = scene.stored()
    answer = api.post("images/?dryrun=true", images())
    assert (answer.status, answer.fields) == (400, ["dryrun"])
    answer = api.post("images/?dry_run=perhaps", images())
    assert (answer.status, answer.fields) == (400, ["dry_run"])
    assert scene.stored() == before


def test_only_post_is_a_command(api: Api) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        assert api.call(method, f"{HERE}/images/").status == 405


# ---- by the session of a browser


def test_a_browser_that_is_signed_in_gives_commands_with_its_csrf_token(scene: Scene) -> None:
    client = Client(raise_request_exception=False, enforce_csrf_checks=True)
    user = User.objects.create_superuser("ada", password="correct horse")
    client.force_login(user)
    token = "a" * 32
    client.cookies["csrftoken"] = token
    headers = {"X-CSRFToken": token, "Idempotency-Key": "one"}
    body = json.dumps(images())
    for replayed in (None, "true"):
        answer = client.post(f"{HERE}/images/", body, "application/json", headers=headers)
        assert answer.status_code == 200, answer.content
        assert answer.headers.get("Idempotent-Replayed") == replayed
    too_large = client.post(f"{HERE}/images/", "x" * 2_000_000, "application/json", headers=headers)
    assert too_large.status_code == 413
    assert client.post(f"{HERE}/images/", "{", "application/json", headers=headers).status_code == 400


def test_a_browser_without_its_csrf_token_gives_none(scene: Scene) -> None:
    client = Client(raise_request_exception=False, enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("ada"))
    before = scene.stored()
    answer = client.post(f"{HERE}/images/", json.dumps(images()), "application/json")
    assert answer.status_code == 403
    assert scene.stored() == before


def test_a_takeover_of_a_cluster_is_bound_to_the_versions_of_its_dry_run(api: Api, scene: Scene) -> None:
    kept = {"metadata": {"finalizers": [GROVE_FINALIZER]}}
    scene.cluster.patch_merge(PODCLIQUESETS, NAME, kept, namespace=NAMESPACE)
    path = f"/api/v1/clusters/{CLUSTER}/take-over/"
    tried = api.post(f"{path}?dry_run=true", {})
    (shown,) = tried.body["workloads"]
    metadata = scene.stored()["metadata"]
    assert (shown["version"], shown["problem"]) == (f"{metadata['uid']}.{metadata['generation']}", "")
    seen = {"namespace": NAMESPACE, "name": NAME, "version": shown["version"]}
    scene.change_image("example:taken-over")
    (refused,) = api.post(path, {"workloads": [seen]}).body["workloads"]
    assert "has been changed" in refused["problem"]
    assert GROVE_FINALIZER in scene.stored()["metadata"]["finalizers"]
    (shown,) = api.post(f"{path}?dry_run=true", {}).body["workloads"]
    answer = api.post(path, {"workloads": [{**seen, "version": shown["version"]}]})
    assert [(one["workload"]["name"], one["problem"]) for one in answer.body["workloads"]] == [(NAME, "")]
    assert "finalizers" not in scene.stored()["metadata"]
