"""What a manifest may show: nothing that may be secret, whatever it is made of, and all of it comes back."""

import copy
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollouts.engine.manifest.findings import FindingCode
from rollouts.manifests import masking
from rollouts.manifests.masking import (
    HIDDEN,
    MARK,
    PUBLIC_READER,
    RECORD_READER,
    Reader,
    is_secret_name,
    make_text_mask,
    make_workload_reader,
    mask_text,
    without_digests,
)
from rollouts.manifests.strict_yaml import MAX_BODY_BYTES
from tests.thoroughness import examples

SECRET = "s3cr3t-Zx9"
WORKLOAD = "east/team-a/chat"
READERS = {"who may apply": make_workload_reader(WORKLOAD), "anybody": PUBLIC_READER, "the audit": RECORD_READER}


def mask_manifest(obj: Any, reader: Reader = READERS["who may apply"]) -> Any:
    """Return a manifest as shown to an account that may apply it."""
    return masking.mask_manifest(obj, reader)


def unmask_manifest(obj: Any, live: Any) -> Any:
    """Return a manifest that was sent back, with its hidden values restored."""
    return masking.unmask_manifest(obj, live, WORKLOAD, MAX_BODY_BYTES)


def container(**fields: Any) -> dict[str, Any]:
    """Return a manifest with one container."""
    return {"spec": {"podSpec": {"containers": [{"name": "main", **fields}]}}}


