"""The list of workloads: what a line says, what the address chooses, and what it costs."""

import gzip
import re
from collections.abc import Callable

import pytest
from django.contrib.staticfiles.storage import staticfiles_storage
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from rollouts import models
from rollouts.selectors.paging import Window
from rollouts.selectors.workload_rows import WorkloadRow, workload_rows
from rollouts.selectors.workloads import WorkloadFilters, workload_list
from tests.api.read import fleet
from tests.markup import compact

pytestmark = [pytest.mark.database, pytest.mark.django_db]

FIRST_LOAD = 200_000  # bytes


def get(client: Client, address: str = "/") -> str:
    """Return a page."""
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    return compact(answer.content.decode())


def names_in(page: str) -> list[str]:
    """Return the workloads that a page lists, in its order."""
    return re.findall(r'<tr id="w-uid-([^"]+)"', page)


def line_of(name: str) -> WorkloadRow:
    """Return the line of one workload."""
    (line,) = workload_rows(workload_list(WorkloadFilters(names=(name,)), Window()).page.items)
    return line


# ---- what a line says


def test_pods_are_counted_by_template_and_availability(row: models.Cluster) -> None:
    manifest = fleet.podcliqueset("chat", cliques=[fleet.clique("main", 3)], replicas=2)
    fleet.store_parts(row, manifest, outdated=[1])
    pods = line_of("chat").pods
    assert (pods.desired, pods.available, pods.updated, pods.outdated, pods.surge) == (6, 6, 3, 3, 0)


def test_surge_is_what_is_there_beyond_what_is_wanted(row: models.Cluster) -> None:
    fleet.store_parts(row, fleet.podcliqueset("chat", cliques=[fleet.clique("main", 3)]), surge=True)
    pods = line_of("chat").pods
    assert (pods.desired, pods.available, pods.updated, pods.surge) == (3, 4, 3, 1)


def test_surge_is_a_part_of_the_bar_of_its_own(viewer: Client, row: models.Cluster) -> None:
    manifest = fleet.podcliqueset("chat", cliques=[fleet.clique("main", 3)])
    fleet.store_parts(row, manifest, outdated=[0], surge=True)
    models.Pod.objects.filter(index=0).update(template_hash=models.Clique.objects.get().template_hash)
    bar = re.findall(r'<rect class="(updated|outdated|surge)"(?: x="([^"]+)")? width="([^"]+)"', get(viewer))
    assert bar == [("updated", "", "25%"), ("outdated", "25%", "50%"), ("surge", "75%", "25%")]


def test_members_of_scaling_groups_are_wanted_as_often_as_the_group(row: models.Cluster) -> None:
    fleet.store_parts(row, fleet.big_workload(pods=40))
    assert line_of("big").pods.desired == 40


def test_templates_are_named_by_revision_the_current_one_first(row: models.Cluster) -> None:
    manifest = fleet.podcliqueset("chat", cliques=[fleet.clique("main", 2)], replicas=2)
    fleet.store_parts(row, manifest, outdated=[1])
    current, older = line_of("chat").templates
    assert (current.generation_hash, current.age, current.pods) == (
        manifest["status"]["currentGenerationHash"],
        "current",
        2,
    )
    assert (older.generation_hash, older.age, older.pods) == ("", "older", 2)


def test_a_workload_that_is_stuck_says_why_in_words_and_as_the_code(viewer: Client, row: models.Cluster) -> None:
    fleet.store_sets(row, [fleet.podcliqueset("chat", state="needs-attention")])
    page = get(viewer)
    assert "Surge cannot be scheduled" in page
    assert "SurgeUnschedulable" in page


