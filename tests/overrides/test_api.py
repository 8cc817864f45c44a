"""Overrides, the audit and the test of a connection by HTTP."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from redis import Redis

from rollouts import models
from rollouts.models import AuditEntry, StrategyOverride
from tests.admin.tables import TABLES
from tests.overrides.conftest import AddWorkload, make_caller
from tests.overrides.streams import read_text

pytestmark = [pytest.mark.database, pytest.mark.django_db]

ROOT = "/api/v1/overrides/"


def _body(**values: Any) -> dict[str, Any]:
    until = timezone.now() + timedelta(hours=1)
    common = {"namespace": "web", "strategy": {"type": "OnDelete"}, "reason": "alone", "expires_at": until.isoformat()}
    return {**common, **values}


@pytest.fixture
def ada(db: None, redis: Redis) -> Client:
    """Somebody of the role admin, in a browser."""
    client = Client()
    client.force_login(make_caller("ada", "admin").user, "rollouts.accounts.permissions.AccountBackend")  # type: ignore[arg-type]
    return client


@pytest.fixture
def send(ada: Client) -> Callable[..., Any]:
    """Send a command as JSON."""

    def sent(method: str, path: str, body: Any = None, **headers: str) -> Any:
        return ada.generic(method, path, "" if body is None else json.dumps(body), "application/json", headers=headers)

    return sent


def test_an_override_is_made_changed_and_ended(send: Callable[..., Any], add_workload: AddWorkload) -> None:
    add_workload()
    made = send("POST", ROOT, _body(strategy={"components": {"decode": {"maxSurge": "25%"}, "frontend": None}}))
    assert made.status_code == 201
    override = made.json()["override"]
    assert made["Location"] == f"{ROOT}{override['id']}/"
    assert made["ETag"] == f'"{override["version"]}"'
    # Every other command answers no-store (tests/api/test_command_answers.py).
    assert made["Cache-Control"] == "private, no-cache"
    assert (made.json()["hits"], override["author"], override["active"]) == (1, "ada", True)
    assert override["strategy"] == {"components": {"decode": {"maxSurge": "25%"}, "frontend": None}}
    one = f"{ROOT}{override['id']}/"
    seen = send("GET", one)
    assert seen.json() == override
    assert send("GET", one, **{"If-None-Match": seen["ETag"]}).status_code == 304
    changed = send("PUT", one, _body(), **{"If-Match": seen["ETag"]})
    assert (changed.status_code, changed.json()["override"]["strategy"]) == (200, {"type": "OnDelete"})
    late = send("PUT", one, _body(reason="late"), **{"If-Match": seen["ETag"]})
    assert (late.status_code, late.json()["type"]) == (412, "urn:grove-ui:problem:race-lost")
    ended = send("DELETE", one, **{"If-Match": changed["ETag"]})
    assert (ended.status_code, ended.json()["active"]) == (200, False)
    assert send("DELETE", one).status_code == 409
    assert send("PUT", one, _body()).status_code == 409


def test_the_same_key_makes_one_override(send: Callable[..., Any], add_workload: AddWorkload) -> None:
    add_workload()
    body = _body()
    first = send("POST", ROOT, body, **{"Idempotency-Key": "once"})
    again = send("POST", ROOT, body, **{"Idempotency-Key": "once"})
    assert (again.status_code, again.content, again["Idempotent-Replayed"]) == (201, first.content, "true")
    assert StrategyOverride.objects.count() == 1
    models.User.objects.get(username="ada").groups.clear()
    refused = send("POST", ROOT, body, **{"Idempotency-Key": "once"})
    assert (refused.status_code, "Idempotent-Replayed" in refused) == (403, False)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"reason": " "}, "reason"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": None}, "expires_at"),
        ({"strategy": {}}, "strategy"),
        ({"strategy": {"maxSurge": "x"}}, "strategy.maxSurge"),
        ({"strategy": {"type": "Sideways"}}, "strategy.type"),
        ({"strategy": {"components": {"encode": {"maxSurge": 1}}}}, "strategy.components.encode"),
        ({"cluster": "moon"}, "cluster"),
        ({"labels": {"team": "a b"}}, "labels"),
        ({"colour": "green"}, "colour"),
    ],
)
def test_what_is_wrong_is_a_problem_that_names_the_field(
    send: Callable[..., Any], add_workload: AddWorkload, values: dict[str, Any], field: str
) -> None:
    add_workload()
    refused = send("POST", ROOT, _body(**values))
    assert (refused.status_code, refused["Content-Type"]) == (422, "application/problem+json")
    assert [finding["field"] for finding in refused.json()["findings"]] == [field]
    assert not StrategyOverride.objects.exists()


def test_a_check_tells_what_would_be_in_force_and_changes_nothing(
    send: Callable[..., Any], add_workload: AddWorkload
) -> None:
    add_workload(edits={"spec.updateStrategy": {"type": "ReplicaRecreate"}, "spec.replicas": 10})
    found = send("POST", f"{ROOT}check/", _body(strategy={"maxUnavailable": "25%", "maxSurge": "25%"})).json()
    assert (found["acceptable"], found["total"]) == (True, 1)
    (hit,) = found["hits"]
    assert hit["changes"]
    assert hit["before"]["levels"][0] == {
        "component": "",
        "kind": "set",
        "replicas": 10,
        "max_unavailable": 1,
        "max_surge": 0,
    }
    assert (hit["after"]["levels"][0]["max_unavailable"], hit["after"]["levels"][0]["max_surge"]) == (2, 3)
    refused = send("POST", f"{ROOT}check/", _body(namespace="nowhere")).json()
    assert (refused["acceptable"], [one["code"] for one in refused["warnings"]]) == (True, ["HitsNothing"])
    assert not AuditEntry.objects.exists()


def test_overrides_are_listed_by_whom_they_name_and_whether_they_count(
    send: Callable[..., Any], add_workload: AddWorkload
) -> None:
    add_workload()
    web = send("POST", ROOT, _body()).json()["override"]["id"]
    batch = send("POST", ROOT, _body(namespace="batch")).json()["override"]["id"]
    send("DELETE", f"{ROOT}{batch}/")

    def listed(query: str) -> list[int]:
        return [one["id"] for one in send("GET", f"{ROOT}?{query}").json()["results"]]

    assert listed("") == [batch, web]
    assert listed("active=true") == [web]
    assert listed("active=false") == [batch]
    assert listed("namespace=batch") == [batch]
    assert listed("page_size=1&page=2") == [web]
    assert send("GET", f"{ROOT}?activ=true").status_code == 400
    assert send("GET", f"{ROOT}?active=perhaps").status_code == 400
    assert send("GET", f"{ROOT}9999/").status_code == 404


def test_a_workload_tells_which_overrides_are_about_it(send: Callable[..., Any], add_workload: AddWorkload) -> None:
    key = add_workload(edits={"spec.updateStrategy": {"type": "RollingUpdate"}})
    add_workload("batch", edits={"spec.updateStrategy": {"type": "ReplicaRecreate"}})
    wide = send("POST", ROOT, _body(strategy={"maxSurge": 2})).json()["override"]["id"]
    narrow = send("POST", ROOT, _body(name="chat", strategy={"components": {"decode": {"maxSurge": 2}}}))
    send("POST", ROOT, _body(namespace="elsewhere"))
    first, second = send("GET", f"/api/v1/workloads/{key}/overrides/").json()["results"]
    assert (first["override"]["id"], first["parts"]) == (narrow.json()["override"]["id"], ["decode.maxSurge"])
    assert (second["override"]["id"], second["parts"]) == (wide, [])
    assert [finding["code"] for finding in second["findings"]] == ["SetBudgetNotAllowed"]
    assert send("GET", "/api/v1/workloads/sandbox/web/nobody/overrides/").status_code == 404


def test_the_audit_is_filtered_and_joins_what_belongs_together(send: Callable[..., Any]) -> None:
    begun = AuditEntry.objects.create(actor="ada", command="set_images", result="Begun", before=1, after=2, name="chat")
    AuditEntry.objects.create(actor="ada", command="set_images", result="Done", begun=begun, name="chat")
    AuditEntry.objects.create(
        actor="olga", command="scale_workload", result="Begun", cluster="c", namespace="n", name="w"
    )

    def listed(query: str) -> list[tuple[str, str]]:
        return [(one["actor"], one["result"]) for one in send("GET", f"/api/v1/audit/?{query}").json()["results"]]

    assert listed("") == [("olga", "Begun"), ("ada", "Done")]
    assert listed("actor=ada") == listed("command=set_images") == listed("result=Done") == [("ada", "Done")]
    assert listed("cluster=c&namespace=n&name=w") == [("olga", "Begun")]
    assert listed("since=2999-01-01T00:00:00Z") == []
    assert listed("until=2999-01-01T00:00:00Z") == listed("")
    (entry,) = send("GET", "/api/v1/audit/?actor=ada").json()["results"]
    assert (entry["before"], entry["after"]) == (1, 2)
    assert [one["actor"] for one in send("GET", "/api/v1/workloads/c/n/w/audit/").json()["results"]] == ["olga"]
    ends_of_time = ("since=0001-01-01T00:00:00%2B14:00", "until=9999-12-31T23:59:59-14:00")
    for query in (
        *ends_of_time,
        *("since=yesterday", "until=2026-01-01T00:00:00", "command=fly", "result=Fine", "who=ada"),
    ):
        assert send("GET", f"/api/v1/audit/?{query}").status_code == 400


def test_an_export_holds_everything_that_matches(send: Callable[..., Any]) -> None:
    AuditEntry.objects.bulk_create(AuditEntry(actor="ada", command="sign_in", result="Done") for _ in range(2_500))
    answer = send("GET", "/api/v1/audit/export/?command=sign_in")
    lines = read_text(answer).splitlines()
    assert len(lines) == 2_501
    assert lines[0].startswith("id,at,began_at,actor,")


def test_a_cluster_that_is_away_is_told_line_by_line(send: Callable[..., Any]) -> None:
    found = send("POST", "/api/v1/clusters/sandbox/test/")
    assert found.status_code == 200
    assert found.json()["ok"] is False
    assert [line["ok"] for line in found.json()["lines"]] == [False]
    assert send("POST", "/api/v1/clusters/moon/test/").status_code == 404


@pytest.mark.parametrize(
    ("path", "table"), [(ROOT, "rollouts/strategyoverride"), ("/api/v1/audit/", "rollouts/auditentry")]
)
def test_a_list_costs_as_many_queries_at_a_thousand_rows_as_at_ten(
    send: Callable[..., Any], cluster: models.Cluster, path: str, table: str
) -> None:
    counts = []
    for number in (10, 990):
        models.User.objects.filter(username="author").delete()
        TABLES[table](cluster, number)
        with CaptureQueriesContext(connection) as queries:
            assert send("GET", f"{path}?page_size=500").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 6
