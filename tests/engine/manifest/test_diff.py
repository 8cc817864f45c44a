"""The differences between two values, and the JSON patch that turns one into the other."""

from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.engine.manifest.diff import ABSENT, find_differences, make_json_patch

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text("a/~.0", max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~.", max_size=2), inner, max_size=3),
)


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a"]),
        ({"a": {"b": 1, "c": 1}}, {"a": {"b": 1, "d": 1}}, ["a.c", "a.d"]),
        ({"a": [{"x": 1}, {"x": 2}]}, {"a": [{"x": 1}, {"x": 3}]}, ["a[1].x"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a"]),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({"labels": {"example.com/tier": "1"}}, {"labels": {}}, ["labels[example.com/tier]"]),
    ],
)
def test_differences_are_named_as_kubernetes_names_fields(before: Any, after: Any, fields: list[str]) -> None:
    assert [one.field for one in find_differences(before, after)] == fields


def test_what_is_not_there_is_not_null() -> None:
    (one,) = find_differences({"a": None}, {})
    assert (one.before, one.after) == (None, ABSENT)


@given(st.dictionaries(st.text("ab/~", max_size=2), VALUES), st.dictionaries(st.text("ab/~", max_size=2), VALUES))
def test_the_patch_makes_the_one_of_the_other(before: Any, after: Any) -> None:
    operations = make_json_patch(find_differences(before, after))
    patched = jsonpatch.apply_patch(before, operations)
    assert not find_differences(patched, after)
    assert patched == after