def test_a_workload_that_rolls_says_what_it_waits_for(viewer: Client, row: models.Cluster) -> None:
    cliques = [fleet.clique("main", 2)]
    fleet.store_parts(row, fleet.podcliqueset("chat", state="progressing", cliques=cliques), outdated=[0])
    assert '<div class="sub">2 outdated pods left</div>' in get(viewer)
    waiting = {"type": "UpdateStuck", "status": "False", "reason": "WaitingForReady"}
    manifest = fleet.podcliqueset("chat", state="progressing", cliques=cliques)
    manifest["status"]["conditions"] = [*fleet.CONDITIONS["progressing"], waiting]
    fleet.store_sets(row, [manifest])
    assert '<div class="sub">Pods are not Ready yet · 2 outdated pods left</div>' in get(viewer)


# ---- what the address chooses


def test_the_most_pressing_come_first(viewer: Client, row: models.Cluster) -> None:
    fleet.store_sets(
        row, [fleet.podcliqueset(name, state=state) for name, state in (("a", "settled"), ("b", "needs-attention"))]
    )
    assert names_in(get(viewer)) == ["b", "a"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/?state=waiting", ["w-0002", "w-0006"]),
        ("/?search=w-0003", ["w-0003"]),
        ("/?namespace=team-4", ["w-0004"]),
        ("/?strategy=OnDelete&ordering=-name", ["w-0005", "w-0000"]),
        ("/?cluster=elsewhere", []),
    ],
)
def test_the_address_chooses(viewer: Client, row: models.Cluster, address: str, expected: list[str]) -> None:
    fleet.store_fleet(row, 8)
    assert names_in(get(viewer, address)) == expected


@pytest.mark.parametrize(
    "address",
    ["/?state=odd", "/?page=0", "/?page=-1", "/?page=99999999999999", "/?ordering=;drop", "/?search=%00", "/?view=x"],
)
def test_an_address_that_means_nothing_still_shows_a_page(viewer: Client, row: models.Cluster, address: str) -> None:
    fleet.store_fleet(row, 2)
    get(viewer, address)


def test_chips_count_and_lead_to_what_they_count(viewer: Client, row: models.Cluster) -> None:
    fleet.store_fleet(row, 8)
    page = get(viewer, "/?search=w-")
    chip = re.search(r'href="([^"]+)"[^>]*><b>2</b>waiting for you</a>', page)
    assert chip
    assert len(names_in(get(viewer, chip[1].replace("&amp;", "&")))) == 2


def test_what_is_searched_for_is_shown_and_never_run(viewer: Client, row: models.Cluster) -> None:
    page = get(viewer, "/?search=<script>alert(1)</script>")
    assert "<script>alert" not in page
    assert "No workloads match" in page


def test_without_workloads_the_page_says_how_to_get_one(viewer: Client, row: models.Cluster) -> None:
    assert "kubectl apply -f deploy/samples/" in get(viewer)


def test_a_cluster_that_is_out_of_reach_is_named_on_every_page(viewer: Client, row: models.Cluster) -> None:
    row.trouble_code, row.trouble = "Unreachable", "It does not answer."
    row.save()
    for address in ("/", "/nodes/", "/overrides/", "/audit/", "/help/"):
        assert "It does not answer." in get(viewer, address)


# ---- fragments


def test_the_list_alone_is_what_the_page_holds(viewer: Client, row: models.Cluster) -> None:
    fleet.store_fleet(row, 4)
    fragment = get(viewer, "/live/workloads/?state=waiting")
    assert fragment.lstrip().startswith('<section id="workloads"')
    assert names_in(fragment) == names_in(get(viewer, "/?state=waiting"))


