"""The form that deletes a workload: what it says beforehand, and what has to be done before it does so."""

import re
from html import unescape
from typing import Any

import pytest

from rollouts.cluster import NotFound
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.models import AuditEntry
from rollouts.services import workload_deletion
from rollouts.services.changes import execute
from rollouts.services.workloads import scale
from tests.web.commands.filling import Fields, FormClient, fields_of, said_beside, say

pytestmark = pytest.mark.django_db


def is_there(forms: FormClient) -> bool:
    """Whether the cluster has the workload."""
    try:
        forms.stage.stored()
    except NotFound:
        return False
    return True


def page_of(forms: FormClient) -> str:
    """Return the page with the form."""
    answer = forms.client.get(forms.address("delete"))
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def agree(forms: FormClient) -> Fields:
    """Return the form with its box ticked."""
    fields = forms.open("delete")
    (asked,) = re.findall(r'name="agreed" value="([^"]+)"', forms.try_out("delete", fields))
    return {**fields, "agreed": unescape(asked)}


@pytest.fixture
def large(running: FormClient, monkeypatch: pytest.MonkeyPatch) -> FormClient:
    """A workload that is large enough for its name to be typed."""
    monkeypatch.setattr(workload_deletion, "LARGE_POD_COUNT", 6)
    return running


def test_the_page_of_a_workload_leads_to_it(forms: FormClient) -> None:
    place = forms.stage.place
    page = forms.client.get(f"/workloads/{place.cluster}/{place.namespace}/{place.name}/")
    assert forms.address("delete") in page.content.decode()


def test_what_goes_is_said_beforehand_and_nothing_goes(running: FormClient) -> None:
    before = running.stage.stored()
    shown = unescape(running.try_out("delete", running.open("delete")))
    assert "The dry run succeeded. The command deletes chat with 6 pods, 1 gang." in shown
    assert running.stage.stored() == before
    assert not AuditEntry.objects.filter(command="delete_workload").exists()


def test_whoever_does_not_agree_deletes_nothing(running: FormClient) -> None:
    answer = running.send("delete", running.open("delete"))
    assert answer.status_code == 422
    assert "Tick the box" in say(answer)
    assert is_there(running)


def test_a_small_workload_goes_with_a_tick(running: FormClient) -> None:
    answer = running.send("delete", agree(running))
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    assert not is_there(running)
    assert running.commands()[-2:] == [("delete_workload", "Begun"), ("delete_workload", "Done")]
    assert "chat is being deleted, with 6 pods, 1 gang." in say(running.client.get("/"))


@pytest.mark.parametrize("typed", ["", "Chat", "chat2"])
def test_a_large_workload_goes_only_by_its_name(large: FormClient, typed: str) -> None:
    assert "Type <b>chat</b> to delete it" in page_of(large)
    answer: Any = large.change("delete", typed=typed)
    assert answer.status_code == 422
    assert "type chat to delete it" in said_beside(answer.content.decode(), "typed")
    assert fields_of(answer.content.decode())["typed"] == typed
    assert is_there(large)
    assert large.change("delete", typed=" chat ").status_code == 302
    assert not is_there(large)


def test_a_workload_that_was_changed_since_the_form_was_opened_stays(running: FormClient, caller: Any) -> None:
    fields = agree(running)
    execute(caller, running.stage.place, scale(2))
    answer = running.send("delete", fields)
    assert answer.status_code == 409
    assert "spec.replicas" in say(answer)
    assert is_there(running)


def test_what_is_on_its_way_out_cannot_be_deleted_once_more(forms: FormClient) -> None:
    stage = forms.stage
    kept = {"metadata": {"finalizers": ["example.com/keeper"]}}
    stage.cluster.patch_merge(PODCLIQUESETS, stage.name, kept, namespace=stage.namespace)
    stage.cluster.delete(PODCLIQUESETS, stage.name, namespace=stage.namespace)
    stage.observe()
    assert "chat is already being deleted." in page_of(forms)
    assert "The cluster is already deleting this workload." in page_of(forms)
