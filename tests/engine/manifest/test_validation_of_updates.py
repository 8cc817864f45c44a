"""Which changes of a stored set are allowed, and which rules an update skips.

The cases of `tests.deploy.test_changes` run here, too, so that this code and the definitions make the same fields
immutable with the same sentences.
"""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.engine.manifest.findings import FindingCode, ValidationReport
from rollouts.engine.manifest.validation import validate_create, validate_update
from tests.deploy.manifests import REMOVED, Edits, Obj, edited
from tests.deploy.test_changes import FREE, FROZEN, RECREATE
from tests.deploy.test_refusals import NO_COMPONENTS, Refused
from tests.engine.manifest.planted import EVERYWHERE, Planted
from tests.engine.manifest.test_validation import expect_the_refusal_of_the_definitions, found
from tests.engine.manifests import JSON, complete, damaged, small, valid

BUDGET = "spec.updateStrategy.rollingUpdate"
CLIQUES = "spec.template.cliques"
GROUPS = "spec.template.podCliqueScalingGroups"
FRONTEND = f"{CLIQUES}.0"
DECODE = f"{GROUPS}.0"
IMAGE: Edits = {f"{FRONTEND}.spec.podSpec.containers.0.image": "ghcr.io/example/app:v2"}


@cache
def forth(name: str) -> ValidationReport:
    """Return the findings about a change that the definitions refuse, cached."""
    return validate_update(complete(), complete(next(case.edits for case in FROZEN if case.name == name)))


@pytest.mark.parametrize("case", FROZEN, ids=lambda case: case.name)
def test_what_the_definitions_freeze_is_frozen_in_the_same_words(case: Refused) -> None:
    expect_the_refusal_of_the_definitions(case, forth(case.name))


@pytest.mark.parametrize("edits", FREE.values(), ids=FREE.keys())
def test_what_the_definitions_let_change_may_change(edits: Edits) -> None:
    assert validate_update(complete(), complete(edits)).errors == ()


def test_the_change_back_is_frozen_too() -> None:
    for case in FROZEN:
        if not validate_create(complete(case.edits)).errors:
            back = validate_update(complete(case.edits), complete())
            assert {error.code for error in forth(case.name).errors} == {error.code for error in back.errors}, case.name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {f"{FRONTEND}.spec.minAvailable": 3}),  # written out as it counts
        ({}, {f"{FRONTEND}.spec.replicas": 5, f"{FRONTEND}.spec.minAvailable": 3}),
        ({f"{FRONTEND}.spec.startsAfter": []}, {}),
        ({f"{FRONTEND}.spec.roleName": ""}, {f"{FRONTEND}.spec.roleName": REMOVED}),
        ({f"{FRONTEND}.spec.podSpec.schedulerName": ""}, {}),
        ({}, {"spec.template.cliqueStartupType": "CliqueStartupTypeAnyOrder"}),
        ({}, {f"{DECODE}.minAvailable": 1}),
        (
            {f"{FRONTEND}.topologyConstraint": {"packDomain": "host"}},
            {f"{FRONTEND}.topologyConstraint": {"pack": {"required": "host"}}},
        ),
        ({}, {CLIQUES: small()["spec"]["template"]["cliques"][::-1]}),
    ],
    ids=str,
)
def test_another_way_to_write_a_frozen_value_is_no_change(old: Edits, new: Edits) -> None:
    assert validate_update(small(old), small(new)).errors == ()


def test_the_order_of_cliques_is_frozen_where_they_start_in_order() -> None:
    in_order = small({"spec.template.cliqueStartupType": "CliqueStartupTypeInOrder"})
    turned = edited(in_order, {CLIQUES: in_order["spec"]["template"]["cliques"][::-1]})
    assert found(validate_update(in_order, turned)) == [(CLIQUES, FindingCode.IMMUTABLE)]


@pytest.mark.parametrize("replicas", [1, 2, 4, 30])
def test_the_replicas_of_a_clique_that_leaves_its_minimum_out_may_change(replicas: int) -> None:
    assert validate_update(small(), small({f"{FRONTEND}.spec.replicas": replicas})).errors == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"minAvailable": 2}),  # said for the first time, and not what it has been
        ({}, {"minAvailable": 4, "replicas": 4}),
        ({"minAvailable": 2}, {"minAvailable": 3}),
        ({"minAvailable": 2}, {"minAvailable": REMOVED}),
        ({"minAvailable": 3}, {"minAvailable": REMOVED, "replicas": 4}),
    ],
    ids=str,
)
def test_a_minimum_that_was_said_or_is_now_cannot_be_changed(old: Edits, new: Edits) -> None:
    stored = small({f"{FRONTEND}.spec.{name}": value for name, value in old.items()})
    wanted = edited(stored, {f"{FRONTEND}.spec.{name}": value for name, value in new.items()})
    report = validate_update(stored, wanted)
    assert found(report) == [(f"{CLIQUES}[0].spec.minAvailable", FindingCode.IMMUTABLE)]
    assert "the former replicas if it was left out" in report.errors[0].message


