"""Workloads are found by the name of one of their pods and by the beginning of a template's hash, too."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from rollouts import models
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.selectors.paging import Window
from rollouts.selectors.workloads import WorkloadFilters, WorkloadSummary, workload_list
from tests.api.read import fleet

pytestmark = [pytest.mark.database, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _workloads(row: models.Cluster) -> None:
    """Two workloads, of which one's name begins the other's; one of their replicas is outdated."""
    for name in ("chat", "chat-0"):
        manifest = fleet.podcliqueset(name, cliques=[fleet.clique(f"main-of-{name}", 2)], replicas=2)
        fleet.store_parts(row, manifest, outdated=[1])
    fleet.store_fleet(row, 20)


def search(words: str) -> list[WorkloadSummary]:
    """Return what is found."""
    return list(workload_list(WorkloadFilters(search=words, ordering=("name",)), Window()).page.items)


def names(words: str) -> list[str]:
    """Return the names of what is found."""
    return [one.name for one in search(words)]


def a_pod(workload: str) -> models.Pod:
    """Return a pod that runs the current template."""
    pod: models.Pod = models.Pod.objects.filter(workload=workload).exclude(template_hash=fleet.OLD_HASH)[0]
    return pod


def test_by_the_name_of_a_pod() -> None:
    pod = a_pod("chat").name
    [found] = search(pod)
    assert found.name == "chat"
    assert found.found_by
    assert (found.found_by.kind, found.found_by.text) == ("pod", pod)
    assert names(pod.upper()) == ["chat"], "whoever writes it in capitals means the same"


def test_by_the_beginning_of_the_name_of_a_pod() -> None:
    assert names("chat-1-main") == ["chat"]
    assert names("chat-0-1-main") == ["chat-0"]
    assert names("main-of-chat") == [], "only from its beginning"


def test_a_pod_that_is_gone_finds_nothing() -> None:
    pod = a_pod("chat")
    models.Pod.everything.filter(pk=pod.pk).update(gone_at=1.0)
    assert names(pod.name) == []


def test_by_the_beginning_of_the_hash_of_a_template() -> None:
    template = a_pod("chat").template_hash
    [found] = search(template[:4])
    assert found.name == "chat"
    assert found.found_by
    assert (found.found_by.kind, found.found_by.text) == ("template", template)
    assert names(template[1:]) == [], "only from its beginning"
    assert names(template[:3]) == [], "three letters begin too many"


def test_by_the_hash_of_all_its_templates_of_now_and_of_once(row: models.Cluster) -> None:
    workload = models.Workload.objects.get(name="chat")
    assert workload.generation_hash == compute_generation_hash(fleet.parse(workload.manifest))
    [found] = search(workload.generation_hash[:6])
    assert (found.name, found.found_by and found.found_by.text) == ("chat", workload.generation_hash)
    models.Revision.objects.filter(workload_uid=workload.uid).delete()
    once = {"cluster": row.name, "namespace": "default", "name": "chat", "workload_uid": workload.uid}
    models.Revision.objects.create(
        **once, number=1, generation_hash="zzzzyyyyxx", template={}, created="2026-01-02T00:00Z"
    )
    [found] = search("zzzzyy")
    assert (found.name, found.found_by and found.found_by.text) == ("chat", "zzzzyyyyxx")


def test_all_words_are_met_each_in_its_way() -> None:
    pod = a_pod("chat").name
    assert names(f"default {pod}") == ["chat"]
    assert names(f"team-1 {pod}") == []


def test_what_its_names_show_is_not_said_again() -> None:
    assert {one.found_by for one in search("chat")} == {None}


@pytest.mark.parametrize("words", ["%", "chat-0_", "chat-0%", "chat-0-\\", "zzz'--", "chat-0-main￿"])
def test_what_means_something_to_a_database_means_nothing_here(words: str) -> None:
    assert names(words) == []


def test_a_search_costs_the_same_however_many_there_are(row: models.Cluster) -> None:
    pod = a_pod("chat").name
    costs = []
    for count in (20, 300):
        fleet.store_fleet(row, count)
        with CaptureQueriesContext(connection) as captured:
            assert search(pod)
        costs.append(len(captured))
    assert costs[0] == costs[1]


def test_the_pods_of_a_workload_are_looked_up_by_an_index(row: models.Cluster) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL reads a small table whole, as it should")
    with CaptureQueriesContext(connection) as captured:
        search(f"chat-1-main {a_pod('chat').template_hash[:5]}")
    statement = max((one["sql"] for one in captured if "EXISTS" in one["sql"]), key=len)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}")
        plan = "\n".join(str(line[3]) for line in cursor.fetchall())
    assert re.search(r"pod_by_workload .*name>\? AND name<\?", plan), plan
    assert re.search(r"pod_by_template .*template_hash>\? AND template_hash<\?", plan), plan
    assert re.search(r"SEARCH .* revision_by_hash|SEARCH U0 USING .*revision", plan, re.IGNORECASE), plan


def test_page_and_api_find_the_same_and_say_by_what(viewer: Client) -> None:
    pod = a_pod("chat").name
    page = viewer.get("/", {"search": pod}).content.decode()
    assert f'pod <span class="mono">{pod}</span>' in page
    told: Any = viewer.get("/api/v1/workloads/", {"search": pod}).json()["results"]
    assert [(one["name"], one["found_by"]) for one in told] == [("chat", {"kind": "pod", "text": pod})]
