"""The page of a workload: what it says without scripts, its parts, what leads on from it, and what it costs."""

import gzip
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.contrib.staticfiles.storage import staticfiles_storage
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from rollouts import models
from rollouts.accounts.commands import Command
from rollouts.cluster import Obj
from rollouts.engine.model.actions import Wait
from rollouts.models import AuditEntry, User
from rollouts.selectors.activity import summarize_waits
from tests.api.read import fleet
from tests.markup import compact

pytestmark = pytest.mark.django_db

FIRST_LOAD = 200_000  # bytes
CHAT = "/workloads/sandbox/default/chat/"
PARTS = ("head", "pod-grid", "now", "capacity", "timeline", "revisions", "audit")


def chat(**fields: Any) -> Obj:
    """Return a workload with all levels."""
    cliques = [fleet.clique("web", 3), fleet.clique("leader", 1), fleet.clique("worker", 2)]
    groups = [fleet.group("decode", ["leader", "worker"], 2)]
    return fleet.podcliqueset("chat", cliques=cliques, groups=groups, **fields)


def get(client: Client, address: str = CHAT) -> str:
    """Return a page."""
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    return compact(answer.content.decode())


def add_history(row: models.Cluster, manifest: Obj) -> models.Rollout:
    """Put a rollout that is under way on record, with counts and steps."""
    made = fleet.make_history(row, manifest, rollouts=3, steps=4)
    newest = made[-1]
    newest.started, newest.ended, newest.outcome = timezone.now() - timedelta(minutes=3), None, ""
    newest.save()
    models.Sample.objects.bulk_create(
        models.Sample(
            rollout=newest,
            at=newest.started + timedelta(seconds=second),
            desired=9,
            available=9 - second % 2,
            updated=second,
            surge=second % 2,
            floor=8,
        )
        for second in range(9)
    )
    return newest


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


# ---- waits, buttons, what leads on


def test_a_wait_is_told_with_its_reason_and_outdated_pods_are_named(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat(replicas=2, state="waiting", updateStrategy={"type": "OnDelete"}), outdated=[1])
    page = get(viewer)
    assert "Waiting for you" in page
    assert "9 of 18 pods are outdated" in page
    assert "Outdated pods wait until you delete them" in page


def test_surge_is_told_apart_from_what_is_updated(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat(state="progressing"), outdated=[0], surge=True)
    # The surge is of the current template, and serves.
    current = models.Clique.objects.get(name="chat-0-web").template_hash
    models.Pod.objects.filter(clique="chat-0-web", index=3).update(template_hash=current)
    page = get(viewer)
    assert "0 of 9 pods are updated, 10 are available; 1 is surge." in page
    assert "10 pods, 9 desired, 1 surge" in page


@pytest.mark.parametrize(
    ("pods", "sentence"),
    [
        (0, "The workload is scaled to 0."),
        (1, "The only pod is available and runs the current template."),
        (2, "All 2 pods are available and run the current template."),
    ],
)
def test_a_settled_workload_says_so_whatever_its_number_of_pods(
    viewer: Client, row: models.Cluster, pods: int, sentence: str
) -> None:
    fleet.store_parts(row, fleet.podcliqueset("chat", cliques=[fleet.clique("web", 1)], replicas=pods))
    assert f">{sentence}</p>" in get(viewer)


def test_a_current_pod_that_does_not_serve_is_not_among_the_outdated(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat(state="waiting", replicas=2, updateStrategy={"type": "OnDelete"}), outdated=[1])
    models.Pod.objects.filter(clique="chat-0-web").update(ready=False)
    assert "9 of 18 pods are outdated." in get(viewer)


def test_waits_that_are_alike_are_told_as_one(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, fleet.big_workload("chat", pods=200))
    models.Pod.objects.filter(name__contains="-router-").update(ready=False, reason="ContainersNotReady")
    page = get(viewer)
    assert page.count("<strong>Pods do not become ready</strong>") == 1
    assert "more like it" in page


def find_now(page: str) -> str:
    """Return the card that says what a workload is doing."""
    return page[page.index('<section id="now"') :].partition("</section>")[0]


