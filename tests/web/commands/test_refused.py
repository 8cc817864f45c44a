"""A command that the cluster refuses, or does not answer, says so above the form and keeps what was filled in."""

import html
import re
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import Group
from django.test import Client

from rollouts import models
from rollouts.models import NamespaceGrant, User
from tests.api.read import fleet
from tests.web.commands.filling import FormClient, fields_of

pytestmark = pytest.mark.django_db

SCALE = "/workloads/sandbox/default/chat/scale/"


@pytest.fixture
def olga(silent_cluster: models.Cluster, redis: Any) -> Client:
    """Somebody who may command, in front of a cluster where nobody answers."""
    fleet.store_parts(silent_cluster, fleet.podcliqueset("chat", cliques=[fleet.clique("web", 3)]))
    account = User.objects.create_user("olga", password="correct horse battery")
    account.groups.add(Group.objects.get(name="operator"))
    NamespaceGrant.objects.create(user=account, cluster="", namespace="")
    client = Client()
    client.force_login(account)
    return client


def refused_in(page: str) -> str:
    """Return what is said above the form about the command that was sent; empty: nothing."""
    found = re.search(r'<div class="notice bad command-error" id="command-error"[^>]*>(.*?)</div>', page, re.DOTALL)
    assert found is None or found.start() < page.index("<fieldset")
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", found[1])).split()) if found else ""


def test_a_command_that_the_cluster_does_not_answer_is_told_above_the_form(olga: Client) -> None:
    fields = {**fields_of(olga.get(SCALE).content.decode()), "replicas_": "3"}
    answer = olga.post(SCALE, fields)
    page = answer.content.decode()
    assert answer.status_code == 503
    assert refused_in(page).startswith("The cluster sandbox did not answer. ")
    assert refused_in(page).endswith(" Your input is kept.")
    assert fields_of(page)["replicas_"] == "3"


def test_trying_a_form_says_nothing_above_it_and_takes_nothing_away_from_there(olga: Client) -> None:
    fields = {**fields_of(olga.get(SCALE).content.decode()), "replicas_": "3"}
    assert refused_in(olga.post(SCALE, {**fields, "try": "1"}).content.decode()) == ""
    trial = olga.post(f"{SCALE}preview/", fields).content.decode()
    assert 'id="preview"' in trial
    assert 'id="command-error"' not in trial


def test_a_manifest_that_the_cluster_refuses_is_told_above_the_form_with_what_the_cluster_said(
    forms: FormClient,
) -> None:
    fields = forms.open("apply")
    manifest = yaml.safe_load(fields["manifest"])
    manifest["metadata"]["labels"] = {"team": "not a label"}
    written = yaml.safe_dump(manifest)
    answer = forms.send("apply", {**fields, "manifest": written})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "not a label" in refused_in(page)
    assert fields_of(page)["manifest"].strip() == written.strip()


def test_a_rule_that_a_form_breaks_is_told_above_it_too(forms: FormClient) -> None:
    page = forms.change("scale", replicas_="two").content.decode()
    assert "whole number" in refused_in(page)
