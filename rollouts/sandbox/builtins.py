"""What the API server does for single built-in kinds beyond their schema.

Four moments: `complete` fills in defaults that depend on other fields (owned by whoever wrote the object), `begin`
gives a new object what the server itself adds and `admit` what it adds to any write (owned by nobody), `findings` are
the rules that a schema cannot express. Pods have a module of their own.
"""

import base64
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from rollouts.sandbox import pods
from rollouts.sandbox.registry import Kind
from rollouts.sandbox.status import Cause

Obj = dict[str, Any]

# Deleting one of these answers with the object; other kinds answer with a Status.
RETURNED_WHEN_DELETED = frozenset(("pods", "services", "serviceaccounts"))

# New objects of these kinds keep the status they are sent with: a kubelet registers its node with one.
STATUS_ON_CREATE = frozenset(("nodes",))


def complete(kind: Kind, obj: Obj) -> None:
    """Fill in defaults that depend on other fields."""
    if kind.builtin and kind.plural in _COMPLETE:
        _COMPLETE[kind.plural](obj)


def begin(kind: Kind, obj: Obj, now: str) -> None:
    """Give a new object what the server adds."""
    if kind.builtin and kind.plural in _BEGIN:
        _BEGIN[kind.plural](obj, now)


def admit(kind: Kind, obj: Obj) -> None:
    """Apply what admission adds to every write of a kind."""
    if kind.builtin and kind.plural == "pods":
        pods.tolerate_short_outages(obj)


def findings(kind: Kind, obj: Obj, old: Obj | None) -> Iterator[Cause]:
    """Find what the kind's own rules refuse."""
    if kind.plural in _FINDINGS:
        yield from _FINDINGS[kind.plural](obj, old)


# --- namespaces ----------------------------------------------------------------------------------------------------


def _complete_namespace(namespace: Obj) -> None:
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def _begin_namespace(namespace: Obj, _now: str) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


# --- services ------------------------------------------------------------------------------------------------------


def _complete_service(service: Obj) -> None:
    spec = service.get("spec") or {}
    for port in spec.get("ports") or ():
        if isinstance(port, dict) and "port" in port:
            port.setdefault("targetPort", port["port"])


def _begin_service(service: Obj, _now: str) -> None:
    spec = service.setdefault("spec", {})
    if spec.get("type") != "ExternalName":
        address = spec.setdefault("clusterIP", f"10.96.{secrets.randbelow(255)}.{secrets.randbelow(254) + 1}")
        spec["clusterIPs"] = [address]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    service["status"] = {"loadBalancer": {}}


def _service_findings(service: Obj, old: Obj | None) -> Iterator[Cause]:
    spec = service.get("spec") or {}
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield Cause("FieldValueRequired", "Required value", "spec.ports")
    before = (old or {}).get("spec") or {}
    if before.get("clusterIP") and spec.get("clusterIP") != before["clusterIP"]:
        shown = f'Invalid value: "{spec.get("clusterIP", "")}": field is immutable'
        yield Cause("FieldValueInvalid", shown, "spec.clusterIPs[0]")


# --- the rest ------------------------------------------------------------------------------------------------------


def _begin_budget(budget: Obj, _now: str) -> None:
    budget["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


def _complete_autoscaler(autoscaler: Obj) -> None:
    spec = autoscaler.get("spec") or {}
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def _begin_autoscaler(autoscaler: Obj, _now: str) -> None:
    autoscaler["status"] = {"desiredReplicas": 0}


def _complete_secret(secret: Obj) -> None:
    """Values given as text are stored with the others."""
    given = secret.pop("stringData", None) or {}
    if isinstance(given, dict) and given:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in given.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


_COMPLETE: dict[str, Callable[[Obj], None]] = {
    "secrets": _complete_secret,
    "namespaces": _complete_namespace,
    "pods": pods.complete,
    "services": _complete_service,
    "horizontalpodautoscalers": _complete_autoscaler,
}
_BEGIN: dict[str, Callable[[Obj, str], None]] = {
    "namespaces": _begin_namespace,
    "pods": pods.begin,
    "services": _begin_service,
    "poddisruptionbudgets": _begin_budget,
    "horizontalpodautoscalers": _begin_autoscaler,
}
_FINDINGS: dict[str, Callable[[Obj, Obj | None], Iterator[Cause]]] = {
    "pods": pods.findings,
    "services": _service_findings,
}