PLANTED = {
    "env": container(env=[{"name": "GREETING", "value": SECRET}]),
    "env with a telling name": container(env=[{"name": "HF_TOKEN", "value": SECRET}]),
    "env with a harmless beginning": container(env=[{"name": "NCCL_PASSWORD", "value": SECRET}]),
    "env whose value is a URL": container(env=[{"name": "VLLM_HOST", "value": f"http://me:{SECRET}@host/"}]),
    "env of an init container": {"initContainers": [{"env": [{"name": "X", "value": SECRET}]}]},
    "env without a name": container(env=[{"value": SECRET}]),
    "env that is a text": container(env=[SECRET]),
    "argument with a sign": container(args=[f"--api-key={SECRET}"]),
    "argument after an option": container(args=["--token", SECRET]),
    "argument after a short option": container(args=["--hf-token", SECRET, "--port", "80"]),
    "user with a password": container(args=[f"--user=robot:{SECRET}"]),
    "user with a password, apart": container(command=["curl", "-u", f"robot:{SECRET}", "http://x"]),
    "URL in an argument": container(args=[f"--db=postgres://me:{SECRET}@db:5432/x"]),
    "URL with a password that holds an @": container(args=[f"--db=postgres://me:p@{SECRET}@db:5432/x"]),
    "argument with what a shell would read": container(args=[f"--password=a,b;c&'{SECRET}|"]),
    "argument with blanks": container(args=[f"--password=a b {SECRET}"]),
    "argument with an open quote": container(args=[f'--secret="{SECRET}']),
    "assignment with a comma": container(args=["--set", f"auth.token=a,{SECRET}"]),
    "argument by a name in one word": container(args=[f"--authtoken={SECRET}", "--dbpassword", SECRET]),
    "header in an argument": container(args=[f"--header=Authorization: Token {SECRET}"]),
    "cookie in a script": container(command=["sh", "-c", f"curl -H 'Cookie: a=b; c={SECRET}' http://x"]),
    "script": container(command=["sh", "-c", f"export API_TOKEN={SECRET} && serve"]),
    "option in a script": container(command=["sh", "-c", f"serve --password {SECRET} --port 80"]),
    "quoted in a script": container(command=["sh", "-c", f"serve --secret '{SECRET} and more'"]),
    "JSON in an argument": container(args=[f'--config={{"password": "{SECRET}"}}']),
    "header in a script": container(command=["sh", "-c", f"curl -H 'Authorization: Bearer {SECRET}' http://x"]),
    "header of a probe": container(
        livenessProbe={"httpGet": {"httpHeaders": [{"name": "X-Anything", "value": SECRET}]}}
    ),
    "command of a hook": container(lifecycle={"preStop": {"exec": {"command": ["stop", f"--token={SECRET}"]}}}),
    "attributes of a volume": {"volumes": [{"csi": {"volumeAttributes": {"secretKey": SECRET}}}]},
    "options of a volume": {"volumes": [{"flexVolume": {"options": {"password": SECRET}}}]},
    "what hangs below a telling name": {"credentials": {"user": "me", "value": [SECRET]}},
    "annotation with a telling name": {"metadata": {"annotations": {"example.com/token": SECRET}}},
    "annotation with a copy": {
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": f'{{"a": "{SECRET}"}}'}}
    },
    "annotation that holds an object": {"annotations": {"example.com/x": f'{{"env": [{{"value": "{SECRET}"}}]}}'}},
    "token by its form": container(args=["hf_abcdefghijklmnop" + SECRET.replace("-", "")]),
    "signed token": container(args=[f"eyJhbGciOiJI.eyJzdWIiOiIx.{SECRET}"]),
    "private key": container(args=[f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----"]),
    "user of an address without a scheme": container(args=[f"//me:{SECRET}@models.example.com/v1"]),
    "user of a registry": container(args=["pull", f"robot:{SECRET}@registry.example.com/team/chat:v1"]),
    "user of a registry in an image": container(image=f"robot:{SECRET}@registry.example.com:5000/chat"),
    "password after -p": container(command=["client", "-p", SECRET]),
    "password after -a": container(args=["-h", "cache", "-a", SECRET]),
    "password joined to -p": container(command=["mysql", f"-p{SECRET}"]),
    "password joined to -p, a word": container(command=["/usr/bin/mysqldump", f"-p{SECRET.lower()}"]),
    "password joined to -p of anything": container(args=[f"-pA{SECRET}"]),
    "password of sshpass": container(command=["sh", "-c", f"sshpass -p {SECRET} ssh host"]),
    "password of sshpass, quoted": container(command=["sh", "-c", f"sleep 1; sshpass -p '{SECRET} x' ssh host"]),
    "password of a client in a script": container(command=["bash", "-c", f"redis-cli -h c -a {SECRET} ping | cat"]),
    "joined password in a script": container(command=["bash", "-c", f"a && mysql -u root -p{SECRET} db"]),
    "exported in a script": container(command=["sh", "-c", f"export MODE=fast GREETING={SECRET}; serve"]),
    "exported in quotes": container(command=["sh", "-c", f'export GREETING="a; {SECRET}"\nserve']),
    "declared in a script": container(command=["bash", "-c", f"declare -x GREETING={SECRET}; serve"]),
    "prose in an annotation": {"metadata": {"annotations": {"example.com/note": f"the password is {SECRET}, ask ana"}}},
    "more prose in an annotation": {"annotations": {"note": f"Old API key was '{SECRET}'."}},
    "condition that quotes it": {"status": {"conditions": [{"message": f"bad value TOKEN={SECRET} given"}]}},
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("what", PLANTED)
def test_it_is_hidden(what: str, reader: Reader) -> None:
    shown = str(mask_manifest(PLANTED[what], reader))
    assert SECRET.lower() not in shown.lower()
    assert SECRET.replace("-", "") not in shown


@pytest.mark.parametrize("what", [what for what in PLANTED if what != "annotation with a copy"])
def test_it_comes_back(what: str) -> None:
    masked = mask_manifest(PLANTED[what])
    assert unmask_manifest(masked, PLANTED[what]) == (PLANTED[what], [])


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


def test_nothing_given_is_changed() -> None:
    manifests = copy.deepcopy(PLANTED)
    mask_manifest(manifests)
    unmask_manifest(mask_manifest(manifests), manifests)
    assert manifests == PLANTED


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


# ---- and back


def test_what_was_edited_around_a_hidden_value_stays_edited() -> None:
    live = container(args=["--token", SECRET, f"--url=http://me:{SECRET}@old/"], env=[{"name": "A", "value": SECRET}])
    sent = mask_manifest(live)
    main = sent["spec"]["podSpec"]["containers"][0]
    main["args"].insert(0, "--new")
    main["args"][3] = main["args"][3].replace("@old/", "@new/")
    main["env"].insert(0, {"name": "B", "value": "plain"})
    restored, findings = unmask_manifest(sent, live)
    main = restored["spec"]["podSpec"]["containers"][0]
    assert findings == []
    assert main["args"] == ["--new", "--token", SECRET, f"--url=http://me:{SECRET}@new/"]
    assert main["env"] == [{"name": "B", "value": "plain"}, {"name": "A", "value": SECRET}]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda main: main["env"].append({"name": "LOG_LEVEL", "value": main["env"][0]["value"]}), "env[1].value"),
        (lambda main: main.update(workingDir=main["env"][0]["value"]), "workingDir"),
        (lambda main: main["env"][0].update(name="OTHER"), "env[0].value"),
        (lambda main: main["env"][0].update(value="‹hidden 00000000›"), "env[0].value"),
        (lambda main: main["env"][0].update(value=HIDDEN), "env[0].value"),
        (lambda main: main.update(args=["--token", main["env"][0]["value"]]), "args[1]"),
    ],
)
def test_a_hidden_value_is_put_back_nowhere_but_where_it_was(change: Any, field: str) -> None:
    live = container(env=[{"name": "X", "value": SECRET}])
    sent = mask_manifest(live)
    change(sent["spec"]["podSpec"]["containers"][0])
    restored, findings = unmask_manifest(sent, live)
    assert [(one.field, one.code) for one in findings] == [
        (f"spec.podSpec.containers[0].{field}", FindingCode.UNKNOWN_VALUE)
    ]
    assert [value for _, value in _leaves(restored)].count(SECRET) == (field != "env[0].value")


