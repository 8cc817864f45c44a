"""The form that takes all workloads of a cluster over from Grove's own operator: its dry run is a part of it."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from rollouts.cluster import ClusterClient
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.mirror import other_operator
from rollouts.mirror.other_operator import GROVE_FINALIZER
from rollouts.models import AuditEntry
from tests.engine.manifests import small
from tests.markup import compact
from tests.services.conftest import ONE_REPLICA
from tests.services.grove import delete_sets_of_grove, hand_to_grove
from tests.web.commands.conftest import sign_in
from tests.web.commands.filling import Fields, FormClient, fields_of, say

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _alone(cluster: ClusterClient) -> None:
    """Leave nothing of Grove's from other tests in the cluster."""
    delete_sets_of_grove(cluster)


@pytest.fixture
def kept(running: FormClient) -> FormClient:
    """Two workloads as Grove's own operator has left them behind: chat runs, other has no pods yet."""
    running.client = sign_in("admin", "anna")
    add_set(running, "other")
    hand_to_grove(running.stage.cluster, running.stage.namespace)
    running.stage.observe()
    return running


def add_set(forms: FormClient, name: str) -> None:
    """Create a set of Grove's."""
    manifest = small({"metadata.namespace": forms.stage.namespace, "metadata.name": name, **ONE_REPLICA})
    manifest["metadata"]["finalizers"] = [GROVE_FINALIZER]
    forms.stage.cluster.create(PODCLIQUESETS, manifest)


def where(forms: FormClient) -> str:
    """Return the address of the form."""
    return reverse("command-take-over-cluster", kwargs={"cluster": forms.stage.cluster_name})


def open_form(forms: FormClient) -> Any:
    """Return the page before its dry run."""
    return forms.client.get(where(forms))


def run_dry(forms: FormClient) -> Any:
    """Return the dry run, which the page requests when it opens."""
    fields = fields_of(open_form(forms).content.decode())
    return forms.client.post(f"{where(forms)}preview/", fields)


def agree(forms: FormClient) -> Fields:
    """Return the form with the dry run of this moment, and its box ticked."""
    page = compact(run_dry(forms).content.decode())
    (asked,) = re.findall(r'name="agreed" value="([^"]+)"', page)
    (seen,) = re.findall(r'name="seen" value="([^"]+)"', page)
    return {**fields_of(open_form(forms).content.decode()), "seen": unescape(seen), "agreed": unescape(asked)}


def send(forms: FormClient, fields: Fields) -> Any:
    """Send the form."""
    answer = forms.client.post(where(forms), fields)
    forms.stage.observe()
    return answer


def is_groves(forms: FormClient, name: str) -> bool:
    """Whether a set has Grove's finalizer."""
    stored = forms.stage.cluster.get(PODCLIQUESETS, name, namespace=forms.stage.namespace)
    return GROVE_FINALIZER in stored["metadata"].get("finalizers", [])


# ---- where it is found


def test_the_page_of_clusters_leads_to_the_takeover_where_grove_has_workloads(running: FormClient) -> None:
    page = running.client.get(reverse("page-clusters"))
    assert where(running) not in page.content.decode()
    hand_to_grove(running.stage.cluster, running.stage.namespace)
    add_set(running, "other")
    running.stage.observe()
    page = running.client.get(reverse("page-clusters"))
    assert "Grove's own operator manages 2 workloads here." in say(page)
    assert where(running) in page.content.decode()


def test_without_workloads_of_grove_there_is_nothing_to_take_over(running: FormClient) -> None:
    running.client = sign_in("admin", "anna")
    page = open_form(running)
    assert "manages no workload" in say(page, "blocked")
    assert "hx-post" not in page.content.decode()


def test_a_grant_for_one_namespace_is_not_enough(kept: FormClient, operator: Client) -> None:
    kept.client = operator
    assert "your account has no grant for all namespaces of the cluster" in say(open_form(kept), "blocked")
    assert send(kept, {"seen": "", "agreed": ""}).status_code == 403
    assert AuditEntry.objects.filter(actor="olga", result="Refused").count() == 1
    assert is_groves(kept, "chat")


# ---- the dry run


