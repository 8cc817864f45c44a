"""Who may not send a form reads why before they begin, and nothing that they send is carried out."""

import pytest
from django.test import Client

from rollouts.commands import Command
from rollouts.models import AuditEntry
from tests.commands.stage import Stage
from tests.steering.conftest import sign_in
from tests.steering.filling import Desk, Fields

pytestmark = [pytest.mark.database, pytest.mark.django_db]

FORMS: dict[str, tuple[Command, Fields]] = {
    "images": (Command.SET_IMAGES, {"image_frontend_main": "ghcr.io/example/app:v2"}),
    "scale": (Command.SCALE_WORKLOAD, {"replicas_": "2"}),
    "restart": (Command.RESTART_WORKLOAD, {}),
    "apply": (Command.APPLY_WORKLOAD, {"force": "on"}),
}


@pytest.fixture(params=["viewer", "operator"])
def outsider(request: pytest.FixtureRequest, stage: Stage) -> Client:
    """Somebody without the permission, and somebody without a grant for this namespace."""
    return sign_in(request.param, "otto")


@pytest.mark.parametrize("form", FORMS)
def test_who_may_not_command_reads_why_and_changes_nothing(desk: Desk, outsider: Client, form: str) -> None:
    command, changes = FORMS[form]
    theirs = Desk(outsider, desk.stage)
    before = desk.stage.stored()
    page = outsider.get(theirs.address(form)).content.decode()
    assert f"You may not {command.label}" in page
    assert 'aria-disabled="true"' in page
    sent = {**desk.open(form), **changes}
    refused = theirs.send(form, sent)
    assert refused.status_code == 403
    assert f"You may not {command.label}" in refused.content.decode()
    assert f"You may not {command.label}" in theirs.try_out(form, sent)
    assert desk.stage.stored() == before
    entry = AuditEntry.objects.get(result=AuditEntry.Result.REFUSED)
    assert (entry.actor, entry.command) == ("otto", str(command))
    # The very same form, sent by somebody who may, is carried out.
    if form != "apply":
        assert desk.send(form, sent).status_code == 302
        assert desk.stage.stored()["metadata"]["generation"] > before["metadata"]["generation"]


def test_a_form_about_what_is_not_there_is_not_there(desk: Desk) -> None:
    assert desk.client.get("/workloads/sandbox/default/nobody/images/").status_code == 404


def test_without_a_token_of_the_page_nothing_is_sent(desk: Desk) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = desk.client.cookies
    before, fields = desk.stage.stored(), desk.open("restart")
    del fields["csrfmiddlewaretoken"]
    assert strict.post(desk.address("restart"), fields).status_code == 403
    assert desk.stage.stored() == before
