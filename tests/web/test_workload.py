"""The page of a workload: what it says without scripts, its parts, what leads on from it, and what it costs."""

import gzip
import re
from collections.abc import Callable

import pytest
from django.contrib.staticfiles.storage import staticfiles_storage
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from rollouts import models
from rollouts.accounts.commands import Command
from rollouts.models import AuditEntry
from tests.api.read import fleet
from tests.web.workload_page import CHAT, add_history, chat, get

pytestmark = pytest.mark.django_db

FIRST_LOAD = 200_000  # bytes
PARTS = ("head", "pod-grid", "now", "capacity", "timeline", "revisions", "audit")


# ---- without scripts


def test_the_page_tells_everything_without_scripts(viewer: Client, row: models.Cluster) -> None:
    manifest = chat(replicas=2, state="progressing")
    fleet.store_parts(row, manifest, outdated=[1])
    add_history(row, manifest)
    page = get(viewer)
    assert "9 of 18 pods are updated, 18 are available." in page
    assert page.count('class="cell ') >= 18
    assert "2 of 2 available · 1 updated · 18 pods, 9 outdated" in page
    assert "2 of 2 replicas available · 1 updated · 18 pods, 9 outdated" in get(viewer, f"{CHAT}?by=node")
    assert "Between 8 and 9 pods were available" in page
    assert 'id="revision-3"' in page
    assert "PodsCreated" in page