@pytest.mark.parametrize(
    ("live", "change"),
    [
        (container(args=[f"--api-key={SECRET}"]), lambda main, mark: main["args"].append(f"--model={mark}")),
        (container(args=[f"--api-key={SECRET}"]), lambda main, mark: main["args"].append(f"echo {mark}")),
        (container(args=[f"--db=x://{SECRET}@h"]), lambda main, mark: main.update(args=[f"--db=x://{mark}@h {mark}"])),
        (
            container(env=[{"name": "VLLM_HOST", "value": f"http://{SECRET}@host/"}]),
            lambda main, mark: main["env"][0].update(value=f"http://{mark}"),
        ),
    ],
)
def test_a_hidden_value_is_not_put_back_where_it_would_be_shown(live: dict[str, Any], change: Any) -> None:
    sent = mask_manifest(live)
    main = sent["spec"]["podSpec"]["containers"][0]
    found = MARK.search(str(main))
    assert found
    change(main, found[0])
    _, findings = unmask_manifest(sent, live)
    assert [one.code for one in findings] == [FindingCode.UNKNOWN_VALUE]


def test_a_mark_that_is_moved_to_where_parts_of_it_are_shown_is_refused_by_its_field() -> None:
    secret = "AccountName=acme;Key=Zx9Q,TOPSECRETPART"
    live = container(args=["--api-key", secret])
    sent = mask_manifest(live)
    main = sent["spec"]["podSpec"]["containers"][0]
    main["args"] = ["--x", main["args"][1]]
    _, findings = unmask_manifest(sent, live)
    assert [(one.field, one.code) for one in findings] == [
        ("spec.podSpec.containers[0].args[1]", FindingCode.UNKNOWN_VALUE)
    ]


def test_a_new_secret_may_be_written_beside_a_mark() -> None:
    live = container(command=["sh", "-c", f"serve --token={SECRET}"])
    sent = mask_manifest(live)
    main = sent["spec"]["podSpec"]["containers"][0]
    main["command"][2] += " --password=another --port=80"
    restored, findings = unmask_manifest(sent, live)
    assert findings == []
    assert restored["spec"]["podSpec"]["containers"][0]["command"][2] == (
        f"serve --token={SECRET} --password=another --port=80"
    )


def test_what_others_were_shown_cannot_be_applied_and_the_sentence_says_why() -> None:
    live = container(args=["serve"], env=[{"name": "X", "value": SECRET}])
    _, findings = unmask_manifest(masking.mask_manifest(live), live)
    fields = [one.field.removeprefix("spec.podSpec.containers[0].") for one in findings]
    assert fields == ["args[0]", "env[0].value"]
    assert all("read the manifest with an account that may apply it" in one.message for one in findings)


