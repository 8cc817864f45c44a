"""The rounds of a pass, answered by hand: what is sent after which answer, without a cluster."""

from collections.abc import Callable, Iterable
from typing import Final

import pytest

from rollouts.cluster import Forbidden
from rollouts.controller import rounds
from rollouts.controller.executor import WriteRecord, WriteResult, write_key_of
from rollouts.controller.rejected_writes import RejectedWrites
from rollouts.controller.rounds import PassContext, Round, RoundsEnd, plan_rounds, start_view
from rollouts.controller.set_status import StatusFacts
from rollouts.engine.model.actions import Delete, WriteStatus
from rollouts.engine.model.conditions import find_condition
from rollouts.engine.model.workload import Strategy
from rollouts.engine.rollout.ready_times import measure_ready_times
from rollouts.engine.tree.layout import make_layout
from tests.engine.simulated import Cluster, clique, settled, workload

Answer = Callable[[Round], list[WriteRecord]]

SET_STATUS: Final = "status PodCliqueSet w"
CLIQUE_STATUS: Final = "status PodClique w-0-a"
PATCH: Final = "patch PodClique w-0-a"
DELETE: Final = "delete Pod"  # its name is random


def outdated() -> Cluster:
    """Return three pods of one clique that are to be replaced one at a time."""
    return settled(workload(clique("a", 3, 1, (1, 0)), strategy=Strategy.ROLLING_UPDATE)).update()


def with_result(result: WriteResult) -> Answer:
    """Return an answer that is the same for all writes of a round."""
    return lambda one: [WriteRecord(write, result) for write in one.writes]


APPLIED: Final = with_result(WriteResult.APPLIED)


def nothing_sent(_one: Round) -> list[WriteRecord]:
    """Answer as if the time for writes was over before the first one."""
    return []


def take_pass(
    cluster: Cluster, *answers: Answer, backed_off: frozenset[str] = frozenset()
) -> tuple[list[Round], RoundsEnd]:
    """Run a pass whose first rounds get these answers, and all others `applied`; return its rounds and how it ended."""
    observed, now = cluster.world.observed(), cluster.world.now
    facts = StatusFacts((), (), RejectedWrites(), now)
    layout, ready_times = make_layout(cluster.workload), measure_ready_times(observed)
    context = PassContext("default", "w", "set-uid", layout, now, ready_times, facts, backed_off)
    view, found, remaining = start_view(context, observed, "1", ()), list[Round](), [*answers]
    steps = plan_rounds(context, view)
    step = next(steps)
    while isinstance(step, Round):
        found.append(step)
        step = steps.send((remaining.pop(0) if remaining else APPLIED)(step))
    return found, step


def keys(found: Iterable[Round]) -> list[list[str]]:
    """Return the writes of each round, pods without their names."""
    return [[DELETE if isinstance(write, Delete) else write_key_of(write) for write in one.writes] for one in found]


def test_a_settled_workload_has_one_round_without_writes() -> None:
    found, end = take_pass(settled(workload(clique("a", 3))))
    assert keys(found) == [[]]
    assert (end.is_unfinished, end.timeline_events) == (False, ())


def test_the_start_of_an_update_is_written_before_anything_is_named_and_that_before_anything_is_deleted() -> None:
    found, _ = take_pass(outdated(), APPLIED, APPLIED, with_result(WriteResult.UNKNOWN))
    assert keys(found) == [[SET_STATUS], [CLIQUE_STATUS], [PATCH, DELETE]]


def test_a_plan_comes_with_its_first_round_only() -> None:
    found, end = take_pass(outdated(), APPLIED, APPLIED, with_result(WriteResult.UNKNOWN))
    assert [one.plan is not None for one in found] == [True, True, False]
    assert [one.reason for one in end.timeline_events] == ["UpdateStarted", "ReplicaSelected", "Outdated"]


@pytest.mark.parametrize("result", [WriteResult.CONFLICT, WriteResult.REJECTED, WriteResult.UNKNOWN])
def test_nothing_is_replaced_for_an_update_whose_start_is_not_stored(result: WriteResult) -> None:
    found, end = take_pass(outdated(), with_result(result))
    assert keys(found) == [[SET_STATUS]]
    assert not end.is_unfinished


@pytest.mark.parametrize("result", [WriteResult.CONFLICT, WriteResult.UNKNOWN])
def test_nothing_is_deleted_whose_name_may_not_be_stored(result: WriteResult) -> None:
    found, _ = take_pass(outdated(), APPLIED, with_result(result))
    assert keys(found) == [[SET_STATUS], [CLIQUE_STATUS]]


def test_what_is_named_is_deleted_though_the_cluster_rejects_the_name() -> None:
    found, _ = take_pass(outdated(), APPLIED, with_result(WriteResult.REJECTED), with_result(WriteResult.UNKNOWN))
    assert keys(found)[2] == [PATCH, DELETE]


@pytest.mark.parametrize(
    ("answer", "after", "is_unfinished"),
    [
        (with_result(WriteResult.UNKNOWN), [], False),
        (with_result(WriteResult.CONFLICT), [[SET_STATUS]], False),
        (with_result(WriteResult.REJECTED), [[SET_STATUS]], False),
        (nothing_sent, [[SET_STATUS]], True),
    ],
    ids=["unknown", "conflict", "rejected", "truncated"],
)
def test_a_pass_ends_after_writes_that_are_not_applied(
    answer: Answer, after: list[list[str]], is_unfinished: bool
) -> None:
    found, end = take_pass(outdated(), APPLIED, APPLIED, answer)
    assert keys(found)[3:] == after
    assert end.is_unfinished is is_unfinished


def test_the_status_of_the_set_shows_what_the_cluster_rejects() -> None:
    rejected = Forbidden("exceeded quota", reason="Forbidden")
    found, _ = take_pass(
        outdated(),
        APPLIED,
        APPLIED,
        lambda one: [WriteRecord(write, WriteResult.REJECTED, error=rejected) for write in one.writes],
    )
    (write,) = found[-1].writes
    assert isinstance(write, WriteStatus)
    assert find_condition(write.status, "WriteDenied")["reason"] == "Forbidden"


def test_a_write_that_is_backed_off_is_skipped_and_the_others_are_sent() -> None:
    found, _ = take_pass(outdated(), APPLIED, APPLIED, with_result(WriteResult.UNKNOWN), backed_off=frozenset({PATCH}))
    assert [one.writes for one in found if any(record.action in one.writes for record in one.skipped)] == []
    assert {write_key_of(record.action) for one in found for record in one.skipped} == {PATCH}
    assert keys(found)[2] == [DELETE]


def test_no_plan_is_made_after_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MAX_SECONDS", 0.0)
    found, end = take_pass(outdated())
    assert [one.plan is not None for one in found] == [True, False]
    assert end.is_unfinished
