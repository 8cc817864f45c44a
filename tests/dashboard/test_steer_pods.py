"""The page from which pods are deleted: what can be chosen, what is refused, and where the chosen ones are followed."""

import html
import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import reverse

from rollouts.audit import Caller
from rollouts.cluster import Obj
from rollouts.engine import names
from rollouts.engine.edits import Image
from rollouts.models import AuditEntry, NamespaceGrant, Pod, User
from rollouts.services import pods as pods_service
from rollouts.services.workloads import workload_edit_strategy, workload_set_images
from tests.commands import conftest as commands
from tests.commands.stage import Stage
from tests.commands.test_pods import protect

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

site, namespace, cluster = commands.site, commands.namespace, commands.cluster
caller, stage, deployed = commands.caller, commands.stage, commands.deployed

IN_THE_SANDBOX = pytest.mark.parametrize("site", ["sandbox"], indirect=True)


@pytest.fixture
def outdated(deployed: Stage, caller: Caller) -> Stage:
    """A workload under OnDelete, the three pods of its frontend outdated."""
    workload_edit_strategy(caller, deployed.place, {"type": "OnDelete"})
    workload_set_images(caller, deployed.place, [Image("frontend", "app:v2")])
    deployed.deploy()
    return deployed


@pytest.fixture
def operator(client: Client, outdated: Stage) -> Client:
    """Somebody who may command in that namespace."""
    account = User.objects.create_user("olga")
    account.groups.add(Group.objects.get(name="operator"))
    NamespaceGrant.objects.create(user=account, cluster=outdated.cluster_name, namespace=outdated.namespace)
    client.force_login(account)
    return client


def address(stage: Stage, name: str = "steer-pods", **more: Any) -> str:
    place = stage.place
    kwargs = {"cluster": place.cluster, "namespace": place.namespace, "name": place.name, **more}
    return reverse(name, kwargs=kwargs)


def boxes(page: str) -> dict[str, bool]:
    """Return the pods that can be chosen, as the form sends them, and whether they are."""
    found = re.findall(r'<input type="checkbox"[^>]* name="pod" value="([^"]+)"[^>]*?( checked)?>', page)
    return {html.unescape(value): bool(checked) for value, checked in found}


def pods_of(stage: Stage, clique: str = "frontend") -> list[Obj]:
    return [pod for pod in stage.loop.pods() if pod["metadata"]["labels"][names.CLIQUE].endswith(clique)]


def updated(stage: Stage) -> list[str]:
    """Return the names of the pods of the frontend that have the new image."""
    images = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in pods_of(stage)}
    return [name for name, image in images.items() if image == "app:v2"]


def values(pods: list[Obj]) -> list[str]:
    return [f"{pod['metadata']['name']}/{pod['metadata']['uid']}" for pod in pods]


def form(stage: Stage, pods: list[str], **more: str) -> dict[str, Any]:
    return {"version": stage.version().strip('"'), "pod": pods, **more}


def text(response: Any) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode())))


@IN_THE_SANDBOX
def test_only_outdated_pods_can_be_chosen_and_addresses_choose_some(operator: Client, outdated: Stage) -> None:
    expected = values(pods_of(outdated))
    assert boxes(operator.get(address(outdated)).content.decode()) == dict.fromkeys(expected, False)
    for query, is_chosen in (("?all=1", True), ("?component=frontend", True), ("?component=decode", False)):
        assert boxes(operator.get(address(outdated) + query).content.decode()) == dict.fromkeys(expected, is_chosen)
    node = pods_of(outdated)[0]["spec"]["nodeName"]
    there = {value for value, pod in zip(expected, pods_of(outdated), strict=True) if pod["spec"]["nodeName"] == node}
    page = operator.get(f"{address(outdated)}?by=node&node={node}").content.decode()
    assert {value for value, is_chosen in boxes(page).items() if is_chosen} == there


@IN_THE_SANDBOX
def test_a_trial_says_what_comes_back_and_deletes_nothing(operator: Client, outdated: Stage) -> None:
    chosen = values(pods_of(outdated))[:2]
    answer = operator.post(address(outdated, "steer-pods-trial"), form(outdated, chosen))
    said = text(answer)
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
    answer = operator.post(address(outdated), form(outdated, chosen))
    entry = AuditEntry.objects.get(command="delete_outdated_pods", result="Done")
    assert (entry.via, entry.actor) == ("page", "olga")
    assert answer.headers["Location"] == address(outdated, "steer-pods-done", record=entry.pk)
    said = text(operator.get(answer.headers["Location"]))
    assert said.count("Evicted") == 2
    assert "0 back and ready" in said
    outdated.loop.run(lambda: len(updated(outdated)) == 2)
    outdated.deploy()
    said = text(operator.get(address(outdated, "steer-pods-live", record=entry.pk)))
    assert "2 back and ready" in said
    assert all(name in said for name in updated(outdated))
    assert operator.get(address(outdated, "steer-pods-done", record=entry.pk + 1000)).status_code == 404


@IN_THE_SANDBOX
def test_a_form_that_is_sent_twice_deletes_once(operator: Client, outdated: Stage) -> None:
    sent = form(outdated, values(pods_of(outdated))[:1])
    first = operator.post(address(outdated), sent)
    outdated.deploy()
    before = {pod["metadata"]["uid"] for pod in outdated.loop.pods()}
    second = operator.post(address(outdated), sent)
    assert first.headers["Location"] != second.headers["Location"]
    assert "Evicted" in text(operator.get(first.headers["Location"]))
    assert "Evicted" not in text(operator.get(second.headers["Location"]))
    assert {pod["metadata"]["uid"] for pod in outdated.loop.pods()} == before


