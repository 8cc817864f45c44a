"""The structural schema of a kind, compiled once: prune, default and validate the objects of that kind.

`registry` compiles the OpenAPI v3 schema of each CustomResourceDefinition (built-in kinds come in the same form);
`verbs` runs incoming objects through `prune`, `default` and `validate`; `patch`, `fieldsets` and `server_side_apply`
read the list and map types. The compiled form is a tree of `Schema` values, so the cost of a write is one walk over the
object.

`prune` and `default` change the object they are given: it must be the caller's own copy. `validate` changes nothing,
and it skips what equals the stored object, as the real server does (an old object that a tightened schema would
refuse can still be updated elsewhere), which also makes status updates cheap.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rollouts.sandbox.apiserver import formats
from rollouts.sandbox.apiserver.errors import StatusCause
from rollouts.sandbox.apiserver.keywords import ValueCheck, parse_checks, render_location

Json = Any
PyType = type[object]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class Rule:
    """One x-kubernetes-validations entry, as written; `cel` compiles it."""

    rule: str
    message: str
    message_expression: str
    reason: str
    field_path: str
    optional_old_self: bool | None


@dataclass(frozen=True, slots=True)
class Schema:
    """One node of a structural schema."""

    type: str = ""  # "" takes any type (preserve-unknown-fields, int-or-string)
    properties: dict[str, Schema] | None = None
    additional: Schema | None = None  # schema of a map's values
    items: Schema | None = None
    required: tuple[str, ...] = ()
    enum: tuple[Json, ...] = ()
    default: Json = MISSING
    nullable: bool = False
    int_or_string: bool = False
    preserve: bool = False  # keeps unknown fields
    embedded: bool = False  # a whole object with its own apiVersion, kind and metadata
    checks: tuple[ValueCheck, ...] = ()  # value checks in the order the real server runs them
    all_of: tuple[Schema, ...] = ()
    any_of: tuple[Schema, ...] = ()
    one_of: tuple[Schema, ...] = ()
    not_: Schema | None = None
    rules: tuple[Rule, ...] = ()
    list_type: str = "atomic"  # atomic, set, map
    list_map_keys: tuple[str, ...] = ()
    map_type: str = "granular"  # granular, atomic
    merge_key: str = ""  # strategic merge: the key of a merging list
    patch_strategy: str = ""  # strategic merge: merge, retainKeys, "" replaces
    has_defaults: bool = False  # here or anywhere below
    has_rules: bool = False  # here or anywhere below
    quantity: bool = False  # an amount such as 500m or 4Gi
    has_quantities: bool = False  # here or anywhere below
    plain: PyType | None = None  # values of exactly this Python type need no further check
    source: Json = None  # the schema as written, for OpenAPI

    def child(self, key: str) -> Schema | None:
        """Return the schema of an object's member, None where the schema does not have it."""
        if self.properties is not None and key in self.properties:
            return self.properties[key]
        return self.additional


ANYTHING: Final = Schema(preserve=True)


