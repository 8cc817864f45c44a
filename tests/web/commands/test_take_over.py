"""The form that takes a workload over from Grove's own operator: where it is found, its dry run, and the way back."""

import re
from html import unescape
from typing import Any

import pytest
from django.urls import reverse

from rollouts.cluster.resources import PODCLIQUESETS, PODGANGS
from rollouts.engine.model.names import REPLICA_INDEX
from rollouts.mirror import other_operator
from rollouts.mirror.other_operator import GROVE_FINALIZER
from rollouts.web.commands.forms import url_kwargs
from tests.markup import compact
from tests.services.grove import GROVES_HASH, hand_to_grove
from tests.web.commands.filling import FormClient, fields_of, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def kept(running: FormClient) -> FormClient:
    """A workload that runs, as Grove's own operator has left it behind."""
    hand_to_grove(running.stage.cluster, running.stage.namespace)
    running.stage.observe()
    return running


def page_of(forms: FormClient) -> Any:
    """Return the page of the workload."""
    answer = forms.client.get(reverse("workload", kwargs=url_kwargs(forms.stage.place)))
    assert answer.status_code == 200
    return answer


def try_out(forms: FormClient) -> str:
    """Return what stands beside the form."""
    page = forms.client.get(forms.address("take-over")).content.decode()
    return compact(forms.client.post(f"{forms.address('take-over')}preview/", fields_of(page)).content.decode())


def agree(forms: FormClient) -> dict[str, str]:
    """Return the form with its box ticked."""
    (asked,) = re.findall(r'name="agreed" value="([^"]+)"', try_out(forms))
    return {**forms.open("take-over"), "agreed": unescape(asked)}


def test_the_page_of_a_workload_of_groves_says_so_and_leads_to_the_takeover(running: FormClient) -> None:
    where = running.address("take-over")
    assert where not in page_of(running).content.decode()
    hand_to_grove(running.stage.cluster, running.stage.namespace)
    running.stage.observe()
    page = page_of(running)
    assert "Grove's own operator manages this set" in say(page)
    assert where in page.content.decode()


def test_the_dry_run_names_every_object_and_changes_nothing(kept: FormClient) -> None:
    before = kept.stage.stored()
    shown = unescape(try_out(kept))
    # 6 pods, 3 PodCliques, a group, a gang, the set
    assert "12 objects would be changed. 6 pods keep running; none is replaced." in shown
    assert "PodGang chat-0" in shown
    assert f"['{GROVE_FINALIZER}'] → []" in shown
    assert GROVES_HASH in shown
    assert kept.stage.stored() == before


def test_whoever_does_not_say_that_the_operator_is_gone_takes_nothing_over(kept: FormClient) -> None:
    answer = kept.send("take-over", kept.open("take-over"))
    assert answer.status_code == 422
    assert "Tick the box" in say(answer)
    assert GROVE_FINALIZER in kept.stage.stored()["metadata"]["finalizers"]


def test_the_form_takes_over_once_and_leads_back(kept: FormClient) -> None:
    fields, pods = agree(kept), {pod["metadata"]["uid"] for pod in kept.stage.loop.pods()}
    assert kept.send("take-over", fields).status_code == 302
    assert "Grove UI manages chat now. 12 objects were changed; none of the 6 pods was replaced." in say(page_of(kept))
    assert "finalizers" not in kept.stage.stored()["metadata"]
    gang = kept.stage.cluster.get(PODGANGS, "chat-0", namespace=kept.stage.namespace)
    assert gang["metadata"]["labels"][REPLICA_INDEX] == "0"
    kept.stage.deploy()
    assert {pod["metadata"]["uid"] for pod in kept.stage.loop.pods()} == pods
    assert kept.send("take-over", agree(kept)).status_code == 302
    assert kept.commands().count(("take_over_workload", "Begun")) == 1
    assert "Nothing to change: Grove UI already manages every object." in unescape(try_out(kept))


def test_the_form_says_why_a_takeover_is_refused(kept: FormClient, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = agree(kept)
    monkeypatch.setattr(
        other_operator.OperatorCheck, "check_now", lambda *_: "Grove's own operator runs in this cluster."
    )
    assert "Grove's own operator runs in this cluster." in unescape(try_out(kept))
    answer = kept.send("take-over", fields)
    assert answer.status_code == 409
    assert "Grove's own operator runs in this cluster." in say(answer)
    stored = kept.stage.cluster.get(PODCLIQUESETS, "chat", namespace=kept.stage.namespace)
    assert GROVE_FINALIZER in stored["metadata"]["finalizers"]
