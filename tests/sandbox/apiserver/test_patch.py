"""The patch types as functions: merge, JSON and strategic merge."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.sandbox.apiserver.errors import ApiError
from rollouts.sandbox.apiserver.patch import json_patch, merge_patch
from rollouts.sandbox.apiserver.registry import Registry
from rollouts.sandbox.apiserver.strategic_merge_patch import strategic_merge

SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.text("ab", max_size=2))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


def _difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns one object into another."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = value
        elif isinstance(value, dict) and isinstance(old[key], dict):
            below = _difference(old[key], value)
            if below:
                patch[key] = below
        elif value != old[key] or type(value) is not type(old[key]):
            patch[key] = value
    return patch


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_of_the_difference_leads_to_the_other_object(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = repr(old)
    assert merge_patch(old, _difference(old, new)) == new
    assert repr(old) == before, "the patched object is left alone"


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_applied_twice_is_applied_once(target: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


def test_a_json_patch_is_taken_whole_or_not_at_all() -> None:
    target = {"a": [1, 2], "b": {"c": 1}}
    operations = [
        {"op": "test", "path": "/b/c", "value": 1},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "move", "from": "/b/c", "path": "/d"},
        {"op": "remove", "path": "/a/0"},
    ]
    assert json_patch(target, operations) == {"a": [2, 3], "b": {}, "d": 1}
    with pytest.raises(ApiError) as raised:
        json_patch(target, [*operations, {"op": "remove", "path": "/nope"}])
    assert raised.value.code == 422
    assert target == {"a": [1, 2], "b": {"c": 1}}


# --- strategic merge -----------------------------------------------------------------------------------------------


def _merged(registry: Registry, target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    return strategic_merge(registry.kind("pods").schema, target, patch)


def _pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


def test_containers_merge_by_name_and_new_ones_come_first(registry: Registry) -> None:
    target = _pod({"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"})
    patch = _pod({"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]}, {"name": "c", "image": "3"})
    merged = _merged(registry, target, patch)["spec"]["containers"]
    assert [(one["name"], one["image"]) for one in merged] == [("a", "2"), ("c", "3"), ("b", "1")]
    assert merged[0]["env"] == [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]


def test_an_item_is_deleted_by_directive(registry: Registry) -> None:
    target = _pod({"name": "a"}, {"name": "b"})
    assert _merged(registry, target, _pod({"$patch": "delete", "name": "a"})) == _pod({"name": "b"})


def test_an_order_is_kept_as_asked_for(registry: Registry) -> None:
    target = _pod({"name": "a"}, {"name": "b"}, {"name": "c"})
    patch = {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}}
    assert [one["name"] for one in _merged(registry, target, patch)["spec"]["containers"]] == ["c", "a", "b"]


def test_a_map_is_replaced_by_directive(registry: Registry) -> None:
    target = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    patch = {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}
    assert _merged(registry, target, patch) == {"metadata": {"labels": {"c": "3"}}}


def test_plain_values_join_and_leave_a_list_by_directive(registry: Registry) -> None:
    target = {"metadata": {"finalizers": ["a", "b"]}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}}
    assert sorted(_merged(registry, target, patch)["metadata"]["finalizers"]) == ["b", "c"]


def test_lists_without_a_merge_key_are_replaced(registry: Registry) -> None:
    target = _pod({"name": "a", "args": ["1", "2"]}, tolerations=[{"key": "x"}])
    patch = _pod({"name": "a", "args": ["3"]}, tolerations=[{"key": "y"}])
    merged = _merged(registry, target, patch)["spec"]
    assert merged["containers"][0]["args"] == ["3"]
    assert merged["tolerations"] == [{"key": "y"}]


def test_retained_keys_drop_the_others(registry: Registry) -> None:
    target = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}}
    assert _merged(registry, target, patch)["spec"]["volumes"] == [{"name": "v", "configMap": {"name": "c"}}]


def test_a_null_removes_a_field(registry: Registry) -> None:
    assert _merged(registry, {"spec": {"nodeName": "a", "x": 1}}, {"spec": {"nodeName": None}}) == {"spec": {"x": 1}}


def test_an_item_without_its_merge_key_is_refused(registry: Registry) -> None:
    with pytest.raises(ApiError, match="does not contain declared merge key: name"):
        _merged(registry, _pod({"name": "a"}), _pod({"image": "x"}))
