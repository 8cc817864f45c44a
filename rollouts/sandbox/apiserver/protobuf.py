"""Reads the few objects that `kubectl create <kind> <name>` sends as protobuf.

`kubectl` writes manifests as JSON, but its imperative commands (create namespace, configmap, secret, role, ...) speak
protobuf to any server. `requests` passes such bodies here and gets their JSON form. Responses are always JSON, which
every client accepts. A message is described by a table from field number to name and type; fields not in the table are
skipped, as protobuf requires.
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any, Final

from rollouts.engine.model.times import render_time
from rollouts.sandbox.apiserver.errors import bad_request

Obj = dict[str, Any]
Fields = dict[int, tuple[str, Any]]

MEDIA: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"

# Types of a field: one of these words, a table for a message, [type] for a repeated field, {type} for a map.
TEXT, NUMBER, FLAG, BYTES, TIME = "text", "number", "flag", "bytes", "time"
INT_OR_STRING, MESSAGE = "int-or-string", "message"  # a message's bytes, read later

_OWNER: Fields = {
    1: ("kind", TEXT),
    3: ("name", TEXT),
    4: ("uid", TEXT),
    5: ("apiVersion", TEXT),
    6: ("controller", FLAG),
    7: ("blockOwnerDeletion", FLAG),
}
_METADATA: Fields = {
    1: ("name", TEXT),
    2: ("generateName", TEXT),
    3: ("namespace", TEXT),
    5: ("uid", TEXT),
    6: ("resourceVersion", TEXT),
    7: ("generation", NUMBER),
    8: ("creationTimestamp", TIME),
    9: ("deletionTimestamp", TIME),
    10: ("deletionGracePeriodSeconds", NUMBER),
    11: ("labels", {TEXT}),
    12: ("annotations", {TEXT}),
    13: ("ownerReferences", [_OWNER]),
    14: ("finalizers", [TEXT]),
}
_META: Final = ("metadata", _METADATA)
_REFERENCE: Fields = {
    1: ("kind", TEXT),
    2: ("namespace", TEXT),
    3: ("name", TEXT),
    4: ("uid", TEXT),
    5: ("apiVersion", TEXT),
    6: ("resourceVersion", TEXT),
    7: ("fieldPath", TEXT),
}
_LOCAL_REFERENCE: Fields = {1: ("name", TEXT)}
_SERVICE_PORT: Fields = {
    1: ("name", TEXT),
    2: ("protocol", TEXT),
    3: ("port", NUMBER),
    4: ("targetPort", INT_OR_STRING),
    5: ("nodePort", NUMBER),
    6: ("appProtocol", TEXT),
}
_SERVICE_SPEC: Fields = {
    1: ("ports", [_SERVICE_PORT]),
    2: ("selector", {TEXT}),
    3: ("clusterIP", TEXT),
    4: ("type", TEXT),
    5: ("externalIPs", [TEXT]),
    7: ("sessionAffinity", TEXT),
    10: ("externalName", TEXT),
    13: ("publishNotReadyAddresses", FLAG),
}
_RULE: Fields = {
    1: ("verbs", [TEXT]),
    2: ("apiGroups", [TEXT]),
    3: ("resources", [TEXT]),
    4: ("resourceNames", [TEXT]),
    5: ("nonResourceURLs", [TEXT]),
}
_SUBJECT: Fields = {1: ("kind", TEXT), 2: ("apiGroup", TEXT), 3: ("name", TEXT), 4: ("namespace", TEXT)}
_ROLE_REFERENCE: Fields = {1: ("apiGroup", TEXT), 2: ("kind", TEXT), 3: ("name", TEXT)}
_REQUIREMENT: Fields = {1: ("key", TEXT), 2: ("operator", TEXT), 3: ("values", [TEXT])}
_SELECTOR: Fields = {1: ("matchLabels", {TEXT}), 2: ("matchExpressions", [_REQUIREMENT])}
_BUDGET_SPEC: Fields = {
    1: ("minAvailable", INT_OR_STRING),
    2: ("selector", _SELECTOR),
    3: ("maxUnavailable", INT_OR_STRING),
    4: ("unhealthyPodEvictionPolicy", TEXT),
}
_DELETE_OPTIONS: Fields = {
    1: ("gracePeriodSeconds", NUMBER),
    2: ("preconditions", {1: ("uid", TEXT), 2: ("resourceVersion", TEXT)}),
    3: ("orphanDependents", FLAG),
    4: ("propagationPolicy", TEXT),
    5: ("dryRun", [TEXT]),
}

MESSAGES: dict[str, Fields] = {
    "Namespace": {1: _META},
    "ConfigMap": {1: _META, 2: ("data", {TEXT}), 3: ("binaryData", {BYTES}), 4: ("immutable", FLAG)},
    "Secret": {1: _META, 2: ("data", {BYTES}), 3: ("type", TEXT), 4: ("stringData", {TEXT}), 5: ("immutable", FLAG)},
    "ServiceAccount": {
        1: _META,
        2: ("secrets", [_REFERENCE]),
        3: ("imagePullSecrets", [_LOCAL_REFERENCE]),
        4: ("automountServiceAccountToken", FLAG),
    },
    "Service": {1: _META, 2: ("spec", _SERVICE_SPEC)},
    "Role": {1: _META, 2: ("rules", [_RULE])},
    "RoleBinding": {1: _META, 2: ("subjects", [_SUBJECT]), 3: ("roleRef", _ROLE_REFERENCE)},
    "PodDisruptionBudget": {1: _META, 2: ("spec", _BUDGET_SPEC)},
    "PriorityClass": {
        1: _META,
        2: ("value", NUMBER),
        3: ("globalDefault", FLAG),
        4: ("description", TEXT),
        5: ("preemptionPolicy", TEXT),
    },
    "Binding": {1: _META, 2: ("target", _REFERENCE)},
    "Eviction": {1: _META, 2: ("deleteOptions", _DELETE_OPTIONS)},
    "DeleteOptions": _DELETE_OPTIONS,
}
_ENVELOPE: Fields = {1: ("type", {1: ("apiVersion", TEXT), 2: ("kind", TEXT)}), 2: ("raw", MESSAGE)}


def parse_protobuf(body: bytes) -> Obj:
    """Return the JSON form of a body; reject one that is damaged or of a kind that clients send only as JSON."""
    if not body.startswith(_MAGIC):
        raise bad_request("the provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = _parse_message(body[len(_MAGIC) :], _ENVELOPE)
        named = envelope.get("type", {})
        fields = MESSAGES.get(named.get("kind", ""))
        value = _parse_message(envelope.get("raw", b""), fields) if fields is not None else None
    except (IndexError, UnicodeDecodeError) as error:
        raise bad_request(f"proto: the message cannot be read: {error}") from None
    if value is None:
        raise bad_request(f"the sandbox reads {named.get('kind')} as JSON or YAML only")
    return {**named, **value}


def _parse_message(data: bytes, fields: Fields) -> Obj:
    result: Obj = {}
    for number, value in _read_fields(data):
        if number not in fields:
            continue
        name, kind = fields[number]
        if isinstance(kind, list):
            result.setdefault(name, []).append(_parse_value(value, kind[0]))
        elif isinstance(kind, set):
            (inner,) = kind
            entry = _parse_message(value, {1: ("key", TEXT), 2: ("value", inner)})
            result.setdefault(name, {})[entry.get("key", "")] = entry.get("value", "")
        else:
            result[name] = _parse_value(value, kind)
    # Empty means not set: protobuf writes zero values of plain fields.
    return {name: value for name, value in result.items() if value not in ("", {}, [], None)}


def _parse_value(value: Any, kind: Any) -> Any:
    if isinstance(kind, dict):
        return _parse_message(value, kind)
    return _SCALARS[kind](value)


def _parse_timestamp(value: bytes) -> str | None:
    seconds = _parse_message(value, {1: ("seconds", NUMBER)}).get("seconds")
    return render_time(seconds) if seconds else None


def _parse_int_or_string(value: bytes) -> int | str:
    parts = _parse_message(value, {1: ("type", NUMBER), 2: ("number", NUMBER), 3: ("text", TEXT)})
    found: int | str = parts.get("text", "") if parts.get("type") else parts.get("number", 0)
    return found


_SCALARS: dict[str, Callable[[Any], Any]] = {
    TEXT: bytes.decode,
    NUMBER: int,
    FLAG: bool,
    BYTES: lambda value: base64.b64encode(value).decode(),
    TIME: _parse_timestamp,
    INT_OR_STRING: _parse_int_or_string,
    MESSAGE: bytes,
}


_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def _read_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield a message's fields: numbers for varints, bytes for everything else."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value - (1 << 64) if value >= 1 << 63 else value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if wire == _LENGTH:
            size, at = _read_varint(data, at)
        if size is None or at + size > len(data):
            raise IndexError(f"field {number} is damaged")
        yield number, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 the last byte of a varint
            return value, at
        shift += 7
