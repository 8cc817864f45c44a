"""Schemas and CEL rules: what is pruned, defaulted, rejected, and what a stored object may keep."""

from typing import Any

import pytest

from rollouts.sandbox.apiserver.cel import evaluate_rules
from rollouts.sandbox.apiserver.errors import ApiError
from rollouts.sandbox.apiserver.registry import Registry, parse_kind
from rollouts.sandbox.apiserver.schema import MISSING, default, parse_schema, prune, validate
from rollouts.sandbox.apiserver.storage import Storage
from rollouts.sandbox.apiserver.verbs import Verbs
from tests.sandbox.apiserver.conftest import Api
from tests.sandbox.apiserver.objects import Clock, widget

Obj = dict[str, Any]


def test_unknown_fields_are_dropped_except_where_they_are_kept(api: Api) -> None:
    reported: list[str] = []
    spec = {"size": "small", "nope": 1, "parts": [{"name": "a", "nope": 1}], "free": {"any": {"thing": None}}}
    made = api.verbs.create(
        api.widgets, "default", widget("w", spec), unknown_fields=lambda _kind, paths, _obj: reported.extend(paths)
    )
    assert sorted(reported) == ["spec.nope", "spec.parts[0].nope"]
    assert made["spec"]["parts"] == [{"name": "a", "count": 3}]
    assert made["spec"]["free"] == {"any": {"thing": None}}


def test_defaults_fill_what_is_absent_or_null_outer_before_inner() -> None:
    schema = parse_schema(
        {
            "type": "object",
            "properties": {
                "outer": {
                    "type": "object",
                    "default": {},
                    "properties": {"inner": {"type": "integer", "default": 3}},
                },
                "list": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}},
                },
                "map": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {"b": {"type": "boolean", "default": True}},
                    },
                },
                "may": {"type": "string", "nullable": True, "default": "y"},
            },
        }
    )
    value: Obj = {"list": [{}], "map": {"k": {}}, "may": None}
    default(schema, value)
    assert value == {"outer": {"inner": 3}, "list": [{"a": "x"}], "map": {"k": {"b": True}}, "may": None}
    again: Obj = {}
    default(schema, again)
    again["outer"]["inner"] = 4
    fresh: Obj = {}
    default(schema, fresh)
    assert fresh["outer"] == {"inner": 3}, "a default is never shared between objects"


def test_what_equals_the_stored_value_is_not_judged_again() -> None:
    schema = parse_schema(
        {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "maximum": 5},
                "b": {"type": "integer"},
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "n": {"type": "integer", "maximum": 5}},
                    },
                },
            },
        }
    )
    old = {"a": 9, "b": 1, "items": [{"name": "x", "n": 9}, {"name": "y", "n": 1}]}
    new = {"a": 9, "b": 2, "items": [{"name": "y", "n": 7}, {"name": "x", "n": 9}]}
    assert [cause.field for cause in validate(schema, new, old)] == ["items[0].n"]
    assert {cause.field for cause in validate(schema, new)} == {"a", "items[0].n", "items[1].n"}


@pytest.mark.parametrize("value", [1, True, [], {}, 1.5])
def test_a_wrong_type_is_told_once(value: object) -> None:
    schema = parse_schema({"type": "string", "pattern": "^a$", "enum": ["a"]})
    assert [cause.reason for cause in validate(schema, value)] == ["FieldValueTypeInvalid"]


def test_pruning_keeps_the_identity_of_an_embedded_object() -> None:
    schema = parse_schema({"type": "object", "x-kubernetes-embedded-resource": True, "properties": {}})
    value = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "nope": 1}
    assert prune(schema, value) == ["nope"]
    assert set(value) == {"apiVersion", "kind", "metadata"}


# --- CEL -----------------------------------------------------------------------------------------------------------


def _judged(source: Obj, value: Any, old: Any = MISSING) -> list[tuple[str, str, str]]:
    found = evaluate_rules(parse_schema(source), value, old, "spec")
    return [(cause.reason, cause.message, cause.field) for cause in found]


def _ruled(*rules: Obj, **schema: Any) -> Obj:
    return {"type": "object", "x-kubernetes-validations": list(rules), **schema}


def test_a_broken_rule_is_told_with_its_message_reason_and_place() -> None:
    source = _ruled(
        {"rule": "self.a < self.b", "message": "a must be below b"},
        {"rule": "self.a != 2", "message": "never 2", "reason": "FieldValueForbidden", "fieldPath": ".a"},
        {"rule": "self.a == 1", "messageExpression": "'it is ' + string(self.a)"},
        {"rule": "self.a == 1"},
    )
    assert _judged(source, {"a": 2, "b": 1}) == [
        ("FieldValueInvalid", "Invalid value: a must be below b", "spec"),
        ("FieldValueForbidden", "Forbidden: never 2", "spec.a"),
        ("FieldValueInvalid", "Invalid value: it is 2", "spec"),
        ("FieldValueInvalid", "Invalid value: failed rule: self.a == 1", "spec"),
    ]
    assert _judged(source, {"a": 1, "b": 2}) == []