SCALING = f"{FRONTEND}.spec.autoScalingConfig"
FLOOR = f"{CLIQUES}[0].spec.autoScalingConfig.minReplicas"


def test_replicas_may_be_raised_above_the_floor_of_autoscaling_where_the_minimum_is_left_out() -> None:
    stored = small({SCALING: {"minReplicas": 3, "maxReplicas": 10}})
    raised = edited(stored, {f"{FRONTEND}.spec.replicas": 5})
    assert validate_update(stored, raised).errors == ()
    assert validate_update(raised, edited(raised, IMAGE)).errors == ()
    assert found(validate_create(raised)) == [(FLOOR, FindingCode.MIN_REPLICAS_UNDER_REPLICAS)]


@pytest.mark.parametrize(
    ("minimum", "code"),
    [(3, FindingCode.MIN_REPLICAS_UNDER_MIN_AVAILABLE), (REMOVED, FindingCode.MIN_REPLICAS_UNDER_REPLICAS)],
)
def test_a_minimum_that_was_said_is_not_offered_to_be_lowered(minimum: object, code: FindingCode) -> None:
    stored = small({f"{FRONTEND}.spec.minAvailable": 3, SCALING: {"minReplicas": 3, "maxReplicas": 10}})
    lower = edited(stored, {f"{SCALING}.minReplicas": 2, f"{FRONTEND}.spec.minAvailable": minimum})
    (error,) = validate_update(stored, lower).errors
    assert (error.field, error.code) == (FLOOR, code)
    assert "raise it" in error.message
    assert "lower" not in error.message.replace("or in a new set write a lower minAvailable", "")


def test_a_stored_set_is_not_told_to_lower_its_minimum() -> None:
    stored = small({f"{FRONTEND}.spec.minAvailable": 3})
    (error,) = validate_update(stored, edited(stored, {f"{FRONTEND}.spec.replicas": 2})).errors
    assert error.message == "minAvailable may not exceed replicas; raise replicas, or in a new set lower minAvailable"


@pytest.mark.parametrize("replicas", [0, 1, 2, 100])
def test_scaling_is_not_refused_on_account_of_the_budget(replicas: int) -> None:
    for budget in ({"maxUnavailable": 3}, {"maxUnavailable": "40%"}):
        stored = complete(RECREATE | {BUDGET: budget})
        assert not validate_create(stored).errors
        assert validate_update(stored, edited(stored, {"spec.replicas": replicas})).errors == ()


@pytest.mark.parametrize(
    ("replicas", "code"),
    [(-1, FindingCode.OUT_OF_RANGE), ("3", FindingCode.WRONG_TYPE), (10**6, FindingCode.TOO_MANY_PODS)],
)
def test_scaling_is_refused_on_account_of_its_number(replicas: object, code: FindingCode) -> None:
    assert found(validate_update(small(), small({"spec.replicas": replicas}))) == [("spec.replicas", code)]


def test_a_budget_that_scaling_has_outgrown_blocks_no_other_change() -> None:
    for budget, other in (
        ({"maxUnavailable": 3}, {"maxUnavailable": 2}),
        ({"maxUnavailable": "40%"}, {"maxUnavailable": "30%"}),
    ):
        scaled = complete(RECREATE | {BUDGET: budget, "spec.replicas": 1})
        assert validate_create(scaled).errors
        assert validate_update(scaled, edited(scaled, IMAGE)).errors == ()
        assert validate_update(scaled, edited(scaled, {BUDGET: other})).errors


def test_percentages_of_a_clique_are_looked_at_when_they_are_written() -> None:
    stored = small({f"{FRONTEND}.spec.minAvailable": 1, f"{FRONTEND}.updateStrategy": {"maxUnavailable": "34%"}})
    fewer = edited(stored, {f"{FRONTEND}.spec.replicas": 2})
    assert validate_update(stored, fewer).errors == ()
    smaller = edited(fewer, {f"{FRONTEND}.updateStrategy.maxUnavailable": "33%"})
    strategy = f"{CLIQUES}[0].updateStrategy"
    assert found(validate_update(fewer, smaller)) == [(strategy, FindingCode.BUDGET_RESOLVES_TO_ZERO)]


