"""Commands to a workload: they change just that, on record, and lose no race that they have not lost."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import NotFound, PermissionDenied, ValidationFailed, VersionConflict
from rollouts.cluster import Resource
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS
from rollouts.engine.manifest.edits import RESTARTED_AT, ImageEdit
from rollouts.engine.manifest.findings import FindingCode
from rollouts.manifests.masking import PUBLIC_READER
from rollouts.models import AuditEntry, Clique, ScalingGroup, User
from rollouts.queue.workqueue import WorkQueue
from rollouts.services import edit, workload_client
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.scaling import ScaleLive, scale_observed
from rollouts.services.workloads import (
    edit_strategy,
    restart,
    roll_back,
    scale,
    set_images,
)
from tests.engine.manifests import small, workload_of
from tests.engine.simulated import settled
from tests.services.stage import Stage

pytestmark = [pytest.mark.django_db(transaction=True)]

IMAGE = "spec.template.cliques[0].spec.podSpec.containers[0].image"
Command = Callable[..., Any]

COMMANDS: dict[str, tuple[Command, dict[str, Any], dict[str, Any]]] = {
    "images": (set_images, {"images": [ImageEdit("frontend", "app:v2")]}, {IMAGE: "app:v2"}),
    "scale the set": (scale, {"replicas": 3}, {"spec.replicas": 3}),
    "scale a group": (
        scale,
        {"replicas": 3, "component": "decode"},
        {"spec.template.podCliqueScalingGroups[0].replicas": 3},
    ),
    "scale a clique": (
        scale,
        {"replicas": 4, "component": "frontend"},
        {"spec.template.cliques[0].spec.replicas": 4},
    ),
    "strategy": (
        edit_strategy,
        {"changes": {"components": {"frontend": {"maxSurge": 1}}}},
        {"spec.template.cliques[0].updateStrategy": {"maxSurge": 1}},
    ),
    "restart": (
        restart,
        {"components": ["frontend"], "at": 0.0},
        {"spec.template.cliques[0].annotations": {RESTARTED_AT: "1970-01-01T00:00:00.000000Z"}},
    ),
}
EACH = pytest.mark.parametrize("name", COMMANDS)


def give(name: str, caller: Caller, stage: Stage, **terms: Any) -> edit.EditResult:
    """Give one of the commands."""
    command, arguments, _ = COMMANDS[name]
    changed: edit.EditResult = execute(caller, stage.place, command(**arguments), **terms)
    return changed


@EACH
def test_a_command_changes_what_it_says_and_the_mirror_knows_at_once(name: str, stage: Stage, caller: Caller) -> None:
    before = stage.stored()
    changed = give(name, caller, stage)
    after = stage.stored()
    wanted = COMMANDS[name][2]
    assert {one.field: one.after for one in changed.changes} == wanted
    assert {one.field for one in edit.compute_changes(stage.place, before, after, PUBLIC_READER)} == wanted.keys()
    assert changed.version == stage.version().strip('"')
    assert stage.mirrored()["spec"] == after["spec"]


@EACH
def test_a_command_is_on_record_before_it_is_sent_and_with_its_outcome(name: str, stage: Stage, caller: Caller) -> None:
    give(name, caller, stage)
    begun, done = AuditEntry.objects.order_by("id")
    assert (begun.result, done.result) == ("Begun", "Done")
    assert done.begun == begun
    assert done.actor == "ada"
    assert done.after is not None
    assert done.after["fields"] == COMMANDS[name][2]
    assert (done.cluster, done.namespace, done.name) == (stage.cluster_name, stage.namespace, "chat")
    assert done.after["version"] == stage.version().strip('"')


@EACH
def test_a_command_wakes_the_workload(name: str, stage: Stage, caller: Caller, redis: Any) -> None:
    give(name, caller, stage)
    claim = WorkQueue(redis, lease_ms=1000).claim(stage.place.key)
    assert claim is not None


@EACH
def test_a_dry_run_changes_nothing_and_leaves_no_entry(name: str, stage: Stage, caller: Caller) -> None:
    before = stage.stored()
    changed = give(name, caller, stage, dry_run=True)
    assert {one.field: one.after for one in changed.changes} == COMMANDS[name][2]
    assert changed.is_dry_run
    assert changed.version == stage.version().strip('"')
    assert stage.stored() == before
    assert not AuditEntry.objects.exists()


@EACH
def test_the_same_command_again_finds_nothing_to_change(name: str, stage: Stage, caller: Caller) -> None:
    give(name, caller, stage)
    before = stage.stored()
    assert give(name, caller, stage).changes == ()
    assert stage.stored() == before
    last = AuditEntry.objects.order_by("id").last()
    assert last is not None
    assert (last.result, last.detail) == ("Done", "Nothing to change.")


@EACH
def test_who_may_not_changes_nothing_and_is_on_record(name: str, stage: Stage, caller: Caller) -> None:
    stranger = User.objects.create(username="vera")
    before = stage.stored()
    with pytest.raises(PermissionDenied):
        give(name, Caller(stranger, "vera", None, "r", "api"), stage)
    assert stage.stored() == before
    assert [entry.result for entry in AuditEntry.objects.all()] == ["Refused"]
    give(name, caller, stage)
    assert stage.stored() != before


@EACH
def test_a_state_that_is_no_more_loses_the_race(name: str, stage: Stage, caller: Caller) -> None:
    seen = stage.version()
    stage.edit_elsewhere(template={"terminationDelay": "2h"})
    before = stage.stored()
    with pytest.raises(VersionConflict) as lost:
        give(name, caller, stage, expected=seen)
    # The mirror still has what the caller saw, so what differs is known.
    assert lost.value.changed == ("spec.template.terminationDelay",)
    assert stage.stored() == before
    give(name, caller, stage, expected=stage.version())
    assert stage.stored() != before


@EACH
def test_writes_of_the_status_in_between_lose_no_race(
    name: str, stage: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stage.version()
    stage.write_status()
    interrupt(monkeypatch, stage.write_status)
    give(name, caller, stage, expected=seen)
    assert {
        one.field: one.after
        for one in edit.compute_changes(stage.place, stage.mirrored(), stage.stored(), PUBLIC_READER)
    } == {}
    assert stage.version() != seen


@EACH
def test_an_edit_between_reading_and_writing_is_kept(
    name: str, stage: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, lambda: stage.edit_elsewhere(template={"terminationDelay": "2h"}))
    changed = give(name, caller, stage)
    assert {one.field: one.after for one in changed.changes} == COMMANDS[name][2]
    assert stage.spec()["template"]["terminationDelay"] == "2h"


@EACH
def test_an_edit_between_reading_and_writing_wins_over_who_saw_the_state_before(
    name: str, stage: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stage.version()
    interrupt(monkeypatch, lambda: stage.edit_elsewhere(template={"terminationDelay": "2h"}))
    with pytest.raises(VersionConflict) as lost:
        give(name, caller, stage, expected=seen)
    assert lost.value.changed == ("spec.template.terminationDelay",)
    assert [entry.result for entry in AuditEntry.objects.order_by("id")] == ["Begun", "Refused"]


def interrupt(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have something happen once, after the command has read the workload and before it writes."""
    patch, acts = workload_client.WorkloadClient.patch, [act]

    def late(self: workload_client.WorkloadClient, *args: Any, **kwargs: Any) -> Any:
        if acts:
            acts.pop()()
        return patch(self, *args, **kwargs)

    monkeypatch.setattr(workload_client.WorkloadClient, "patch", late)