@IN_THE_SANDBOX
def test_whoever_chose_before_the_template_changed_has_lost_and_keeps_the_choice(
    operator: Client, outdated: Stage, caller: Caller
) -> None:
    chosen = values(pods_of(outdated))[1:]
    sent = form(outdated, chosen)
    workload_set_images(caller, outdated.place, [Image("frontend", "app:v3")])
    answer = operator.post(address(outdated), sent)
    assert answer.status_code == 409
    assert "has been changed" in text(answer)
    assert {value for value, is_chosen in boxes(answer.content.decode()).items() if is_chosen} == {*chosen}
    assert len(pods_of(outdated)) == 3


@IN_THE_SANDBOX
def test_a_form_without_any_pod_is_refused_with_a_sentence(operator: Client, outdated: Stage) -> None:
    answer = operator.post(address(outdated), form(outdated, []))
    assert (answer.status_code, "select at least one pod" in text(answer)) == (422, True)


def test_a_disruption_budget_keeps_its_pod_and_is_named(operator: Client, outdated: Stage) -> None:
    chosen = values(pods_of(outdated))[:2]
    protect(outdated, chosen[0].split("/")[0])
    answer = operator.post(address(outdated), form(outdated, chosen), follow=True)
    said = text(answer)
    assert "Refused" in said
    assert "A disruption budget is in the way" in said
    assert (said.count("Evicted"), said.count("it was not deleted"), "1 not deleted" in said) == (1, 1, True)
    assert chosen[0] in values(pods_of(outdated))


@IN_THE_SANDBOX
def test_what_one_command_leaves_is_said_and_chosen_again(
    operator: Client, outdated: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods_service, "MOST_PODS", 2)
    chosen = values(pods_of(outdated))
    answer = operator.post(address(outdated), form(outdated, chosen), follow=True)
    assert "1 pod was selected as well" in text(answer)
    (rest,) = re.findall(r'href="([^"]+\?rest=\d+)"', answer.content.decode())
    assert [*boxes(operator.get(rest).content.decode()).items()] == [(chosen[2], True)]


@IN_THE_SANDBOX
def test_other_pods_are_deleted_by_force_only_and_once_that_is_agreed_to(operator: Client, outdated: Stage) -> None:
    leader = values(pods_of(outdated, "leader"))[:1]
    assert leader[0] not in boxes(operator.get(address(outdated)).content.decode())
    assert leader[0] in boxes(operator.get(address(outdated, "steer-any-pods")).content.decode())
    refused = operator.post(address(outdated, "steer-any-pods"), form(outdated, leader))
    assert (refused.status_code, leader == values(pods_of(outdated, "leader"))) == (422, True)
    (asks,) = re.findall(r'name="agreed" value="([^"]+)"', refused.content.decode())
    answer = operator.post(
        address(outdated, "steer-any-pods"), form(outdated, leader, agreed=html.unescape(asks)), follow=True
    )
    assert "Deleted" in text(answer)
    assert leader[0] not in values(pods_of(outdated, "leader"))


@IN_THE_SANDBOX
def test_where_the_strategy_deletes_by_itself_nothing_can_be_chosen(
    operator: Client, outdated: Stage, caller: Caller
) -> None:
    sent = form(outdated, values(pods_of(outdated)))
    workload_edit_strategy(caller, outdated.place, {"type": "RollingUpdate"})
    page = operator.get(address(outdated))
    assert "RollingUpdate replaces outdated pods by itself" in text(page)
    assert boxes(page.content.decode()) == {}
    before = values(pods_of(outdated))
    assert operator.post(address(outdated), {**sent, "version": outdated.version().strip('"')}).status_code == 409
    assert values(pods_of(outdated)) == before


@IN_THE_SANDBOX
@pytest.mark.parametrize("may", [True, False])
def test_whoever_may_not_is_told_why_and_deletes_nothing(client: Client, outdated: Stage, may: bool) -> None:
    account = User.objects.create_user("vera")
    account.groups.add(Group.objects.get(name="viewer"))
    NamespaceGrant.objects.create(user=account, cluster=outdated.cluster_name, namespace=outdated.namespace)
    if may:
        account.user_permissions.add(Permission.objects.get(codename="delete_outdated_pods"))
    client.force_login(account)
    before = values(pods_of(outdated))
    page = client.get(address(outdated))
    assert ("lacks the permission delete_outdated_pods" in text(page)) is not may
    answer = client.post(address(outdated), form(outdated, before[:1]))
    assert answer.status_code == (302 if may else 403)
    assert (before[0] in values(pods_of(outdated))) is not may
    assert "lacks the permission delete_any_pods" in text(client.get(address(outdated, "steer-any-pods")))


@IN_THE_SANDBOX
def test_a_form_may_choose_among_thousands_of_pods(operator: Client, outdated: Stage) -> None:
    many = [f"pod-{number}/uid-{number}" for number in range(3000)]
    answer = operator.post(address(outdated, "steer-pods-trial"), form(outdated, many))
    assert answer.status_code == 200