def test_the_strategy_is_switched_by_one_field() -> None:
    budgets: Edits = {f"{FRONTEND}.updateStrategy": {"maxSurge": 1}, f"{DECODE}.updateStrategy": {"maxSurge": 1}}
    for old in ("RollingUpdate", "RollingRecreate", "OnDelete"):
        for new in ("RollingUpdate", "RollingRecreate", "OnDelete"):
            stored = small(budgets | {"spec.updateStrategy.type": old})
            assert validate_update(stored, edited(stored, {"spec.updateStrategy.type": new})).errors == ()


def test_switching_to_a_strategy_that_refuses_the_budgets_says_which() -> None:
    stored = small({f"{FRONTEND}.updateStrategy": {"maxSurge": 1}, f"{DECODE}.updateStrategy": {"maxSurge": 1}})
    report = validate_update(stored, edited(stored, {"spec.updateStrategy.type": "ReplicaRecreate"}))
    assert found(report) == [
        (f"{CLIQUES}[0].updateStrategy", FindingCode.COMPONENT_BUDGET_NOT_ALLOWED),
        (f"{GROUPS}[0].updateStrategy", FindingCode.COMPONENT_BUDGET_NOT_ALLOWED),
    ]


def test_a_set_against_the_rules_can_still_lose_its_finalizer_and_be_scaled() -> None:
    # Stored while a rule was another one.
    stored = small({f"{FRONTEND}.spec.podSpec.nodeName": "node-1", "metadata.finalizers": ["grove.io/podcliqueset"]})
    assert validate_create(stored).errors
    assert validate_update(stored, edited(stored, {"metadata.finalizers": []})) == ValidationReport(())
    assert validate_update(stored, edited(stored, {"spec.replicas": 3})) == ValidationReport(())
    assert found(validate_update(stored, edited(stored, IMAGE))) == [
        (f"{CLIQUES}[0].spec.podSpec.nodeName", FindingCode.NODE_NAME_SET)
    ]


def test_writing_true_for_one_is_a_change() -> None:
    stored = small({"spec.paused": True})
    assert found(validate_update(stored, small({"spec.paused": 1}))) == [("spec.paused", FindingCode.WRONG_TYPE)]


def test_a_name_that_cannot_be_used_is_not_called_a_removed_clique_as_well() -> None:
    report = validate_update(small(), small({f"{FRONTEND}.name": "Frontend"}))
    assert found(report) == [(f"{CLIQUES}[0].name", FindingCode.INVALID_NAME)]


def test_the_rules_of_creation_hold_for_updates_too() -> None:
    report = validate_update(small(), small(NO_WAY))
    assert found(report) == found(validate_create(small(NO_WAY)))
    assert len(report.errors) == len(NO_WAY)


NO_WAY: Edits = {
    "spec.template.terminationDelay": "never",
    f"{FRONTEND}.updateStrategy": {"maxUnavailable": 4},
    f"{DECODE}.scaleConfig": {"maxReplicas": 1},
}


def test_a_new_set_cannot_pass_as_an_old_one() -> None:
    values: list[object] = [None, [], {}, {"spec": None}]
    for nothing in values:
        assert validate_update(nothing, nothing).errors
        assert validate_update(small(), nothing).errors
        assert not validate_update(nothing, small()).errors


@given(JSON | damaged(), JSON | damaged())
def test_no_two_values_raise(old: object, new: object) -> None:
    assert isinstance(validate_update(old, new), ValidationReport)


@given(valid(), st.sampled_from([mistake for mistake in EVERYWHERE if "spec.replicas" not in mistake.edits]))
def test_leaving_the_spec_alone_is_never_refused(manifest: Obj, mistake: Planted) -> None:
    stored = edited(manifest, mistake.edits)
    assert validate_create(stored).errors
    assert validate_update(stored, edited(stored, {"metadata.labels": {"a": "b"}})).errors == ()


@given(valid(), st.integers(0, 50))
def test_any_valid_set_can_be_scaled(manifest: Obj, replicas: int) -> None:
    assert validate_update(manifest, edited(manifest, {"spec.replicas": replicas})).errors == ()


def test_removing_every_component_strategy_lets_the_set_be_recreated() -> None:
    stored = complete()
    assert not validate_update(
        stored, complete(NO_COMPONENTS | {"spec.updateStrategy": {"type": "ReplicaRecreate"}})
    ).errors
