"""A strategy that is saved from its page: just what was touched, once, on record, and nothing over what others did."""

import pytest
from django.test import Client

from rollouts.models import AuditEntry
from tests.services.stage import Stage
from tests.web.commands.filling import address, fields_of, say

pytestmark = pytest.mark.django_db


def test_only_what_was_touched_is_sent_and_put_on_record(operator: Client, stage: Stage) -> None:
    fields = fields_of(operator.get(address(stage, "strategy")).content.decode())
    sent = {**fields, "type": "RollingUpdate", "components.frontend.maxSurge": " 25% "}
    before = stage.spec()
    answer = operator.post(address(stage, "strategy"), sent, follow=True)
    assert "The strategy is saved (1 field changed)" in say(answer)
    frontend = stage.spec()["template"]["cliques"][0]
    assert frontend.pop("updateStrategy") == {"maxSurge": "25%"}
    # The type follows from that, and nothing else is written down.
    assert "updateStrategy" not in stage.spec()
    assert frontend == before["template"]["cliques"][0]
    entry = AuditEntry.objects.filter(result=AuditEntry.Result.DONE).get()
    assert (entry.actor, entry.via, entry.command) == ("olga", "page", "edit_strategy")
    # Sent twice, it is carried out once.
    again = operator.post(address(stage, "strategy"), sent, follow=True)
    assert "Nothing to change" in say(again)


def test_a_refused_form_changes_nothing_and_keeps_what_was_typed(operator: Client, stage: Stage) -> None:
    fields = fields_of(operator.get(address(stage, "strategy")).content.decode())
    before = stage.stored()["metadata"]["generation"]
    answer = operator.post(address(stage, "strategy"), {**fields, "components.frontend.maxUnavailable": "none"})
    assert answer.status_code == 422
    assert "must be a whole number" in say(answer, "wrong-components.frontend.maxUnavailable")
    assert fields_of(answer.content.decode())["components.frontend.maxUnavailable"] == "none"
    assert stage.stored()["metadata"]["generation"] == before


def test_who_loses_a_race_keeps_their_entries_on_top_of_those_of_others(operator: Client, stage: Stage) -> None:
    fields = fields_of(operator.get(address(stage, "strategy")).content.decode())
    mine = {**fields, "type": "RollingUpdate", "components.frontend.maxUnavailable": "2"}
    group = {**stage.spec()["template"]["podCliqueScalingGroups"][0], "updateStrategy": {"maxSurge": 1}}
    stage.edit_elsewhere(template={**stage.spec()["template"], "podCliqueScalingGroups": [group]})
    stage.observe()
    lost = operator.post(address(stage, "strategy"), mine)
    assert lost.status_code == 409
    words = say(lost)
    assert "Changed by others in the meantime" in words
    assert "maxSurge of decode left out → 1" in words
    again = fields_of(lost.content.decode())
    assert again["components.frontend.maxUnavailable"] == "2"
    assert again["components.decode.maxSurge"] == "1"
    assert operator.post(address(stage, "strategy"), again).status_code == 302
    template = stage.spec()["template"]
    assert template["cliques"][0]["updateStrategy"] == {"maxUnavailable": 2}
    assert template["podCliqueScalingGroups"][0]["updateStrategy"] == {"maxSurge": 1}


def test_without_scripts_a_button_tries_the_form(operator: Client, stage: Stage) -> None:
    fields = fields_of(operator.get(address(stage, "strategy")).content.decode())
    before = stage.stored()["metadata"]["generation"]
    answer = operator.post(address(stage, "strategy"), {**fields, "type": "OnDelete", "try": "1"})
    assert answer.status_code == 200
    assert fields_of(answer.content.decode())["type"] == "OnDelete"
    assert "+ type: OnDelete" in say(answer, "changes")
    assert stage.stored()["metadata"]["generation"] == before
