"""The history: rollouts follow the status, whichever pass sees it first, and nothing is recorded twice."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from rollouts.controller import history
from rollouts.controller.history import HistoryRecorder, RecordedWorkload
from rollouts.controller.pod_counts import Counts
from rollouts.engine.model.actions import Create, Kind, Plan, TimelineEvent
from rollouts.engine.model.conditions import PROGRESSING, STUCK, make_condition
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.engine.model.names import CLIQUE
from rollouts.engine.model.times import render_time
from rollouts.models import Cluster, Revision, Rollout, Sample, Step
from tests.engine.manifests import small, workload_of

pytestmark = [pytest.mark.database, pytest.mark.django_db]

CREATED: Final = 1_800_000_000.0
IMAGE: Final = "spec.template.cliques.0.spec.podSpec.containers.0.image"


def subject(image: str = "one", uid: str = "u1") -> RecordedWorkload:
    """Return a set whose template depends on an image."""
    manifest = small({"metadata.namespace": "web", IMAGE: image})
    workload = workload_of(manifest)
    return RecordedWorkload("east", "web", "chat", uid, CREATED, workload, manifest["spec"]["template"])


def hash_of(image: str) -> str:
    """Return the generation hash that goes with an image."""
    return compute_generation_hash(subject(image).workload)


def deployed(image: str = "one", *, complete: float | None = None) -> dict[str, Any]:
    """Return the status of a set before its first update."""
    reason, at = ("Deploying", CREATED) if complete is None else ("Complete", complete)
    moving = make_condition(PROGRESSING, "True" if complete is None else "False", reason, "", render_time(at))
    return {"currentGenerationHash": hash_of(image), "conditions": [moving]}


def updating(
    image: str, started: float, *, ended: float | None = None, stuck: float | None = None, moves: float | None = None
) -> dict[str, Any]:
    """Return the status of a set during an update to an image."""
    progress = {"updateStartedAt": render_time(started)}
    if ended is not None:
        progress["updateEndedAt"] = render_time(ended)
    conditions = []
    if stuck is not None:
        conditions = [make_condition(STUCK, "True", "WaitingForReady", "It is not Ready.", render_time(stuck))]
    elif moves is not None:
        conditions = [make_condition(STUCK, "False", "NothingInTheWay", "Nothing.", render_time(moves))]
    return {"currentGenerationHash": hash_of(image), "updateProgress": progress, "conditions": conditions}


def see(image: str, *statuses: dict[str, Any], now: float = CREATED + 1000, uid: str = "u1") -> bool:
    """Record what a pass over a set with this image has found and written; return whether anything has changed."""
    return HistoryRecorder(subject(image, uid), now).record_statuses(statuses)


def outcomes() -> list[tuple[str, str]]:
    """Return the rollouts in their order, as target and outcome."""
    images = {hash_of(image): image for image in ("one", "two", "three")}
    return [(images[row.to_hash], row.outcome) for row in Rollout.objects.order_by("started", "id")]


def reasons(rollout: Rollout | None = None) -> list[str]:
    """Return the reasons on a timeline, or on all of them."""
    steps = Step.objects.order_by("at", "id")
    return [step.reason for step in (steps if rollout is None else steps.filter(rollout=rollout))]


# ---- rollouts


def test_nothing_is_on_record_before_there_is_a_status() -> None:
    assert not see("one", {})
    assert HistoryRecorder(subject(), CREATED).newest is None


def test_the_first_deployment_is_a_rollout_from_nothing_since_the_creation() -> None:
    see("one", {}, deployed())
    see("one", deployed(), deployed(complete=CREATED + 50))
    (row,) = Rollout.objects.all()
    assert (row.from_hash, row.to_hash, row.outcome) == ("", hash_of("one"), "Complete")
    assert row.started.timestamp() == CREATED
    assert row.ended is not None
    assert row.ended.timestamp() == CREATED + 50
    assert reasons() == ["UpdateStarted", "UpdateEnded"]


def test_a_deployment_that_is_incomplete_again_later_stays_ended() -> None:
    see("one", deployed(complete=CREATED + 50))
    assert not see("one", deployed())
    assert outcomes() == [("one", "Complete")]


def test_an_update_is_a_rollout_from_the_hash_before() -> None:
    see("one", deployed(complete=CREATED + 50))
    see("two", deployed(complete=CREATED + 50), updating("two", CREATED + 100))
    row = Rollout.objects.get(to_hash=hash_of("two"))
    assert (row.from_hash, row.outcome, row.ended, row.strategy) == (hash_of("one"), "", None, "RollingRecreate")


def test_an_update_ends_when_the_status_says_so() -> None:
    see("two", updating("two", CREATED + 100))
    see("two", updating("two", CREATED + 100), updating("two", CREATED + 100, ended=CREATED + 160))
    (row,) = Rollout.objects.all()
    assert (row.outcome, row.progressing_seconds, row.waiting_seconds) == ("Complete", 60.0, 0.0)


def test_passes_that_see_the_same_put_it_on_record_once() -> None:
    for _ in range(3):
        see("one", deployed(complete=CREATED + 50))
        see("two", updating("two", CREATED + 100))
        see("two", updating("two", CREATED + 100, ended=CREATED + 160))
    assert outcomes() == [("one", "Complete"), ("two", "Complete")]
    assert reasons() == ["UpdateStarted", "UpdateEnded"] * 2
    assert Revision.objects.count() == 2


def test_an_end_that_was_never_put_on_record_is_found_by_a_later_pass() -> None:
    see("two", updating("two", CREATED + 100))
    ended = updating("two", CREATED + 100, ended=CREATED + 160)
    see("three", ended, updating("three", CREATED + 200))
    assert outcomes() == [("two", "Complete"), ("three", "")]


def test_a_start_that_was_never_put_on_record_is_found_by_a_later_pass() -> None:
    see("one", deployed(complete=CREATED + 50))
    see("three", updating("two", CREATED + 100), updating("three", CREATED + 200))
    assert outcomes() == [("one", "Complete"), ("two", "Superseded"), ("three", "")]


def test_an_update_to_something_new_supersedes_the_one_before() -> None:
    see("one", deployed(complete=CREATED + 50))
    see("two", updating("two", CREATED + 100))
    see("three", updating("three", CREATED + 130))
    assert outcomes() == [("one", "Complete"), ("two", "Superseded"), ("three", "")]
    row = Rollout.objects.get(to_hash=hash_of("two"))
    assert row.ended is not None
    assert row.ended.timestamp() == CREATED + 130
    assert reasons(row) == ["UpdateStarted", "UpdateSuperseded"]


def test_an_update_back_to_what_was_before_rolls_the_one_before_back() -> None:
    see("one", deployed(complete=CREATED + 50))
    see("two", updating("two", CREATED + 100))
    see("one", updating("one", CREATED + 130))
    assert outcomes() == [("one", "Complete"), ("two", "RolledBack"), ("one", "")]


def test_two_updates_within_a_second_are_two_rollouts() -> None:
    see("one", deployed(complete=CREATED + 50))
    see("two", updating("two", CREATED + 100))
    see("three", updating("three", CREATED + 100))
    assert outcomes() == [("one", "Complete"), ("two", "Superseded"), ("three", "")]


def test_there_and_back_within_a_second_are_three_rollouts() -> None:
    see("one", deployed(complete=CREATED))
    see("two", updating("two", CREATED))
    see("one", updating("two", CREATED), updating("one", CREATED))
    see("one", updating("one", CREATED, ended=CREATED + 3))
    assert outcomes() == [("one", "Complete"), ("two", "RolledBack"), ("one", "Complete")]


def test_an_older_status_changes_nothing() -> None:
    see("two", updating("two", CREATED + 100))
    see("three", updating("three", CREATED + 130))
    assert not see("three", updating("two", CREATED + 100))
    assert not see("three", deployed())
    assert outcomes() == [("two", "Superseded"), ("three", "")]


def test_rolling_what_ondelete_left_behind_counts_from_the_hash_before_that() -> None:
    see("one", deployed(complete=CREATED + 50))
    see("two", updating("two", CREATED + 100, ended=CREATED + 100))
    see("two", updating("two", CREATED + 200))
    row = Rollout.objects.order_by("started").last()
    assert row is not None
    assert (row.from_hash, row.to_hash) == (hash_of("one"), hash_of("two"))


# ---- waiting


def test_a_stuck_update_says_so_until_it_moves() -> None:
    see("two", updating("two", CREATED + 100))
    see("two", updating("two", CREATED + 100, stuck=CREATED + 140))
    assert outcomes() == [("two", "Stuck")]
    see("two", updating("two", CREATED + 100, moves=CREATED + 200))
    assert outcomes() == [("two", "")]
    see("two", updating("two", CREATED + 100, ended=CREATED + 230, moves=CREATED + 200))
    (row,) = Rollout.objects.all()
    assert (row.outcome, row.progressing_seconds, row.waiting_seconds) == ("Complete", 70.0, 60.0)
    assert reasons() == ["UpdateStarted", "UpdateStuck", "UpdateMoves", "UpdateEnded"]


def test_the_time_until_the_end_of_a_stuck_update_was_waiting() -> None:
    see("two", updating("two", CREATED + 100, stuck=CREATED + 140))
    see("three", updating("three", CREATED + 300))
    row = Rollout.objects.get(to_hash=hash_of("two"))
    assert (row.outcome, row.progressing_seconds, row.waiting_seconds) == ("Superseded", 40.0, 160.0)


# ---- deletion


def test_a_set_that_is_deleted_ends_what_was_open() -> None:
    see("one", deployed(complete=CREATED + 50))
    see("two", updating("two", CREATED + 100))
    assert history.end_open_rollouts("east", "web", "chat", CREATED + 150)
    assert not history.end_open_rollouts("east", "web", "chat", CREATED + 160)
    assert outcomes() == [("one", "Complete"), ("two", "Deleted")]


def test_a_set_of_the_same_name_ends_what_was_open_of_the_former() -> None:
    see("two", updating("two", CREATED + 100))
    see("one", deployed(), uid="u2")
    assert {(row.workload_uid, row.outcome) for row in Rollout.objects.all()} == {("u1", "Deleted"), ("u2", "")}


def test_other_workloads_are_left_alone() -> None:
    see("two", updating("two", CREATED + 100))
    other = replace(subject("one", "u9"), name="other")
    HistoryRecorder(other, CREATED + 200).record_statuses([deployed()])
    history.end_open_rollouts("west", "web", "chat", CREATED + 150)
    assert {row.outcome for row in Rollout.objects.all()} == {""}


def test_what_there_is_of_workloads_long_gone_is_dropped() -> None:
    see("two", updating("two", CREATED + 100))
    history.end_open_rollouts("east", "web", "chat", CREATED + 200)
    day = 86_400
    # In a cluster that is not mirrored, or not completely yet, a missing workload may still exist.
    assert history.delete_expired(CREATED + 31 * day) == 0
    Cluster.objects.create(name="east", complete=True)
    assert history.delete_expired(CREATED + 29 * day) == 0
    assert history.delete_expired(CREATED + 31 * day) == 1
    assert (Rollout.objects.count(), Revision.objects.count(), Step.objects.count()) == (0, 0, 0)


def test_only_so_many_rollouts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ROLLOUTS_KEPT", 2)
    for number, image in enumerate(("one", "two", "three")):
        see(image, updating(image, CREATED + 100 * number, ended=CREATED + 100 * number + 50))
    assert [image for image, _ in outcomes()] == ["two", "three"]


# ---- revisions


def test_a_revision_keeps_the_template_as_stored() -> None:
    see("one", deployed())
    (revision,) = Revision.objects.all()
    assert (revision.number, revision.generation_hash) == (1, hash_of("one"))
    assert revision.template == subject("one").template


def test_what_is_in_force_again_is_the_newest_revision_again() -> None:
    see("one", deployed(complete=CREATED + 50))
    see("two", updating("two", CREATED + 100, ended=CREATED + 110))
    see("one", updating("one", CREATED + 200))
    numbers = {row.generation_hash: row.number for row in Revision.objects.all()}
    assert numbers == {hash_of("one"): 3, hash_of("two"): 2}


def test_only_so_many_revisions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "REVISIONS_KEPT", 2)
    for number, image in enumerate(("one", "two", "three")):
        see(image, updating(image, CREATED + 100 * number))
    assert {row.generation_hash for row in Revision.objects.all()} == {hash_of("two"), hash_of("three")}


def test_a_template_that_nobody_saw_gets_no_revision() -> None:
    see("three", updating("two", CREATED + 100), updating("three", CREATED + 200))
    assert [row.generation_hash for row in Revision.objects.all()] == [hash_of("three")]


# ---- steps


def a_plan(*moments: TimelineEvent, pods: Sequence[str] = ()) -> Plan:
    """Return a plan with timeline events that creates pods of the clique `chat-0-frontend`."""
    labels = {"labels": {CLIQUE: "chat-0-frontend"}}
    creates = tuple(Create(Kind.POD, {"metadata": {"name": name, **labels}}) for name in pods)
    return Plan(creates, moments, (), (), None)


CREATES: Final = TimelineEvent(
    "PodsCreated", "chat-0-frontend", "Pods of chat-0-frontend are created with the indices 0."
)


def note(plan: Plan, at: float) -> None:
    """Record the steps of a plan."""
    HistoryRecorder(subject(), at).record_steps(plan, updating("one", CREATED + 100))


def test_a_step_is_noted_with_its_rollout_before_anything_else_is() -> None:
    note(a_plan(CREATES), CREATED + 101)
    (row,) = Rollout.objects.all()
    assert reasons(row) == ["UpdateStarted", "PodsCreated"]
    assert not see("one", updating("one", CREATED + 100))
    assert Revision.objects.count() == 1


def test_a_step_that_a_repeated_pass_tells_again_is_the_same_one() -> None:
    note(a_plan(CREATES, pods=["a"]), CREATED + 101)
    note(a_plan(CREATES, pods=["a"]), CREATED + 101 + history.REPEAT_SECONDS)
    assert [step.count for step in Step.objects.filter(reason="PodsCreated")] == [1]


def test_the_same_words_about_another_pod_are_another_step() -> None:
    note(a_plan(CREATES, pods=["a"]), CREATED + 101)
    note(a_plan(CREATES, pods=["b"]), CREATED + 102)
    assert Step.objects.filter(reason="PodsCreated").count() == 2


def test_what_happens_again_much_later_is_counted() -> None:
    note(a_plan(CREATES, pods=["a"]), CREATED + 101)
    note(a_plan(CREATES, pods=["a"]), CREATED + 102 + history.REPEAT_SECONDS)
    assert [step.count for step in Step.objects.filter(reason="PodsCreated")] == [2]


def test_moments_that_the_status_tells_are_not_told_twice() -> None:
    note(a_plan(TimelineEvent("UpdateStarted", "chat", "An update begins.")), CREATED + 101)
    assert Rollout.objects.count() == 0


def test_many_steps_alike_are_told_as_one() -> None:
    alike = [TimelineEvent("ReplicaCreated", f"chat-{number}", f"Replica {number}.") for number in range(50)]
    note(a_plan(*alike, CREATES), CREATED + 101)
    (step,) = Step.objects.filter(reason="ReplicaCreated")
    assert (step.count, step.text) == (50, "Replica 0. 49 more like it.")
    assert Step.objects.filter(reason="PodsCreated").count() == 1


def test_a_long_timeline_is_counted_on_by_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STEPS_KEPT", 4)
    for number in range(10):
        moment = TimelineEvent("Outdated", "chat-0-frontend", f"Pod {number} is deleted.")
        note(a_plan(moment), CREATED + 101 + number)
    assert Step.objects.count() == 5
    last = Step.objects.order_by("id").last()
    assert last is not None
    assert (last.count, last.text) == (7, "Pod 9 is deleted.")


# ---- samples


COUNTS: Final = Counts(desired=9, available=9, updated=0, surge=0, floor=8)


@pytest.fixture
def rollout() -> Rollout:
    """An update in progress."""
    see("two", updating("two", CREATED + 100))
    return Rollout.objects.get()


def samples() -> list[tuple[float, int, int, int]]:
    """Return the times, and how many pods were available, updated and surge."""
    rows = Sample.objects.order_by("at")
    return [(row.at.timestamp() - CREATED, row.available, row.updated, row.surge) for row in rows]


def test_counts_are_kept_when_they_change(rollout: Rollout) -> None:
    history.record_sample(rollout, COUNTS, CREATED + 100.4)
    assert not history.record_sample(rollout, COUNTS, CREATED + 105)
    history.record_sample(rollout, replace(COUNTS, available=8), CREATED + 107)
    assert samples() == [(100, 9, 0, 0), (107, 8, 0, 0)]


def test_within_a_second_the_fewest_available_and_the_most_surge_are_kept(rollout: Rollout) -> None:
    for available, surge, updated in ((9, 0, 0), (7, 2, 1), (8, 1, 2)):
        counts = replace(COUNTS, available=available, surge=surge, updated=updated)
        history.record_sample(rollout, counts, CREATED + 100.5)
    assert samples() == [(100, 7, 2, 2)]


def test_no_more_are_kept_as_updated_than_were_available(rollout: Rollout) -> None:
    for available, updated in ((9, 6), (5, 2), (9, 8)):
        history.record_sample(rollout, replace(COUNTS, available=available, updated=updated), CREATED + 100.5)
    assert samples() == [(100, 5, 5, 0)]


def test_the_last_counts_of_a_rollout_are_kept_as_they_are(rollout: Rollout) -> None:
    history.record_sample(rollout, replace(COUNTS, available=7), CREATED + 100.1)
    see("two", updating("two", CREATED + 100, ended=CREATED + 100))
    rollout.refresh_from_db()
    history.record_sample(rollout, replace(COUNTS, updated=9), CREATED + 100.9)
    assert samples() == [(100, 9, 9, 0)]


def test_the_longer_a_rollout_takes_the_further_apart_are_its_samples(
    rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "DENSE_SAMPLE_SECONDS", 20.0)
    for second in range(600):
        history.record_sample(rollout, replace(COUNTS, updated=second), CREATED + 100 + second)
    moments = [at for at, *_ in samples()]
    assert moments[:20] == [100 + second for second in range(20)]
    assert moments[-1] - moments[-2] > 20
    assert len(moments) < 120