def parse_schema(source: dict[str, Any]) -> Schema:
    """Compile an OpenAPI v3 structural schema."""
    properties = source.get("properties")
    members = {name: parse_schema(child) for name, child in properties.items()} if properties else None
    extra = source.get("additionalProperties")
    additional = parse_schema(extra) if isinstance(extra, dict) else ANYTHING if extra is True else None
    items = parse_schema(source["items"]) if "items" in source else None
    below = [child for child in (*(members or {}).values(), additional, items) if child is not None]
    rules = tuple(_parse_rule(one) for one in source.get("x-kubernetes-validations", ()))
    return Schema(
        type=source.get("type", ""),
        properties=members,
        additional=additional,
        items=items,
        required=tuple(source.get("required", ())),
        enum=tuple(source.get("enum", ())),
        default=source.get("default", MISSING),
        nullable=source.get("nullable", False),
        int_or_string=source.get("x-kubernetes-int-or-string", False),
        preserve=source.get("x-kubernetes-preserve-unknown-fields", False),
        embedded=source.get("x-kubernetes-embedded-resource", False),
        checks=tuple(parse_checks(source)),
        all_of=tuple(parse_schema(one) for one in source.get("allOf", ())),
        any_of=tuple(parse_schema(one) for one in source.get("anyOf", ())),
        one_of=tuple(parse_schema(one) for one in source.get("oneOf", ())),
        not_=parse_schema(source["not"]) if "not" in source else None,
        rules=rules,
        list_type=source.get("x-kubernetes-list-type", "atomic"),
        list_map_keys=tuple(source.get("x-kubernetes-list-map-keys", ())),
        map_type=source.get("x-kubernetes-map-type", "granular"),
        merge_key=source.get("x-kubernetes-patch-merge-key", ""),
        patch_strategy=source.get("x-kubernetes-patch-strategy", ""),
        has_defaults="default" in source or any(child.has_defaults for child in below),
        has_rules=bool(rules) or any(child.has_rules for child in below),
        quantity=source.get("format") == "quantity",
        has_quantities=source.get("format") == "quantity" or any(child.has_quantities for child in below),
        plain=_plain_type(source),
        source=source,
    )


_PLAIN_TYPES = {"string": str, "boolean": bool, "integer": int}
_ANNOTATION_KEYWORDS = frozenset(
    ("type", "description", "default", "nullable", "title", "example", "x-kubernetes-validations")
)


def _plain_type(source: dict[str, Any]) -> PyType | None:
    """Return the Python type of a scalar whose schema has only a type."""
    return _PLAIN_TYPES.get(source.get("type", "")) if _ANNOTATION_KEYWORDS.issuperset(source) else None


def _parse_rule(source: dict[str, Any]) -> Rule:
    return Rule(
        rule=source["rule"],
        message=source.get("message", ""),
        message_expression=source.get("messageExpression", ""),
        reason=source.get("reason", "FieldValueInvalid"),
        field_path=source.get("fieldPath", ""),
        optional_old_self=source.get("optionalOldSelf"),
    )


# --- pruning -------------------------------------------------------------------------------------------------------


def prune(schema: Schema, value: Json) -> list[str]:
    """Remove what the schema does not know from a private copy; return the paths removed.

    An explicit null where the schema takes none means an absent field, and is removed silently.
    """
    unknown: list[str] = []
    _prune(schema, value, "", unknown)
    return unknown


_EMBEDDED_KEYS = frozenset(("apiVersion", "kind", "metadata"))


def _prune(schema: Schema, value: Json, path: str, unknown: list[str]) -> None:
    if isinstance(value, dict):
        _prune_object(schema, value, path, unknown)
    elif isinstance(value, list) and schema.items is not None:
        items = schema.items
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                _prune(items, item, f"{path}[{index}]", unknown)


def _prune_object(schema: Schema, value: Json, path: str, unknown: list[str]) -> None:
    if schema.type not in {"object", ""}:
        return  # a type mismatch, which validate reports
    for key in list(value):
        member = value[key]
        known = schema.child(key)
        if known is None:
            if schema.preserve or (schema.embedded and key in _EMBEDDED_KEYS):
                continue
            unknown.append(f"{path}.{key}" if path else key)
            del value[key]
        elif member is None:
            if (known.type or known.int_or_string) and not known.nullable:
                del value[key]
        elif isinstance(member, dict | list):
            _prune(known, member, f"{path}.{key}" if path else key, unknown)


def normalize(schema: Schema, value: Json) -> Json:
    """Bring quantities into their canonical form, in place; return the value, which may be one itself."""
    if schema.quantity:
        return formats.canonical_quantity(value)
    if not schema.has_quantities:
        return value
    if isinstance(value, dict):
        for key, member in value.items():
            child = schema.child(key)
            if child is not None and child.has_quantities:
                value[key] = normalize(child, member)
    elif isinstance(value, list) and schema.items is not None:
        value[:] = [normalize(schema.items, item) for item in value]
    return value