def make_unready(seconds: float, *, usual: float = 2.0, **fields: Any) -> None:
    """Let a pod of chat-0-web be not Ready for so long, and the others have taken as long as usual."""
    now = timezone.now().timestamp()
    models.Pod.objects.update(scheduled_at=now - 900.0, ready_since=now - 900.0 + usual)
    since = now - seconds
    models.Pod.objects.filter(clique="chat-0-web", index=0).update(
        ready=False, scheduled_at=since, ready_since=since, **fields
    )


def test_a_calm_wait_is_one_line_without_anything_to_press(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat(state="progressing"), outdated=[1])
    make_unready(3.0)
    shown = find_now(get(viewer))
    (line,) = re.findall(r'<summary class="expected-wait">(.*?)</summary>', shown)
    assert line.startswith("<strong>Waiting for pods to become ready</strong>")
    assert re.search(r"For <time [^>]*>[34] s</time> \(usually 2 s\)", line)
    assert "of chat-0-web is not Ready (2 of 3 are)." in shown
    assert 'class="alert' not in shown
    assert 'class="btn' not in shown


def test_a_pod_that_takes_much_longer_than_usual_is_a_card_with_what_would_help(
    viewer: Client, row: models.Cluster
) -> None:
    fleet.store_parts(row, chat(state="progressing"))
    make_unready(58.0)
    shown = find_now(get(viewer))
    assert shown.count('<div class="alert">') == 1
    assert "<strong>Pods do not become ready</strong>" in shown
    assert re.search(r"For <time [^>]*>5[89] s</time> \(usually 2 s\)", shown)
    assert ">Check the pods</a>" in shown


def test_a_crash_loop_is_a_card_at_once(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat(state="progressing"))
    make_unready(1.0, fault="CrashLoopBackOff: exit code 3")
    shown = find_now(get(viewer))
    assert "<strong>Container keeps crashing</strong>" in shown
    assert "of chat-0-web crash-loops: exit code 3." in shown
    assert ">Check the pods</a>" in shown


def make_faulty(kind: str, status: str, reason: str, message: str) -> Obj:
    """Return the workload with a condition that says that the controller cannot act on it as it is written."""
    manifest = chat(state="progressing")
    fault = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": fleet.CREATED}
    manifest["status"]["conditions"] = [*manifest["status"]["conditions"], fault]
    return manifest


def test_writes_that_the_cluster_rejects_are_the_first_card_and_the_title(viewer: Client, row: models.Cluster) -> None:
    told = "create PodGang default/chat-0: it exists already. Delete or rename the existing object."
    fleet.store_parts(row, make_faulty("WriteDenied", "True", "AlreadyExists", told))
    make_unready(58.0)
    page = get(viewer)
    assert '<span class="badge warn">The cluster rejects writes</span>' in page
    titles = re.findall(r'<div class="alert"> ?<strong>(.*?)</strong>', find_now(page))
    assert titles == ["The cluster rejects writes", "Pods do not become ready"]
    assert told in find_now(page)
    listed = get(viewer, "/")
    assert '<span class="badge warn">The cluster rejects writes</span>' in listed
    assert '<div class="sub mono">AlreadyExists</div>' in listed


def test_an_invalid_manifest_of_a_new_set_is_why_nothing_happens(viewer: Client, row: models.Cluster) -> None:
    manifest = make_faulty("Valid", "False", "InvalidSpec", "spec.replicas: must be 1 or more")
    del manifest["status"]["currentGenerationHash"]
    fleet.store_sets(row, [manifest])
    page = get(viewer)
    assert '<span class="badge warn">The manifest is not valid</span>' in page
    shown = find_now(page)
    assert "The manifest is not valid, so the controller does nothing until you correct it." in shown
    assert re.findall(r'<div class="alert"> ?<strong>(.*?)</strong>', shown) == ["The manifest is not valid"]
    assert "spec.replicas: must be 1 or more" in shown
    assert "The controller still acts" not in shown


def test_an_invalid_manifest_of_a_set_that_was_acted_on_stops_nothing(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, make_faulty("Valid", "False", "InvalidSpec", "spec.replicas: must be 1 or more"))
    shown = find_now(get(viewer))
    assert "The controller still acts on this workload. Only new workloads are left alone" in shown
    assert "does nothing" not in shown


def test_outdated_pods_that_wait_for_somebody_keep_their_button(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat(replicas=2, state="waiting", updateStrategy={"type": "OnDelete"}), outdated=[1])
    assert ">Delete outdated pods</a>" in find_now(get(viewer))


