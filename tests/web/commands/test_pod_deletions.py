"""The page that follows deleted pods: what it tells of a command that was cut off, and of one that left some."""

import html
import re

import orjson
import pytest
from django.test import Client

from rollouts.cluster import ClusterClient
from rollouts.engine.model.observed import Pod
from rollouts.models import AuditEntry
from rollouts.services import pods as pods_service
from rollouts.services.audit import Caller
from rollouts.services.audit_values import MAX_VALUE_BYTES
from rollouts.services.deletion import DeletionResult, PodOutcome, PodRef, render_audit_outcomes
from rollouts.services.pods import pods_delete
from tests.controller.interruptions import Killed
from tests.markup import compact
from tests.services.stage import Stage
from tests.web.commands.filling import address, boxes_of, fields_of, say

pytestmark = pytest.mark.django_db


def cut_off(stage: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """Have the process killed before a pod is deleted; return the pod and the only entry there is of it."""
    pod = stage.loop.pods()[0]["metadata"]

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ClusterClient, "delete", die)
        with pytest.raises(Killed):
            pods_delete(caller, stage.place, [PodRef(pod["name"], pod["uid"])], force=True)
    (entry,) = AuditEntry.objects.filter(command="delete_any_pods")
    assert entry.result == AuditEntry.Result.BEGUN
    return pod["name"], entry.pk


@pytest.mark.parametrize("below", ["", "/live"])
def test_of_a_deletion_that_was_cut_off_is_told_that_nothing_is_known(
    operator: Client, deployed: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    name, record = cut_off(deployed, caller, monkeypatch)
    answer = operator.get(address(deployed, f"pods/{record}{below}"))
    assert answer.status_code == 200
    said = say(answer)
    assert name in said
    assert "It is not known whether it was deleted" in said
    assert "still there" in said
    assert "0 terminating" in said


def test_by_its_beginning_a_deletion_is_found_with_its_outcome(
    operator: Client, deployed: Stage, caller: Caller
) -> None:
    pod = deployed.loop.pods()[0]["metadata"]
    pods_delete(caller, deployed.place, [PodRef(pod["name"], pod["uid"])], force=True)
    begun = AuditEntry.objects.get(command="delete_any_pods", result="Begun")
    said = say(operator.get(address(deployed, f"pods/{begun.pk}")))
    assert "Deleted" in said
    assert "not known" not in said


def test_what_is_on_record_in_another_form_is_not_there(operator: Client, deployed: Stage) -> None:
    place = deployed.place
    entry = AuditEntry.objects.create(
        actor="ada",
        command="delete_any_pods",
        cluster=place.cluster,
        namespace=place.namespace,
        name=place.name,
        result="Begun",
        after={"pods": ["chat-0-frontend-0"]},
    )
    assert operator.get(address(deployed, f"pods/{entry.pk}")).status_code == 404


def test_what_a_deletion_by_force_leaves_is_gone_on_with_by_force(
    operator: Client, deployed: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods_service, "MAX_PODS", 2)
    monkeypatch.setattr("rollouts.web.commands.pod_deletion.MAX_PODS", 2)
    form = address(deployed, "any-pods")
    fields = fields_of(operator.get(f"{form}?all=1").content.decode())
    refused = compact(operator.post(form, fields).content.decode())
    (asks,) = re.findall(r'name="agreed" value="([^"]+)"', refused)
    answer = operator.post(form, {**fields, "agreed": html.unescape(asks)}, follow=True)
    assert "4 selected pods are not deleted yet: one command deletes at most 2." in say(answer)
    (rest,) = re.findall(r'href="([^"]+\?rest=\d+)"', compact(answer.content.decode()))
    deployed.observe()
    boxes = boxes_of(operator.get(rest), "pod")
    assert [*boxes.values()].count("chosen") == 4


def test_the_longest_outcomes_fit_on_record_and_what_was_sent_is_told_first() -> None:
    name, message = "n" * 63, "m" * 4000
    missing = [PodOutcome(name, "u" * 36, DeletionResult.NOT_THERE, message, name, 1000) for _ in range(3000)]
    sent = [PodOutcome(f"sent-{number}", "u" * 36, DeletionResult.REFUSED, message, name, 1000) for number in range(3)]
    pod = Pod(name, "u" * 36, name, 0, "", 0.0, "", "Running", ready=True, leaving=False, gated=False)
    told = render_audit_outcomes([*missing, *sent], [pod] * 3000)
    assert len(orjson.dumps(told)) < MAX_VALUE_BYTES
    assert [one["name"] for one in told["pods"]][:4] == ["sent-0", "sent-1", "sent-2", name]
    assert (len(told["pods"]) + told["untold"], told["left"]) == (3003, 3000)
    assert render_audit_outcomes(sent)["pods"][0]["message"] == message  # where there is room, all of it is told
