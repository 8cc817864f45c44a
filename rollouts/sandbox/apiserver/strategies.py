"""What the API server does for single built-in kinds beyond their schema.

Five steps of a write: `set_defaults` fills in defaults that depend on other fields (the writer owns them),
`prepare_for_create` gives a new object what the server itself adds and `mutate` what it adds to any write (without an
owner), `keep_allocated_values` keeps what a replacement may leave out, `findings` are the rules that a schema cannot
express (`builtin_validation`). `pod_strategy` has the steps of pods.
"""

import base64
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from rollouts.sandbox.apiserver import builtin_validation, pod_strategy
from rollouts.sandbox.apiserver.errors import StatusCause
from rollouts.sandbox.apiserver.registry import Kind

Obj = dict[str, Any]

# The response to a delete of these is the object; of other kinds it is a Status.
RETURNED_WHEN_DELETED = frozenset(("pods", "services", "serviceaccounts"))

# An update of one of these that does not exist creates it.
ALLOW_CREATE_ON_UPDATE = frozenset(("services", "leases", "events"))

# An update of these built-in kinds must name the resourceVersion, as of custom ones.
REQUIRES_RESOURCE_VERSION = frozenset(("poddisruptionbudgets", "leases"))

# New objects of these kinds keep the status in the request: a kubelet registers its node with one.
STATUS_ON_CREATE = frozenset(("nodes",))


def set_defaults(kind: Kind, obj: Obj) -> None:
    """Fill in defaults that depend on other fields."""
    if kind.builtin and kind.plural in _DEFAULTS:
        _DEFAULTS[kind.plural](obj)


def set_status_defaults(kind: Kind, status: Obj) -> None:
    """Fill in members of a status that follow from others."""
    if kind.plural == "pods":
        pod_strategy.set_status_defaults(status)


def prepare_for_create(kind: Kind, obj: Obj, now: str) -> None:
    """Give a new object what the server adds."""
    if kind.builtin and kind.plural in _PREPARE_FOR_CREATE:
        _PREPARE_FOR_CREATE[kind.plural](obj, now)


def keep_allocated_values(kind: Kind, current: Obj, obj: Obj) -> None:
    """Keep allocated values that a replacement may leave out: a service's addresses."""
    if not kind.builtin or kind.plural != "services" or not isinstance(obj.get("spec"), dict):
        return
    for member in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if member in (current.get("spec") or {}):
            obj["spec"].setdefault(member, current["spec"][member])


def mutate(kind: Kind, obj: Obj) -> None:
    """Apply what admission adds to every write of a kind."""
    if kind.builtin and kind.plural == "pods":
        pod_strategy.add_default_tolerations(obj)


def findings(kind: Kind, obj: Obj, old: Obj | None) -> Iterator[StatusCause]:
    """Find what the kind's own rules reject."""
    if old is None or obj["metadata"].get("finalizers") != old["metadata"].get("finalizers"):
        yield from builtin_validation.finalizer_findings(obj)
    rules = pod_strategy.findings if kind.plural == "pods" else builtin_validation.VALIDATORS.get(kind.plural)
    if rules is not None:
        yield from rules(obj, old)


# --- namespaces ----------------------------------------------------------------------------------------------------


def _default_namespace(namespace: Obj) -> None:
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def _prepare_namespace(namespace: Obj, _now: str) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


# --- services ------------------------------------------------------------------------------------------------------


def _default_service(service: Obj) -> None:
    spec = service.get("spec") or {}
    for port in spec.get("ports") or ():
        if isinstance(port, dict) and "port" in port:
            port.setdefault("targetPort", port["port"])
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])


def _prepare_service(service: Obj, _now: str) -> None:
    spec = service.setdefault("spec", {})
    if spec.get("type") != "ExternalName":
        address = spec.setdefault("clusterIP", f"10.96.{secrets.randbelow(255)}.{secrets.randbelow(254) + 1}")
        spec["clusterIPs"] = [address]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    service["status"] = {"loadBalancer": {}}


# --- the rest ------------------------------------------------------------------------------------------------------


def _prepare_budget(budget: Obj, _now: str) -> None:
    budget["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


def _default_autoscaler(autoscaler: Obj) -> None:
    spec = autoscaler.get("spec") or {}
    if isinstance(spec, dict) and not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def _prepare_autoscaler(autoscaler: Obj, _now: str) -> None:
    autoscaler["status"] = {"desiredReplicas": 0}


def _default_secret(secret: Obj) -> None:
    """Move the values of stringData into data, encoded."""
    given = secret.pop("stringData", None) or {}
    if isinstance(given, dict) and given:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in given.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


_DEFAULTS: dict[str, Callable[[Obj], None]] = {
    "secrets": _default_secret,
    "namespaces": _default_namespace,
    "pods": pod_strategy.set_defaults,
    "services": _default_service,
    "horizontalpodautoscalers": _default_autoscaler,
}
_PREPARE_FOR_CREATE: dict[str, Callable[[Obj, str], None]] = {
    "namespaces": _prepare_namespace,
    "pods": pod_strategy.prepare_for_create,
    "services": _prepare_service,
    "poddisruptionbudgets": _prepare_budget,
    "horizontalpodautoscalers": _prepare_autoscaler,
}
