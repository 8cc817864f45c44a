"""Manifests from a form: hidden values stay, lines of findings, fields of others, and what is new."""

from typing import Any

import pytest
import yaml
from django.test import Client

from rollouts.cluster import NotFound, Obj
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.manifests.masking import MARK
from rollouts.manifests.strict_yaml import MAX_BODY_BYTES, parse_yaml
from rollouts.web.commands import apply
from tests.engine.manifests import small
from tests.web.commands.conftest import sign_in
from tests.web.commands.filling import Fields, FormClient, fields_of, said_beside

pytestmark = pytest.mark.django_db

SECRET = "s3cret-of-ours"


def find_new(forms: FormClient, name: str) -> Obj | None:
    """Return a workload of another name, if it is there."""
    try:
        return forms.stage.cluster.get(PODCLIQUESETS, name, namespace=forms.stage.namespace)
    except NotFound:
        return None


def env(obj: Obj) -> Any:
    """Return the environment of the first container."""
    return obj["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0].get("env")


@pytest.fixture
def with_secret(forms: FormClient) -> FormClient:
    """A workload with a secret in it."""
    template = forms.stage.spec()["template"]
    template["cliques"][0]["spec"]["podSpec"]["containers"][0]["env"] = [{"name": "API_TOKEN", "value": SECRET}]
    forms.stage.edit_elsewhere(template=template)
    forms.stage.observe()
    return forms


def change_text(fields: Fields, old: str, new: str) -> Fields:
    """Return a form in which one bit of the manifest is another."""
    assert old in fields["manifest"]
    return {**fields, "manifest": fields["manifest"].replace(old, new, 1)}


def test_a_manifest_is_edited_and_what_is_hidden_in_it_keeps_its_value(with_secret: FormClient) -> None:
    fields = with_secret.open("apply")
    assert MARK.search(fields["manifest"])
    assert SECRET not in fields["manifest"]
    assert "status:" not in fields["manifest"]
    sent = change_text(fields, "app:v1", "app:v2")
    assert with_secret.send("apply", {**sent, "force": "on"}).status_code == 302
    stored = with_secret.stage.stored()
    assert env(stored) == [{"name": "API_TOKEN", "value": SECRET}]
    assert "app:v2" in str(stored["spec"])
    assert with_secret.send("apply", {**sent, "force": "on"}).status_code == 302
    assert with_secret.commands().count(("apply_workload", "Done")) == 1


def test_another_spelling_of_an_amount_is_shown_and_announces_no_replaced_pod(running: FormClient) -> None:
    template = running.stage.spec()["template"]
    template["cliques"][0]["spec"]["podSpec"]["containers"][0]["resources"] = {"requests": {"memory": "1Gi"}}
    running.stage.edit_elsewhere(template=template)
    running.stage.deploy()
    for amount, is_replaced in (("1024Mi", False), ("1025Mi", True)):
        page = running.try_out("apply", {**change_text(running.open("apply"), "1Gi", amount), "force": "on"})
        assert f"memory: {amount}" in page
        assert ("replaced" in page) is is_replaced


def test_the_owner_of_a_workload_stays_when_its_manifest_is_sent_back(forms: FormClient) -> None:
    namespace, stored = forms.stage.namespace, forms.stage.stored()
    other = forms.stage.cluster.create(
        PODCLIQUESETS, small({"metadata.name": "other", "metadata.namespace": namespace})
    )
    owner = {name: other[name] for name in ("apiVersion", "kind")}
    owner |= {name: other["metadata"][name] for name in ("name", "uid")}
    written = {"name": "chat", "namespace": namespace, "ownerReferences": [owner]}
    kept = {name: stored[name] for name in ("apiVersion", "kind", "spec")}
    # As Grove UI let people apply it once: a server takes out what its field manager leaves out from then on.
    forms.stage.cluster.apply(PODCLIQUESETS, {**kept, "metadata": written}, force=True)
    forms.stage.observe()
    fields = forms.open("apply")
    assert "ownerReferences" not in yaml.safe_load(fields["manifest"])["metadata"]
    assert forms.send("apply", {**change_text(fields, "app:v1", "app:v2"), "force": "on"}).status_code == 302
    assert "app:v2" in str(forms.stage.spec())
    assert forms.stage.stored()["metadata"]["ownerReferences"] == [owner]


def test_a_hidden_value_cannot_be_moved_to_where_it_is_shown(with_secret: FormClient) -> None:
    fields = with_secret.open("apply")
    sent = change_text(fields, "name: API_TOKEN", "name: LOG_LEVEL")
    answer = with_secret.send("apply", {**sent, "force": "on"})
    assert answer.status_code == 422
    assert "stands for no value that this field has" in answer.content.decode()
    assert SECRET not in answer.content.decode()


def test_what_others_hold_is_told_while_somebody_types_and_taken_over_by_force_alone(forms: FormClient) -> None:
    theirs = {**small({"spec.replicas": 1}), "metadata": {"name": "chat", "namespace": forms.stage.namespace}}
    forms.stage.cluster.apply(PODCLIQUESETS, theirs, field_manager="somebody", force=True)
    forms.stage.observe()
    fields = change_text(forms.open("apply"), "replicas: 1", "replicas: 2")
    assert "somebody owns this field" in forms.try_out("apply", fields)
    assert forms.send("apply", fields).status_code == 409
    assert forms.stage.spec()["replicas"] == 1
    assert "owns this field" not in forms.try_out("apply", {**fields, "force": "on"})
    assert forms.send("apply", {**fields, "force": "on"}).status_code == 302
    assert forms.stage.spec()["replicas"] == 2


def test_what_breaks_a_rule_is_told_with_its_line(forms: FormClient) -> None:
    fields = change_text(forms.open("apply"), "cliqueStartupType: CliqueStartupTypeAnyOrder", "cliqueStartupType: No")
    line = 1 + fields["manifest"].splitlines().index("    cliqueStartupType: No")
    assert f"line {line}: " in forms.try_out("apply", {**fields, "force": "on"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the manifest is empty"),
        ("a: [", "this is not valid YAML"),
        ("a: 1\n---\nb: 2", "several documents"),
        ("a: 1\na: 2", "appears twice"),
        ("just words", "must be one PodCliqueSet"),
        ("x" * (MAX_BODY_BYTES + 1), "larger than 1024 KiB"),
    ],
    ids=["nothing", "broken", "two", "twice", "words", "large"],
)
def test_a_text_that_is_no_manifest_is_refused_below_it(forms: FormClient, text: str, words: str) -> None:
    before = forms.stage.stored()
    answer = forms.change("apply", manifest=text)
    assert answer.status_code == 422
    assert words in said_beside(answer.content.decode(), "manifest")
    assert forms.stage.stored() == before


def test_the_manifest_of_somebody_quicker_is_not_overwritten(forms: FormClient) -> None:
    fields = change_text(forms.open("apply"), "replicas: 1", "replicas: 2")
    forms.stage.edit_elsewhere(replicas=3)
    lost = forms.send("apply", {**fields, "force": "on"})
    assert lost.status_code == 409
    assert "has been changed" in lost.content.decode()
    assert fields_of(lost.content.decode())["manifest"].strip() == fields["manifest"].strip()
    assert forms.stage.spec()["replicas"] == 3


# ---- new ones


def new_fields(forms: FormClient, **metadata: str) -> Fields:
    """Return the form of a new workload."""
    manifest = {**small(), "metadata": {"name": "fresh", **metadata}}
    fields = {"manifest": yaml.safe_dump(manifest), "cluster": forms.stage.cluster_name}
    return {**fields, "namespace": forms.stage.namespace}


def test_a_new_workload_is_tried_created_once_and_shown(forms: FormClient) -> None:
    fields = new_fields(forms)
    tried = forms.client.post("/workloads/new/preview/", fields).content.decode()
    assert "<ins>" in tried
    assert "refused" not in tried
    assert find_new(forms, "fresh") is None
    answers = [forms.client.post("/workloads/new/", fields) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [302, 302]
    assert answers[0]["Location"].endswith(f"/{forms.stage.namespace}/fresh/")
    assert find_new(forms, "fresh") is not None
    assert forms.commands().count(("apply_workload", "Done")) == 1


def test_what_is_there_already_is_not_touched_by_a_new_one(forms: FormClient) -> None:
    before = forms.stage.stored()
    answer = forms.client.post("/workloads/new/", new_fields(forms, name="chat"))
    assert answer.status_code == 409
    assert "A workload chat exists already" in answer.content.decode()
    assert forms.stage.stored() == before


def test_a_new_workload_must_say_its_name_and_go_where_one_may_command(forms: FormClient) -> None:
    nameless = forms.client.post("/workloads/new/", new_fields(forms, name=""))
    assert nameless.status_code == 422
    assert "metadata.name is missing" in said_beside(nameless.content.decode(), "manifest")
    elsewhere = forms.client.post("/workloads/new/", new_fields(forms, namespace="elsewhere"))
    assert elsewhere.status_code == 403
    assert "no grant for the namespace elsewhere" in elsewhere.content.decode()
    odd = forms.client.post("/workloads/new/", new_fields(forms, name="Not A Name/"))
    assert odd.status_code == 422


def test_the_form_of_a_new_workload_begins_with_what_would_be_accepted(forms: FormClient, operator: Client) -> None:
    fields = fields_of(operator.get("/workloads/new/").content.decode())
    tried = operator.post(
        "/workloads/new/preview/", {**fields, "cluster": forms.stage.cluster_name, "namespace": forms.stage.namespace}
    )
    assert "refused" not in tried.content.decode()


# ---- what is read


@pytest.fixture
def texts_read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is read as YAML, text by text."""
    read: list[bytes] = []

    def note(body: bytes) -> Any:
        read.append(body)
        return parse_yaml(body)

    monkeypatch.setattr(apply, "parse_yaml", note)
    return read


FORMS = ["new", "apply"]


def fill_in(forms: FormClient, form: str) -> tuple[str, Fields]:
    """Return where a form is, and what is sent."""
    fields = new_fields(forms)
    if form == "new":
        return "/workloads/new/", fields
    manifest = fields["manifest"].replace("name: fresh", "name: chat")
    return forms.address("apply"), {**forms.open("apply"), "manifest": manifest, "force": "on"}


@pytest.mark.parametrize(("role", "sentence"), [("viewer", "lacks the permission"), ("operator", "no grant for")])
@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_read_for_those_who_may_not_command(
    forms: FormClient, texts_read: list[bytes], form: str, role: str, sentence: str
) -> None:
    where, fields = fill_in(forms, form)
    other = sign_in(role, "vera")
    tried = other.post(f"{where}preview/", fields)
    sent = other.post(where, fields)
    assert (tried.status_code, sent.status_code) == (200, 403)
    assert all(sentence in answer.content.decode() for answer in (tried, sent))
    assert texts_read == []
    assert forms.commands() == [("apply_workload", "Refused")]


@pytest.mark.parametrize("form", FORMS)
def test_a_text_is_read_once_for_those_who_may(forms: FormClient, texts_read: list[bytes], form: str) -> None:
    where, fields = fill_in(forms, form)
    assert "refused" not in forms.client.post(f"{where}preview/", fields).content.decode()
    assert len(texts_read) == 1
    assert forms.client.post(where, fields).status_code == 302
    assert len(texts_read) == 2


def test_a_text_that_cannot_be_read_is_not_searched_for_lines(
    forms: FormClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml, "compose", lambda *_, **__: pytest.fail("it is searched"))
    tried = forms.try_out("apply", {**forms.open("apply"), "manifest": "a:\n" + "- {b: 1}\n" * 50_000})
    assert "more than 104,857 values and keys" in said_beside(tried, "manifest")