def test_a_pod_in_the_address_is_shown_in_full(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    link = re.search(r'href="(\?pod=[^"]+)"', get(viewer))
    assert link
    page = get(viewer, CHAT + link[1])
    assert '<h2 id="one-pod">Pod</h2>' in page
    assert "node-0000" in page
    assert "example:v1" in page


def test_a_pod_that_is_gone_in_the_address_is_no_error(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    assert 'id="one-pod"' not in get(viewer, f"{CHAT}?pod=chat-0-web-zzzzz")
    assert viewer.get(f"{CHAT}pod/chat-0-web-zzzzz/").status_code == 404


def test_a_workload_that_is_not_there_is_a_page_that_says_so(viewer: Client, row: models.Cluster) -> None:
    answer = viewer.get(CHAT)
    assert answer.status_code == 404
    assert b"There is no workload chat in the namespace default" in answer.content


def test_a_manifest_that_cannot_be_read_is_explained(viewer: Client, row: models.Cluster) -> None:
    manifest = chat()
    manifest["spec"]["template"] = {"cliques": "none"}
    fleet.store_sets(row, [manifest])
    page = get(viewer)
    assert "The manifest is not valid" in page
    assert "spec.template.cliques" in page


def test_fields_without_effect_are_named_on_the_page_with_what_does_not_happen(
    viewer: Client, row: models.Cluster
) -> None:
    manifest = chat()
    fleet.store_sets(row, [manifest])
    assert "no effect" not in get(viewer)
    manifest["spec"] |= {"paused": True, "revisionHistoryLimit": 3}
    manifest["metadata"]["resourceVersion"] = "1000000"
    fleet.store_sets(row, [manifest])
    page = get(viewer)
    assert "2 fields of the manifest have no effect" in page
    assert '<span class="mono">spec.paused</span> Grove UI does not pause updates yet' in page


def test_nothing_is_styled_or_scripted_inline(viewer: Client, row: models.Cluster) -> None:
    manifest = chat(replicas=2)
    fleet.store_parts(row, manifest, outdated=[0])
    add_history(row, manifest)
    page = get(viewer)
    assert " style=" not in page
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"\son[a-z]+=", page) == []


def test_what_comes_from_the_cluster_is_never_run(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    hostile = '"><script>alert(1)</script>'
    models.Pod.objects.filter(name="chat-0-web-00000").update(
        ready=False, reason=hostile, message=hostile, node=hostile
    )
    for address in (CHAT, f"{CHAT}?pod=chat-0-web-00000", f"{CHAT}parts/pod-grid/", f"{CHAT}pod/chat-0-web-00000/"):
        assert "<script>alert" not in get(viewer, address)


def test_pods_are_shown_by_node_and_stay_so_while_live(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    page = get(viewer, f"{CHAT}?by=node")
    assert 'aria-label="node-0000"' in page
    assert f'data-live-src="{CHAT}parts/pod-grid/?by=node"' in page
    assert 'aria-label="node-0000"' in get(viewer, f"{CHAT}parts/pod-grid/?by=node")
    [pod] = re.findall(r'href="(\?by=node&amp;pod=[^"]+)"', page)[:1]
    opened = get(viewer, f"{CHAT}{pod.replace('&amp;', '&')}")
    assert f'href="{CHAT}?by=node">Close' in opened, "whoever looks at a pod stays where they were"
    assert 'aria-label="node-0000"' in opened
    assert 'aria-label="Replica 0"' in get(viewer, f"{CHAT}parts/pod-grid/?by=odd")


# ---- parts


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_what_the_page_holds(viewer: Client, row: models.Cluster, part: str) -> None:
    fleet.store_parts(row, chat())
    fragment = get(viewer, f"{CHAT}parts/{part}/")
    name = re.search(r'id="([^"]+)"', fragment)
    assert name
    page = get(viewer)
    assert f'id="{name[1]}"' in page
    assert f'data-live-src="{CHAT}parts/{part}/"' in page
    assert fragment.strip().startswith("<")


def test_there_are_no_other_parts(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    assert viewer.get(f"{CHAT}parts/page/").status_code == 404


def test_a_part_that_is_as_it_was_is_not_sent_again(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    first = viewer.get(f"{CHAT}parts/pod-grid/")
    again = viewer.get(f"{CHAT}parts/pod-grid/", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_strangers_see_nothing(client: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    for address in (CHAT, f"{CHAT}parts/pod-grid/", f"{CHAT}pod/chat-0-web-00000/", f"{CHAT}manifest/"):
        assert client.get(address).status_code == 302


# ---- what leads on


def test_what_was_commanded_to_it_is_on_its_page(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    AuditEntry.objects.create(
        actor="otto",
        via="page",
        command=Command.SET_IMAGES,
        cluster="sandbox",
        namespace="default",
        name="chat",
        result="done",
        detail="worker: v2",
    )
    page = get(viewer)
    assert "otto" in page
    assert "worker: v2" in page


def test_a_revision_shows_what_rolling_back_to_it_would_change(viewer: Client, row: models.Cluster) -> None:
    manifest = chat()
    fleet.store_parts(row, manifest)
    before = chat()["spec"]["template"]
    before["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"] = "example/web:v0"
    for number, template, name in (
        (1, before, "earlier"),
        (2, manifest["spec"]["template"], manifest["status"]["currentGenerationHash"]),
    ):
        models.Revision.objects.create(
            cluster="sandbox",
            namespace="default",
            name="chat",
            workload_uid=manifest["metadata"]["uid"],
            number=number,
            generation_hash=name,
            template=template,
            created=timezone.now(),
        )
    assert "web v0 → v1" in get(viewer)
    page = get(viewer, f"{CHAT}revisions/1/")
    assert "From revision 2 to 1" in page
    assert "replaces the pods of web." in page
    assert re.search(r"<ins>\+\s+- image: example/web:v0</ins>", page)
    assert re.search(r"<del>-\s+- image: example/web:v1</del>", page)
    assert viewer.get(f"{CHAT}revisions/7/").status_code == 404
    get(viewer, f"{CHAT}revisions/1/?from=nonsense")


def test_the_manifest_is_shown_with_secrets_hidden(viewer: Client, row: models.Cluster) -> None:
    manifest = chat()
    container = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
    container["env"] = [{"name": "API_TOKEN", "value": "hunter2hunter2"}]
    fleet.store_sets(row, [manifest])
    page = get(viewer, f"{CHAT}manifest/")
    assert "API_TOKEN" in page
    assert "hunter2" not in page
    assert page.index("apiVersion") < page.index("kind: PodCliqueSet") < page.index("metadata:") < page.index("spec:")


def test_the_timeline_is_read_by_pages(viewer: Client, row: models.Cluster) -> None:
    manifest = chat()
    fleet.store_parts(row, manifest)
    fleet.make_history(row, manifest, rollouts=3, steps=60)
    page = get(viewer, f"{CHAT}timeline/")
    assert "180 entries" in page
    assert "?page=2" in page
    assert "?page=1" in get(viewer, f"{CHAT}timeline/?page=2")
    for odd in ("0", "x", "²", "99999999999"):
        get(viewer, f"{CHAT}timeline/?page={odd}")


# ---- what it costs


def _count_queries(do: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as captured:
        do()
    return len(captured)


@pytest.mark.parametrize("address", ["", *(f"parts/{part}/" for part in PARTS)])
def test_a_thousand_pods_cost_no_more_queries_than_ten(viewer: Client, row: models.Cluster, address: str) -> None:
    for name, pods in (("few", 20), ("many", 1000)):
        manifest = fleet.big_workload(name, pods)
        fleet.store_parts(row, manifest, outdated=[0])
        add_history(row, manifest)
        get(viewer, f"/workloads/sandbox/default/{name}/{address}")
    few, many = (
        _count_queries(lambda name=name: get(viewer, f"/workloads/sandbox/default/{name}/{address}"))  # type: ignore[misc]
        for name in ("few", "many")
    )
    assert many == few


def test_the_first_load_of_a_thousand_pods_is_small(viewer: Client, row: models.Cluster) -> None:
    manifest = fleet.big_workload("chat", 1000)
    fleet.store_parts(row, manifest, outdated=range(25))
    add_history(row, manifest)
    answer = viewer.get(CHAT, headers={"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"
    total = len(answer.content)
    parts = {*re.findall(r'(?:href|src)="/static/([^"]+)"', gzip.decompress(answer.content).decode())}
    assert any(part.startswith("pod-grid") for part in parts)
    for part in parts:
        with staticfiles_storage.open(part) as file:
            total += len(gzip.compress(file.read()))
    assert total < FIRST_LOAD


def test_a_page_does_not_wait_for_the_clusters_events_and_says_when_they_cannot_be_had(
    viewer: Client, row: models.Cluster
) -> None:
    fleet.store_parts(row, chat())
    assert f'href="{CHAT}events/"' in get(viewer), "also without scripts"
    # No cluster listens where the settings of these tests lead.
    for address in (f"{CHAT}events/", f"{CHAT}events/card/"):
        assert "Events are not kept here, and cannot be read from the cluster now." in get(viewer, address)
    assert viewer.get("/workloads/sandbox/default/none/events/").status_code == 404


@pytest.mark.parametrize(
    ("result", "marked"), [("Done", "done"), ("Begun", ""), ("Refused", "warn"), ("Failed", "warn")]
)
def test_only_a_command_that_was_not_carried_out_is_marked(
    viewer: Client, row: models.Cluster, result: str, marked: str
) -> None:
    fleet.store_parts(row, chat())
    entry = AuditEntry.objects.create(
        actor="otto", command=Command.SET_IMAGES, cluster="sandbox", namespace="default", name="chat", result=result
    )
    assert f'<li id="command-{entry.pk}" class="{marked}">' in get(viewer)
