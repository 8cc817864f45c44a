"""What happens to an object between the request and the store: decoding, naming, validating.

`verbs` calls these in order. `decode` makes a private copy of what was sent, of the right kind, pruned and defaulted;
`ensure_name_and_namespace` checks its name and namespace against those of the request; `validate_object` rejects it
with all findings at once.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from rollouts.sandbox.apiserver import cel, objectmeta, strategies
from rollouts.sandbox.apiserver.errors import ApiError, QualifiedResource, StatusCause, bad_request, invalid
from rollouts.sandbox.apiserver.formats import render_json
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.schema import MISSING, compact, default, normalize, prune, type_name, validate

Obj = dict[str, Any]
# Called with the fields that were sent and dropped: the kind, their paths, and the whole object for patches.
UnknownFields = Callable[[Kind, Sequence[str], Obj], None]


def ignore_unknown(_kind: Kind, _paths: Sequence[str], _obj: Obj) -> None:
    """Drop unknown fields silently, as fieldValidation=Ignore does."""


def deep_copy(value: Any) -> Any:
    """Return a deep copy of a JSON value; reject one that is nested too deep to be serialised again."""
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError as error:
        raise bad_request(f"json: the value cannot be stored: {error}") from None


def decode(kind: Kind, body: Any, unknown_fields: UnknownFields) -> Obj:
    """Return a private copy of what was sent, of the right kind, pruned and defaulted."""
    if not isinstance(body, dict):
        raise bad_request(f"json: cannot unmarshal {_go_type(body)} into Go value of type v1.{kind.kind}")
    _check_version_and_kind(kind, body)
    obj: Obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, **deep_copy(body)}
    _check_metadata_types(kind, obj)
    unknown = prune(kind.schema, obj)
    if unknown:
        unknown_fields(kind, unknown, body)
    _drop_empty(obj["metadata"])
    set_defaults(kind, obj)
    return obj


def decode_status(kind: Kind, current: Obj, body: Any, unknown_fields: UnknownFields) -> Obj:
    """Return the stored object with the status that was sent: a shortcut for the most frequent write."""
    if not isinstance(body, dict):
        raise bad_request(f"json: cannot unmarshal {_go_type(body)} into Go value of type v1.{kind.kind}")
    _check_version_and_kind(kind, body)
    sent: Obj = {"status": deep_copy(body["status"])} if body.get("status") is not None else {}
    unknown = prune(kind.schema, sent)
    if unknown:
        unknown_fields(kind, unknown, body)
    unchanged = body.get("metadata") == current["metadata"]
    metadata = {**current["metadata"]} if unchanged else deep_copy(body.get("metadata") or {})
    obj = {**current, "metadata": metadata, **sent}
    if "status" not in sent:
        obj.pop("status", None)
    elif kind.schema.properties is not None and "status" in kind.schema.properties:
        schema = kind.schema.properties["status"]
        if kind.builtin:
            sent["status"] = obj["status"] = normalize(schema, sent["status"])
            if isinstance(sent["status"], dict):
                compact(schema, sent["status"])
                strategies.set_status_defaults(kind, sent["status"])
        default(schema, sent["status"])
    if unchanged:
        return obj
    _check_metadata_types(kind, obj)
    if kind.builtin:
        prune(kind.schema, {"metadata": metadata})
        _drop_empty(metadata)
    return obj


def set_defaults(kind: Kind, obj: Obj) -> None:
    """Fill in defaults and bring the values of built-in kinds into their canonical form."""
    if kind.builtin:
        normalize(kind.schema, obj)
        compact(kind.schema, obj)
    default(kind.schema, obj)
    strategies.set_defaults(kind, obj)


def _check_version_and_kind(kind: Kind, body: Obj) -> None:
    version, name = body.get("apiVersion") or kind.api_version, body.get("kind") or kind.kind
    if version == kind.api_version and name == kind.kind:
        return
    if not kind.builtin:
        if version != kind.api_version:
            sentence = f"the API version in the data ({version}) does not match the expected API version "
            raise bad_request(f"{sentence}({kind.api_version})")
        cause = StatusCause("FieldValueInvalid", f"Invalid value: {render_json(name)}: must be {kind.kind}", "kind")
        raise invalid(QualifiedResource(kind.group, name, (body.get("metadata") or {}).get("name", "")), [cause])
    sentence = f'{name} in version "{kind.version}" cannot be handled as a {kind.kind}: '
    raise bad_request(f'{sentence}no kind "{name}" is registered for version "{version}" in scheme "sandbox"')


_GO_TYPES = {
    "object": "map[string]string",
    "array": "[]string",
    "string": "string",
    "integer": "int64",
    "boolean": "bool",
    "number": "float64",
}


def _go_type(value: Any) -> str:
    name = type_name(value)
    return {"integer": "number", "boolean": "bool"}.get(name, name)


def _check_metadata_types(kind: Kind, obj: Obj) -> None:
    """Reject wrong types in metadata: it is a typed structure for every kind, so they fail to decode."""
    metadata = obj["metadata"]
    if not isinstance(metadata, dict):
        raise _undecodable(kind, metadata, "metadata", "v1.ObjectMeta", kind.kind)
    schema = (kind.schema.properties or {})["metadata"]
    for member in ("labels", "annotations"):
        if isinstance(metadata.get(member), dict) and None in metadata[member].values():
            metadata[member] = {key: value for key, value in metadata[member].items() if value is not None}
    for name, value in metadata.items():
        child = schema.child(name)
        if child is None or value is None:
            continue
        prefix = "metadata." if kind.builtin else ""
        for cause in validate(child, value, MISSING, name):
            if cause.reason == "FieldValueTypeInvalid":
                wrong, wanted = _find_mistyped_part(child, value)
                raise _undecodable(kind, wrong, f"{prefix}{name}", wanted, "ObjectMeta")
    for name in [name for name, value in metadata.items() if value is None]:
        del metadata[name]


def _find_mistyped_part(schema: Any, value: Any) -> tuple[Any, str]:
    if isinstance(value, dict) and schema.additional is not None:
        return next(one for one in value.values() if not isinstance(one, str)), "string"
    if isinstance(value, list) and schema.items is not None and schema.items.type == "string":
        return next((one for one in value if not isinstance(one, str)), value), "string"
    return value, _GO_TYPES.get(schema.type, "string")


class UndecodableError(ApiError):
    """A value has a type that its field cannot hold: in the request, or in the result of a patch."""

    def __init__(self, kind: Kind, problem: str) -> None:
        sentence = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {problem}'
        super().__init__(400, "BadRequest", sentence)
        self.problem = problem

    def as_patch_error(self, patched: Obj) -> ApiError:
        """Return the same problem, worded for an object that a patch made."""
        shown = render_json(orjson.dumps(patched).decode())
        return invalid(
            QualifiedResource("", ""),
            [StatusCause("FieldValueInvalid", f"Invalid value: {shown}: {self.problem}", "patch")],
        )


def _undecodable(kind: Kind, value: Any, path: str, wanted: str, owner: str) -> ApiError:
    problem = f"json: cannot unmarshal {_go_type(value)} into Go struct field {owner}.{path} of type {wanted}"
    return UndecodableError(kind, problem)


def _drop_empty(metadata: Obj) -> None:
    """Remove empty maps and lists from metadata, as the real server does."""
    for member in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if member in metadata and not metadata[member]:
            del metadata[member]


def ensure_name_and_namespace(kind: Kind, namespace: str | None, metadata: Obj, name: str | None = None) -> None:
    """Check name and namespace of the object against the request, and fill them in."""
    if kind.namespaced:
        if (metadata.get("namespace") or namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    if name is None:
        return
    if not metadata.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if metadata["name"] != name:
        raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")


# --- checking ------------------------------------------------------------------------------------------------------

# After one of these, CEL rules would be evaluated on values that they were not written for.
_BLOCKING_REASONS = frozenset(
    (
        "FieldValueRequired",
        "FieldValueNotSupported",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    )
)
_RULES_NOT_CHECKED = StatusCause(
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
    "<nil>",
)


def validate_object(kind: Kind, obj: Obj, old: Obj | None) -> None:
    """Reject an object that breaks its schema, its rules or the rules for every object."""
    findings = list(_findings(kind, obj, old))
    if not findings and kind.admission_validator is not None:
        findings = kind.admission_validator(obj, old)  # last, as a webhook: it sees only what the definition accepts
    if not findings:
        return
    if kind.builtin:
        _refuse_undecodable(kind, findings)
    raise invalid(kind.qualified_kind(obj["metadata"].get("name", "")), findings)


def _findings(kind: Kind, obj: Obj, old: Obj | None) -> Iterator[StatusCause]:
    found: list[StatusCause] = []
    if old is None:
        found += objectmeta.validate_metadata(kind.plural, obj["metadata"])
    elif obj["metadata"] != old["metadata"]:
        found += objectmeta.validate_metadata(kind.plural, obj["metadata"])
        found += objectmeta.validate_metadata_change(obj["metadata"], old["metadata"])
    before = MISSING if old is None else old
    broken = _schema_findings(kind, obj, before)
    if kind.builtin:
        # Lists of built-in kinds may hold a key twice (env does); where they may not, the kind's own rules check it.
        found += [cause for cause in broken if cause.reason != "FieldValueDuplicate"]
        found += strategies.findings(kind, obj, old)
        return iter(found)
    found += broken
    if kind.scale is not None:
        found += _scale_findings(kind.scale.replicas, obj, old)
    if not kind.schema.has_rules:
        return iter(found)
    if any(cause.reason in _BLOCKING_REASONS for cause in found):
        return iter((*found, _RULES_NOT_CHECKED))
    return iter((*found, *cel.evaluate_rules(kind.schema, obj, before)))


def _schema_findings(kind: Kind, obj: Obj, before: Any) -> list[StatusCause]:
    """Return what breaks the schema in the order of a real server: by name, duplicate items last."""
    found = list(validate(kind.schema, obj, before))
    if len(found) > 1:
        ordered = orjson.loads(orjson.dumps(obj, option=orjson.OPT_SORT_KEYS))
        found = list(validate(kind.schema, ordered, before))
    return sorted(found, key=lambda cause: cause.reason == "FieldValueDuplicate")


_MAX_REPLICAS = 2**31 - 1


def _scale_findings(path: tuple[str, ...], obj: Obj, old: Obj | None) -> Iterator[StatusCause]:
    value = get_nested_field(obj, path)
    where = "." + ".".join(path)
    if value is None or (old is not None and get_nested_field(old, path) == value):
        return
    if isinstance(value, bool) or not isinstance(value, int):
        kind = _go_type(value) if not isinstance(value, float) else "float64"
        sentence = f"Invalid value: 0: {where} accessor error: {value} is of the type {kind}, expected int64"
        yield StatusCause("FieldValueInvalid", sentence, where)
    elif value < 0:
        yield StatusCause("FieldValueInvalid", f"Invalid value: {value}: should be a non-negative integer", where)
    elif value > _MAX_REPLICAS:
        sentence = f"Invalid value: {value}: should be less than or equal to {_MAX_REPLICAS}"
        yield StatusCause("FieldValueInvalid", sentence, where)


def get_nested_field(obj: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of member names; None where there is none."""
    for name in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(name)
    return obj


_BAD_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _refuse_undecodable(kind: Kind, findings: Sequence[StatusCause]) -> None:
    """Reject a wrong type in a built-in kind: a real server fails to decode its typed structure."""
    for cause in findings:
        if cause.reason == "FieldValueTypeInvalid":
            wanted, _, shown = cause.message.rsplit("must be of type ", 1)[1].partition(": ")
            if wanted == "quantity":
                raise UndecodableError(kind, _BAD_QUANTITY)
            field = f"Go struct field {kind.kind}.{cause.field} of type {_GO_TYPES.get(wanted, wanted)}"
            actual = shown.strip('"')
            raise UndecodableError(kind, f"json: cannot unmarshal {actual} into {field}")
