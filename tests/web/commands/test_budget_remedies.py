"""Remedies that change budgets write what the page showed, and once; they go with what the workload says itself."""

from typing import Any

import pytest
from django.test import Client

from rollouts.models import StrategyOverride
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.workloads import edit_strategy
from tests.services.stage import Stage
from tests.web.commands.filling import address, boxes_of, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def rolling(stage: Stage, caller: Caller) -> Stage:
    """A workload with surge at its clique."""
    changes = {"type": "RollingUpdate", "components": {"frontend": {"maxUnavailable": 0, "maxSurge": 1}}}
    execute(caller, stage.place, edit_strategy(changes))
    stage.observe()
    return stage


def budget_of(stage: Stage) -> Any:
    return stage.spec()["template"]["cliques"][0]["updateStrategy"]


def form(stage: Stage, *chosen: str) -> dict[str, Any]:
    return {"version": stage.version().strip('"'), "chosen": chosen}


def test_whether_anything_can_move_without_surge_is_up_to_the_workload_itself(
    operator: Client, rolling: Stage, caller: Caller
) -> None:
    StrategyOverride.objects.create(
        name="chat",
        namespace=rolling.namespace,
        components={"frontend": {"maxUnavailable": 1}},
        reason="night shift",
        author=caller.user,
    )
    page = operator.get(address(rolling, "no-surge"))
    assert "maxSurge 1 → 0, maxUnavailable 0 → 1 (of 3 pods)" in say(page)
    (box,) = boxes_of(page, "chosen")
    assert operator.post(address(rolling, "no-surge"), form(rolling, box)).status_code == 302
    assert budget_of(rolling) == {"maxUnavailable": 1, "maxSurge": 0}


def test_a_finding_with_a_path_is_said_though_no_field_is_about_it(operator: Client, rolling: Stage) -> None:
    refused = operator.post(address(rolling, "no-surge"), form(rolling, "frontend maxSurge=0"))
    assert refused.status_code == 422
    assert "maxUnavailable and maxSurge may not both be 0" in say(refused)
    assert budget_of(rolling) == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.parametrize(
    ("remedy", "budget"),
    [
        ("more-unavailable", {"maxUnavailable": 1, "maxSurge": 1}),
        ("no-surge", {"maxUnavailable": 1, "maxSurge": 0}),
    ],
)
def test_a_form_that_is_sent_twice_changes_a_budget_once(
    operator: Client, rolling: Stage, remedy: str, budget: dict[str, int]
) -> None:
    page = operator.get(f"{address(rolling, remedy)}?component=chat-0-frontend")
    (box,) = (value for value, state in boxes_of(page, "chosen").items() if state == "chosen")
    sent = form(rolling, box)
    for said in ("", "Nothing to change"):
        answer = operator.post(address(rolling, remedy), sent, follow=True)
        assert answer.redirect_chain
        assert said in say(answer)
        rolling.observe()
        assert budget_of(rolling) == budget


def test_what_others_have_raised_meanwhile_is_not_lowered(operator: Client, rolling: Stage, caller: Caller) -> None:
    sent = form(rolling, "frontend maxUnavailable=1")
    execute(caller, rolling.place, edit_strategy({"components": {"frontend": {"maxUnavailable": 2}}}))
    rolling.observe()
    lost = operator.post(address(rolling, "more-unavailable"), sent)
    assert (lost.status_code, budget_of(rolling)["maxUnavailable"]) == (409, 2)
    assert "maxUnavailable 2 → 3" in say(lost)
