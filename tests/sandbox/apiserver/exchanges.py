"""Conversations with an API server: sequences of requests, each about objects that earlier ones created.

`test_parity` sends each conversation to the sandbox and to a real kube-apiserver, and expects the same responses.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.sandbox.apiserver.objects import PODS, WIDGETS, pod, widget
from tests.sandbox.apiserver.serving import APPLY, JSON_PATCH, MERGE, STRATEGIC

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request."""

    method: str
    path: str
    body: Any = None
    media: str = "application/json"
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


def _dry(spec: Any, **metadata: Any) -> Exchange:
    return Exchange("POST", f"{WIDGETS}?dryRun=All", widget("w", spec, **metadata))


def _small(**spec: Any) -> dict[str, Any]:
    return {"size": "small", **spec}


def _dry_pod(**spec: Any) -> Exchange:
    return Exchange("POST", f"{PODS}?dryRun=All", pod("p", **spec))


def _container(**parts: Any) -> list[dict[str, Any]]:
    return [{"name": "c", "image": "x:1", **parts}]


def _get(path: str, **headers: str) -> Exchange:
    return Exchange("GET", path, headers=headers)


def _merge(path: str, body: Any) -> Exchange:
    return Exchange("PATCH", path, body, MERGE)


def _json(path: str, *operations: dict[str, Any]) -> Exchange:
    return Exchange("PATCH", path, list(operations), JSON_PATCH)


def _apply(body: Any, manager: str = "m1", query: str = "", path: str = f"{WIDGETS}/s") -> Exchange:
    return Exchange("PATCH", f"{path}?fieldManager={manager}{query}", body, APPLY)


def _s(spec: Any, **metadata: Any) -> dict[str, Any]:
    return widget("s", spec, **metadata)


_SCHEMA = [
    _dry(_small(replicas="3")),
    _dry({}),
    _dry({"size": "huge"}),
    _dry(_small(replicas=-1)),
    _dry(_small(replicas=101)),
    _dry(_small(min=3, max=2)),
    _dry(_small(replicas=95)),
    _dry(_small(over=0)),
    _dry(_small(ratio=0.7)),
    _dry(_small(name="a")),
    _dry(_small(name="aaaaaaa")),
    _dry(_small(name="A1")),
    _dry(_small(when="yesterday")),
    _dry({"size": None}),
    _dry(_small(flag=None)),
    _dry(_small(maybe=None)),
    _dry(_small(budget=True)),
    _dry(_small(budget2="x")),
    _dry(_small(budget2=[1])),
    _dry(_small(choice={})),
    _dry(_small(choice={"a": "1", "b": "2"})),
    _dry(_small(things=[])),
    _dry(_small(things=["1", "2", "3", "4"])),
    _dry(_small(things=[1])),
    _dry(_small(tags=["a", "a"])),
    _dry(_small(parts=[{"name": "a"}, {"name": "a", "value": "v"}])),
    _dry(_small(limits={"a": 1, "b": 2, "c": 3})),
    _dry(_small(limits={"a": "b"})),
    _dry(_small(parts=[{"value": "a"}])),
    _dry(_small(replicas=99_999_999_999)),
    _dry({"size": "x", "replicas": -1}),
    _dry(_small(foo=1, parts=[{"name": "a", "x": 1}], free={"z": 1})),
    Exchange("POST", f"{WIDGETS}?dryRun=All&fieldValidation=Strict", widget("w", _small(foo=1), foo=1)),
    Exchange("POST", f"{WIDGETS}?dryRun=All&fieldValidation=Ignore", widget("w", _small(foo=1))),
    Exchange("POST", f"{WIDGETS}?dryRun=All&fieldValidation=Foo", widget()),
    Exchange("POST", f"{WIDGETS}?dryRun=some", widget()),
    Exchange(
        "POST",
        f"{WIDGETS}?dryRun=All&fieldValidation=Strict",
        raw=b'{"apiVersion":"test.grove.io/v1alpha1","kind":"Widget","metadata":{"name":"w"},'
        b'"spec":{"size":"small","size":"large"}}',
    ),
]

