"""The rules of built-in kinds that their schemas cannot express, worded as the real server words them.

`strategies.findings` calls these for every write of a kind. Only rules that a mistake in our own manifests could break
are here; `pod_strategy` has those of pods.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from rollouts.sandbox.apiserver.errors import StatusCause
from rollouts.sandbox.apiserver.formats import render_json
from rollouts.sandbox.apiserver.objectmeta import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

Obj = dict[str, Any]
Validator = Callable[[Obj, Obj | None], Iterator[StatusCause]]

_MAX_PORT = 65_535
_STANDARD_FINALIZERS = frozenset(("kubernetes", ORPHAN_FINALIZER, FOREGROUND_FINALIZER))
_KEY = r"[-._a-zA-Z0-9]+"
_KEY_MESSAGE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    f"'key-name', regex used for validation is '{_KEY}')"
)
_PERCENT = r"[0-9]+%"
_PERCENT_MESSAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    f"validation is '{_PERCENT}')"
)


def _invalid(value: Any, sentence: str, path: str) -> StatusCause:
    return StatusCause("FieldValueInvalid", f"Invalid value: {render_json(value)}: {sentence}", path)


def finalizer_findings(obj: Obj) -> Iterator[StatusCause]:
    """Find finalizers without a domain: on a built-in kind a finalizer names its owner."""
    for index, finalizer in enumerate(obj["metadata"].get("finalizers") or ()):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            sentence = "name is neither a standard finalizer name nor is it fully qualified"
            yield _invalid(finalizer, sentence, f"metadata.finalizers[{index}]")


def _validate_data(obj: Obj, old: Obj | None) -> Iterator[StatusCause]:
    for member in ("data", "binaryData"):
        for key in obj.get(member) or {}:
            if re.fullmatch(_KEY, key) is None:
                yield _invalid(key, _KEY_MESSAGE, f"{member}[{key}]")
    if old is None or not old.get("immutable"):
        return
    for member in ("data", "binaryData"):
        if obj.get(member) != old.get(member):
            yield StatusCause("FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set", member)
    if not obj.get("immutable"):
        yield StatusCause("FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set", "immutable")


def _validate_service(service: Obj, old: Obj | None) -> Iterator[StatusCause]:
    spec = service.get("spec") or {}
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield StatusCause("FieldValueRequired", "Required value", "spec.ports")
    for index, port in enumerate(spec.get("ports") or ()):
        number = port.get("port")
        if isinstance(number, int) and not 1 <= number <= _MAX_PORT:
            sentence = f"must be between 1 and {_MAX_PORT}, inclusive"
            yield _invalid(number, sentence, f"spec.ports[{index}].port")
    before = (old or {}).get("spec") or {}
    if before.get("clusterIP") and spec.get("clusterIP") != before["clusterIP"]:
        yield _invalid([spec.get("clusterIP", "")], "may not change once set", "spec.clusterIPs[0]")


_METRICS = ("ContainerResource", "External", "Object", "Pods", "Resource")


def _validate_autoscaler(autoscaler: Obj, _old: Obj | None) -> Iterator[StatusCause]:
    spec = autoscaler.get("spec") or {}
    fewest, most = spec.get("minReplicas"), spec.get("maxReplicas")
    if isinstance(fewest, int) and fewest < 1:
        yield _invalid(fewest, "must be greater than or equal to 1", "spec.minReplicas")
    if isinstance(most, int) and most < 1:
        yield _invalid(most, "must be greater than 0", "spec.maxReplicas")
    if isinstance(fewest, int) and isinstance(most, int) and most < fewest:
        yield _invalid(most, "must be greater than or equal to `minReplicas`", "spec.maxReplicas")
    for index, metric in enumerate(spec.get("metrics") or ()):
        if isinstance(metric, dict) and metric.get("type") not in _METRICS:
            supported = ", ".join(render_json(one) for one in _METRICS)
            sentence = f"Unsupported value: {render_json(metric.get('type', ''))}: supported values: {supported}"
            yield StatusCause("FieldValueNotSupported", sentence, f"spec.metrics[{index}].type")


def _validate_budget(budget: Obj, _old: Obj | None) -> Iterator[StatusCause]:
    spec = budget.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield _invalid(spec, "minAvailable and maxUnavailable cannot be both set", "spec")
    for member in ("minAvailable", "maxUnavailable"):
        amount = spec.get(member)
        if isinstance(amount, int) and amount < 0:
            yield _invalid(amount, "must be greater than or equal to 0", f"spec.{member}")
        elif isinstance(amount, str) and re.fullmatch(_PERCENT, amount) is None:
            yield _invalid(amount, _PERCENT_MESSAGE, f"spec.{member}")


def _validate_lease(lease: Obj, _old: Obj | None) -> Iterator[StatusCause]:
    spec = lease.get("spec") or {}
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if isinstance(seconds, int) and seconds < 1:
        yield _invalid(seconds, "must be greater than 0", "spec.leaseDurationSeconds")
    if isinstance(transitions, int) and transitions < 0:
        yield _invalid(transitions, "must be greater than or equal to 0", "spec.leaseTransitions")


def _validate_event(event: Obj, _old: Obj | None) -> Iterator[StatusCause]:
    about = (event.get("involvedObject") or {}).get("namespace", "")
    if about != event["metadata"].get("namespace", "") and not (
        not about and event["metadata"].get("namespace") == "default"
    ):
        yield _invalid(about, "does not match event.namespace", "involvedObject.namespace")


VALIDATORS: dict[str, Validator] = {
    "configmaps": _validate_data,
    "secrets": _validate_data,
    "services": _validate_service,
    "horizontalpodautoscalers": _validate_autoscaler,
    "poddisruptionbudgets": _validate_budget,
    "leases": _validate_lease,
    "events": _validate_event,
}
