"""Whatever is sent as a command: an answer that names what is wrong, never a fault of ours, and nothing is changed."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.manifests.strict_yaml import MAX_BODY_BYTES, UnreadableDocument, parse_json, parse_yaml
from rollouts.models import AuditEntry
from tests.api.calling import Answer, Api, make_api
from tests.api.scene import CLUSTER, NAMESPACE, Scene
from tests.thoroughness import examples

pytestmark = [pytest.mark.database, pytest.mark.django_db]

COMMANDS = [
    ("POST", "apply/"),
    ("POST", "images/"),
    ("POST", "scale/"),
    ("PATCH", "strategy/"),
    ("POST", "restart/"),
    ("POST", "rollback/"),
    ("POST", "pods/delete/"),
    ("POST", "pods/let-go/"),
    ("POST", "surge/delete/"),
    ("POST", "simulation/"),
]
EACH = pytest.mark.parametrize(("method", "path"), COMMANDS, ids=[path for _, path in COMMANDS])


@pytest.fixture
def api(scene: Scene) -> Api:
    """An administrator."""
    return make_api()


def is_refused(answer: Answer) -> bool:
    """Say whether something was refused in the words of the API."""
    assert answer.headers["Content-Type"] == "application/problem+json", answer
    assert answer.body["detail"]
    assert isinstance(answer.body["findings"], list)
    return 400 <= answer.status < 500


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{','.join([f'*{chr(97 + level)}'] * 9)}]\n" for level in range(12)
)
UNREADABLE: dict[str, bytes] = {
    "half an object": b'{"replicas": 1',
    "a name twice": b'{"replicas": 1, "replicas": 2}',
    "a number that JSON has not": b'{"replicas": NaN}',
    "a number without end": b'{"replicas": 1e999}',
    "a number of many digits": b'{"replicas": ' + b"9" * 5000 + b"}",
    "no text": b"\xff\xfe\x00",
    "a deep nest": b"[" * 100_000,
    "a deep object": b'{"a":' * 5000 + b"1" + b"}" * 5000,
}


@EACH
@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused(api: Api, scene: Scene, method: str, path: str, name: str) -> None:
    before = scene.stored()
    answer = api.call(method, path, UNREADABLE[name])
    assert is_refused(answer)
    assert answer.status == 400
    assert scene.stored() == before


@EACH
def test_no_body_is_an_empty_one(api: Api, scene: Scene, method: str, path: str) -> None:
    before = scene.stored()
    answer = api.call(method, f"{path}?dry_run=true" if path != "simulation/" else path, b"")
    # Everything can be restarted, and a strategy left as it is; every other command needs something to be said.
    assert answer.status == (200 if path in ("restart/", "strategy/") else 422), answer.body
    assert scene.stored() == before


ODD: dict[str, Any] = {
    "a list": [],
    "a text": "x",
    "a number": 7,
    "true": True,
    "nothing at all": None,
    "unknown names": {"": 1, "x" * 5000: 2, "\u202e": 3},
}


@EACH
@pytest.mark.parametrize("name", ODD)
def test_a_body_of_another_kind_is_refused(api: Api, scene: Scene, method: str, path: str, name: str) -> None:
    before = scene.stored()
    answer = api.call(method, path, json.dumps(ODD[name]).encode())
    assert is_refused(answer)
    assert answer.status == 422, answer.body
    assert scene.stored() == before


@EACH
@pytest.mark.parametrize("text", ["a\0b", "\ud800"], ids=["NUL", "half a character"])
def test_text_that_no_database_holds_is_refused_with_its_field(
    api: Api, scene: Scene, method: str, path: str, text: str
) -> None:
    before = scene.stored()
    answer = api.call(method, path, json.dumps({"images": [{"clique": text}], "components": {"a": text}}).encode())
    assert is_refused(answer)
    assert answer.status == 422
    assert set(answer.fields) & {"images[0].clique", "components.a"}, answer.body
    assert scene.stored() == before
    assert not AuditEntry.objects.exists()


@EACH
def test_a_body_that_is_too_large_is_refused(api: Api, method: str, path: str) -> None:
    body = json.dumps({"images": ["x" * MAX_BODY_BYTES]}).encode()
    answer = api.call(method, path, body)
    assert is_refused(answer)
    assert answer.status == 413


@EACH
@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "multipart/form-data; boundary=x", "", "x"])
def test_bodies_of_another_type_are_not_read(api: Api, method: str, path: str, kind: str) -> None:
    answer = api.call(method, path, b"{}", Content_Type=kind)
    assert is_refused(answer)
    assert answer.status == 415, answer.body


@EACH
def test_an_answer_is_json_or_nothing(api: Api, method: str, path: str) -> None:
    assert api.call(method, path, b"{}", Accept="application/xml").status == 406


@EACH
@pytest.mark.parametrize("place", ["other/team-a/chat", f"{CLUSTER}/other/chat", f"{CLUSTER}/{NAMESPACE}/other"])
def test_what_is_not_there_cannot_be_commanded(api: Api, method: str, path: str, place: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "apply/": {"spec": {}},
        "images/": {"images": [{"clique": "a", "image": "b"}]},
        "scale/": {"replicas": 1},
        "rollback/": {"revision": 1},
        "pods/delete/": {"selection": {"all": True}},
        "pods/let-go/": {"pods": [{"name": "a"}]},
        "surge/delete/": {"units": [{"name": "a", "mark": "b"}]},
        "simulation/": {"change": {"kind": "restart"}},
    }
    answer = api.call(method, f"/api/v1/workloads/{place}/{path}", bodies.get(path, {}))
    assert is_refused(answer)
    # A manifest of something new is looked at for itself.
    assert answer.status in ((404, 422) if path == "apply/" else (404,)), answer.body


@pytest.mark.parametrize("name", ["a%00b", "..", "%2e%2e", "a%2fb", "A", "%F0%9F%92%A5", "a" * 300])
def test_a_name_that_nothing_can_have_leads_nowhere(api: Api, name: str) -> None:
    answer = api.post(f"/api/v1/workloads/{CLUSTER}/{NAMESPACE}/{name}/restart/", {})
    assert is_refused(answer)
    assert answer.status == 404


# ---- YAML


YAML: dict[str, str] = {
    "a name twice": "spec: {}\nspec: {}",
    "two documents": "spec: {}\n---\nspec: {}",
    "a bomb of aliases": BOMB,
    "a long text repeated": f'a: &a "{"x" * 500_000}"\nb: [{",".join(["*a"] * 5000)}]',
    "an alias of itself": "a: &a [*a]",
    "an alias of nothing": "a: *b",
    "a deep nest": "[" * 50_000,
    "deep lists": "- " * 5000,
    "an object of Python": "a: !!python/object/apply:os.system [ls]",
    "a list as a name": "? [a]\n: b",
    "a tab": "\tspec: 1",
    "an end too early": "spec: {",
}


@pytest.mark.parametrize("name", YAML)
@pytest.mark.parametrize("kind", ["application/yaml", "text/yaml", "application/apply-patch+yaml"])
def test_yaml_that_nobody_should_read_is_refused(api: Api, scene: Scene, name: str, kind: str) -> None:
    before = scene.stored()
    answer = api.post("apply/", YAML[name].encode(), Content_Type=kind)
    assert is_refused(answer)
    assert answer.status == 400, answer.body
    assert scene.stored() == before


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("metadata: {labels: {1: a}}", "metadata.labels"),
        ("spec: {replicas: .nan}", "spec.replicas"),
        ("spec: {replicas: .inf}", "spec.replicas"),
        ('metadata: {labels: {a: "\\0"}}', "metadata.labels.a"),
        ("metadata: {labels: {a: !!binary aGVsbG8=}}", "metadata.labels.a"),
        ("spec: {replicas: 99999999999999999999}", "spec.replicas"),
    ],
)
def test_values_that_json_has_not_are_refused_with_their_field(api: Api, text: str, field: str) -> None:
    answer = api.post("apply/", text.encode(), Content_Type="application/yaml")
    assert is_refused(answer)
    assert answer.fields == [field]


def test_a_name_twice_among_many_is_found_in_one_look() -> None:
    # Comparing each with each would take minutes here, and be ended by the time limit of the tests.
    names = [f"n{number}" for number in range(50_000)]
    for text in (
        "\n".join(f"{name}: 1" for name in (*names, names[-1])),
        "{" + ",".join(f'"{name}":1' for name in (*names, names[-1])) + "}",
    ):
        with pytest.raises(UnreadableDocument, match="'n49999' appears twice"):
            parse_yaml(text.encode())


def test_yaml_of_too_many_values_is_refused_before_any_of_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "load", lambda *_, **__: pytest.fail("it is built"))
    with pytest.raises(UnreadableDocument, match="more than 104,857 values and keys"):
        parse_yaml(b"a:\n" + b"- {b: 1}\n" * 50_000)


def test_yaml_is_read_as_programs_of_kubernetes_read_it() -> None:
    text = "{a: 2001-01-01, b: 1:30, c: 0644, d: yes, e: 1.5, f: &f {x: 1}, g: {<<: *f, y: 2}, h: 0x1F, i: -7, j: '1'}"
    plain = {"a": "2001-01-01", "b": "1:30", "c": 420, "d": True, "e": 1.5, "h": 31, "i": -7, "j": "1"}
    assert parse_yaml(text.encode()) == {**plain, "f": {"x": 1}, "g": {"x": 1, "y": 2}}


# ---- anything


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["frontend", "decode", "leader", "25%", "-1", "OnDelete", 10**19, -(10**19), "\u0000"])
)
NAMES = st.sampled_from(
    [
        *("images", "clique", "container", "image", "replicas", "component", "replica", "type", "maxUnavailable"),
        *(
            "maxSurge",
            "components",
            "frontend",
            "decode",
            "revision",
            "pods",
            "name",
            "uid",
            "selection",
            "node",
            "all",
            "units",
            "mark",
        ),
        *(
            "change",
            "kind",
            "behaviour",
            "seconds_to_ready",
            "never_ready",
            "all_ready",
            "full",
            "unlimited",
            "manifest",
            "spec",
            "metadata",
        ),
        *("template", "cliques", "labels", "updateStrategy"),
    ]
)
BODIES = st.recursive(
    SCALARS | st.sampled_from(["images", "scale", "strategy", "restart", "rollback", "apply"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@EACH
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(body=BODIES)
def test_no_body_is_a_fault_of_ours(api: Api, method: str, path: str, body: Any) -> None:
    answer = api.call(method, f"{path}?dry_run=true" if path != "simulation/" else path, json.dumps(body).encode())
    assert answer.status < 500, (body, answer.body)
    assert answer.status == 200 or is_refused(answer)


@pytest.mark.parametrize("parse", [parse_json, parse_yaml])
@given(body=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_reading_either_gives_a_value_or_refuses(parse: Callable[[bytes], Any], body: bytes) -> None:
    with contextlib.suppress(UnreadableDocument):
        json.dumps(parse(body), allow_nan=False)
