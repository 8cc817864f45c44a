"""The page from which pods are deleted: what can be chosen, what is refused, and where the chosen ones are followed."""

import html
import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from rollouts.cluster import Obj
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.engine.model import names
from rollouts.models import AuditEntry, NamespaceGrant, Pod, User
from rollouts.services import pods as pods_service
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.workloads import edit_strategy, set_images
from tests import both_clusters
from tests.markup import compact
from tests.services.stage import Stage
from tests.services.test_pods import protect
from tests.web.commands.conftest import sign_in
from tests.web.commands.filling import address, boxes_of, say

pytestmark = pytest.mark.django_db

# What a disruption budget does is told by a real API server too; all else is tried in the sandbox.
target = both_clusters.target
IN_THE_SANDBOX = pytest.mark.parametrize("target", ["sandbox"], indirect=True)


def pods_of(stage: Stage, clique: str = "frontend") -> list[Obj]:
    return [pod for pod in stage.loop.pods() if pod["metadata"]["labels"][names.CLIQUE].endswith(clique)]


def updated(stage: Stage) -> list[str]:
    """Return the names of the pods of the frontend that have the new image."""
    images = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in pods_of(stage)}
    return [name for name, image in images.items() if image == "app:v2"]


def values(pods: list[Obj]) -> list[str]:
    return [f"{pod['metadata']['name']}/{pod['metadata']['uid']}" for pod in pods]


def chosen_of(answer: Any) -> set[str]:
    """Return the pods that are ticked on a page."""
    return {value for value, state in boxes_of(answer, "pod").items() if state == "chosen"}


def form(stage: Stage, pods: list[str], **more: str) -> dict[str, Any]:
    return {"version": stage.version().strip('"'), "pod": pods, **more}


@IN_THE_SANDBOX
def test_only_outdated_pods_can_be_chosen_and_addresses_choose_some(operator: Client, outdated: Stage) -> None:
    expected = values(pods_of(outdated))
    page = address(outdated, "pods")
    asked = {"": "free", "?all=1": "chosen", "?component=frontend": "chosen", "?component=decode": "free"}
    for query, state in asked.items():
        assert boxes_of(operator.get(page + query), "pod") == dict.fromkeys(expected, state)
    node = pods_of(outdated)[0]["spec"]["nodeName"]
    there = {value for value, pod in zip(expected, pods_of(outdated), strict=True) if pod["spec"]["nodeName"] == node}
    assert chosen_of(operator.get(f"{page}?by=node&node={node}")) == there


@IN_THE_SANDBOX
def test_a_preview_says_what_comes_back_and_deletes_nothing(operator: Client, outdated: Stage) -> None:
    chosen = values(pods_of(outdated))[:2]
    answer = operator.post(address(outdated, "pods/preview"), form(outdated, chosen))
    said = say(answer)
    assert "2 pods selected" in said
    assert "2 frontend" in said
    assert "4 of 6" in said  # the fewest that are available meanwhile
    current = Pod.objects.get(name=chosen[0].split("/")[0]).template_hash
    assert f"{current} →" in said
    assert len(values(pods_of(outdated))) == 3
    assert not AuditEntry.objects.filter(command="delete_outdated_pods").exists()


@IN_THE_SANDBOX
def test_each_deleted_pod_is_followed_until_its_successor_is_ready(operator: Client, outdated: Stage) -> None:
    chosen = values(pods_of(outdated))[:2]
    answer = operator.post(address(outdated, "pods"), form(outdated, chosen))
    entry = AuditEntry.objects.get(command="delete_outdated_pods", result="Done")
    assert (entry.via, entry.actor) == ("page", "olga")
    assert answer.headers["Location"] == address(outdated, f"pods/{entry.pk}")
    said = say(operator.get(answer.headers["Location"]))
    assert said.count("Evicted") == 2
    assert "0 replaced and ready" in said
    outdated.loop.run(lambda: len(updated(outdated)) == 2)
    outdated.deploy()
    said = say(operator.get(address(outdated, f"pods/{entry.pk}/live")))
    assert "2 replaced and ready" in said
    assert all(name in said for name in updated(outdated))
    assert operator.get(address(outdated, f"pods/{entry.pk + 1000}")).status_code == 404


@IN_THE_SANDBOX
def test_a_form_that_is_sent_twice_deletes_once(operator: Client, outdated: Stage) -> None:
    sent = form(outdated, values(pods_of(outdated))[:1])
    first = operator.post(address(outdated, "pods"), sent)
    outdated.deploy()
    before = {pod["metadata"]["uid"] for pod in outdated.loop.pods()}
    second = operator.post(address(outdated, "pods"), sent)
    assert first.headers["Location"] != second.headers["Location"]
    assert "Evicted" in say(operator.get(first.headers["Location"]))
    assert "Evicted" not in say(operator.get(second.headers["Location"]))
    assert {pod["metadata"]["uid"] for pod in outdated.loop.pods()} == before


