"""A strategy that is saved from its page: just what was touched, once, on record, and nothing over what others did."""

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from rollouts.models import AuditEntry, NamespaceGrant, User
from tests.commands import conftest as commands
from tests.commands.stage import Stage
from tests.dashboard.forms import read_fields, say

pytestmark = [
    pytest.mark.database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("site", ["sandbox"], indirect=True),
]

site, namespace, cluster, stage = commands.site, commands.namespace, commands.cluster, commands.stage


@pytest.fixture
def operator(client: Client, stage: Stage) -> Client:
    """Somebody who may command in the namespace of the workload."""
    account = User.objects.create_user("olga")
    account.groups.add(Group.objects.get(name="operator"))
    NamespaceGrant.objects.create(user=account, cluster=stage.cluster_name, namespace=stage.namespace)
    client.force_login(account)
    return client


def address_of(stage: Stage) -> str:
    """Return where the page hangs."""
    place = stage.place
    return reverse(
        "steer-strategy", kwargs={"cluster": place.cluster, "namespace": place.namespace, "name": place.name}
    )


def test_only_what_was_touched_is_sent_and_put_on_record(operator: Client, stage: Stage) -> None:
    fields = read_fields(operator.get(address_of(stage)).content.decode())
    sent = {**fields, "type": "RollingUpdate", "components.frontend.maxSurge": " 25% "}
    before = stage.spec()
    answer = operator.post(address_of(stage), sent, follow=True)
    assert "The strategy is saved (1 field changed)" in say(answer)
    frontend = stage.spec()["template"]["cliques"][0]
    assert frontend.pop("updateStrategy") == {"maxSurge": "25%"}
    # The type follows from that, and nothing else is written down.
    assert "updateStrategy" not in stage.spec()
    assert frontend == before["template"]["cliques"][0]
    entry = AuditEntry.objects.filter(result=AuditEntry.Result.DONE).get()
    assert (entry.actor, entry.via, entry.command) == ("olga", "page", "edit_strategy")
    # Sent twice, it is carried out once.
    again = operator.post(address_of(stage), sent, follow=True)
    assert "It was so already" in say(again)


def test_a_refused_form_changes_nothing_and_keeps_what_was_typed(operator: Client, stage: Stage) -> None:
    fields = read_fields(operator.get(address_of(stage)).content.decode())
    before = stage.stored()["metadata"]["generation"]
    answer = operator.post(address_of(stage), {**fields, "components.frontend.maxUnavailable": "none"})
    assert answer.status_code == 422
    assert "must be a whole number" in say(answer, "wrong-components.frontend.maxUnavailable")
    assert read_fields(answer.content.decode())["components.frontend.maxUnavailable"] == "none"
    assert stage.stored()["metadata"]["generation"] == before


def test_who_loses_a_race_keeps_their_entries_on_top_of_those_of_others(operator: Client, stage: Stage) -> None:
    fields = read_fields(operator.get(address_of(stage)).content.decode())
    mine = {**fields, "type": "RollingUpdate", "components.frontend.maxUnavailable": "2"}
    group = {**stage.spec()["template"]["podCliqueScalingGroups"][0], "updateStrategy": {"maxSurge": 1}}
    stage.edit_elsewhere(template={**stage.spec()["template"], "podCliqueScalingGroups": [group]})
    stage.observe()
    lost = operator.post(address_of(stage), mine)
    assert lost.status_code == 409
    words = say(lost)
    assert "What others have changed meanwhile" in words
    assert "maxSurge of decode left out → 1" in words
    again = read_fields(lost.content.decode())
    assert again["components.frontend.maxUnavailable"] == "2"
    assert again["components.decode.maxSurge"] == "1"
    assert operator.post(address_of(stage), again).status_code == 302
    template = stage.spec()["template"]
    assert template["cliques"][0]["updateStrategy"] == {"maxUnavailable": 2}
    assert template["podCliqueScalingGroups"][0]["updateStrategy"] == {"maxSurge": 1}


def test_without_scripts_a_button_tries_the_form(operator: Client, stage: Stage) -> None:
    fields = read_fields(operator.get(address_of(stage)).content.decode())
    before = stage.stored()["metadata"]["generation"]
    answer = operator.post(address_of(stage), {**fields, "type": "OnDelete", "try": "1"})
    assert answer.status_code == 200
    assert read_fields(answer.content.decode())["type"] == "OnDelete"
    assert "+ type: OnDelete" in say(answer, "changes")
    assert stage.stored()["metadata"]["generation"] == before
