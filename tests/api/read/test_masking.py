"""What a manifest may show: nothing that may be secret, whatever it is made of, and all of it comes back."""

import copy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollouts.engine.findings import Code
from rollouts.masking import MARK, is_secret_name, mask_manifest, mask_text, unmask_manifest
from tests.thoroughness import examples

SECRET = "s3cr3t-Zx9"


def container(**fields: Any) -> dict[str, Any]:
    """Return a manifest with one container."""
    return {"spec": {"podSpec": {"containers": [{"name": "main", **fields}]}}}


HIDDEN = {
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
    "condition that quotes it": {"status": {"conditions": [{"message": f"bad value TOKEN={SECRET} given"}]}},
}


@pytest.mark.parametrize("what", HIDDEN)
def test_it_is_hidden(what: str) -> None:
    assert SECRET not in str(mask_manifest(HIDDEN[what]))
    assert SECRET.replace("-", "") not in str(mask_manifest(HIDDEN[what]))


@pytest.mark.parametrize("what", [what for what in HIDDEN if what != "annotation with a copy"])
def test_it_comes_back(what: str) -> None:
    masked = mask_manifest(HIDDEN[what])
    assert unmask_manifest(masked, HIDDEN[what]) == (HIDDEN[what], [])


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
]


@pytest.mark.parametrize("manifest", SHOWN, ids=str)
def test_what_operators_need_is_shown(manifest: dict[str, Any]) -> None:
    assert mask_manifest(manifest) == manifest


def test_nothing_given_is_changed() -> None:
    manifests = copy.deepcopy(HIDDEN)
    mask_manifest(manifests)
    unmask_manifest(mask_manifest(manifests), manifests)
    assert manifests == HIDDEN


def test_the_same_value_has_the_same_mark_and_another_one_another() -> None:
    def mark(value: str) -> str:
        shown: str = mask_manifest(container(env=[{"name": "X", "value": value}]))["spec"]["podSpec"]["containers"][0][
            "env"
        ][0]["value"]
        assert MARK.fullmatch(shown)
        return shown

    assert mark("a") == mark("a")
    assert mark("a") != mark("b")


def test_the_mark_needs_the_key_of_the_installation(settings: Any) -> None:
    before = mask_manifest(HIDDEN["env"])
    settings.SECRET_KEY = "another one"
    assert mask_manifest(HIDDEN["env"]) != before


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
        (lambda main: main.update(args=["--token", main["env"][0]["value"]]), "args[1]"),
    ],
)
def test_a_hidden_value_is_put_back_nowhere_but_where_it_was(change: Any, field: str) -> None:
    live = container(env=[{"name": "X", "value": SECRET}])
    sent = mask_manifest(live)
    change(sent["spec"]["podSpec"]["containers"][0])
    restored, findings = unmask_manifest(sent, live)
    assert [(one.field, one.code) for one in findings] == [(f"spec.podSpec.containers[0].{field}", Code.UNKNOWN_VALUE)]
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
    assert [one.code for one in findings] == [Code.UNKNOWN_VALUE]


def test_a_value_that_changed_meanwhile_is_not_taken_for_the_one_that_was_shown() -> None:
    sent = mask_manifest(container(env=[{"name": "X", "value": "old"}]))
    restored, findings = unmask_manifest(sent, container(env=[{"name": "X", "value": "new"}]))
    assert len(findings) == 1
    assert "new" not in str(restored)


def test_a_sentence_is_shown_without_the_values_that_it_quotes() -> None:
    sentence = f'spec.env[0]: Invalid value: "{SECRET}": too odd, and --password=other'
    shown = mask_text(sentence, HIDDEN["env"])
    assert SECRET not in shown
    assert "other" not in shown
    assert shown.startswith("spec.env[0]: Invalid value")


@pytest.mark.parametrize("case", ["env whose value is a URL", "user with a password", "user with a password, apart"])
def test_a_sentence_is_shown_without_a_password_that_the_manifest_has_with_its_user(case: str) -> None:
    shown = mask_text(f"cannot start: {SECRET} failed", HIDDEN[case])
    assert SECRET not in shown
    assert shown.endswith("failed")


# ---- whatever it is made of

_NAMES = st.sampled_from(
    ["env", "name", "value", "args", "command", "annotations", "httpHeaders", "token", "labels", "spec", "a/b", "key"]
)
_TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            *("--token", "-u", "a:b", "TOKEN=x", "http://u:p@h", "‹hidden 00000000›", "‹hidden", '{"password": "x"}'),
            *("Bearer abcdefghij", "a=‹hidden 12345678›", "--secret=", "key=\"a'b", "Authorization: Basic abcdefgh"),
        ]
    ),
    st.text(alphabet="-=: \"'‹›@/ab_TOKENkey\n", max_size=30),
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


@given(_ANYTHING)
@settings(max_examples=examples(300), deadline=None)
@example({"env": [None, 1, [], {"name": 3, "value": {"a": 1}}]})
@example({"args": [1, None, "--token", 5, ["x"], "--token"]})
@example({"annotations": [1], "labels": "x", "httpHeaders": {"a": 1}})
def test_anything_can_be_masked_and_masking_twice_is_masking_once(value: Any) -> None:
    masked = mask_manifest(value)
    assert mask_manifest(masked) == masked


@given(_ANYTHING)
@settings(max_examples=examples(300), deadline=None)
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
    ],
)
def test_a_long_text_takes_no_longer_than_it_is_long(part: str) -> None:
    # Quadratic patterns would take minutes here, and be ended by the time limit of the tests.
    text = part * (300_000 // len(part))
    mask_manifest({"text": text, "args": [text], "annotations": {"a": text}})


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
