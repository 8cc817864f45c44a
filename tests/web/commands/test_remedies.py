"""Remedies by their pages: each says what it will do and does it, or says that there is nothing to do."""

import html
import re
from functools import partial
from typing import Any

import pytest
from django.test import Client

from rollouts.cluster.resources import NODES, PODCLIQUES
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.engine.plan.remedies import Remedy
from rollouts.models import AuditEntry, StrategyOverride
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.workloads import edit_strategy, scale, set_images
from tests.markup import compact
from tests.services.stage import Stage
from tests.web.commands.filling import address, boxes_of, say
from tests.web.commands.waiting import bring_nodes_back, is_there, lose_pod, make_surge, surge_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def surging(deployed: Stage, caller: Caller) -> Stage:
    """A workload whose frontend has a surge pod that never becomes Ready."""
    make_surge(deployed, caller)
    return deployed


def form(stage: Stage, *chosen: str, **more: str) -> dict[str, Any]:
    return {"version": stage.version().strip('"'), "chosen": chosen, **more}


def box(component: str) -> str:
    """Return the box that takes the surge of a component away."""
    return f"{component} maxSurge=0 maxUnavailable=1"


@pytest.mark.parametrize("code", [*Remedy])
def test_every_remedy_of_the_engine_leads_to_a_page(operator: Client, surging: Stage, code: Remedy) -> None:
    answer = operator.get(f"{address(surging, f'remedy/{code}')}?component=chat-0-frontend", follow=True)
    assert answer.status_code == 200
    assert answer.redirect_chain


def test_there_is_no_remedy_of_another_name(operator: Client, surging: Stage) -> None:
    assert operator.get(address(surging, "remedy/Hope")).status_code == 404


