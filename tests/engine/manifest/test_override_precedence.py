"""Which override wins: the most specific one, and of two that are equally specific the newest."""

from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any

import pytest

from rollouts.engine.manifest.override_precedence import Override, apply_overrides, has_expired, matches
from rollouts.engine.manifest.strategy_parts import MAX_SURGE, STRATEGY_TYPE
from tests.engine.manifests import small

OF_ALL = Override(
    id=1, cluster="", namespace="", name="", labels={}, settings={("", MAX_SURGE): 1}, created=1.0, expires_at=None
)
MOST_SPECIFIC_FIRST: list[dict[str, Any]] = [
    {"name": "chat"},
    {"labels": {"team": "search"}, "namespace": "web", "cluster": "east"},
    {"labels": {"team": "search"}},
    {"namespace": "web"},
    {"cluster": "east"},
    {"created": 2.0},
    {"id": 2},
    {},
]


@pytest.mark.parametrize(("specific", "general"), [*pairwise(MOST_SPECIFIC_FIRST)])
def test_the_more_specific_override_has_the_higher_precedence(
    specific: dict[str, Any], general: dict[str, Any]
) -> None:
    assert replace(OF_ALL, **specific).precedence > replace(OF_ALL, **general).precedence


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_each_field_comes_from_the_most_specific_override_whatever_their_order(order: tuple[int, ...]) -> None:
    overrides = [
        replace(OF_ALL, id=1, settings={("", STRATEGY_TYPE): "OnDelete", ("decode", MAX_SURGE): 1}),
        replace(OF_ALL, id=2, namespace="web", settings={("decode", MAX_SURGE): 2}),
        replace(OF_ALL, id=3, name="chat", settings={("frontend", MAX_SURGE): 3}),
    ]
    applied = apply_overrides(small(), [overrides[index] for index in order])
    assert applied.override_of == {("", STRATEGY_TYPE): 1, ("decode", MAX_SURGE): 2, ("frontend", MAX_SURGE): 3}
    assert applied.ignored == []


def test_a_rejected_override_leaves_its_fields_to_the_next_one() -> None:
    rejected = replace(OF_ALL, id=2, name="chat", settings={("", STRATEGY_TYPE): "Unheard"})
    applied = apply_overrides(small(), [replace(OF_ALL, settings={("", STRATEGY_TYPE): "OnDelete"}), rejected])
    assert applied.override_of == {("", STRATEGY_TYPE): 1}
    assert {override for override, _ in applied.ignored} == {2}


def test_an_override_matches_by_every_part_that_it_names() -> None:
    manifest = {"metadata": {"name": "chat", "namespace": "web", "labels": {"team": "search"}}}
    wanted = replace(OF_ALL, cluster="east", namespace="web", name="chat", labels={"team": "search"})
    assert matches(wanted, manifest, "east")
    assert not matches(wanted, manifest, "west")
    assert not matches(replace(wanted, labels={"team": "ads"}), manifest, "east")


def test_an_override_expires_at_its_time() -> None:
    until = replace(OF_ALL, expires_at=10.0)
    assert [has_expired(until, now) for now in (9.9, 10.0)] == [False, True]