def test_a_transition_rule_is_silent_on_creation() -> None:
    source = _ruled({"rule": "self.a == oldSelf.a", "message": "a is fixed"})
    assert _judged(source, {"a": 2}) == []
    assert len(_judged(source, {"a": 2}, {"a": 1})) == 1
    assert _judged(source, {"a": 1, "b": 1}, {"a": 1}) == []


def test_a_transition_rule_with_an_optional_old_self_judges_creation_too() -> None:
    source = _ruled(
        {
            "rule": "!oldSelf.hasValue() ? !has(self.a) : true",
            "message": "a may not be set at first",
            "optionalOldSelf": True,
        }
    )
    assert len(_judged(source, {"a": 1})) == 1
    assert _judged(source, {}) == []
    assert _judged(source, {"a": 1}, {"a": 2}) == []


def test_rules_in_lists_meet_the_item_of_the_same_key() -> None:
    source = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": _ruled({"rule": "self.v >= oldSelf.v", "message": "v may only grow"}),
    }
    old = [{"name": "a", "v": 5}, {"name": "b", "v": 1}]
    new = [{"name": "b", "v": 2}, {"name": "c", "v": 0}, {"name": "a", "v": 4}]
    assert [place for _, _, place in _judged(source, new, old)] == ["spec[2]"]


def test_unchanged_parts_are_not_judged_again() -> None:
    source = _ruled(properties={"part": _ruled({"rule": "self.a < 3"})})
    assert _judged(source, {"part": {"a": 9}, "b": 2}, {"part": {"a": 9}, "b": 1}) == []
    assert len(_judged(source, {"part": {"a": 8}}, {"part": {"a": 9}})) == 1


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.all(x, x.startsWith('a'))", ["ab", "ac"]),
        ("self.exists(x, x == 'b') && size(self) == 2", ["a", "b"]),
        ("type(self) == int ? self >= 0 : self.matches('^[0-9]+%$')", "25%"),
        ("type(self) == int ? self >= 0 : self.matches('^[0-9]+%$')", 3),
        ("has(self.a) || has(self.b)", {"b": 1}),
        ("self.map(x, x.n).exists_one(n, n == 2)", [{"n": 1}, {"n": 2}]),
        ("duration(self) > duration('1s')", "4h"),
        ("'x' in self && self['x'] == 1", {"x": 1}),
    ],
)
def test_the_language_of_the_definitions_is_understood(rule: str, value: Any) -> None:
    assert _judged({"x-kubernetes-validations": [{"rule": rule}]}, value) == []


def test_the_projects_own_definitions_compile_and_hold_for_a_small_set(api: Api) -> None:
    kind = api.registry.kind("podcliquesets", "grove.io")
    clique = {
        "name": "worker",
        "spec": {"roleName": "worker", "replicas": 1, "podSpec": {"containers": [{"name": "c", "image": "x"}]}},
    }
    body = {"metadata": {"name": "s"}, "spec": {"replicas": 1, "template": {"cliques": [clique]}}}
    assert api.verbs.create(kind, "default", body)["metadata"]["generation"] == 1


def test_an_object_older_than_a_stricter_schema_can_still_be_changed_elsewhere(registry: Registry) -> None:
    loose = registry.kind("widgets", "test.grove.io")
    store = Storage.open(":memory:")
    verbs = Verbs(store, registry, Clock())
    made = verbs.create(loose, "default", widget("w", {"size": "small", "name": "abc"}))

    manifest = loose.manifest
    version = manifest["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    spec = {**properties["spec"], "properties": {**properties["spec"]["properties"]}}
    spec["properties"]["name"] = {"type": "string", "maxLength": 2}
    schema = {**version["schema"]["openAPIV3Schema"], "properties": {**properties, "spec": spec}}
    strict = parse_kind(
        {
            **manifest,
            "spec": {**manifest["spec"], "versions": [{**version, "schema": {"openAPIV3Schema": schema}}]},
        }
    )
    changed = {**made, "spec": {**made["spec"], "replicas": 4}}
    assert verbs.update(strict, "default", "w", changed)["spec"]["replicas"] == 4
    current = verbs.get(strict, "default", "w")
    with pytest.raises(ApiError, match="Too long: may not be more than 2 bytes"):
        verbs.update(strict, "default", "w", {**current, "spec": {**current["spec"], "name": "abd"}})
    store.close()