def test_of_two_writers_who_saw_the_same_one_loses(stage: Stage, caller: Caller) -> None:
    seen = stage.version()
    outcomes: list[int | None] = []

    def write(replicas: int) -> None:
        try:
            execute(caller, stage.place, scale(replicas), expected=seen)
            outcomes.append(replicas)
        except VersionConflict:
            outcomes.append(None)
        finally:
            connection.close()

    writers = [threading.Thread(target=write, args=(number,)) for number in (5, 6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    won = [outcome for outcome in outcomes if outcome is not None]
    assert len(won) == 1
    assert stage.spec()["replicas"] == won[0]


def test_two_writers_of_different_fields_both_win(stage: Stage, caller: Caller) -> None:
    def write(command: Callable[[], Any]) -> None:
        command()
        connection.close()

    writers = [
        threading.Thread(target=write, args=(lambda: execute(caller, stage.place, scale(5)),)),
        threading.Thread(target=write, args=(lambda: give("images", caller, stage),)),
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    spec = stage.spec()
    assert spec["replicas"] == 5
    assert spec["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"] == "app:v2"


REFUSED: dict[str, tuple[Command, dict[str, Any], str, FindingCode]] = {
    "an unknown clique": (
        set_images,
        {"images": [ImageEdit("nobody", "a")]},
        "images[0].clique",
        FindingCode.UNKNOWN_CLIQUE,
    ),
    "an unknown component": (
        scale,
        {"replicas": 1, "component": "nobody"},
        "component",
        FindingCode.UNKNOWN_COMPONENT,
    ),
    "a negative number": (scale, {"replicas": -1}, "spec.replicas", FindingCode.OUT_OF_RANGE),
    "too many pods": (scale, {"replicas": 10**6}, "spec.replicas", FindingCode.TOO_MANY_PODS),
    "a budget of nothing": (
        edit_strategy,
        {"changes": {"components": {"frontend": {"maxUnavailable": 0}}}},
        "spec.template.cliques[0].updateStrategy",
        FindingCode.BUDGET_ZERO,
    ),
    "a budget of the wrong kind": (
        edit_strategy,
        {"changes": {"type": "ReplicaRecreate", "maxSurge": "many"}},
        "spec.updateStrategy.rollingUpdate.maxSurge",
        FindingCode.INVALID_BUDGET,
    ),
    "a strategy for a member": (
        edit_strategy,
        {"changes": {"components": {"leader": {"maxSurge": 1}}}},
        "spec.template.cliques[1].updateStrategy",
        FindingCode.MEMBER_HAS_STRATEGY,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_breaks_a_rule_changes_nothing_and_names_the_field(name: str, stage: Stage, caller: Caller) -> None:
    command, arguments, field, code = REFUSED[name]
    before = stage.stored()
    with pytest.raises(ValidationFailed) as refusal:
        execute(caller, stage.place, command(**arguments))
    assert (field, code) in [(one.field, one.code) for one in refusal.value.findings]
    assert stage.stored() == before
    assert [entry.result for entry in AuditEntry.objects.all()] == ["Refused"]


def test_a_clique_is_not_scaled_below_the_minimum_that_is_written(stage: Stage, caller: Caller) -> None:
    cliques = stage.spec()["template"]["cliques"]
    cliques[0]["spec"]["minAvailable"] = 3
    stage.edit_elsewhere(template={"cliques": cliques})
    with pytest.raises(ValidationFailed) as refusal:
        execute(caller, stage.place, scale(1, component="frontend"))
    (finding,) = refusal.value.findings
    assert (finding.field, finding.code) == (
        "spec.template.cliques[0].spec.minAvailable",
        FindingCode.MIN_AVAILABLE_OVER_REPLICAS,
    )


def test_there_is_no_command_to_what_is_not_there(stage: Stage, caller: Caller) -> None:
    nowhere = [
        WorkloadRef("other", stage.namespace, "chat"),
        WorkloadRef(stage.cluster_name, stage.namespace, "nobody"),
        WorkloadRef(stage.cluster_name, "nowhere", "chat"),
        WorkloadRef(stage.cluster_name, stage.namespace, ".."),
        WorkloadRef(stage.cluster_name, "a/b", "chat"),
        WorkloadRef(stage.cluster_name, "a\0b", "chat"),
    ]
    for place in nowhere:
        with pytest.raises((NotFound, ValidationFailed)):
            execute(caller, place, scale(3))


def test_a_command_costs_a_constant_number_of_queries(stage: Stage, caller: Caller) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        give("images", caller, stage)
    # Row of the cluster, what Grove's operator wrote last, six for the workload in the mirror, two entries of the
    # audit, the write-through in a transaction.
    assert len(queries) <= 13, [query["sql"][:80] for query in queries.captured_queries]


def test_a_deployed_workload_goes_back_to_the_template_of_a_revision(deployed: Stage, caller: Caller) -> None:
    first = deployed.loop.status()["currentGenerationHash"]
    give("images", caller, deployed)
    give("scale the set", caller, deployed)
    deployed.deploy()
    assert deployed.loop.status()["currentGenerationHash"] != first
    changed = execute(caller, deployed.place, roll_back(deployed.place, 1))
    assert [one.field for one in changed.changes] == [IMAGE]
    deployed.deploy()
    assert deployed.loop.status()["currentGenerationHash"] == first
    assert deployed.spec()["replicas"] == 3


def test_a_revision_that_is_not_on_record_is_not_there(deployed: Stage, caller: Caller) -> None:
    before = deployed.stored()["spec"]
    with pytest.raises(NotFound, match="revision 7"):
        execute(caller, deployed.place, roll_back(deployed.place, 7))
    assert deployed.spec() == before
    assert AuditEntry.objects.get().result == "Refused"


# ---- a live component, past the template


@pytest.mark.parametrize(("component", "resource"), [("frontend", PODCLIQUES), ("decode", PODCLIQUESCALINGGROUPS)])
def test_a_live_component_is_scaled_and_the_set_left_alone(
    deployed: Stage, caller: Caller, component: str, resource: Resource
) -> None:
    before, name = deployed.stored()["spec"], f"chat-0-{component}"
    changed = execute(caller, deployed.place, scale(5, component, replica=0), expected=deployed.version())
    assert [(one.field, one.after) for one in changed.changes] == [(f"{resource.kind} {name}: spec.replicas", 5)]
    assert deployed.cluster.get(resource, name, namespace=deployed.namespace)["spec"]["replicas"] == 5
    assert deployed.spec() == before
    model: type[Clique | ScalingGroup] = Clique if resource is PODCLIQUES else ScalingGroup
    assert model.objects.get(name=name, namespace=deployed.namespace).replicas == 5
    assert execute(caller, deployed.place, scale(5, component, replica=0)).changes == ()
    assert [entry.result for entry in AuditEntry.objects.order_by("id")] == ["Begun", "Done", "Done"]


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (ScaleLive("leader", 0, 2), "component"),  # scaled with its group
        (ScaleLive("nobody", 0, 2), "component"),
        (ScaleLive("", 0, 2), "component"),
        (ScaleLive("frontend", 0, 2), "replicas"),  # below its minAvailable
        (ScaleLive("frontend", 1, 5), "replica"),
    ],
)
def test_a_live_component_is_scaled_within_its_rules(
    deployed: Stage, caller: Caller, wanted: ScaleLive, field: str
) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        execute(caller, deployed.place, wanted)
    assert [one.field for one in refusal.value.findings] == [field]
    assert [entry.result for entry in AuditEntry.objects.all()] == ["Refused"]


def test_a_live_clique_is_scaled_down_to_the_minimum_that_it_was_made_with(deployed: Stage, caller: Caller) -> None:
    cliques = deployed.spec()["template"]["cliques"]
    cliques[0]["spec"] |= {"replicas": 5, "autoScalingConfig": {"minReplicas": 3, "maxReplicas": 9}}
    deployed.edit_elsewhere(template={"cliques": cliques})
    deployed.observe()
    changed = execute(caller, deployed.place, scale(4, "frontend", replica=0))
    assert [one.after for one in changed.changes] == [4]
    # Grove UI makes no autoscaler, so it does not warn of one either.
    assert changed.warnings == ()
    with pytest.raises(ValidationFailed) as refusal:
        execute(caller, deployed.place, scale(2, "frontend", replica=0))
    assert "must be 3 (its minAvailable) or more" in refusal.value.findings[0].message


def test_a_simulation_of_a_live_clique_knows_the_minimum_that_it_was_made_with() -> None:
    observed = settled(workload_of(small())).world.observed()
    raised = workload_of(small({"spec.template.cliques.0.spec.replicas": 5}))
    tried = scale_observed(raised, observed, ScaleLive("frontend", 0, 4))
    assert [one.replicas for one in tried.cliques if one.name == "chat-0-frontend"] == [4]
    with pytest.raises(ValidationFailed, match="must be 3"):
        scale_observed(raised, observed, ScaleLive("frontend", 0, 2))


def test_a_live_component_that_is_not_there_yet_cannot_be_scaled(stage: Stage, caller: Caller) -> None:
    with pytest.raises(NotFound):
        execute(caller, stage.place, scale(5, "frontend", replica=0))
