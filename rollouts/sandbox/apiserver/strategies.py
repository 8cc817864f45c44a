"""What the API server does for single built-in kinds beyond their schema.

Five moments: `complete` fills in defaults that depend on other fields (owned by whoever wrote the object), `begin`
gives a new object what the server itself adds and `admit` what it adds to any write (owned by nobody), `carry` keeps
what a replacement may leave out, `findings` are the rules that a schema cannot express (`builtin_validation`). Pods have a
module of their own.
"""

import base64
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from rollouts.sandbox.apiserver import builtin_validation, pod_strategy
from rollouts.sandbox.apiserver.errors import Cause
from rollouts.sandbox.apiserver.registry import Kind

Obj = dict[str, Any]

# Deleting one of these answers with the object; other kinds answer with a Status.
RETURNED_WHEN_DELETED = frozenset(("pods", "services", "serviceaccounts"))

# A replacement of one of these that is not there creates it.
CREATED_BY_UPDATE = frozenset(("services", "leases", "events"))

# These built-in kinds may only be replaced by who names the version to replace, as custom ones.
UPDATED_BY_REVISION = frozenset(("poddisruptionbudgets", "leases"))

# New objects of these kinds keep the status they are sent with: a kubelet registers its node with one.
STATUS_ON_CREATE = frozenset(("nodes",))


def complete(kind: Kind, obj: Obj) -> None:
    """Fill in defaults that depend on other fields."""
    if kind.builtin and kind.plural in _COMPLETE:
        _COMPLETE[kind.plural](obj)


def complete_status(kind: Kind, status: Obj) -> None:
    """Fill in what a status says only in part."""
    if kind.plural == "pods":
        pod_strategy.complete_status(status)


def begin(kind: Kind, obj: Obj, now: str) -> None:
    """Give a new object what the server adds."""
    if kind.builtin and kind.plural in _BEGIN:
        _BEGIN[kind.plural](obj, now)


def carry(kind: Kind, current: Obj, obj: Obj) -> None:
    """Keep what a replacement may leave out although it stays: a service's addresses."""
    if not kind.builtin or kind.plural != "services" or not isinstance(obj.get("spec"), dict):
        return
    for member in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if member in (current.get("spec") or {}):
            obj["spec"].setdefault(member, current["spec"][member])


def admit(kind: Kind, obj: Obj) -> None:
    """Apply what admission adds to every write of a kind."""
    if kind.builtin and kind.plural == "pods":
        pod_strategy.tolerate_short_outages(obj)


def findings(kind: Kind, obj: Obj, old: Obj | None) -> Iterator[Cause]:
    """Find what the kind's own rules refuse."""
    if old is None or obj["metadata"].get("finalizers") != old["metadata"].get("finalizers"):
        yield from builtin_validation.finalizer_findings(obj)
    rules = pod_strategy.findings if kind.plural == "pods" else builtin_validation.RULES.get(kind.plural)
    if rules is not None:
        yield from rules(obj, old)


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
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])


def _begin_service(service: Obj, _now: str) -> None:
    spec = service.setdefault("spec", {})
    if spec.get("type") != "ExternalName":
        address = spec.setdefault("clusterIP", f"10.96.{secrets.randbelow(255)}.{secrets.randbelow(254) + 1}")
        spec["clusterIPs"] = [address]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    service["status"] = {"loadBalancer": {}}


# --- the rest ------------------------------------------------------------------------------------------------------


def _begin_budget(budget: Obj, _now: str) -> None:
    budget["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


def _complete_autoscaler(autoscaler: Obj) -> None:
    spec = autoscaler.get("spec") or {}
    if isinstance(spec, dict) and not spec.get("metrics"):
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
    "pods": pod_strategy.complete,
    "services": _complete_service,
    "horizontalpodautoscalers": _complete_autoscaler,
}
_BEGIN: dict[str, Callable[[Obj, str], None]] = {
    "namespaces": _begin_namespace,
    "pods": pod_strategy.begin,
    "services": _begin_service,
    "poddisruptionbudgets": _begin_budget,
    "horizontalpodautoscalers": _begin_autoscaler,
}