_POD_RULES = [
    _dry_pod(foo=1),
    Exchange("POST", f"{PODS}?dryRun=All&fieldValidation=Strict", pod("p", foo=1)),
    _dry_pod(containers=[]),
    _dry_pod(containers=[{"name": "c"}]),
    _dry_pod(containers=[{"image": "c"}]),
    _dry_pod(containers=_container(name="C_")),
    _dry_pod(containers=[*_container(), *_container()]),
    _dry_pod(restartPolicy="x"),
    _dry_pod(containers=_container(resources={"requests": {"cpu": "x"}})),
    _dry_pod(containers=_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})),
    _dry_pod(
        containers=_container(
            image="c",
            resources={"requests": {"cpu": "0.5"}, "limits": {"cpu": 1, "nvidia.com/gpu": 1, "memory": "1.5Gi"}},
            ports=[{"containerPort": 80}],
            env=[{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            readinessProbe={"httpGet": {"port": 80}},
        )
    ),
]

_METADATA = [
    Exchange("POST", WIDGETS, {**widget(), "metadata": {}}),
    Exchange("POST", WIDGETS, widget("A_")),
    Exchange("POST", WIDGETS, widget("a" * 254)),
    Exchange("POST", PODS, pod("A_")),
    Exchange("POST", "/api/v1/namespaces", {"metadata": {"name": "A"}}),
    Exchange("POST", WIDGETS, widget(labels={"a b": "c"})),
    Exchange("POST", WIDGETS, widget(labels={"a": "c d"})),
    Exchange("POST", WIDGETS, widget(annotations={"a b": "c d"})),
    Exchange("POST", WIDGETS, widget(labels={"a": 1})),
    Exchange("POST", WIDGETS, widget(labels=[1])),
    Exchange("POST", PODS, {**pod(), "metadata": {"name": "p", "labels": {"a": 1}}}),
    Exchange("POST", WIDGETS, widget(finalizers=["a b/c"])),
    Exchange("POST", WIDGETS, widget(ownerReferences=[{"apiVersion": "v1", "kind": "Pod"}])),
    Exchange("POST", WIDGETS, widget(resourceVersion="1")),
    Exchange("POST", WIDGETS, widget(namespace="other")),
    Exchange("POST", WIDGETS.replace("default", "nope"), widget()),
    Exchange("POST", PODS.replace("default", "nope"), pod()),
    Exchange("POST", WIDGETS, {**widget(), "apiVersion": "v1"}),
]

_BAD_REQUESTS = [
    Exchange("POST", WIDGETS, raw=b""),
    Exchange("POST", WIDGETS, raw=b'{"a":'),
    Exchange("POST", WIDGETS, raw=b"hello"),
    Exchange("POST", PODS, raw=b'{"a":'),
    Exchange("POST", WIDGETS, raw=b"[]"),
    Exchange("POST", PODS, raw=b'"a"'),
    Exchange("POST", WIDGETS, raw=b"{}", media="text/plain"),
    Exchange("POST", PODS, raw=b"{}", media="application/x-www-form-urlencoded"),
    Exchange("POST", f"{WIDGETS}?dryRun=All", {"metadata": {"name": "w"}, "spec": {"size": "small"}}),
    Exchange("POST", f"{PODS}?dryRun=All", {"metadata": {"name": "p"}, "spec": {"containers": _container()}}),
    _get(f"{WIDGETS}/nope"),
    _get(f"{PODS}/nope"),
    _get("/api/v1/namespaces/default/foos"),
    _get("/apis/foo.io/v1/foos"),
    _get("/apis/test.grove.io/v2/widgets"),
    _get("/apis/test.grove.io/v1alpha1/foos"),
    _get("/foo"),
    _get("/api/v1/namespaces/default/pods/a/b/c"),
    _get(f"{PODS}/w/foo"),
    _get(f"{WIDGETS}/w/foo"),
    Exchange("POST", f"{PODS}/w", pod()),
    Exchange("PUT", WIDGETS, widget()),
    Exchange("PATCH", WIDGETS, {}, MERGE),
    Exchange("OPTIONS", f"{WIDGETS}/w"),
    Exchange("POST", "/apis/test.grove.io/v1alpha1/widgets", widget(namespace="default")),
    _get("/apis/test.grove.io/v1alpha1/widgets/w"),
    _get(f"{WIDGETS}?labelSelector=a%20b%20c"),
    _get(f"{WIDGETS}?labelSelector=a%3D%3D%3Db"),
    _get(f"{WIDGETS}?labelSelector=,"),
    _get(f"{WIDGETS}?fieldSelector=spec.size%3Dsmall"),
    _get(f"{PODS}?fieldSelector=spec.foo%3Dsmall"),
    _get(f"{PODS}?fieldSelector=spec"),
    _get(f"{WIDGETS}?limit=x"),
    _get(f"{WIDGETS}?limit=1&continue=x"),
    _get(f"{WIDGETS}?resourceVersion=x"),
    _get(f"{WIDGETS}?resourceVersion=99999999"),
    _get(f"{WIDGETS}?watch=1&resourceVersion=x"),
    _get(f"{WIDGETS}?watch=1&sendInitialEvents=true&timeoutSeconds=1"),
]

_W = f"{WIDGETS}/u"
_UPDATES = [
    Exchange("POST", WIDGETS, widget("u")),
    Exchange("POST", WIDGETS, widget("u")),
    Exchange("PUT", _W, widget("u")),
    Exchange("PUT", _W, widget("u", resourceVersion="1")),
    Exchange("PUT", _W, widget("u", resourceVersion="x")),
    Exchange("PUT", _W, widget("u", uid="zz", resourceVersion="1")),
    Exchange("PUT", _W, widget("zz", resourceVersion="1")),
    Exchange("PUT", _W, {**widget("u"), "metadata": {}}),
    Exchange("PUT", _W, widget("u", namespace="zz")),
    Exchange("PUT", f"{WIDGETS}/nope", widget("nope", resourceVersion="1")),
    Exchange("PUT", f"{PODS}/nope", pod("nope")),
    _merge(f"{WIDGETS}/nope", {}),
    Exchange("PATCH", _W, {}, "application/json"),
    Exchange("PATCH", f"{PODS}/nope", {}, "application/json"),
    Exchange("PATCH", _W, {}, STRATEGIC),
    Exchange("PATCH", _W, raw=b"{", media=MERGE),
    _merge(_W, []),
    _merge(_W, "a"),
    Exchange("PATCH", _W, {}, JSON_PATCH),
    _json(_W, {"op": "test", "path": "/spec/size", "value": "x"}),
    _json(_W, {"op": "remove", "path": "/spec/nope"}),
    _json(_W, {"op": "replace", "path": "/spec/nope/x", "value": 1}),
    _json(_W, {"op": "foo", "path": "/spec/nope"}),
    _json(_W, {"op": "add"}),
    _merge(_W, {"spec": {"size": "x"}}),
    _merge(_W, {"metadata": {"resourceVersion": "1"}}),
    _merge(_W, {"metadata": {"name": "1"}}),
    _merge(_W, {"kind": "Foo"}),
    _merge(_W, {"spec": {"foo": 1}}),
    _merge(_W, {"spec": {"fixed": "a"}}),
    _merge(_W, {"spec": {"fixed": "b"}}),
    _merge(_W, {"status": {"replicas": 4}}),
    _merge(f"{_W}/status", {"status": {"replicas": 4, "selector": "a=b"}, "metadata": {"labels": {"a": "b"}}}),
    _merge(f"{_W}/status", {"status": {"conditions": [{"type": "a"}]}}),
    _get(f"{_W}/scale"),
    _merge(f"{_W}/scale", {"spec": {"replicas": 5}}),
    Exchange("PUT", f"{_W}/scale", {"metadata": {"name": "u", "namespace": "default"}, "spec": {"replicas": 6}}),
    _merge(f"{_W}/scale", {"spec": {"replicas": -5}}),
    _merge(f"{_W}/scale", {"spec": {"replicas": 95}}),
    _get(f"{PODS}/u/scale"),
    _get(f"{WIDGETS}/nope/scale"),
    _get(_W),
    Exchange("PATCH", f"{_W}?force=true", {}, MERGE),
    Exchange("PATCH", f"{_W}?fieldManager={'a' * 129}", {}, MERGE),
    _merge(_W, {"metadata": {"finalizers": ["a.b/c"]}}),
    Exchange("DELETE", _W, {"preconditions": {"uid": "x"}}),
    Exchange("DELETE", _W, {"preconditions": {"resourceVersion": "1"}}),
    Exchange("DELETE", _W, {"propagationPolicy": "Foo"}),
    Exchange("DELETE", _W, {"propagationPolicy": "Orphan", "orphanDependents": True}),
    Exchange("DELETE", f"{_W}?dryRun=All"),
    Exchange("DELETE", _W),
    Exchange("DELETE", _W),
    _merge(_W, {"metadata": {"finalizers": None}}),
    Exchange("DELETE", _W),
    Exchange("POST", WIDGETS, widget("u")),
    Exchange("DELETE", _W),
]

_FULL = _small(
    parts=[{"name": "a", "value": "1"}, {"name": "b"}],
    tags=["x"],
    limits={"a": 1},
    atom={"a": "1"},
    things=["1"],
    free={"x": {"y": 1}, "l": [1]},
)
_APPLIES = [
    Exchange("PATCH", f"{WIDGETS}/s", _s(_small()), APPLY),
    _apply(_s(_FULL, labels={"l": "1"})),
    _apply(_s(_FULL, labels={"l": "1"})),
    _apply(_s(_small(parts=[{"name": "c", "value": "1"}], tags=["y"], limits={"b": 1})), "m2"),
    _apply(_s({"size": "large", "parts": [{"name": "a", "value": "2"}], "atom": {"b": "1"}, "things": ["2"]}), "m2"),
    _apply(_s({"size": "large", "parts": [{"name": "a", "value": "2"}]}), "m2", "&force=true"),
    _apply(_s({"size": "large", "tags": []})),
    Exchange("PATCH", f"{WIDGETS}/s?fieldManager=ed", {"spec": {"size": "small", "things": ["5"]}}, MERGE),
    _apply(_s({"size": "large", "things": ["6"]})),
    _apply({"metadata": {"name": "s"}}),
    _apply({**_s(_small()), "metadata": {"name": "z"}}),
    _apply(_s(_small(), managedFields=[{"manager": "x"}])),
    _apply(_s(_small(), resourceVersion="1")),
    _apply(_s(_small(parts=[{"name": "a"}, {"name": "a"}]))),
    _apply(_s(_small(parts=[{"value": "a"}]))),
    _apply(_s(_small(parts="x"))),
    _apply(_s({"size": 3})),
    _apply(_s(_small(foo=3)), query="&force=true"),
    _apply(_s({"size": "zzz"}), query="&force=true"),
    _apply({**_s(None), "spec": None, "status": {"replicas": 3}}, path=f"{WIDGETS}/s/status"),
    _apply(
        {
            "apiVersion": "test.grove.io/v1alpha1",
            "kind": "Widget",
            "metadata": {"name": "s"},
            "status": {"replicas": 3, "conditions": [{"type": "A", "status": "True"}]},
        },
        path=f"{WIDGETS}/s/status",
    ),
    _apply({**_s(None), "metadata": {"name": "zz"}}, path=f"{WIDGETS}/zz/status"),
    Exchange("PATCH", f"{WIDGETS}/s/scale?fieldManager=sc", {"spec": {"replicas": 5}}, MERGE),
    _get(f"{WIDGETS}/s"),
    Exchange("DELETE", f"{WIDGETS}/s"),
]

_P = f"{PODS}/pod"
_LIVES = [
    Exchange("POST", PODS, pod("pod")),
    Exchange("POST", f"{_P}/binding", {"target": {"kind": "Node", "name": "n1"}, "metadata": {"name": "pod"}}),
    Exchange("POST", f"{_P}/binding", {"target": {"kind": "Node", "name": "n1"}, "metadata": {"name": "pod"}}),
    Exchange("POST", f"{PODS}/nope/binding", {"target": {"name": "n1"}, "metadata": {"name": "nope"}}),
    Exchange("POST", f"{_P}/binding", {"metadata": {"name": "pod"}}),
    _get(_P),
    Exchange("PATCH", _P, {"spec": {"containers": [{"name": "c", "image": "y"}]}}, STRATEGIC),
    Exchange("PATCH", _P, {"spec": {"containers": [{"name": "d", "image": "y"}]}}, STRATEGIC),
    Exchange("PATCH", f"{_P}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, STRATEGIC),
    _merge(f"{_P}/status", {"status": {"phase": "Running"}}),
    Exchange("DELETE", _P),
    Exchange("DELETE", f"{_P}?gracePeriodSeconds=5"),
    Exchange("DELETE", f"{_P}?gracePeriodSeconds=0"),
    Exchange("POST", f"{PODS}/nope/eviction", {"metadata": {"name": "nope"}}),
    Exchange("POST", PODS, pod("pod", schedulingGates=[{"name": "a"}, {"name": "b"}])),
    Exchange("POST", f"{_P}/binding", {"target": {"kind": "Node", "name": "n1"}, "metadata": {"name": "pod"}}),
    _json(_P, {"op": "remove", "path": "/spec/schedulingGates/0"}),
    Exchange("PATCH", _P, {"spec": {"schedulingGates": [{"name": "c"}]}}, STRATEGIC),
    Exchange("PATCH", _P, {"spec": {"tolerations": [{"key": "c", "operator": "Exists"}]}}, STRATEGIC),
    Exchange("POST", f"{_P}/eviction", {"metadata": {"name": "other"}}),
    Exchange("POST", f"{_P}/eviction?dryRun=All", {"metadata": {"name": "pod"}}),
    Exchange("POST", f"{_P}/eviction", {"metadata": {"name": "pod"}}),
    _get(_P),
]

_EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "e"}}
_BUDGETED = [
    Exchange(
        "POST",
        BUDGETS,
        {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "e"}}}},
    ),
    Exchange("POST", PODS, pod("e", labels={"app": "e"})),
    Exchange("POST", f"{PODS}/e/binding", {"target": {"kind": "Node", "name": "n1"}, "metadata": {"name": "e"}}),
    Exchange(
        "PATCH",
        f"{PODS}/e/status",
        {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        STRATEGIC,
    ),
    Exchange("POST", f"{PODS}/e/eviction", _EVICTION),
    _merge(
        f"{BUDGETS}/b/status",
        {"status": {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}},
    ),
    Exchange("POST", f"{PODS}/e/eviction", _EVICTION),
    _merge(f"{BUDGETS}/b/status", {"status": {"disruptionsAllowed": 1}}),
    Exchange("POST", f"{PODS}/e/eviction", _EVICTION),
    Exchange("DELETE", f"{PODS}/e?gracePeriodSeconds=0"),
    Exchange("DELETE", f"{BUDGETS}/b"),
]

_AS_TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
_VIEWS = [
    Exchange("POST", WIDGETS, widget("v")),
    Exchange("GET", WIDGETS, headers=_AS_TABLE),
    Exchange("GET", f"{WIDGETS}/v", headers=_AS_TABLE),
    Exchange("GET", f"{WIDGETS}?includeObject=None", headers=_AS_TABLE),
    Exchange("GET", f"{WIDGETS}/v", headers={"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}),
    Exchange("GET", "/apis/test.grove.io"),
    Exchange("DELETE", f"{WIDGETS}?labelSelector=nope"),
    Exchange("DELETE", f"{WIDGETS}/v"),
]

CONVERSATIONS: dict[str, list[Exchange]] = {
    "schema": _SCHEMA,
    "pod rules": _POD_RULES,
    "metadata": _METADATA,
    "bad requests": _BAD_REQUESTS,
    "updates": _UPDATES,
    "applies": _APPLIES,
    "lives of pods": _LIVES,
    "budgets": _BUDGETED,
    "views": _VIEWS,
}