@IN_THE_SANDBOX
def test_whoever_chose_before_the_template_changed_has_lost_and_keeps_the_choice(
    operator: Client, outdated: Stage, caller: Caller
) -> None:
    chosen = values(pods_of(outdated))[1:]
    sent = form(outdated, chosen)
    execute(caller, outdated.place, set_images([ImageEdit("frontend", "app:v3")]))
    answer = operator.post(address(outdated, "pods"), sent)
    assert answer.status_code == 409
    assert "has been changed" in say(answer)
    assert chosen_of(answer) == {*chosen}
    assert len(pods_of(outdated)) == 3


@IN_THE_SANDBOX
@pytest.mark.parametrize(
    ("path", "reasons"), [("pods", "gone, terminating or up to date"), ("any-pods", "gone or terminating")]
)
def test_chosen_pods_that_can_no_longer_be_deleted_are_counted_with_the_reasons(
    operator: Client, outdated: Stage, path: str, reasons: str
) -> None:
    answer = operator.post(address(outdated, path), form(outdated, ["chat-0-frontend-00009/gone"], version="stale"))
    assert f"1 of the pods that you selected can no longer be deleted ({reasons})." in say(answer, "dropped-pods")


@IN_THE_SANDBOX
def test_a_form_without_any_pod_is_refused_with_a_sentence(operator: Client, outdated: Stage) -> None:
    answer = operator.post(address(outdated, "pods"), form(outdated, []))
    assert (answer.status_code, "select at least one pod" in say(answer)) == (422, True)


def test_a_disruption_budget_keeps_its_pod_and_is_named(operator: Client, outdated: Stage) -> None:
    chosen = values(pods_of(outdated))[:2]
    protect(outdated, chosen[0].split("/")[0])
    answer = operator.post(address(outdated, "pods"), form(outdated, chosen), follow=True)
    said = say(answer)
    assert "Refused" in said
    assert "A disruption budget does not allow it" in said
    assert (said.count("Evicted"), said.count("was not deleted"), "1 not deleted" in said) == (1, 1, True)
    assert chosen[0] in values(pods_of(outdated))


@IN_THE_SANDBOX
def test_what_one_command_leaves_is_said_and_chosen_again(
    operator: Client, outdated: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods_service, "MAX_PODS", 2)
    chosen = values(pods_of(outdated))
    answer = operator.post(address(outdated, "pods"), form(outdated, chosen), follow=True)
    assert "1 selected pod is not deleted yet" in say(answer)
    (rest,) = re.findall(r'href="([^"]+\?rest=\d+)"', compact(answer.content.decode()))
    assert [*boxes_of(operator.get(rest), "pod").items()] == [(chosen[2], "chosen")]


@IN_THE_SANDBOX
def test_other_pods_are_deleted_by_force_only_and_once_that_is_agreed_to(operator: Client, outdated: Stage) -> None:
    leader = values(pods_of(outdated, "leader"))[:1]
    assert leader[0] not in boxes_of(operator.get(address(outdated, "pods")), "pod")
    assert leader[0] in boxes_of(operator.get(address(outdated, "any-pods")), "pod")
    refused = operator.post(address(outdated, "any-pods"), form(outdated, leader))
    assert (refused.status_code, leader == values(pods_of(outdated, "leader"))) == (422, True)
    (asks,) = re.findall(r'name="agreed" value="([^"]+)"', compact(refused.content.decode()))
    answer = operator.post(
        address(outdated, "any-pods"), form(outdated, leader, agreed=html.unescape(asks)), follow=True
    )
    assert "Deleted" in say(answer)
    assert leader[0] not in values(pods_of(outdated, "leader"))


@IN_THE_SANDBOX
def test_where_the_strategy_deletes_by_itself_nothing_can_be_chosen(
    operator: Client, outdated: Stage, caller: Caller
) -> None:
    sent = form(outdated, values(pods_of(outdated)))
    execute(caller, outdated.place, edit_strategy({"type": "RollingUpdate"}))
    page = operator.get(address(outdated, "pods"))
    assert "RollingUpdate replaces outdated pods itself" in say(page)
    assert boxes_of(page, "pod") == {}
    before = values(pods_of(outdated))
    assert (
        operator.post(address(outdated, "pods"), {**sent, "version": outdated.version().strip('"')}).status_code == 409
    )
    assert values(pods_of(outdated)) == before


@IN_THE_SANDBOX
def test_whoever_was_given_the_one_permission_deletes_outdated_pods_and_no_others(outdated: Stage) -> None:
    client, account = sign_in("viewer", "vera"), User.objects.get(username="vera")
    NamespaceGrant.objects.create(user=account, cluster=outdated.cluster_name, namespace=outdated.namespace)
    account.user_permissions.add(Permission.objects.get(codename="delete_outdated_pods"))
    before = values(pods_of(outdated))
    assert client.post(address(outdated, "pods"), form(outdated, before[:1])).status_code == 302
    assert before[0] not in values(pods_of(outdated))
    assert "lacks the permission delete_any_pods" in say(client.get(address(outdated, "any-pods")))


@IN_THE_SANDBOX
def test_a_form_may_choose_among_thousands_of_pods(operator: Client, outdated: Stage) -> None:
    many = [f"pod-{number}/uid-{number}" for number in range(3000)]
    answer = operator.post(address(outdated, "pods/preview"), form(outdated, many))
    assert answer.status_code == 200
