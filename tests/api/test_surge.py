"""The surge of a workload by HTTP: what is listed is what the controller has created, and only that is deleted."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from rollouts.engine.tree import surge
from rollouts.models import AuditEntry, Workload
from tests.api.calling import Answer, Api, make_api
from tests.api.scene import NAME, Scene

pytestmark = pytest.mark.django_db

BUDGET = {"maxUnavailable": 0, "maxSurge": 1}
STRATEGY = {"type": "RollingUpdate", "components": {"frontend": BUDGET, "decode": BUDGET}}
BROKEN = {"images": [{"clique": name, "image": "example:broken"} for name in ("frontend", "leader")]}


@pytest.fixture
def api(scene: Scene) -> Api:
    """An administrator, and a workload with surge at two levels that never becomes Ready."""
    api = make_api()
    assert api.call("PATCH", "strategy/", STRATEGY).status == 200
    assert api.post("images/", BROKEN).status == 200
    scene.run_until(lambda: [has_nodes(unit) for unit in units(api)] == [True, True])
    return api


def has_nodes(unit: dict[str, Any]) -> bool:
    """Say whether a unit has pods, each of them on a node."""
    return bool(unit["pods"]) and all(pod["node"] for pod in unit["pods"])


def on_record() -> list[str]:
    """Return the results of the recorded deletions."""
    return [entry.result for entry in AuditEntry.objects.filter(command="delete_any_pods").order_by("id")]


def units(api: Api) -> list[dict[str, Any]]:
    """Return the listed surge."""
    answer = api.call("GET", "surge/")
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.body["results"]
    return found


def named(*listed: dict[str, Any]) -> dict[str, Any]:
    """Return the body that names units as they were listed."""
    return {"units": [{"name": unit["name"], "mark": unit["mark"]} for unit in listed]}


def outcomes(answer: Answer) -> dict[str, str]:
    """Return what became of each pod."""
    assert answer.status == 200, answer.body
    return {one["name"]: one["outcome"] for one in answer.body["pods"]}


def pods_in(*listed: dict[str, Any]) -> set[str]:
    """Return the names of the pods of units."""
    return {pod["name"] for unit in listed for pod in unit["pods"]}


def uids(scene: Scene) -> set[str]:
    """Return the uids of the pods that stay."""
    return {pod["metadata"]["uid"] for pod in scene.pods()}


# ---- what is listed


def test_surge_is_listed_with_its_pods_at_every_level(api: Api, scene: Scene) -> None:
    answer = api.call("GET", "surge/")
    listed = {unit["component"]: unit for unit in answer.body["results"]}
    assert listed.keys() == {f"{NAME}-0-frontend", f"{NAME}-0-decode"}
    pod, part = listed[f"{NAME}-0-frontend"], listed[f"{NAME}-0-decode"]
    assert [one["name"] for one in pod["pods"]] == [pod["name"]]
    assert part["name"].startswith(f"{NAME}-0-decode-")
    known = {one["metadata"]["name"]: one for one in scene.pods()}
    for one in (*pod["pods"], *part["pods"]):
        real = known[one["name"]]
        assert one == {
            "name": real["metadata"]["name"],
            "uid": real["metadata"]["uid"],
            "node": real["spec"]["nodeName"],
            "available": False,
        }
    assert (answer.body["count"], answer.body["next"], answer.body["findings"]) == (2, None, [])
    assert on_record() == []


def test_as_long_as_nothing_has_changed_the_list_is_answered_by_304(api: Api, scene: Scene) -> None:
    first = api.call("GET", "surge/")
    assert api.call("GET", "surge/", If_None_Match=first.headers["ETag"]).status == 304
    api.post("surge/delete/", named(first.body["results"][0]), If_Match=first.headers["ETag"])
    assert api.call("GET", "surge/", If_None_Match=first.headers["ETag"]).status == 200


def test_more_surge_costs_no_more_queries(api: Api, scene: Scene) -> None:
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            assert units(api)
        assert len(captured) == 9, "\n".join(query["sql"][:200] for query in captured)
        scene.add_surge()


def test_of_a_manifest_that_cannot_be_read_it_is_told_why_nothing_is_listed(api: Api) -> None:
    row = Workload.objects.get(name=NAME)
    row.manifest["spec"]["template"]["cliques"] = []
    row.save()
    answer = api.call("GET", "surge/")
    assert (answer.status, answer.body["results"]) == (200, []), answer.body
    assert answer.body["findings"][0]["field"] == "spec.template.cliques"


def test_the_list_takes_no_parameters(api: Api) -> None:
    answer = api.call("GET", "surge/?component=frontend")
    assert (answer.status, answer.fields) == (400, ["component"])


# ---- what is deleted


def test_units_that_are_named_go_with_their_pods_and_are_on_record(api: Api, scene: Scene) -> None:
    seen = api.call("GET", "surge/")
    both = seen.body["results"]
    before = uids(scene)
    tried = api.post("surge/delete/?dry_run=true", named(*both))
    assert (set(outcomes(tried).values()), tried.body["dry_run"]) == ({"Deleted"}, True)
    assert (uids(scene), on_record()) == (before, [])
    answer = api.post("surge/delete/", named(*both), If_Match=seen.headers["ETag"])
    assert outcomes(answer) == dict.fromkeys(pods_in(*both), "Deleted")
    assert answer.body["left"] == 0
    assert answer.headers["ETag"] == f'"{answer.body["version"]}"'
    assert units(api) == []
    assert uids(scene).isdisjoint(
        pod["uid"] for unit in both if unit["component"].endswith("frontend") for pod in unit["pods"]
    )
    entries = AuditEntry.objects.filter(request_id=answer.body["request_id"]).order_by("id")
    assert [(entry.command, entry.result) for entry in entries] == [
        ("delete_any_pods", "Begun"),
        ("delete_any_pods", "Done"),
    ]
    after: Any = entries[1].after
    assert set(after["surge"]) == {unit["name"] for unit in both}


def test_a_unit_with_another_mark_is_safe_and_said_to_be_gone(api: Api, scene: Scene) -> None:
    first, second = units(api)
    answer = api.post("surge/delete/", {"units": [*named(first)["units"], {"name": second["name"], "mark": "other"}]})
    assert outcomes(answer) == {**dict.fromkeys(pods_in(first), "Deleted"), second["name"]: "Gone"}
    assert units(api) == [second]


def test_where_no_unit_is_there_any_more_nothing_is_deleted(api: Api, scene: Scene) -> None:
    before = uids(scene)
    within = next(
        pod["metadata"]["name"] for pod in scene.pods() if pod["metadata"]["name"] not in pods_in(*units(api))
    )
    answer = api.post("surge/delete/", {"units": [{"name": within, "mark": units(api)[0]["mark"]}]})
    assert (answer.status, uids(scene)) == (409, before)
    assert "surge no longer exists" in answer.body["detail"]
    assert on_record() == ["Refused"]


def test_a_repeated_deletion_is_answered_alike_and_another_state_refuses_it(api: Api) -> None:
    (first, second) = units(api)
    done = api.post("surge/delete/", named(first), Idempotency_Key="one")
    again = api.post("surge/delete/", named(first), Idempotency_Key="one")
    assert outcomes(done)
    assert (done.body, again.headers["Idempotent-Replayed"]) == (again.body, "true")
    assert api.post("surge/delete/", named(second), If_Match='"another.1"').status == 412
    assert units(api) == [second]


def test_of_a_unit_without_pods_it_is_told_what_became_of_itself(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = next(unit for unit in units(api) if unit["component"].endswith("decode"))
    monkeypatch.setattr(surge, "_pods", lambda _: ())
    assert outcomes(api.post("surge/delete/", named(unit))) == {unit["name"]: "Deleted"}


BAD: list[tuple[Any, str]] = [
    ({}, "units"),
    ({"units": []}, "units"),
    ({"units": "all"}, "units"),
    ({"units": ["chat-1"]}, "units[0]"),
    ({"units": [{"name": "chat-1"}]}, "units[0].mark"),
    ({"units": [{"mark": "a"}]}, "units[0].name"),
    ({"units": [{"name": "chat-1", "mark": ""}]}, "units[0].mark"),
    ({"units": [{"name": "chat-1", "mark": 7}]}, "units[0].mark"),
    ({"units": [{"name": "x" * 254, "mark": "a"}]}, "units[0].name"),
    ({"units": [{"name": "chat-1", "mark": "a", "uid": "b"}]}, "units[0].uid"),
    ({"units": [{"name": "chat-1", "mark": "a"}] * 501}, "units"),
    ({"units": [{"name": "chat-1", "mark": "a"}], "force": True}, "force"),
    ({"pods": [{"name": "a"}]}, "pods"),
    ([], ""),
    ("all", ""),
]


@pytest.mark.parametrize(("body", "field"), BAD)
def test_a_body_that_says_something_else_deletes_nothing(scene: Scene, body: Any, field: str) -> None:
    before = uids(scene)
    answer = make_api().post("surge/delete/", body)
    assert answer.status == 422, answer.body
    assert any(one.startswith(field) for one in answer.fields), answer.body
    assert uids(scene) == before
    assert not AuditEntry.objects.exists()