def compact(schema: Schema, value: Json) -> None:
    """Remove empty maps and lists that are not required, as a typed server does when it writes an object."""
    if isinstance(value, list):
        if schema.items is not None:
            for item in value:
                if isinstance(item, dict | list):
                    compact(schema.items, item)
        return
    for key, member in list(value.items()):
        child = schema.child(key)
        if child is None or not isinstance(member, dict | list):
            continue
        if member:
            compact(child, member)
        elif key not in schema.required and (isinstance(member, list) or child.additional is not None):
            del value[key]


# --- defaulting ----------------------------------------------------------------------------------------------------


def default(schema: Schema, value: Json) -> None:
    """Fill in the schema's defaults, outer before inner, in a private copy."""
    if not schema.has_defaults:
        return
    if isinstance(value, dict):
        _default_object(schema, value)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            default(schema.items, item)


def _default_object(schema: Schema, value: dict[str, Any]) -> None:
    if schema.properties is not None:
        for name, member in schema.properties.items():
            if member.default is not MISSING:
                present = value.get(name, MISSING)
                if present is MISSING or (present is None and not member.nullable):
                    value[name] = copy.deepcopy(member.default)
            if member.has_defaults and name in value:
                default(member, value[name])
    if schema.additional is not None and schema.additional.has_defaults:
        for name, member_value in value.items():
            if schema.properties is None or name not in schema.properties:
                default(schema.additional, member_value)


# --- validation ----------------------------------------------------------------------------------------------------


def validate(schema: Schema, value: Json, old: Json = MISSING, path: str = "") -> Iterator[StatusCause]:
    """Find what breaks the schema; skip what equals `old`, which was accepted before."""
    if old is not MISSING and value == old:
        return
    mismatch = _type_mismatch(schema, value, path)
    if mismatch is not None:
        yield mismatch
        if schema.any_of:
            yield from _validate_junctors(schema, value, path)
        return
    if value is None:
        return
    if schema.enum and value not in schema.enum:
        yield _unsupported(value, schema.enum, path)
    for check in schema.checks:
        found = check(value, path)
        if found is not None:
            yield found
    if isinstance(value, dict):
        yield from _validate_object(schema, value, old, path)
    elif isinstance(value, list):
        yield from _validate_list(schema, value, old, path)
    yield from _validate_junctors(schema, value, path)


def _validate_object(schema: Schema, value: dict[str, Any], old: Json, path: str) -> Iterator[StatusCause]:
    prefix = f"{path}." if path else ""
    before = old if isinstance(old, dict) else None
    for name, member in value.items():
        child = schema.child(name)
        if child is not None and child.plain is not type(member):
            was = before.get(name, MISSING) if before is not None else MISSING
            yield from validate(child, member, was, f"{prefix}{name}")
    for name in schema.required:
        if name not in value:
            yield StatusCause("FieldValueRequired", "Required value", prefix + name)


def _validate_list(schema: Schema, value: list[Any], old: Json, path: str) -> Iterator[StatusCause]:
    if schema.items is None:
        return
    before: dict[Any, Any] = {}
    if schema.list_type == "map":
        yield from _duplicates(value, [map_key(schema, item) for item in value], path, schema.list_map_keys)
        if isinstance(old, list):
            before = {map_key(schema, item): item for item in old}
    elif schema.list_type == "set":
        yield from _duplicates(value, [freeze(item) for item in value], path, ())
    for index, item in enumerate(value):
        if schema.items.plain is type(item):
            continue
        was = before.get(map_key(schema, item), MISSING) if before else MISSING
        yield from validate(schema.items, item, was, f"{path}[{index}]")


