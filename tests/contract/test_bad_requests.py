"""Invalid requests: the server answers each with the Status of a real API server, and stores nothing."""

from collections.abc import Callable

import pytest

from rollouts.cluster import ClusterClient, Obj, TooLarge
from rollouts.cluster.resources import PODCLIQUES
from tests.builtin_resources import CONFIGMAPS
from tests.contract.manifests import config_map, pod_clique
from tests.contract.raw import Raw, RawAnswer

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


def _configmaps(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps{'/' if name else ''}{name}"


def _cliques(namespace: str, name: str = "") -> str:
    return f"/apis/grove.io/v1alpha1/namespaces/{namespace}/podcliques{'/' if name else ''}{name}"


def _assert_refused(answer: RawAnswer, code: int, reason: str) -> None:
    assert (answer.code, answer.status["reason"]) == (code, reason), answer


@pytest.fixture
def clique(cluster: ClusterClient, namespace: str) -> Obj:
    """A stored PodClique."""
    return cluster.create(PODCLIQUES, pod_clique(namespace, "a"))


@pytest.mark.parametrize("path", [_configmaps, _cliques], ids=["built-in", "custom"])
@pytest.mark.parametrize("body", [b"{", b"nonsense{{", b"", b"[]", b"null", b'"text"', b"\xff\xfe", b"{}"])
def test_a_malformed_body_is_refused(
    cluster: ClusterClient, raw: Raw, namespace: str, path: Callable[[str], str], body: bytes
) -> None:
    answer = raw.call("POST", path(namespace), body)
    assert 400 <= answer.code < 500
    assert answer.status["reason"] in {"BadRequest", "Invalid"}
    assert not cluster.list(CONFIGMAPS, namespace=namespace).items
    assert not cluster.list(PODCLIQUES, namespace=namespace).items


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        (MERGE, b"{", 400),
        (MERGE, b"[]", 400),
        (JSON_PATCH, b"{", 400),
        (JSON_PATCH, b'{"op": "add"}', 400),
        (JSON_PATCH, b'[{"op": "fly", "path": "/x"}]', 422),
        (APPLY, b"{{", 400),
    ],
)
def test_a_malformed_patch_is_refused(raw: Raw, clique: Obj, content_type: str, body: bytes, code: int) -> None:
    path = f"{_cliques(clique['metadata']['namespace'], 'a')}?fieldManager=x"
    answer = raw.call("PATCH", path, body, content_type=content_type)
    assert (answer.code, answer.status["code"]) == (code, code)
    assert raw.call("GET", path).obj == clique


def test_an_apply_needs_a_field_manager(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    answer = raw.call("PATCH", _cliques(namespace, "a"), pod_clique(namespace, "a"), content_type=APPLY)
    _assert_refused(answer, 422, "Invalid")
    assert not cluster.list(PODCLIQUES, namespace=namespace).items


def test_a_body_of_another_media_type_is_unsupported(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    answer = raw.call("POST", _configmaps(namespace), config_map(namespace, "a"), content_type="text/plain")
    _assert_refused(answer, 415, "UnsupportedMediaType")
    assert not cluster.list(CONFIGMAPS, namespace=namespace).items


def test_a_body_that_is_too_large_is_refused(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    # Only slightly too large: a server that gets much more after its error closes the connection, maybe while we send.
    manifest = pod_clique(namespace, "a", annotations={"example.com/large": "x" * ((3 << 20) + (1 << 15))})
    with pytest.raises(TooLarge):
        cluster.create(PODCLIQUES, manifest)
    assert not cluster.list(PODCLIQUES, namespace=namespace).items


def test_annotations_have_a_size_limit(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    manifest = pod_clique(namespace, "a", annotations={"example.com/large": "x" * (300 << 10)})
    answer = raw.call("POST", _cliques(namespace), manifest)
    _assert_refused(answer, 422, "Invalid")
    assert answer.status["details"]["causes"][0]["field"] == "metadata.annotations"


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_namespace_in_the_body_that_is_not_the_path_is_refused(
    cluster: ClusterClient, raw: Raw, namespace: str, method: str
) -> None:
    path = _configmaps(namespace) if method == "POST" else _configmaps(namespace, "a")
    _assert_refused(raw.call(method, path, config_map("default", "a")), 400, "BadRequest")
    assert not cluster.list(CONFIGMAPS, namespace=namespace).items


def test_a_name_in_the_body_that_is_not_the_path_is_refused(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    _assert_refused(raw.call("PUT", _configmaps(namespace, "a"), config_map(namespace, "b")), 400, "BadRequest")
    assert list(cluster.list(CONFIGMAPS, namespace=namespace).items) == [created]


@pytest.mark.parametrize(
    ("method", "code"), [("POST", 405), ("DELETE", 404)], ids=["create by name", "delete of nothing"]
)
def test_a_method_that_a_path_does_not_have_is_refused(raw: Raw, namespace: str, method: str, code: int) -> None:
    answer = raw.call(method, _configmaps(namespace, "a"), config_map(namespace, "a") if code == 405 else None)
    assert answer.code == code
    assert answer.status["code"] == code


def test_delete_options_of_another_kind_are_refused(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    answer = raw.call("DELETE", _configmaps(namespace, "a"), b"{nonsense")
    _assert_refused(answer, 400, "BadRequest")
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == created


def test_an_unknown_propagation_policy_is_refused(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Sideways"}
    _assert_refused(raw.call("DELETE", _configmaps(namespace, "a"), options), 422, "Invalid")
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == created


def test_a_negative_grace_period_means_the_shortest(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": -5}
    assert raw.call("DELETE", _configmaps(namespace, "a"), options).code == 200


@pytest.mark.parametrize("query", ["dryRun=Some", "fieldValidation=Perhaps"])
def test_an_unknown_option_is_refused(cluster: ClusterClient, raw: Raw, namespace: str, query: str) -> None:
    answer = raw.call("POST", f"{_configmaps(namespace)}?{query}", config_map(namespace, "a"))
    _assert_refused(answer, 422, "Invalid")
    assert not cluster.list(CONFIGMAPS, namespace=namespace).items


def test_delete_options_are_read_from_the_query_when_there_is_no_body(
    cluster: ClusterClient, raw: Raw, namespace: str
) -> None:
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    assert raw.call("DELETE", f"{_configmaps(namespace, 'a')}?dryRun=All").code == 200
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == created
    leaving = raw.call("DELETE", f"{_configmaps(namespace, 'a')}?propagationPolicy=Orphan").obj
    assert leaving["metadata"]["finalizers"] == ["orphan"]


def test_a_body_in_yaml_is_read(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {namespace}}}\ndata: {{k: v}}\n"
    answer = raw.call("POST", _configmaps(namespace), text.encode(), content_type="application/yaml")
    assert answer.obj["data"] == {"k": "v"}


def test_the_health_of_the_server_is_told_as_text(raw: Raw) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        answer = raw.call("GET", path)
        assert (answer.code, answer.body) == (200, b"ok")
