"""What a manifest may show: nothing that may be secret, to none of its readers."""

from typing import Any

import pytest

from rollouts.manifests import masking
from rollouts.manifests.masking import (
    HIDDEN,
    MARK,
    PUBLIC_READER,
    RECORD_READER,
    Reader,
    make_text_mask,
    make_workload_reader,
    mask_text,
    without_digests,
)
from tests.manifests.masking.planted import PLANTED, READERS, SECRET, WORKLOAD, container, mask_manifest


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("what", PLANTED)
def test_it_is_hidden(what: str, reader: Reader) -> None:
    shown = str(mask_manifest(PLANTED[what], reader))
    assert SECRET.lower() not in shown.lower()
    assert SECRET.replace("-", "") not in shown


SHOWN = [
    container(env=[{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"}]),
    container(env=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}]),
    container(envFrom=[{"secretRef": {"name": "hub"}}]),
    container(args=["--max-num-batched-tokens=8192", "--tokenizer", "base", "--kv-cache-dtype=fp8", "--port=80"]),
    container(args=["--served-model-name", "chat", "--ssl-keyfile=/tls/key.pem", "--max-tokens", "10"]),
    container(image="registry.example.com/team/chat:v1@sha256:0123456789abcdef"),
    container(livenessProbe={"httpGet": {"path": "/", "httpHeaders": [{"name": "Host", "value": "chat"}]}}),
    {"imagePullSecrets": [{"name": "registry"}], "automountServiceAccountToken": False},
    {"volumes": [{"name": "tls", "secret": {"secretName": "tls", "items": [{"key": "tls.key", "path": "k"}]}}]},
    {"metadata": {"labels": {"session": "a", "example.com/token": "b"}, "annotations": {"prometheus.io/port": "80"}}},
    {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}], "topologyKey": "zone"},
    container(image="chat:v1@sha256:0123456789abcdef"),
    container(args=["-p", "8080", "-p", "80:8080/tcp", "-p", "/models", "-port=80", "-prefix", "x", "-a"]),
    container(command=["sh", "-c", "mkdir -p models && cd models && ls -a all && ssh -p 22 host"]),
    container(command=["sh", "-c", "export PATH=$PATH:/opt NCCL_DEBUG=INFO CONFIG=$HOME_FILE; serve"]),
    {"annotations": {"note": "The token is required. The secret is kept elsewhere; see //docs/x and mail ana@x.org."}},
]


@pytest.mark.parametrize("manifest", SHOWN, ids=str)
def test_what_operators_need_is_shown(manifest: dict[str, Any]) -> None:
    assert mask_manifest(manifest) == manifest


def test_those_who_may_not_apply_see_no_command_no_argument_and_no_variable() -> None:
    hook = {"preStop": {"exec": {"command": ["stop", "gracefully"]}}}
    env = [{"name": "LOG_LEVEL", "value": "debug"}, {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]
    manifest = container(command=["serve", "me"], args=["positional"], env=env, lifecycle=hook, image="chat:v1")
    (main,) = masking.mask_manifest(manifest)["spec"]["podSpec"]["containers"]
    assert (main["command"], main["args"]) == ([HIDDEN], [HIDDEN])
    assert main["lifecycle"]["preStop"]["exec"]["command"] == [HIDDEN]
    assert main["env"] == [{"name": "LOG_LEVEL", "value": HIDDEN}, env[1]]
    assert main["image"] == "chat:v1"
    assert mask_manifest(manifest) == manifest


@pytest.mark.parametrize(
    "hook", ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"]
)
def test_those_who_may_not_apply_see_no_query_of_a_probe(hook: str) -> None:
    manifest = container()
    at = manifest["spec"]["podSpec"]["containers"][0]
    for name in hook.split("."):
        at = at.setdefault(name, {})
    at["httpGet"] = {"path": f"/healthz?deep=1&sig={SECRET}", "port": 80}
    masked = masking.mask_manifest(manifest)
    assert f"'/healthz?{HIDDEN}'" in str(masked)
    assert masking.mask_manifest(masked) == masked
    assert "deep=1" in str(mask_manifest(manifest))
    at["httpGet"] = {"path": "/healthz", "port": 80}
    assert masking.mask_manifest(manifest) == manifest


def test_a_sentence_quotes_no_query_of_a_probe() -> None:
    mask = make_text_mask(container(livenessProbe={"httpGet": {"path": f"/x?sig={SECRET}"}}))
    assert mask(f'probe failed: Get "http://10.0.0.1:80/x?sig={SECRET}": EOF') == (
        f'probe failed: Get "http://10.0.0.1:80/x?{HIDDEN}": EOF'
    )


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("spec.podSpec.containers[0].livenessProbe.httpGet.path", "/x?sig=a", f"/x?{HIDDEN}"),
        ("spec.podSpec.containers[0].livenessProbe.httpGet", {"path": "/x?sig=a"}, {"path": f"/x?{HIDDEN}"}),
        (
            "spec.podSpec.containers[0].livenessProbe",
            {"httpGet": {"path": "/?a"}},
            {"httpGet": {"path": f"/?{HIDDEN}"}},
        ),
        ("spec.podSpec.volumes[0].hostPath.path", "/x?a", "/x?a"),
        ("spec.template.cliques[0].spec.podSpec.containers[0].args[1]", "positional", HIDDEN),
        ("spec.podSpec.containers[0].command", ["sh", "-c"], [HIDDEN]),
        ("spec.podSpec.containers[main].lifecycle.preStop.exec.command[0]", "stop", HIDDEN),
        ("spec.podSpec.containers[0].env[0].value", "debug", HIDDEN),
        ("spec.podSpec.containers[0].env[LOG_LEVEL]", {"name": "A", "value": "b"}, {"name": "A", "value": HIDDEN}),
        ("spec.podSpec.containers[0].env", [{"name": "PORT", "value": "1"}], [{"name": "PORT", "value": HIDDEN}]),
        ("spec.podSpec.containers[0].image", "chat:v2", "chat:v2"),
        ("spec.replicas", 3, 3),
        ("spec.podSpec.containers[0].args[1]", None, None),
    ],
)
def test_fields_as_changes_name_them_are_hidden_in_the_same_way(field: str, value: Any, shown: Any) -> None:
    assert masking.mask_manifest({"fields": {field: value}}) == {"fields": {field: shown}}
    assert masking.mask_manifest({"fields": {field: value}}, RECORD_READER) == {"fields": {field: value}}


