"""Server-side apply and the ownership of fields."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.sandbox.apiserver.errors import ApiError
from rollouts.sandbox.apiserver.fieldsets import applied_fields, difference, intersection, render_paths, union
from rollouts.sandbox.apiserver.patch import PatchType
from rollouts.sandbox.apiserver.registry import Registry
from rollouts.sandbox.apiserver.storage import Storage
from rollouts.sandbox.apiserver.verbs import Verbs
from tests.sandbox.apiserver.conftest import Api
from tests.sandbox.apiserver.objects import Clock, widget
from tests.thoroughness import examples

Obj = dict[str, Any]


def _apply(api: Api, spec: Obj, manager: str, *, force: bool = False, **metadata: Any) -> Obj:
    body = widget("w", spec, **metadata)
    return api.verbs.patch(api.widgets, "default", "w", PatchType.APPLY, body, manager=manager, force=force)


def _owned(obj: Obj, manager: str) -> set[str]:
    entries = [one for one in obj["metadata"].get("managedFields", ()) if one["manager"] == manager]
    return {path for entry in entries for path in render_paths(entry["fieldsV1"])}


def test_an_apply_creates_and_owns_exactly_what_it_names(api: Api) -> None:
    made = _apply(api, {"size": "small", "parts": [{"name": "a", "value": "1"}], "tags": ["x"]}, "one")
    assert made["spec"]["replicas"] == 1, "defaults are there"
    assert _owned(made, "one") == {
        ".spec.size",
        '.spec.parts[name="a"]',
        '.spec.parts[name="a"].name',
        '.spec.parts[name="a"].value',
        '.spec.tags[="x"]',
    }


def test_two_managers_share_a_list_by_its_keys(api: Api) -> None:
    _apply(api, {"size": "small", "parts": [{"name": "a", "value": "1"}], "tags": ["x"]}, "one")
    made = _apply(api, {"parts": [{"name": "b", "value": "2"}], "tags": ["y"]}, "two")
    assert [one["name"] for one in made["spec"]["parts"]] == ["a", "b"]
    assert made["spec"]["tags"] == ["x", "y"]
    left = _apply(api, {"size": "small"}, "one")
    assert [one["name"] for one in left["spec"]["parts"]] == ["b"]
    assert left["spec"]["tags"] == ["y"]


def test_a_conflict_names_fields_and_managers_and_changes_nothing(api: Api) -> None:
    _apply(api, {"size": "small", "atom": {"a": "1"}}, "one")
    _apply(api, {"name": "abc"}, "three")
    before = api.verbs.get(api.widgets, "default", "w")
    with pytest.raises(ApiError) as raised:
        _apply(api, {"size": "large", "atom": {"b": "1"}, "name": "xyz"}, "two")
    assert raised.value.code == 409
    assert [(cause.message, cause.field) for cause in raised.value.causes] == [
        ('conflict with "one"', ".spec.atom"),
        ('conflict with "one"', ".spec.size"),
        ('conflict with "three"', ".spec.name"),
    ]
    assert raised.value.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .spec.atom\n- .spec.size\n'
        'conflicts with "three":\n- .spec.name'
    )
    assert api.verbs.get(api.widgets, "default", "w") is before


def test_force_takes_the_fields_and_the_same_value_is_shared(api: Api) -> None:
    _apply(api, {"size": "small", "name": "abc"}, "one")
    shared = _apply(api, {"size": "small"}, "two")
    assert _owned(shared, "one") & _owned(shared, "two") == {".spec.size"}
    taken = _apply(api, {"size": "large"}, "two", force=True)
    assert _owned(taken, "one") == {".spec.name"}
    assert taken["spec"]["size"] == "large"


def test_a_field_no_longer_applied_goes_unless_somebody_else_owns_it(api: Api) -> None:
    _apply(api, {"size": "small", "name": "abc", "limits": {"a": 1, "b": 2}}, "one", labels={"x": "1"})
    _apply(api, {"limits": {"b": 2}}, "two")
    left = _apply(api, {"size": "small"}, "one")
    assert "name" not in left["spec"]
    assert left["spec"]["limits"] == {"b": 2}
    assert "labels" not in left["metadata"]


def test_a_default_comes_back_when_its_applied_value_goes(api: Api) -> None:
    _apply(api, {"size": "small", "replicas": 7}, "one")
    assert _apply(api, {"size": "small"}, "one")["spec"]["replicas"] == 1


def test_an_update_takes_fields_from_appliers(api: Api) -> None:
    _apply(api, {"size": "small", "name": "abc"}, "one")
    patched = api.verbs.patch(
        api.widgets, "default", "w", PatchType.MERGE, {"spec": {"size": "large"}}, manager="editor"
    )
    assert _owned(patched, "one") == {".spec.name"}
    assert _owned(patched, "editor") == {".spec.size"}
    with pytest.raises(ApiError, match=r'conflict with "editor" using test\.grove\.io/v1alpha1'):
        _apply(api, {"size": "small"}, "one")


def test_an_apply_that_changes_nothing_writes_nothing(api: Api) -> None:
    first = _apply(api, {"size": "small", "parts": [{"name": "a"}]}, "one")
    api.clock.move(60)
    assert _apply(api, {"size": "small", "parts": [{"name": "a"}]}, "one") is first


def test_status_is_applied_through_its_own_subresource(api: Api) -> None:
    _apply(api, {"size": "small"}, "one")
    body = {**widget("w"), "status": {"replicas": 3}}
    status = api.verbs.patch(api.widgets, "default", "w", PatchType.APPLY, body, manager="one", subresource="status")
    assert status["status"] == {"replicas": 3}
    entries = {(one["manager"], one.get("subresource")) for one in status["metadata"]["managedFields"]}
    assert entries == {("one", None), ("one", "status")}
    again = _apply(api, {"size": "large"}, "one")
    assert again["status"] == {"replicas": 3}


def test_many_updaters_are_folded_into_one(api: Api) -> None:
    api.verbs.create(api.widgets, "default", widget())
    for n in range(15):
        api.clock.move(1)
        patch = {"spec": {"limits" if n < 2 else "free": {f"k{n}": n}}}
        api.verbs.patch(api.widgets, "default", "w", PatchType.MERGE, patch, manager=f"m{n}")
    managers = [one["manager"] for one in api.verbs.get(api.widgets, "default", "w")["metadata"]["managedFields"]]
    assert len(managers) == 10
    assert "ancient-changes" in managers
    assert "m14" in managers


def test_an_empty_map_is_owned_and_an_empty_list_is_not(api: Api) -> None:
    made = _apply(api, {"size": "small", "limits": {}, "tags": []}, "one")
    assert _owned(made, "one") == {".spec.size", ".spec.limits"}


# --- properties ----------------------------------------------------------------------------------------------------

LETTERS = st.sampled_from(["a", "b", "c"])
SPECS = st.fixed_dictionaries(
    {"size": st.sampled_from(["small", "large"])},
    optional={
        "name": st.sampled_from(["abc", "xyz"]),
        "limits": st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2),
        "tags": st.lists(LETTERS, unique=True, min_size=1, max_size=3),
        "atom": st.dictionaries(LETTERS, st.sampled_from("xy"), min_size=1, max_size=2),
        "things": st.lists(st.sampled_from("xy"), min_size=1, max_size=2),
        "parts": st.dictionaries(LETTERS, st.sampled_from("xy"), min_size=1, max_size=3).map(
            lambda found: [{"name": name, "value": value} for name, value in found.items()]
        ),
        "free": st.dictionaries(LETTERS, st.one_of(st.integers(0, 1), st.just({"d": 1})), max_size=2),
    },
)
FEW = settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _fresh(registry: Registry) -> Api:
    clock, store = Clock(), Storage.open(":memory:")
    widgets = registry.kind("widgets", "test.grove.io")
    return Api(Verbs(store, registry, clock), store, registry, clock, registry.kind("pods"), widgets)


@FEW
@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), SPECS), min_size=1, max_size=4))
def test_applying_the_same_again_changes_nothing(registry: Registry, steps: list[tuple[str, Obj]]) -> None:
    api = _fresh(registry)
    api.verbs.create(api.widgets, "default", widget())
    for manager, spec in steps:
        first = _apply(api, spec, manager, force=True)
        assert _apply(api, spec, manager, force=True) is first


@FEW
@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), SPECS), min_size=1, max_size=5))
def test_after_a_forced_apply_the_object_holds_and_owns_what_was_applied(
    registry: Registry, steps: list[tuple[str, Obj]]
) -> None:
    api = _fresh(registry)
    api.verbs.create(api.widgets, "default", widget())
    for manager, spec in steps:
        made = _apply(api, spec, manager, force=True)
        _assert_holds(made["spec"], spec)
        named = applied_fields(api.widgets.schema, {"spec": spec})
        assert _owned(made, manager) == set(render_paths(named))


def _assert_holds(found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            if value not in ({}, []):
                _assert_holds(found[key], value)
    elif isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        by_name = {one["name"]: one for one in found}
        for one in wanted:
            _assert_holds(by_name[one["name"]], one)
    elif isinstance(wanted, list):
        assert set(wanted) <= set(found)
    else:
        assert found == wanted


@FEW
@given(SPECS, SPECS)
def test_who_applies_and_withdraws_leaves_no_trace(registry: Registry, mine: Obj, theirs: Obj) -> None:
    api = _fresh(registry)
    api.verbs.create(api.widgets, "default", widget())
    alone = _apply(api, theirs, "theirs", force=True)
    try:
        _apply(api, mine, "mine")
    except ApiError:
        return  # what is in conflict is not applied at all
    after = _apply(api, {"size": alone["spec"]["size"]}, "mine")
    assert _without_empty(after["spec"]) == _without_empty(alone["spec"])
    assert _owned(after, "mine") == {".spec.size"}


def _without_empty(spec: Obj) -> Obj:
    """Return a spec without empty values and with its granular lists in a fixed order."""
    said = {key: value for key, value in spec.items() if value not in ({}, [])}
    said |= {key: sorted(said[key], key=str) for key in ("tags", "parts") if key in said}
    return said


TREES: st.SearchStrategy[Obj] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(st.sampled_from(["f:a", "f:b", "."]), inner, max_size=3), max_leaves=6
)


def _tidy(tree: Obj) -> Obj:
    """Return a generated tree as a set: the mark of membership is empty, and never at the root."""

    def below(node: Obj) -> Obj:
        return {key: {} if key == "." else below(child) for key, child in node.items() if node != {".": {}}}

    return {key: below(child) for key, child in tree.items() if key != "."}


@given(TREES.map(_tidy), TREES.map(_tidy))
def test_field_sets_obey_the_laws_of_sets(left: Obj, right: Obj) -> None:
    def members(tree: Obj) -> set[str]:
        return set(render_paths(tree))

    assert members(union(left, right)) == members(left) | members(right)
    assert members(intersection(left, right)) == members(left) & members(right)
    assert members(difference(left, right)) == members(left) - members(right)
