"""Parts of a strategy written into a manifest: what edits and overrides share, and where they differ."""

from typing import Any

from rollouts.engine.manifest.edits import edit_strategy
from rollouts.engine.manifest.strategy_parts import MAX_SURGE, MAX_UNAVAILABLE, STRATEGY_TYPE, put_strategy_parts

SHARED_NAME = {"spec": {"template": {"cliques": [{"name": "a"}], "podCliqueScalingGroups": [{"name": "a"}]}}}
MALFORMED = {"spec": {"updateStrategy": "fast", "template": {"cliques": [{"name": "a"}]}}}


def components(manifest: Any) -> dict[str, list[Any]]:
    """Return the entries of cliques and scaling groups."""
    return {kind: manifest["spec"]["template"][kind] for kind in ("cliques", "podCliqueScalingGroups")}


def test_an_edit_of_a_shared_name_means_the_group_and_an_override_both() -> None:
    changes = {"a": {MAX_SURGE: 1}}
    written = {"name": "a", "updateStrategy": {MAX_SURGE: 1}}
    edited = put_strategy_parts(SHARED_NAME, {}, changes, both_kinds=False)
    assert components(edited) == {"cliques": [{"name": "a"}], "podCliqueScalingGroups": [written]}
    assert edited == edit_strategy(SHARED_NAME, {"components": changes})
    overridden = put_strategy_parts(SHARED_NAME, {}, changes, both_kinds=True)
    assert components(overridden) == {"cliques": [written], "podCliqueScalingGroups": [written]}


def test_a_strategy_of_the_set_that_becomes_empty_is_removed_and_one_that_was_empty_stays() -> None:
    manifest = {"spec": {"updateStrategy": {"rollingUpdate": {MAX_SURGE: 1}}}}
    assert put_strategy_parts(manifest, {MAX_SURGE: None}, {}, both_kinds=True) == {"spec": {}}
    manifest = {"spec": {"updateStrategy": {}}}
    assert put_strategy_parts(manifest, {MAX_SURGE: None}, {}, both_kinds=True) == manifest


def test_parts_are_put_beside_what_is_written() -> None:
    manifest = {"spec": {"updateStrategy": {STRATEGY_TYPE: "OnDelete", "rollingUpdate": {MAX_SURGE: 1}}, "replicas": 2}}
    put = put_strategy_parts(manifest, {STRATEGY_TYPE: "RollingUpdate", MAX_UNAVAILABLE: 2}, {}, both_kinds=False)
    strategy = {STRATEGY_TYPE: "RollingUpdate", "rollingUpdate": {MAX_SURGE: 1, MAX_UNAVAILABLE: 2}}
    assert put == {"spec": {"updateStrategy": strategy, "replicas": 2}}


def test_all_of_the_strategy_of_a_component_is_removed_by_null() -> None:
    manifest = {"spec": {"template": {"cliques": [{"name": "a", "updateStrategy": {MAX_SURGE: 1}}, 5]}}}
    put = put_strategy_parts(manifest, {}, {"a": None}, both_kinds=False)
    assert put == {"spec": {"template": {"cliques": [{"name": "a"}, 5]}}}


def test_an_edit_replaces_a_malformed_strategy() -> None:
    # An override leaves it, so that the rules say what is wrong with it (tests/controller/test_effective_strategy.py).
    put = put_strategy_parts(MALFORMED, {MAX_SURGE: 1}, {}, both_kinds=False)
    assert put["spec"]["updateStrategy"] == {"rollingUpdate": {MAX_SURGE: 1}}