def test_the_dry_run_lists_every_workload_and_changes_nothing(kept: FormClient) -> None:
    kept.stage.cluster.delete(PODCLIQUESETS, "other", namespace=kept.stage.namespace)
    before = kept.stage.stored()
    answer = run_dry(kept)
    assert "1 of 2 workloads can be taken over. 12 objects would be changed. 6 pods stay as they are" in say(answer)
    rows = [say_row(row) for row in re.findall(r"<tr.*?</tr>", answer.content.decode(), re.DOTALL)[1:]]
    assert rows[0] == f"chat {kept.stage.namespace} 12 objects change 6 pods stay"
    assert re.match(rf"other {kept.stage.namespace} Not possible other is being deleted", rows[1])
    assert kept.address("take-over") in answer.content.decode(), "every changed field is there"
    assert kept.stage.stored() == before
    assert not AuditEntry.objects.exists()


def test_a_dry_run_without_a_workload_that_can_be_taken_over_asks_for_no_confirmation(kept: FormClient) -> None:
    for name in ("chat", "other"):
        kept.stage.cluster.delete(PODCLIQUESETS, name, namespace=kept.stage.namespace)
    answer = run_dry(kept)
    assert "No workload can be taken over now." in say(answer)
    assert 'name="agreed"' not in answer.content.decode()


def say_row(row: str) -> str:
    """Return the words of a row."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)).strip()


def test_nothing_is_taken_over_without_the_dry_run_or_the_tick(kept: FormClient) -> None:
    bare = fields_of(open_form(kept).content.decode())
    answer = send(kept, bare)
    assert (answer.status_code, "Wait for a dry run" in say(answer)) == (422, True)
    answer = send(kept, {**agree(kept), "agreed": ""})
    assert (answer.status_code, "Tick the box" in say(answer)) == (422, True)
    # The tick is for as many workloads as the dry run has shown.
    fields = agree(kept)
    answer = send(kept, {**fields, "seen": fields["seen"].split()[0]})
    assert (answer.status_code, "Tick the box" in say(answer)) == (422, True)
    assert is_groves(kept, "chat")


# ---- the command


def test_the_form_takes_all_workloads_over_and_leads_back(kept: FormClient) -> None:
    fields, pods = agree(kept), {pod["metadata"]["uid"] for pod in kept.stage.loop.pods()}
    answer = send(kept, fields)
    assert (answer.status_code, answer.headers["Location"]) == (302, reverse("page-clusters"))
    page = say(kept.client.get(reverse("page-clusters")))
    assert "Grove UI manages 2 more workloads now. None of 6 pods is replaced." in page
    assert "Take over from Grove" not in page
    assert not is_groves(kept, "chat")
    assert not is_groves(kept, "other")
    assert {pod["metadata"]["uid"] for pod in kept.stage.loop.pods()} == pods
    on_record = AuditEntry.objects.order_by("id").values_list("name", "result", "via")
    assert [*on_record] == [
        *[("chat", "Begun", "page"), ("chat", "Done", "page")],
        *[("other", "Begun", "page"), ("other", "Done", "page")],
        ("", "Done", "page"),
    ]
    # Once more: nothing is left.
    assert send(kept, fields).status_code == 302
    assert "Nothing to change." in say(kept.client.get(reverse("page-clusters")))


def test_a_workload_that_has_changed_since_the_dry_run_is_left_and_named(kept: FormClient) -> None:
    fields = agree(kept)
    kept.stage.edit_elsewhere(replicas=2)
    answer = send(kept, fields)
    assert (answer.status_code, answer.headers["Location"]) == (302, where(kept))
    page = say(open_form(kept))
    assert f"{kept.stage.namespace}/chat was not taken over: chat has been changed" in page
    assert "Grove UI manages 1 more workload now." in page
    assert is_groves(kept, "chat")
    assert not is_groves(kept, "other")
    # What is left has been seen by now.
    assert send(kept, agree(kept)).headers["Location"] == reverse("page-clusters")
    assert not is_groves(kept, "chat")


def test_a_workload_that_is_new_since_the_dry_run_is_left_for_the_next(kept: FormClient) -> None:
    fields = agree(kept)
    add_set(kept, "newcomer")
    assert send(kept, fields).headers["Location"] == where(kept)
    assert "Left for the next dry run: 1 workload of Grove's own operator." in say(open_form(kept))
    assert not is_groves(kept, "chat")
    assert is_groves(kept, "newcomer")


def test_a_takeover_is_refused_while_groves_operator_runs(kept: FormClient, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = agree(kept)
    sentence = "Grove's own operator runs in this cluster."
    monkeypatch.setattr(other_operator.OperatorCheck, "check_now", lambda *_: sentence)
    answer = run_dry(kept)
    assert sentence in say(answer)
    assert 'name="agreed"' not in answer.content.decode()
    answer = send(kept, fields)
    assert (answer.status_code, sentence in say(answer)) == (409, True)
    assert is_groves(kept, "chat")
    assert is_groves(kept, "other")
