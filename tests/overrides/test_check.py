"""What is found about an override before it is in force: what is wrong with it, and what it would do to whom."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from rollouts.engine.model.workload import Strategy
from rollouts.models import StrategyOverride
from rollouts.services import override_preview
from rollouts.services.override_preview import DRAFT_ID, AffectedWorkload, ResolvedStrategy, override_check
from tests.overrides.conftest import AddWorkload
from tests.overrides.drafts import draft

pytestmark = [pytest.mark.database, pytest.mark.django_db]

RECREATE = {"spec.updateStrategy": {"type": "ReplicaRecreate"}, "spec.replicas": 10}
UPDATE = {"spec.updateStrategy": {"type": "RollingUpdate"}}


def _numbers(in_force: ResolvedStrategy | None) -> dict[str, tuple[int, int] | None]:
    assert in_force is not None
    return {
        level.component: (level.budget.max_unavailable, level.budget.max_surge) if level.budget else None
        for level in in_force.levels
    }


def _only(hits: tuple[AffectedWorkload, ...]) -> AffectedWorkload:
    (hit,) = hits
    return hit


def test_each_workload_is_shown_with_what_is_in_force_before_and_after(add_workload: AddWorkload) -> None:
    add_workload("chat", edits=UPDATE)
    check = override_check(draft(components={"decode": {"maxUnavailable": "50%", "maxSurge": 1}}))
    hit = _only(check.affected)
    assert check.findings == check.warnings == hit.findings == ()
    assert str(hit.place) == "sandbox/web/chat"
    assert _numbers(hit.before) == {"": (1, 0), "frontend": (1, 0), "decode": (1, 0)}
    assert _numbers(hit.after) == {"": (1, 0), "frontend": (1, 0), "decode": (2, 1)}
    assert hit.changes
    assert hit.after is not None
    assert hit.after.sources["decode", "maxSurge"] == DRAFT_ID
    assert hit.after.sources["frontend", "maxSurge"] == "default"


@pytest.mark.parametrize(
    ("whom", "hit"),
    [
        ({}, ["web/chat", "web/search", "batch/train"]),
        ({"namespace": "web"}, ["web/chat", "web/search"]),
        ({"name": "train"}, ["batch/train"]),
        ({"labels": {"tier": "gold"}}, ["web/search", "batch/train"]),
        ({"labels": {"tier": "gold", "team": "ml"}}, ["batch/train"]),
        ({"cluster": "sandbox", "namespace": "web", "labels": {"tier": "gold"}}, ["web/search"]),
    ],
)
def test_whom_it_hits_follows_from_cluster_namespace_name_and_labels(
    add_workload: AddWorkload, whom: dict[str, Any], hit: list[str]
) -> None:
    add_workload("chat", "web")
    add_workload("search", "web", tier="gold")
    add_workload("train", "batch", tier="gold", team="ml")
    check = override_check(draft(**whom))
    assert sorted(f"{one.place.namespace}/{one.place.name}" for one in check.affected) == sorted(hit)
    assert sorted(check.keys) == sorted(f"sandbox/{name}" for name in hit)
    assert check.total == len(hit)


@pytest.mark.parametrize(
    ("values", "field", "code"),
    [
        ({"reason": "  "}, "reason", "FieldMissing"),
        ({"reason": "x" * 2_001}, "reason", "TooLong"),
        ({"expires_at": None}, "expires_at", "FieldMissing"),
        ({"expires_at": timezone.now() - timedelta(seconds=1)}, "expires_at", "OutOfRange"),
        ({"expires_at": timezone.now() + timedelta(days=91)}, "expires_at", "OutOfRange"),
        ({"strategy": ""}, "strategy", "SetsNothing"),
        ({"strategy": "Sideways"}, "strategy.type", "UnknownValue"),
        ({"max_unavailable": "many"}, "strategy.maxUnavailable", "InvalidBudget"),
        ({"max_unavailable": -1}, "strategy.maxUnavailable", "InvalidBudget"),
        ({"max_surge": "1.5%"}, "strategy.maxSurge", "InvalidBudget"),
        ({"max_surge": "9" * 400}, "strategy.maxSurge", "InvalidBudget"),
        ({"components": {"decode": {"maxSurge": "x"}}}, "strategy.components.decode.maxSurge", "InvalidBudget"),
        ({"components": {"decode": {"type": 1}}}, "strategy.components.decode", "UnknownValue"),
        ({"components": {"decode": {}}}, "strategy.components.decode", "SetsNothing"),
        ({"components": {"De code": None}}, "strategy.components", "InvalidName"),
        ({"components": {"encode": None}}, "strategy.components.encode", "UnknownComponent"),
        ({"cluster": "moon"}, "cluster", "UnknownValue"),
        ({"namespace": "Web!"}, "namespace", "InvalidName"),
        ({"name": "chat/"}, "name", "InvalidName"),
        ({"labels": {"team": "not a label"}}, "labels", "InvalidLabel"),
        ({"labels": {"": "x"}}, "labels", "InvalidLabel"),
    ],
)
def test_what_is_wrong_is_named_by_its_field(
    add_workload: AddWorkload, values: dict[str, Any], field: str, code: str
) -> None:
    add_workload()
    assert override_check(draft()).findings == ()
    assert [(finding.field, finding.code) for finding in override_check(draft(**values)).findings] == [(field, code)]


def test_numbers_may_come_as_text_from_a_form(add_workload: AddWorkload) -> None:
    add_workload(edits=RECREATE)
    check = override_check(draft(max_unavailable="2", max_surge="25%"))
    assert _numbers(_only(check.affected).after)[""] == (2, 3)


def test_whom_it_hits_is_shown_while_the_rest_is_still_being_written(add_workload: AddWorkload) -> None:
    add_workload()
    check = override_check(draft(max_surge="2x", reason="", expires_at=None))
    hit = _only(check.affected)
    assert hit.before is not None
    assert hit.after is None
    assert {finding.field for finding in check.findings} == {"strategy.maxSurge", "reason", "expires_at"}


def test_an_override_that_only_some_can_take_is_accepted_and_the_others_are_named(add_workload: AddWorkload) -> None:
    add_workload("batch", edits=RECREATE)
    add_workload("chat", edits=UPDATE)
    check = override_check(draft(max_unavailable=2))
    assert check.findings == ()
    taken, kept = check.affected
    assert (taken.place.name, taken.findings, taken.changes) == ("batch", (), True)
    assert kept.place.name == "chat"
    assert [finding.code for finding in kept.findings] == ["SetBudgetNotAllowed"]
    assert not kept.changes


def test_an_override_that_nobody_can_take_is_refused_with_the_rule(add_workload: AddWorkload) -> None:
    add_workload("chat", edits=UPDATE)
    (finding,) = override_check(draft(max_unavailable=2)).findings
    assert (finding.field, finding.code) == ("strategy", "RefusedEverywhere")
    assert (
        "the override is not valid for the only workload that it matches; sandbox/web/chat: RollingUpdate always"
        in finding.message
    )


def test_an_override_that_hits_nobody_is_accepted_with_a_warning(add_workload: AddWorkload) -> None:
    add_workload()
    check = override_check(draft(namespace="nobody-is-here", components={"anything": {"maxSurge": 1}}))
    assert (check.affected, check.findings) == ((), ())
    assert [finding.code for finding in check.warnings] == ["HitsNothing"]


def test_a_more_specific_override_stays_in_force_and_is_named(add_workload: AddWorkload) -> None:
    add_workload(edits=UPDATE)
    other = StrategyOverride.objects.create(name="chat", components={"decode": {"maxSurge": 3}}, reason="more room")
    hit = _only(override_check(draft(namespace="web", components={"decode": {"maxSurge": 1}})).affected)
    assert not hit.changes
    (warning,) = hit.warnings
    assert (warning.field, warning.code) == ("strategy.components.decode.maxSurge", "Outranked")
    assert f"override {other.pk}" in warning.message


def test_a_less_specific_override_that_no_longer_fits_is_named(add_workload: AddWorkload) -> None:
    add_workload(edits=RECREATE)
    other = StrategyOverride.objects.create(namespace="web", max_surge="2", reason="more room")
    hit = _only(override_check(draft(name="chat", strategy="RollingUpdate")).affected)
    assert [warning.code for warning in hit.warnings] == ["PushedOut"]
    assert f"override {other.pk} would no longer be valid here" in hit.warnings[0].message


def test_what_has_no_effect_is_told_in_the_words_of_admission(add_workload: AddWorkload) -> None:
    add_workload()
    hit = _only(override_check(draft(max_surge=2)).affected)
    assert [warning.code for warning in hit.warnings] == ["BudgetUnused"]
    assert "ReplicaRecreate would" in hit.warnings[0].message


def test_an_override_that_is_changed_is_compared_with_what_it_says_now(add_workload: AddWorkload) -> None:
    add_workload(edits=RECREATE)
    row = StrategyOverride.objects.create(name="chat", max_surge="2", reason="more room")
    hit = _only(override_check(draft(name="chat", max_surge=3), row).affected)
    assert (_numbers(hit.before)[""], _numbers(hit.after)[""]) == ((1, 2), (1, 3))
    assert hit.after is not None
    assert hit.after.sources["", "maxSurge"] == row.pk


def test_a_workload_that_cannot_be_read_is_listed_and_not_counted_against_it(add_workload: AddWorkload) -> None:
    add_workload("chat")
    add_workload("odd", edits={"spec.template.cliques": []})
    check = override_check(draft())
    assert check.findings == ()
    assert [(hit.place.name, hit.before is None) for hit in check.affected] == [("chat", False), ("odd", True)]


def test_workloads_of_a_cluster_that_is_not_configured_are_left_out(add_workload: AddWorkload, cluster: Any) -> None:
    add_workload()
    cluster.name = "formerly-ours"
    cluster.save()
    assert override_check(draft()).total == 0


@pytest.mark.parametrize("number", [10, 1_000])
def test_a_check_costs_three_queries_however_many_workloads_there_are(
    add_workload: AddWorkload, number: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for index in range(number):
        add_workload(f"chat-{index}")
    with django_assert_num_queries(3):
        check = override_check(draft())
    assert check.total == len(check.keys) == number
    assert len(check.affected) == min(number, override_preview.MAX_CHECKED)


def test_strategies_of_the_engine_are_what_can_be_set(add_workload: AddWorkload) -> None:
    add_workload()
    for strategy in Strategy:
        hit = _only(override_check(draft(strategy=str(strategy))).affected)
        assert hit.after is not None
        assert hit.after.strategy is strategy
