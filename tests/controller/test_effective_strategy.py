"""The effective strategy: what the manifest says, what overrides replace, and which workloads they match."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.controller.effective_strategy import EffectiveStrategy, compute_effective_strategy, list_overrides
from rollouts.engine.manifest.findings import FindingCode
from rollouts.engine.manifest.override_precedence import Override, StrategyField
from rollouts.engine.manifest.strategy_parts import MAX_SURGE, MAX_UNAVAILABLE, STRATEGY_TYPE
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.engine.model.workload import BudgetSpec, IntOrPercent, Strategy
from rollouts.models import StrategyOverride
from tests.engine.manifests import complete, small, workload_of

NOW: Final = 1_800_000_000.0

Settings = dict[StrategyField, IntOrPercent | None]

OF_ALL = Override(
    id=1,
    cluster="",
    namespace="",
    name="",
    labels={},
    settings={("", STRATEGY_TYPE): "OnDelete"},
    created=NOW - 100,
    expires_at=None,
)


def chat(**edits: Any) -> dict[str, Any]:
    """Return a stored set with labels."""
    stored = {"metadata.namespace": "web", "metadata.labels": {"team": "search", "tier": "gold"}}
    return small(stored | edits)


def compute(*overrides: Override, manifest: dict[str, Any] | None = None, now: float = NOW) -> EffectiveStrategy:
    """Return the effective strategy in the cluster `east`."""
    return compute_effective_strategy(manifest or chat(), overrides, now, cluster="east")


def strategy(effective: EffectiveStrategy) -> Strategy:
    """Return the strategy that the engine parses from it."""
    return workload_of(effective.manifest).strategy


def test_without_overrides_the_workload_counts_as_it_is() -> None:
    manifest = chat()
    effective = compute(manifest=manifest)
    assert effective.manifest is manifest
    assert {*effective.sources.values()} == {"default"}
    assert (effective.ignored, effective.next_expiry) == ((), None)


def test_what_the_workload_says_is_told_from_what_it_leaves_out() -> None:
    manifest = chat(**{"spec.updateStrategy": {"type": "ReplicaRecreate", "rollingUpdate": {"maxSurge": 1}}})
    sources = compute(manifest=manifest).sources
    assert sources["", STRATEGY_TYPE] == "workload"
    assert sources["", MAX_SURGE] == "workload"
    assert sources["", MAX_UNAVAILABLE] == "default"
    assert sources["decode", MAX_SURGE] == "default"


def test_an_override_takes_the_place_of_the_type() -> None:
    effective = compute(OF_ALL)
    assert strategy(effective) is Strategy.ON_DELETE
    assert effective.sources["", STRATEGY_TYPE] == 1


def test_an_override_of_a_component_reaches_cliques_and_scaling_groups() -> None:
    settings: Settings = {("frontend", MAX_SURGE): "50%", ("decode", MAX_UNAVAILABLE): 2}
    effective = compute(replace(OF_ALL, settings=settings))
    workload = workload_of(effective.manifest)
    assert workload.cliques[0].budget == BudgetSpec(None, "50%")
    assert workload.groups[0].budget == BudgetSpec(2, None)
    assert effective.sources["decode", MAX_UNAVAILABLE] == 1
    assert effective.sources["decode", MAX_SURGE] == "default"


def test_only_the_fields_that_an_override_names_are_replaced() -> None:
    manifest = chat(**{"spec.template.podCliqueScalingGroups.0.updateStrategy": {"maxUnavailable": 2, "maxSurge": 1}})
    effective = compute(replace(OF_ALL, settings={("decode", MAX_SURGE): 0}), manifest=manifest)
    assert workload_of(effective.manifest).groups[0].budget == BudgetSpec(2, 0)
    assert effective.sources["decode", MAX_UNAVAILABLE] == "workload"


def test_a_budget_that_is_taken_out_leaves_no_empty_strategy_behind() -> None:
    manifest = chat(**{"spec.template.podCliqueScalingGroups.0.updateStrategy": {"maxUnavailable": 2}})
    settings: Settings = {
        ("decode", MAX_UNAVAILABLE): None,
        ("decode", MAX_SURGE): None,
        ("", STRATEGY_TYPE): "ReplicaRecreate",
    }
    effective = compute(replace(OF_ALL, settings=settings), manifest=manifest)
    assert effective.ignored == ()
    assert "updateStrategy" not in effective.manifest["spec"]["template"]["podCliqueScalingGroups"][0]


def test_a_component_that_the_workload_does_not_have_is_passed_over() -> None:
    settings: Settings = {("prefill", MAX_SURGE): 1, ("", STRATEGY_TYPE): "OnDelete"}
    effective = compute(replace(OF_ALL, settings=settings))
    assert strategy(effective) is Strategy.ON_DELETE
    assert effective.ignored == ()
    assert ("prefill", MAX_SURGE) not in effective.sources


HITS = [
    {"cluster": "east"},
    {"namespace": "web"},
    {"name": "chat"},
    {"labels": {"team": "search"}},
    {"labels": {"team": "search", "tier": "gold"}},
    {"cluster": "east", "namespace": "web", "name": "chat"},
]
MISSES = [
    {"cluster": "west"},
    {"namespace": "webb"},
    {"name": "chat2"},
    {"labels": {"team": "ads"}},
    {"labels": {"team": "search", "tier": "silver"}},
    {"labels": {"absent": ""}},
    {"cluster": "east", "namespace": "other", "name": "chat"},
]


@pytest.mark.parametrize("whom", HITS)
def test_an_override_hits_what_it_names(whom: dict[str, Any]) -> None:
    assert strategy(compute(replace(OF_ALL, **whom))) is Strategy.ON_DELETE


@pytest.mark.parametrize("whom", MISSES)
def test_an_override_misses_everything_else(whom: dict[str, Any]) -> None:
    assert strategy(compute(replace(OF_ALL, **whom))) is Strategy.ROLLING_RECREATE


LADDER: list[dict[str, Any]] = [
    {"name": "chat"},
    {"labels": {"team": "search"}},
    {"namespace": "web"},
    {"cluster": "east"},
    {},
]


@pytest.mark.parametrize("rung", range(len(LADDER) - 1))
def test_the_more_specific_override_wins_even_if_it_is_older(rung: int) -> None:
    specific = replace(OF_ALL, **LADDER[rung], id=1, created=NOW - 500)
    general = replace(OF_ALL, **LADDER[rung + 1], id=2, settings={("", STRATEGY_TYPE): "ReplicaRecreate"})
    for order in ((specific, general), (general, specific)):
        effective = compute(*order)
        assert strategy(effective) is Strategy.ON_DELETE
        assert effective.sources["", STRATEGY_TYPE] == 1


def test_of_two_that_are_as_specific_the_newer_wins() -> None:
    older = replace(OF_ALL, id=1, created=NOW - 500, settings={("", STRATEGY_TYPE): "ReplicaRecreate"})
    newer = replace(OF_ALL, id=2, created=NOW - 400)
    assert compute(newer, older).sources["", STRATEGY_TYPE] == 2


def test_parts_come_from_several_overrides() -> None:
    named = replace(OF_ALL, id=1, name="chat", settings={("", STRATEGY_TYPE): "ReplicaRecreate"})
    general = replace(OF_ALL, id=2, settings={("", MAX_SURGE): 1, ("", STRATEGY_TYPE): "OnDelete"})
    effective = compute(named, general)
    assert strategy(effective) is Strategy.REPLICA_RECREATE
    assert workload_of(effective.manifest).budget == BudgetSpec(None, 1)
    assert (effective.sources["", STRATEGY_TYPE], effective.sources["", MAX_SURGE]) == (1, 2)


def test_an_override_counts_until_it_runs_out() -> None:
    limited = replace(OF_ALL, expires_at=NOW + 10)
    assert strategy(compute(limited)) is Strategy.ON_DELETE
    assert compute(limited).next_expiry == NOW + 10
    assert strategy(compute(limited, now=NOW + 10)) is Strategy.ROLLING_RECREATE
    assert compute(limited, now=NOW + 10).next_expiry is None


def test_one_that_the_rules_refuse_for_this_workload_is_left_out_and_reported() -> None:
    refused = replace(OF_ALL, id=7, settings={("decode", MAX_UNAVAILABLE): 0})
    kept = replace(OF_ALL, id=8)
    effective = compute(refused, kept)
    assert [(id_, finding.code) for id_, finding in effective.ignored] == [(7, FindingCode.BUDGET_ZERO)]
    assert strategy(effective) is Strategy.ON_DELETE
    assert effective.sources["decode", MAX_UNAVAILABLE] == "default"


def test_a_less_specific_override_cannot_push_a_more_specific_one_out() -> None:
    named = replace(OF_ALL, id=1, name="chat", settings={("decode", MAX_SURGE): 1})
    general = replace(OF_ALL, id=2, settings={("", STRATEGY_TYPE): "ReplicaRecreate"})
    effective = compute(general, named)
    assert effective.sources["decode", MAX_SURGE] == 1
    assert [(id_, finding.code) for id_, finding in effective.ignored] == [
        (2, FindingCode.COMPONENT_BUDGET_NOT_ALLOWED)
    ]


def test_an_override_does_not_answer_for_what_was_wrong_before() -> None:
    over = chat(**{"spec.template.cliques.0.updateStrategy": {"maxUnavailable": 9}})
    effective = compute(OF_ALL, manifest=over)
    assert effective.ignored == ()
    assert strategy(effective) is Strategy.ON_DELETE


def test_an_override_leaves_a_malformed_strategy_as_it_is() -> None:
    malformed = chat(**{"spec.updateStrategy": "fast"})
    assert compute(OF_ALL, manifest=malformed).manifest["spec"]["updateStrategy"] == "fast"


settings_ = st.dictionaries(
    st.tuples(
        st.sampled_from(["", "frontend", "leader", "decode", "nobody"]), st.sampled_from([MAX_SURGE, MAX_UNAVAILABLE])
    ),
    st.none() | st.integers(-1, 12) | st.sampled_from(["0%", "25%", "100%", "x", ""]),
    max_size=4,
)
overrides_ = st.lists(
    st.builds(
        lambda id_, name, parts, type_: replace(
            OF_ALL, id=id_, name=name, settings=parts | ({("", STRATEGY_TYPE): type_} if type_ else {})
        ),
        st.integers(1, 99),
        st.sampled_from(["", "chat"]),
        settings_,
        st.sampled_from([None, *Strategy, "Sideways"]),
    ),
    max_size=4,
)


@given(overrides_, st.sampled_from([chat(), complete()]))
def test_no_override_makes_a_workload_unreadable_or_starts_a_rollout(
    overrides: list[Override], manifest: dict[str, Any]
) -> None:
    effective = compute(*overrides, manifest=manifest)
    assert compute_generation_hash(workload_of(effective.manifest)) == compute_generation_hash(workload_of(manifest))


@given(overrides_)
def test_overrides_count_the_same_in_any_order(overrides: list[Override]) -> None:
    distinct = [*{one.id: one for one in overrides}.values()]
    assert compute(*distinct) == compute(*reversed(distinct))


@pytest.mark.database
@pytest.mark.django_db
def test_overrides_are_read_from_the_record() -> None:
    expiry = datetime.now(UTC) + timedelta(hours=1)
    row = StrategyOverride.objects.create(
        namespace="web",
        selector={"team": "search"},
        strategy="RollingUpdate",
        max_unavailable="1",
        max_surge="0",
        components={"decode": {"maxSurge": "25%"}, "frontend": None, "odd": 7},
        reason="a try",
        expires_at=expiry,
    )
    StrategyOverride.objects.create(cluster="west", strategy="OnDelete", reason="elsewhere")
    StrategyOverride.objects.create(
        strategy="OnDelete", reason="over", expires_at=datetime.now(UTC) - timedelta(hours=1)
    )
    (override,) = list_overrides("east")
    assert override.settings == {
        ("", STRATEGY_TYPE): "RollingUpdate",
        ("", MAX_UNAVAILABLE): 1,
        ("", MAX_SURGE): 0,
        ("decode", MAX_SURGE): "25%",
        ("frontend", MAX_UNAVAILABLE): None,
        ("frontend", MAX_SURGE): None,
    }
    assert (override.id, override.labels, override.expires_at) == (row.pk, {"team": "search"}, expiry.timestamp())


@pytest.mark.database
@pytest.mark.django_db
def test_a_record_that_makes_no_sense_hits_nobody_with_anything() -> None:
    StrategyOverride.objects.create(selector=["team"], components=[1], reason="edited by hand")
    (override,) = list_overrides("east")
    assert compute(override).manifest == chat()