CRASH = Wait("CrashLoopBackOff", "w-1-a", ("w-1-a-x",), "It crashes.", ("LookAtPods",), is_problem=True)
HELD = Wait("WaitingForReplica", "w", ("w-0",), "w-0 waits.", ("LookAtPods", "ScaleIn"), is_problem=True)
SPENT = Wait("BudgetExhausted", "w-0-a", ("w-0-a-x",), "1 pod waits.", ("RaiseMaxUnavailable",), is_problem=False)


def test_a_cause_has_one_card_and_what_follows_from_it_has_none() -> None:
    cause, *others = summarize_waits([SPENT, HELD, CRASH])
    assert (cause.code, cause.is_problem) == ("CrashLoopBackOff", True)
    assert [(code, component) for code, _, component in cause.remedies] == [("LookAtPods", "w-1-a"), ("ScaleIn", "w")]
    assert [(one.code, one.is_calm, one.remedies) for one in others] == [
        ("WaitingForReplica", True, ()),
        ("BudgetExhausted", True, ()),
    ]


def test_what_helps_against_a_consequence_is_on_the_card_of_its_own_cause() -> None:
    alone = Wait("ReplicaUnschedulable", "w-2-a", ("w-2-a-x",), "No node.", ("AddCapacity",), is_problem=True)
    held = replace(HELD, remedies=("AddCapacity", "ScaleIn"), blocked_by=("w-2",))
    late = Wait("SurgeNotReady", "w-0-g-3-l", ("w-0-g-3-l-x",), "Not Ready.", ("LookAtPods",), is_problem=True)
    spent = replace(SPENT, component="w-0-g", is_problem=True)
    cards = [note for note in summarize_waits([CRASH, alone, late, held, spent]) if note.is_problem]
    assert [(card.code, [(code, component) for code, _, component in card.remedies]) for card in cards] == [
        ("CrashLoopBackOff", [("LookAtPods", "w-1-a")]),
        ("ReplicaUnschedulable", [("AddCapacity", "w-2-a"), ("ScaleIn", "w")]),
        ("SurgeNotReady", [("LookAtPods", "w-0-g-3-l"), ("RaiseMaxUnavailable", "w-0-g")]),
    ]


def test_a_cause_in_several_components_has_one_card_whose_buttons_name_none() -> None:
    helps = ("AddCapacity", "SetMaxSurgeToZero")
    waits = [
        Wait("SurgeUnschedulable", f"w-{n}-a", (f"w-{n}-a-x",), f"No node {n}.", helps, is_problem=True)
        for n in range(4)
    ]
    (card,) = summarize_waits(waits)
    assert [(code, component) for code, _, component in card.remedies] == [(code, "") for code in helps]
    assert (card.sentences, card.omitted) == (("No node 0.", "No node 1.", "No node 2."), 1)
    # What helps one of them only is offered for that one.
    others = [replace(one, remedies=("AddCapacity",)) for one in waits[1:]]
    (card,) = summarize_waits([waits[0], *others])
    assert [(code, component) for code, _, component in card.remedies] == [
        ("AddCapacity", ""),
        ("SetMaxSurgeToZero", "w-0-a"),
    ]


def test_what_follows_from_something_that_is_not_told_keeps_its_card() -> None:
    held, spent = summarize_waits([SPENT, HELD])
    assert (held.is_problem, [code for code, _, _ in held.remedies]) == (True, ["LookAtPods", "ScaleIn"])
    assert spent.is_calm


def test_a_button_that_somebody_may_not_press_says_why(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    page = get(viewer)
    buttons = re.findall(r'aria-disabled="true"[^>]*>([^<]+)<span class="tooltip"[^>]*>([^<]+)<', page)
    for _, sentence in buttons:
        assert "You may not" in sentence


def test_an_operator_with_a_grant_may_press_them(viewer: Client, row: models.Cluster) -> None:
    account = User.objects.get(username="vera")
    account.groups.add(Group.objects.get(name="operator"))
    models.NamespaceGrant.objects.create(user=account, cluster="", namespace="")
    fleet.store_parts(row, chat())
    assert 'aria-disabled="true"' not in get(viewer)


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
