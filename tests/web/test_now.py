"""The part "Now" of the page of a workload: waits, problems and their buttons."""

import re
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from rollouts import models
from rollouts.cluster import Obj
from rollouts.engine.model.actions import Wait
from rollouts.models import User
from rollouts.selectors.activity import summarize_waits
from tests.api.read import fleet
from tests.web.workload_page import chat, get

pytestmark = pytest.mark.django_db


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