def test_marks_of_another_workload_are_not_put_back() -> None:
    live = container(env=[{"name": "X", "value": SECRET}])
    sent = masking.mask_manifest(live, make_workload_reader("east/team-b/chat"))
    _, findings = unmask_manifest(sent, live)
    assert [one.code for one in findings] == [FindingCode.UNKNOWN_VALUE]


@pytest.mark.parametrize(
    ("repeat", "field"),
    [
        (lambda main, mark: main["env"][0].update(value=mark * 10_000), "env[0].value"),
        (lambda main, mark: main.update(env=[{"name": "X", "value": mark}] * 500), "env[51].value"),
        (lambda main, mark: main.update(env=[{"name": "X", "value": "-" * 20_000 + mark}] * 100), "env[0].value"),
    ],
    ids=["in one text", "in many fields", "in a manifest that is large already"],
)
def test_a_manifest_that_hidden_values_would_make_too_large_is_refused_before_it_is_built(
    repeat: Any, field: str
) -> None:
    live = container(env=[{"name": "X", "value": "s" * 20_000}])
    sent = mask_manifest(live)
    main = sent["spec"]["podSpec"]["containers"][0]
    repeat(main, main["env"][0]["value"])
    tracemalloc.start()
    try:
        restored, findings = unmask_manifest(sent, live)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(one.field, one.code) for one in findings] == [
        (f"spec.podSpec.containers[0].{field}", FindingCode.TOO_LONG)
    ]
    assert "larger than 1024 KiB. Leave each mark only where it was shown" in findings[0].message
    assert peak < 20 * MAX_BODY_BYTES
    assert sum(len(value) for _, value in _leaves(restored)) < 2 * MAX_BODY_BYTES


@pytest.mark.parametrize(
    ("live", "entry"),
    [
        ([{"name": "VLLM_X", "value": "TOKEN=x " * 2_000}], {"name": "VLLM_X", "value": "‹hidden 00000000›"}),
        ([{"name": "VLLM_X", "value": "TOKEN=x " * 2_000}], {"name": "VLLM_X", "value": "TOKEN={mark}"}),
        ([{"name": f"TOKEN=x VLLM_{number}"} for number in range(2_000)], None),
    ],
    ids=["a mark that is none of it", "a mark that is one of it", "entries by their names"],
)
def test_what_a_live_value_hides_is_looked_for_once_however_often_it_is_asked_for(live: Any, entry: Any) -> None:
    whole = container(env=live)
    mark = MARK.search(str(mask_manifest(whole)))
    assert mark
    sent = container()
    if entry is None:
        sent["spec"]["podSpec"]["containers"] = [{"name": "main", "env": []}] * 2_000
    else:
        sent = container(env=[{**entry, "value": entry["value"].format(mark=mark[0])}] * 2_000)
    before = time.process_time()
    unmask_manifest(sent, whole)
    assert time.process_time() - before < 5


def test_a_value_that_is_hidden_in_a_large_manifest_is_put_back_up_to_the_limit() -> None:
    live = container(env=[{"name": "X", "value": "s" * (MAX_BODY_BYTES - 1_000)}])
    assert unmask_manifest(mask_manifest(live), live) == (live, [])


def test_a_value_that_changed_meanwhile_is_not_taken_for_the_one_that_was_shown() -> None:
    sent = mask_manifest(container(env=[{"name": "X", "value": "old"}]))
    restored, findings = unmask_manifest(sent, container(env=[{"name": "X", "value": "new"}]))
    assert len(findings) == 1
    assert "new" not in str(restored)


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


# ---- whatever it is made of

