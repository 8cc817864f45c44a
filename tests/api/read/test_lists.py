"""Lists: what is on them, in which order, how many, and that a long one costs no more queries than a short one."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from rollouts import models
from rollouts.models import StrategyOverride, User
from tests.api.read import fleet

pytestmark = [pytest.mark.database, pytest.mark.django_db]

WORKLOADS = "workloads/"
BIG = "workloads/sandbox/default/big/"


@pytest.fixture
def viewer(client: Client, redis: Any) -> Client:
    """An account with the role viewer."""
    user = User.objects.create_user("vera", password="correct horse battery")
    user.groups.add(_role("viewer"))
    client.force_login(user)
    return client


@pytest.fixture
def row() -> models.Cluster:
    """The row of the cluster."""
    return fleet.make_cluster()


def _role(name: str) -> Any:
    from django.contrib.auth.models import Group

    return Group.objects.get(name=name)


def get(client: Client, path: str) -> Any:
    """Return the body of an answer."""
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.content
    return json.loads(answer.content)


def names(body: Any) -> list[str]:
    """Return the names of what is on a page."""
    return [one["name"] for one in body["results"]]


# ---- how many queries


def _big(row: models.Cluster, count: int) -> None:
    fleet.store_parts(row, fleet.big_workload(pods=max(count, 20)))


def _surge(row: models.Cluster, count: int) -> None:
    manifest = fleet.big_workload(pods=max(count, 20) + 20)
    fleet.store_parts(row, manifest)
    fleet.scale_set(row, manifest, 1)  # all others are surge


def _history(row: models.Cluster, count: int) -> None:
    manifest = fleet.big_workload(pods=20)
    fleet.store_sets(row, [manifest])
    fleet.make_history(row, manifest, count, steps=1)


def _timeline(row: models.Cluster, count: int) -> None:
    manifest = fleet.big_workload(pods=20)
    fleet.store_sets(row, [manifest])
    (made,) = fleet.make_history(row, manifest, 1, steps=count)
    models.Rollout.objects.filter(pk=made.pk).update(outcome="Stuck")


LISTS: dict[str, tuple[Callable[[models.Cluster, int], None], str, int]] = {
    "workloads": (fleet.store_fleet, "workloads/?page_size=500", 7),
    "workloads by strategy": (fleet.store_fleet, "workloads/?strategy=OnDelete&page_size=500", 8),
    "workloads by everything": (
        fleet.store_fleet,
        "workloads/?state=settled&label=tier=gold&search=w&ordering=-created&namespace=team-0&cluster=sandbox",
        7,
    ),
    "tree": (_big, f"{BIG}tree/", 13),
    "diagnosis": (_big, f"{BIG}diagnosis/", 11),
    "surge": (_surge, f"{BIG}surge/", 11),
    "detail": (_big, BIG, 10),
    "nodes": (fleet.store_nodes, "clusters/sandbox/nodes/?page_size=500", 7),
    "clusters": (fleet.store_nodes, "clusters/", 8),
    "rollouts": (_history, f"{BIG}rollouts/?page_size=500", 6),
    "timeline": (_timeline, f"{BIG}rollouts/{{rollout}}/timeline/?page_size=500", 7),
    "timeline of the workload": (_timeline, f"{BIG}timeline/?page_size=500", 6),
    "revisions": (_history, f"{BIG}revisions/", 6),
}


@pytest.mark.parametrize("count", [10, 1000])
@pytest.mark.parametrize("what", LISTS)
def test_a_long_list_costs_as_many_queries_as_a_short_one(
    what: str, count: int, viewer: Client, row: models.Cluster
) -> None:
    prepare, path, queries = LISTS[what]
    prepare(row, count)
    rollout = models.Rollout.objects.order_by("id").values_list("id", flat=True).first()
    with CaptureQueriesContext(connection) as captured:
        get(viewer, path.format(rollout=rollout))
    assert len(captured) == queries, "\n".join(query["sql"][:200] for query in captured)


def test_overrides_that_hit_a_list_cost_one_query_more(viewer: Client, row: models.Cluster) -> None:
    fleet.store_fleet(row, 300)
    StrategyOverride.objects.create(
        strategy="ReplicaRecreate", reason="all", expires_at=timezone.now() + timedelta(days=1)
    )
    with CaptureQueriesContext(connection) as captured:
        body = get(viewer, "workloads/?page_size=500")
    assert len(captured) == LISTS["workloads"][2] + 1
    assert {one["strategy"]["type"] for one in body["results"]} == {"ReplicaRecreate"}


# ---- what is on it


def test_totals_count_each_state_whatever_state_was_asked_for(viewer: Client, row: models.Cluster) -> None:
    fleet.store_fleet(row, 40)
    body = get(viewer, "workloads/?state=waiting&page_size=3")
    assert body["totals"] == {"needs-attention": 10, "progressing": 10, "waiting": 10, "settled": 10}
    assert body["count"] == 10
    assert [one["state"] for one in body["results"]] == ["waiting"] * 3


@pytest.mark.parametrize(
    ("change", "state", "reason"),
    [
        ({}, "settled", "Complete"),
        ({"status": {"observedGeneration": 0}}, "progressing", "Complete"),
        ({"metadata": {"deletionTimestamp": fleet.CREATED}}, "progressing", "Complete"),
        ({"conditions": []}, "progressing", ""),
        (
            {"conditions": [{"type": "Progressing", "status": "True", "reason": "Deploying"}]},
            "progressing",
            "Deploying",
        ),
        (
            {"conditions": [{"type": "Progressing", "status": "False", "reason": "ReplicaUnschedulable"}]},
            "needs-attention",
            "ReplicaUnschedulable",
        ),
        (
            {
                "conditions": [
                    *fleet.CONDITIONS["settled"],
                    {"type": "Valid", "status": "False", "reason": "InvalidSpec"},
                ]
            },
            "needs-attention",
            "InvalidSpec",
        ),
        (
            {
                "conditions": [
                    *fleet.CONDITIONS["waiting"],
                    {"type": "WriteDenied", "status": "True", "reason": "Quota"},
                ]
            },
            "needs-attention",
            "Quota",
        ),
        ({"conditions": [{"type": "UpdateStuck", "status": "False", "reason": "NothingInTheWay"}]}, "progressing", ""),
    ],
)
def test_the_state_follows_from_what_the_controller_wrote(
    change: dict[str, Any], state: str, reason: str, viewer: Client, row: models.Cluster
) -> None:
    manifest = fleet.podcliqueset("one")
    manifest["metadata"] |= change.get("metadata", {})
    manifest["status"] |= change.get("status", {})
    if "conditions" in change:
        manifest["status"]["conditions"] = change["conditions"]
    fleet.store_sets(row, [manifest])
    (one,) = get(viewer, WORKLOADS)["results"]
    assert (one["state"], one["reason"]) == (state, reason)


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("False", "WaitingForReady", "WaitingForReady"),
        ("False", "NothingInTheWay", ""),
        ("True", "SurgeUnschedulable", ""),  # the reason says so already
    ],
)
def test_what_an_update_waits_for_is_told(
    status: str, reason: str, expected: str, viewer: Client, row: models.Cluster
) -> None:
    manifest = fleet.podcliqueset("one", state="progressing")
    told = {"type": "UpdateStuck", "status": status, "reason": reason}
    manifest["status"]["conditions"] = [*fleet.CONDITIONS["progressing"], told]
    fleet.store_sets(row, [manifest])
    (one,) = get(viewer, WORKLOADS)["results"]
    assert one["waits_for"] == expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("namespace=team-1", ["w-0001", "w-0011"]),
        ("namespace=team-1&namespace=team-2", ["w-0001", "w-0011", "w-0002", "w-0012"]),
        ("name=w-0003", ["w-0003"]),
        ("label=app=a7", ["w-0007"]),
        ("label=app=a7&label=tier=gold", []),
        ("label=app=A7", []),
        ("label=app=a", []),
        ("search=0013", ["w-0013"]),
        ("search=TEAM-4 w-0014", ["w-0014"]),
        ("search=%25", []),
        ("cluster=sandbox&name=w-0001", ["w-0001"]),
        ("cluster=elsewhere", []),
        ("strategy=OnDelete&search=w-001", ["w-0010", "w-0015"]),
        ("ordering=-name&search=w-000&page_size=2", ["w-0009", "w-0008"]),
        ("ordering=state,name&page_size=2", ["w-0003", "w-0007"]),
        ("search=", ["w-0000"]),
    ],
)
def test_filters_and_orderings(parameters: str, expected: list[str], viewer: Client, row: models.Cluster) -> None:
    fleet.store_fleet(row, 20)
    found = names(get(viewer, f"{WORKLOADS}?{parameters}"))
    assert found[: len(expected)] == expected
    assert expected or not found


def test_a_strategy_is_looked_for_as_it_is_in_force(viewer: Client, row: models.Cluster) -> None:
    fleet.store_fleet(row, 10)
    StrategyOverride.objects.create(
        name="w-0001", strategy="OnDelete", reason="x", expires_at=timezone.now() + timedelta(days=1)
    )
    StrategyOverride.objects.create(name="w-0002", strategy="OnDelete", reason="x", expires_at=timezone.now())
    body = get(viewer, "workloads/?strategy=OnDelete&ordering=name")
    assert names(body) == ["w-0000", "w-0001", "w-0005"]
    assert [bool(one["strategy"]["override"]) for one in body["results"]] == [False, True, False]


def test_pages_show_each_workload_once_whatever_the_order(viewer: Client, row: models.Cluster) -> None:
    fleet.store_fleet(row, 45)
    for ordering in ("", "created", "-state", "replicas", "namespace,-name"):
        found: list[str] = []
        path = f"workloads/?page_size=10&ordering={ordering}"
        while path:
            body = get(viewer, path)
            found += names(body)
            path = (body["next"] or "").removeprefix("http://testserver/api/v1/")
        assert len(found) == len(set(found)) == body["count"] == 45


def test_a_page_names_its_neighbours_with_the_same_filters(viewer: Client, row: models.Cluster) -> None:
    fleet.store_fleet(row, 30)
    body = get(viewer, "workloads/?page=2&page_size=10&search=w")
    assert body["next"] == "http://testserver/api/v1/workloads/?page=3&page_size=10&search=w"
    assert body["previous"] == "http://testserver/api/v1/workloads/?page=1&page_size=10&search=w"
    assert get(viewer, "workloads/?page=9")["results"] == []


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ("page=0", "page"),
        ("page=x", "page"),
        ("page=99999999999999999999", "page"),
        ("page_size=501", "page_size"),
        ("page_size=-1", "page_size"),
        ("page_size=%C2%B2", "page_size"),
        ("state=happy", "state"),
        ("strategy=Fast", "strategy"),
        ("label=tier", "label"),
        ('label=a="', "label"),
        ("ordering=uid", "ordering"),
        ("search=a%00b", "search"),
        ("namespace=%00", "namespace"),
        ("page=1&page=2", "page"),
        (f"search={'x' * 501}", "search"),
        ("colour=red", "colour"),
        ("&".join(["namespace=a"] * 51), "namespace"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(
    parameters: str, field: str, viewer: Client, row: models.Cluster
) -> None:
    answer = viewer.get(f"/api/v1/workloads/?{parameters}")
    problem = json.loads(answer.content)
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert [one["field"] for one in problem["findings"]] == [field]


def test_workloads_of_a_cluster_that_is_not_configured_stay_hidden(viewer: Client, row: models.Cluster) -> None:
    elsewhere = fleet.make_cluster("elsewhere")
    manifest = fleet.podcliqueset("hidden")
    fleet.store_sets(elsewhere, [manifest])
    fleet.make_history(elsewhere, manifest, 1)
    assert get(viewer, WORKLOADS)["count"] == 0
    for path in ("", "tree/", "manifest/", "rollouts/", "revisions/", "rollouts/1/"):
        answer = viewer.get(f"/api/v1/workloads/elsewhere/default/hidden/{path}")
        assert answer.status_code == 404
        assert "There is no cluster 'elsewhere'" in json.loads(answer.content)["detail"]


def test_nodes_show_who_runs_on_them(viewer: Client, row: models.Cluster) -> None:
    fleet.store_nodes(row, 3)
    fleet.store_parts(row, fleet.big_workload(pods=20), outdated=[0])
    (node,) = get(viewer, "clusters/sandbox/nodes/?search=node-0001")["results"]
    assert node["ready"] is True
    assert node["allocatable"]["nvidia.com/gpu"] == "8"
    (pods,) = node["pods"]
    assert (pods["workload"], pods["template_hash"], pods["pods"], pods["ready"]) == ("big", "old", 3, 3)


def test_the_cluster_is_shown_before_it_was_ever_heard_of(viewer: Client) -> None:
    (cluster,) = get(viewer, "clusters/")["results"]
    assert (cluster["name"], cluster["complete"], cluster["heard_at"]) == ("sandbox", False, None)
    assert get(viewer, "clusters/sandbox/")["workloads"]["settled"] == 0