def test_a_fragment_that_is_as_it_was_is_not_sent_again(viewer: Client, row: models.Cluster) -> None:
    fleet.store_sets(row, [fleet.podcliqueset("chat")])
    first = viewer.get("/live/clusters/")
    again = viewer.get("/live/clusters/", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_fragment_shows_what_changed_before_it_was_asked_for(viewer: Client, row: models.Cluster) -> None:
    fleet.store_sets(row, [fleet.podcliqueset("one")])
    first = viewer.get("/live/workloads/")
    fleet.store_sets(row, [fleet.podcliqueset("two")])
    second = viewer.get("/live/workloads/", headers={"If-None-Match": first["ETag"]})
    assert second.status_code == 200
    assert sorted(names_in(second.content.decode())) == ["one", "two"]


# ---- what it costs


def _count_queries(do: Callable[[], object]) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        do()
    return len(captured)


@pytest.mark.parametrize("address", ["/", "/live/workloads/", "/nodes/", "/clusters/", "/overrides/", "/audit/"])
def test_a_long_list_costs_no_more_queries_than_a_short_one(viewer: Client, row: models.Cluster, address: str) -> None:
    fleet.store_fleet(row, 10)
    fleet.store_nodes(row, 5)
    fleet.store_parts(row, fleet.big_workload("small", pods=20))
    get(viewer, address)
    few = _count_queries(lambda: get(viewer, address))
    fleet.store_fleet(row, 1000)
    fleet.store_nodes(row, 50)
    fleet.store_parts(row, fleet.big_workload(pods=200))
    get(viewer, address)
    assert _count_queries(lambda: get(viewer, address)) == few


def test_the_first_load_is_small(viewer: Client, row: models.Cluster) -> None:
    fleet.store_fleet(row, 1000)
    page = get(viewer)
    parts = {*re.findall(r'(?:href|src)="/static/([^"]+)"', page)}
    assert any(part.endswith(".css") for part in parts)
    assert any(part.startswith("live") for part in parts)
    total = len(gzip.compress(page.encode()))
    for part in parts:
        with staticfiles_storage.open(part) as file:
            total += len(gzip.compress(file.read()))
    assert total < FIRST_LOAD


# ---- problems


@pytest.mark.parametrize("state", ["settled", "progressing"])
def test_a_scale_below_the_minimum_needs_attention_also_while_an_update_is_under_way(
    viewer: Client, row: models.Cluster, state: str
) -> None:
    manifest = fleet.podcliqueset("chat", state=state)
    available = {"type": "Available", "status": "False", "reason": "ScaledBelowMinAvailable"}
    manifest["status"]["conditions"] = [*fleet.CONDITIONS[state], available]
    fleet.store_sets(row, [manifest, fleet.podcliqueset("search", state=state)])
    assert names_in(get(viewer, "/?state=needs-attention")) == ["chat"]
    assert '<span class="badge warn">Scaled below minAvailable</span>' in get(viewer)


def test_an_update_that_is_stuck_says_so_before_a_scale_below_the_minimum(viewer: Client, row: models.Cluster) -> None:
    manifest = fleet.podcliqueset("chat", state="needs-attention")
    available = {"type": "Available", "status": "False", "reason": "ScaledBelowMinAvailable"}
    manifest["status"]["conditions"] = [*fleet.CONDITIONS["needs-attention"], available]
    fleet.store_sets(row, [manifest])
    assert '<span class="badge warn">Surge cannot be scheduled</span>' in get(viewer)


@pytest.mark.parametrize("column", ["stuck_reason", "progressing_reason"])
@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("CrashLoopBackOff", "Container keeps crashing"),
        ("ImagePullBackOff", "Image cannot be pulled"),
        ("CreateContainerConfigError", "Container cannot be created"),
        ("OOMKilled", "Container ran out of memory"),
        ("TooFewAvailable", "Too few replicas are available"),
        ("WaitingForReady", "Pods do not become ready"),
    ],
)
def test_a_problem_is_counted_among_what_needs_attention_whether_an_update_is_under_way_or_not(
    viewer: Client, row: models.Cluster, column: str, reason: str, words: str
) -> None:
    for name in ("chat", "search"):
        fleet.store_parts(row, fleet.podcliqueset(name, cliques=[fleet.clique("main", 3)]))
    models.Workload.objects.filter(name="chat").update(**{column: reason})
    assert names_in(get(viewer, "/?state=needs-attention")) == ["chat"]
    assert f'<span class="badge warn">{words}</span>' in get(viewer)