def mark_of(value: str, variable: str = "X", workload: str = WORKLOAD) -> str:
    shown = mask_manifest(container(env=[{"name": variable, "value": value}]), make_workload_reader(workload))
    mark: str = shown["spec"]["podSpec"]["containers"][0]["env"][0]["value"]
    assert MARK.fullmatch(mark)
    return mark


def test_a_mark_tells_nothing_in_another_field_workload_namespace_or_cluster() -> None:
    assert mark_of("a") == mark_of("a")
    others = {
        mark_of("a", "Y"),
        *(mark_of("a", workload=key) for key in ("east/team-a/x", "east/b/chat", "w/team-a/chat")),
    }
    assert len(others) == 4
    assert mark_of("a") not in others


def test_a_mark_stays_the_same_where_its_entry_moves() -> None:
    before = mask_manifest(container(env=[{"name": "A", "value": "a"}, {"name": "B", "value": "b"}]))
    after = mask_manifest(container(env=[{"name": "C", "value": "c"}, {"name": "A", "value": "a"}]))
    first, second = (one["spec"]["podSpec"]["containers"][0]["env"] for one in (before, after))
    assert first[0] == second[1]


@pytest.mark.parametrize("reader", [PUBLIC_READER, RECORD_READER])
def test_marks_for_others_are_all_alike(reader: Reader) -> None:
    shown = str(mask_manifest(PLANTED, reader))
    assert {*MARK.findall(shown)} == {HIDDEN}
    assert {*MARK.findall(str(without_digests(mask_manifest(PLANTED))))} == {HIDDEN}
    assert {*MARK.findall(mask_text(f"PASSWORD={SECRET} and {SECRET}", PLANTED["env"]))} == {HIDDEN}


def test_another_value_has_another_mark() -> None:
    assert mark_of("a") != mark_of("b")


def test_the_mark_needs_the_key_of_the_installation(settings: Any) -> None:
    before = mask_manifest(PLANTED["env"])
    settings.SECRET_KEY = "another one"
    assert mask_manifest(PLANTED["env"]) != before


def test_a_sentence_is_shown_without_the_values_that_it_quotes() -> None:
    sentence = f'spec.env[0]: Invalid value: "{SECRET}": too odd, and --password=other'
    shown = mask_text(sentence, PLANTED["env"])
    assert SECRET not in shown
    assert "other" not in shown
    assert shown.startswith("spec.env[0]: Invalid value")


@pytest.mark.parametrize("case", ["env whose value is a URL", "user with a password", "user with a password, apart"])
def test_a_sentence_is_shown_without_a_password_that_the_manifest_has_with_its_user(case: str) -> None:
    shown = mask_text(f"cannot start: {SECRET} failed", PLANTED[case])
    assert SECRET not in shown
    assert shown.endswith("failed")


def test_a_sentence_quotes_no_command_line_but_plain_words() -> None:
    mask = make_text_mask(container(command=["server", "AccountName:acme"], args=["plain-name"]))
    assert mask('exec: "server": not found') == 'exec: "server": not found'
    assert mask('exec: "AccountName:acme plain-name"') == f'exec: "{HIDDEN} plain-name"'