_NAMES = st.sampled_from(
    [
        "env",
        "a.env[0]",
        "x.args[1]",
        "name",
        "value",
        "args",
        "command",
        "annotations",
        "httpHeaders",
        "token",
        "labels",
        "spec",
        "a/b",
        "key",
    ]
)
_TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            *("--token", "-u", "a:b", "TOKEN=x", "http://u:p@h", "‹hidden 00000000›", "‹hidden", '{"password": "x"}'),
            *("Bearer abcdefghij", "a=‹hidden 12345678›", "--secret=", "key=\"a'b", "Authorization: Basic abcdefgh"),
            *("-p", "-a", "mysql", "-px", "mysql -p x", "export A=b C=d", "a:b@c/d", "//a:b@c", "the password is x1"),
        ]
    ),
    st.text(alphabet="-=: \"'‹›@/abp_TOKENkey\n", max_size=30),
)
_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXTS)
_ANYTHING = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(_NAMES, st.text(max_size=5)), inner, max_size=4),
    ),
    max_leaves=25,
)


@given(_ANYTHING, st.sampled_from(list(READERS.values())))
@settings(max_examples=examples(300), deadline=None)
@example({"env": [None, 1, [], {"name": 3, "value": {"a": 1}}]}, PUBLIC_READER)
@example({"args": [1, None, "--token", 5, ["x"], "--token"]}, RECORD_READER)
@example({"annotations": [1], "labels": "x", "httpHeaders": {"a": 1}}, RECORD_READER)
def test_anything_can_be_masked_and_masking_twice_is_masking_once(value: Any, reader: Reader) -> None:
    masked = mask_manifest(value, reader)
    assert mask_manifest(masked, reader) == masked


@given(_ANYTHING)
@settings(max_examples=examples(300), deadline=None)
@example([{"name": "TOKEN=0"}])
@example({"env": [{"env": [False]}]})
def test_what_was_shown_comes_back_as_it_was(value: Any) -> None:
    if "‹hidden" in str(value):
        return  # a mark of nobody's
    restored, findings = unmask_manifest(mask_manifest(value), value)
    assert (restored, findings) == (value, [])


@pytest.mark.parametrize(
    "odd", [object(), {1: "x", None: "y"}, {"env": ({"name": "A", "value": b"x"},)}, {"token": {3}}]
)
def test_what_no_manifest_holds_is_masked_too(odd: Any) -> None:
    mask_manifest(odd)
    unmask_manifest(odd, odd)
    unmask_manifest(mask_manifest(odd), None)


def test_what_is_too_deep_is_hidden_whole() -> None:
    deep: Any = {"value": SECRET}
    for _ in range(3000):
        deep = {"a": deep}
    masked = mask_manifest(deep)
    assert SECRET not in str(masked)
    unmask_manifest(masked, deep)


@pytest.mark.parametrize(
    "part",
    [
        *("x", "a-", "--token ", "http://", "eyJaaaaaaaa-", 'a="', "a='\"", '"a":', "-u a:", " ", "-----BEGIN "),
        *("TOKEN=", "bearer ", "://", "-", "a: ", "'", "sk-", "‹hidden ", '"', "://a", "@", "cookie:", "cookie: a\n"),
        *("-p ", "-p", "mysql -p", "export A=", "export ", "declare -x ", "a:b@", "//a:", "password is ", "'\"", "a:"),
    ],
)
def test_a_long_text_takes_no_longer_than_it_is_long(part: str) -> None:
    # Quadratic patterns would take minutes here, and be ended by the time limit of the tests.
    text = part * (300_000 // len(part))
    manifest = {"text": text, "args": [text], "annotations": {"a": text}}
    for reader in READERS.values():
        mask_manifest(manifest, reader)


@pytest.mark.parametrize(
    "name", ["--api-key", "HF_TOKEN", "dbPassword", "X-Auth", "accessKey", "AWS_SECRET_ACCESS_KEY", "authtoken"]
)
def test_names_that_speak_of_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["--max-tokens", "--tokenizer", "kv-cache", "ssl-keyfile", "monkey", "keyboard", ""])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


def _leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, member in value.items() for leaf in _leaves(member, f"{path}.{key}".strip("."))]
    if isinstance(value, list):
        return [leaf for index, member in enumerate(value) for leaf in _leaves(member, f"{path}[{index}]")]
    return [(path.removeprefix("spec.podSpec.containers[0]."), value)]
