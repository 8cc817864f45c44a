"""Surge deleted by its page: only what was looked at, and what is told when the cluster answers oddly or not at all."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from rollouts.accounts.errors import InvalidState
from rollouts.cluster import Conflict, Forbidden, NotFound, Throttled, Unavailable
from rollouts.cluster.resources import PODS
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.engine.tree.surge import PodOwner, SurgeUnit, find_surge
from rollouts.models import AuditEntry
from rollouts.services import surge
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.surge import SurgeUnitRef, surge_delete
from rollouts.services.workloads import edit_strategy, set_images
from rollouts.web.workload import WorkloadContext
from tests.services.stage import Stage
from tests.web.commands.filling import address, fields_of, say

pytestmark = pytest.mark.django_db


def units_of(stage: Stage) -> list[SurgeUnit]:
    look = WorkloadContext(stage.place).snapshot
    assert look.workload is not None
    return [*find_surge(look.workload, look.mirrored.observed)]


@pytest.fixture
def surging(deployed: Stage, caller: Caller) -> Stage:
    """A workload whose scaling group has one replica too many, which never becomes Ready."""
    changes = {"type": "RollingUpdate", "components": {"decode": {"maxUnavailable": 0, "maxSurge": 1}}}
    execute(caller, deployed.place, edit_strategy(changes))
    execute(caller, deployed.place, set_images([ImageEdit("leader", "app:broken")]))
    wait_for_surge(deployed)
    return deployed


def wait_for_surge(stage: Stage) -> None:
    stage.loop.run(lambda: any(len(unit.owners) == 2 and unit.pods for unit in units_of(stage)))
    stage.observe()


def wait_for_name(stage: Stage, caller: Caller, former: SurgeUnit) -> None:
    """Wait until new surge has the name of former surge; the next one takes another while the former leaves."""
    wait_for_surge(stage)
    stage.loop.run(lambda: not {pod.uid for pod in former.pods} & all_uids_of(stage))
    stage.observe()
    (unit,) = units_of(stage)
    if unit.name != former.name:
        surge_delete(caller, stage.place, [SurgeUnitRef(unit.name, unit.mark)])
        wait_for_surge(stage)
        (unit,) = units_of(stage)
    assert (unit.name, unit.mark == former.mark) == (former.name, False)


def all_uids_of(stage: Stage) -> set[str]:
    """Return the uids of all pods, also of those on their way out."""
    return {pod["metadata"]["uid"] for pod in stage.cluster.list(PODS, namespace=stage.namespace).items}


def open_form(operator: Client, stage: Stage) -> dict[str, Any]:
    return fields_of(operator.get(address(stage, "delete-surge")).content.decode())


def uids_of(stage: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in stage.loop.pods()}


def test_surge_that_has_taken_a_name_is_safe_from_an_older_form(
    operator: Client, surging: Stage, caller: Caller
) -> None:
    sent, (unit,) = open_form(operator, surging), units_of(surging)
    assert sent["chosen"] == [f"{unit.name}/{unit.mark}"]
    assert operator.post(address(surging, "delete-surge"), sent).status_code == 302
    wait_for_name(surging, caller, unit)
    before = uids_of(surging)
    again = operator.post(address(surging, "delete-surge"), sent)
    assert (again.status_code, "none of them exists any more" in say(again)) == (422, True)
    with pytest.raises(InvalidState):
        surge_delete(caller, surging.place, [SurgeUnitRef(unit.name, unit.mark)])
    assert uids_of(surging) == before
    (now,) = (one for one in units_of(surging) if one.name == unit.name)
    assert surge_delete(caller, surging.place, [SurgeUnitRef(now.name, now.mark)]).outcomes


def outcomes_on_record() -> dict[str, str]:
    """Return what is on record of the pods that olga has deleted, by their cliques."""
    after: Any = AuditEntry.objects.get(actor="olga", result="Done").after
    return {one["clique"]: one["outcome"] for one in after["pods"]}


def fail_with(
    monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception], *, is_carried_out: bool = False
) -> list[str]:
    """Have each deletion answered with an error; return the list of what was tried."""
    tried: list[str] = []
    delete = surge._delete_owner

    def fail(client: Any, holder: PodOwner, *, dry_run: bool) -> Any:
        tried.append(holder.name)
        if is_carried_out:
            delete(client, holder, dry_run=dry_run)
        raise error()

    monkeypatch.setattr(surge, "_delete_owner", fail)
    return tried


def test_after_a_lost_answer_nothing_more_is_sent_and_nothing_is_said_to_be_known(
    operator: Client, surging: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = fail_with(monkeypatch, lambda: Unavailable("no answer within 10 s"), is_carried_out=True)
    answer = operator.post(address(surging, "delete-surge"), open_form(operator, surging), follow=True)
    assert len(tried) == 1
    assert "It is not known whether it was deleted" in say(answer)
    assert "Not tried: the cluster" in say(answer)
    outcomes = outcomes_on_record()
    assert outcomes.pop(tried[0]) == "Unknown"
    assert set(outcomes.values()) == {"NotSent"}


@pytest.mark.parametrize("error", [NotFound, Conflict])
def test_what_was_gone_already_was_not_deleted(
    operator: Client, surging: Stage, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    fail_with(monkeypatch, lambda: error("it is not there"))
    operator.post(address(surging, "delete-surge"), open_form(operator, surging))
    assert set(outcomes_on_record().values()) == {"Gone"}


@pytest.mark.parametrize(("error", "expected"), [(Forbidden, ("Refused", 2)), (Throttled, ("NotSent", 1))])
def test_what_the_cluster_does_not_do_is_told_with_its_words(
    operator: Client,
    surging: Stage,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    expected: tuple[str, int],
) -> None:
    fate, tries = expected
    tried = fail_with(monkeypatch, lambda: error("not by this account"))
    answer = operator.post(address(surging, "delete-surge"), open_form(operator, surging), follow=True)
    assert len(tried) == tries
    assert "not by this account" in say(answer)
    assert set(outcomes_on_record().values()) == {fate}