def test_surge_is_set_to_0_for_whoever_waits_and_one_may_be_missing_then(operator: Client, surging: Stage) -> None:
    page = operator.get(f"{address(surging, 'no-surge')}?component=chat-0-frontend")
    assert boxes_of(page, "chosen") == {box("frontend"): "chosen", box("decode"): "free"}
    assert "maxSurge 1 → 0, maxUnavailable 0 → 1 (of 3 pods)" in say(page)
    answer = operator.post(address(surging, "no-surge"), form(surging, box("frontend")), follow=True)
    assert "maxSurge is 0" in say(answer)
    (frontend,) = (one for one in surging.spec()["template"]["cliques"] if one["name"] == "frontend")
    assert frontend["updateStrategy"] == {"maxUnavailable": 1, "maxSurge": 0}
    (decode,) = surging.spec()["template"]["podCliqueScalingGroups"]
    assert decode["updateStrategy"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert AuditEntry.objects.get(actor="olga", result="Done").command == "edit_strategy"


def test_where_an_override_sets_the_surge_that_is_to_be_ended(operator: Client, surging: Stage, caller: Caller) -> None:
    components = {"frontend": {"maxSurge": 2}}
    made = StrategyOverride.objects.create(
        name="chat", namespace=surging.namespace, components=components, reason="night shift", author=caller.user
    )
    page = operator.get(address(surging, "no-surge"))
    assert boxes_of(page, "chosen") == {box("frontend"): "off", box("decode"): "chosen"}
    assert f"Set by override {made.pk} by ada (“night shift”). End the override first" in say(page)
    refused = operator.post(address(surging, "no-surge"), form(surging, box("frontend")))
    assert refused.status_code == 422


def test_surge_is_deleted_and_its_pods_are_followed(operator: Client, surging: Stage) -> None:
    (unit,) = surge_of(surging)
    page = operator.get(f"{address(surging, 'delete-surge')}?component=chat-0-frontend")
    ((value, state),) = boxes_of(page, "chosen").items()
    assert (value.split("/")[0], state) == (unit, "chosen")
    assert "surge of chat-0-frontend: 1 pod, 0 ready" in say(page)
    before = {pod["metadata"]["name"] for pod in surging.loop.pods()}
    answer = operator.post(address(surging, "delete-surge"), form(surging, value), follow=True)
    assert "Deleted" in say(answer)
    assert before - {pod["metadata"]["name"] for pod in surging.loop.pods()} == {unit}
    entry = AuditEntry.objects.get(actor="olga", result="Done")
    assert (entry.command, entry.via) == ("delete_any_pods", "page")
    again = operator.post(address(surging, "delete-surge"), form(surging, value))
    assert again.status_code == 422


def test_a_whole_surge_replica_goes_with_all_that_holds_it(operator: Client, deployed: Stage, caller: Caller) -> None:
    strategy = {"type": "ReplicaRecreate", "maxUnavailable": 0, "maxSurge": 1}
    execute(caller, deployed.place, edit_strategy(strategy))
    execute(caller, deployed.place, set_images([ImageEdit("frontend", "app:broken")]))
    # A replica is there before its pods are.
    deployed.loop.run(lambda: surge_of(deployed) == ["chat-1"] and len(deployed.loop.pods()) == 12)
    deployed.observe()
    (value,) = boxes_of(operator.get(address(deployed, "delete-surge")), "chosen")
    answer = operator.post(address(deployed, "delete-surge"), form(deployed, value), follow=True)
    assert "Deleted with chat-1." in say(answer)
    found = deployed.cluster.list(PODCLIQUES, namespace=deployed.namespace).items
    assert {one["metadata"]["name"] for one in found} == {
        *("chat-0-frontend", "chat-0-decode-0-leader", "chat-0-decode-0-worker")
    }


def test_what_is_within_the_wanted_number_is_no_surge(operator: Client, deployed: Stage) -> None:
    assert surge_of(deployed) == []
    page = operator.get(address(deployed, "delete-surge"))
    assert "The workload has no surge" in say(page)
    first = deployed.loop.pods()[0]["metadata"]
    sent = form(deployed, f"{first['name']}/{first['uid']}")
    assert operator.post(address(deployed, "delete-surge"), sent).status_code == 422


def test_one_more_may_be_missing_by_the_button(operator: Client, surging: Stage) -> None:
    operator.post(address(surging, "more-unavailable"), form(surging, "decode maxUnavailable=1"))
    (decode,) = surging.spec()["template"]["podCliqueScalingGroups"]
    assert decode["updateStrategy"] == {"maxUnavailable": 1, "maxSurge": 1}


def test_a_replica_without_a_node_is_scaled_in(operator: Client, deployed: Stage, caller: Caller) -> None:
    assert "Every replica but the first" in say(operator.get(address(deployed, "scale-in")))
    for node in deployed.cluster.list(NODES).items:
        deployed.cluster.patch_merge(NODES, node["metadata"]["name"], {"spec": {"unschedulable": True}})
    try:
        execute(caller, deployed.place, scale(2))
        deployed.loop.run(lambda: len(deployed.loop.pods()) == 12)
        deployed.observe()
        page = operator.get(address(deployed, "scale-in"))
        assert "replicas 2 → 1 chat-1 without a node" in say(page)
        operator.post(address(deployed, "scale-in"), form(deployed, "1"))
        assert deployed.spec()["replicas"] == 1
    finally:
        for node in deployed.cluster.list(NODES).items:
            deployed.cluster.patch_merge(NODES, node["metadata"]["name"], {"spec": {"unschedulable": None}})


def test_a_pod_that_does_not_go_is_let_go_once_somebody_has_said_that_its_node_is_gone(
    operator: Client, deployed: Stage, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(partial(bring_nodes_back, deployed.cluster))
    value = lose_pod(deployed)
    assert is_there(deployed, value)
    page = operator.get(address(deployed, "let-go"))
    assert boxes_of(page, "chosen") == {value: "free"}  # it has time left to end by itself
    refused = operator.post(address(deployed, "let-go"), form(deployed, value))
    assert refused.status_code == 422
    (asks,) = re.findall(r'name="agreed" value="([^"]+)"', compact(refused.content.decode()))
    agreed = form(deployed, value, agreed=html.unescape(asks))
    answer = operator.post(address(deployed, "let-go"), agreed, follow=True)
    assert "Deleted" in say(answer)
    assert not is_there(deployed, value)