def map_key(schema: Schema, item: Json) -> tuple[Any, ...]:
    """Return the identity of an item of a list-map: the values of its key fields, with defaults."""
    if not isinstance(item, dict):
        return (freeze(item),)
    members = (schema.items.properties if schema.items is not None else None) or {}
    return tuple(
        freeze(item[key])
        if key in item
        else (members[key].default if key in members and members[key].default is not MISSING else None)
        for key in schema.list_map_keys
    )


def freeze(value: Json) -> Any:
    """Return a hashable form of a JSON value in which 1, true and "1" differ."""
    if isinstance(value, dict):
        return ("{}", *((key, freeze(value[key])) for key in sorted(value)))
    if isinstance(value, list):
        return ("[]", *(freeze(item) for item in value))
    return ("?", value) if isinstance(value, bool) else value


def _duplicates(value: list[Any], identities: list[Any], path: str, keys: tuple[str, ...]) -> Iterator[StatusCause]:
    seen: set[Any] = set()
    for index, identity in enumerate(identities):
        if identity in seen:
            item = value[index]
            shown = {key: item[key] for key in keys if key in item} if keys and isinstance(item, dict) else item
            message = f"Duplicate value: {formats.render_json(shown)}"
            yield StatusCause("FieldValueDuplicate", message, f"{path}[{index}]")
        seen.add(identity)


def _validate_junctors(schema: Schema, value: Json, path: str) -> Iterator[StatusCause]:
    for one in schema.all_of:
        yield from validate(one, value, MISSING, path)
    if schema.any_of and not any(_is_valid(one, value) for one in schema.any_of):
        yield _make_junctor_cause(path, "must validate at least one schema (anyOf)")
        yield from validate(schema.any_of[0], value, MISSING, path)
    if schema.one_of:
        matches = sum(_is_valid(one, value) for one in schema.one_of)
        if matches != 1:
            found = f"Found {matches} valid alternatives" if matches else "Found none valid"
            yield _make_junctor_cause(path, f"must validate one and only one schema (oneOf). {found}")
        if not matches:
            yield from validate(schema.one_of[0], value, MISSING, path)
    if schema.not_ is not None and _is_valid(schema.not_, value):
        yield _make_junctor_cause(path, "must not validate the schema (not)")


def _make_junctor_cause(path: str, sentence: str) -> StatusCause:
    return StatusCause("FieldValueInvalid", f'Invalid value: "": "{path}" {sentence}', "<nil>")


def _is_valid(schema: Schema, value: Json) -> bool:
    return next(validate(schema, value), None) is None


# --- single values -------------------------------------------------------------------------------------------------

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def type_name(value: Json) -> str:
    """Return the JSON type of a value, in the words of the schema."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, classes in _TYPES.items() if isinstance(value, classes)), "number")


def _type_mismatch(schema: Schema, value: Json, path: str) -> StatusCause | None:
    if value is None:
        if schema.nullable or not schema.type:
            return None
        return _wrong_type(value, schema.type, path)
    if schema.int_or_string:
        right = isinstance(value, str | int) and not isinstance(value, bool)
        return None if right else _wrong_type(value, "integer,string", path)
    if not schema.type:
        return None
    right = isinstance(value, _TYPES[schema.type])
    if isinstance(value, bool):
        right = schema.type == "boolean"
    if schema.type == "integer" and isinstance(value, float) and value.is_integer():
        right = True
    return None if right else _wrong_type(value, schema.type, path)


def _wrong_type(value: Json, wanted: str, path: str) -> StatusCause:
    actual = type_name(value)
    message = f'Invalid value: "{actual}": {render_location(path)} must be of type {wanted}: "{actual}"'
    return StatusCause("FieldValueTypeInvalid", message, path or "<nil>")


def _unsupported(value: Json, allowed: tuple[Json, ...], path: str) -> StatusCause:
    shown = ", ".join(formats.render_json(one) for one in allowed)
    message = f"Unsupported value: {formats.render_json(value)}: supported values: {shown}"
    return StatusCause("FieldValueNotSupported", message, path)
