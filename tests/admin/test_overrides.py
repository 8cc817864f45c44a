"""Overrides in the admin site: what is typed is checked and put in force by the same service as everywhere."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from rollouts.models import AuditEntry, NamespaceGrant, StrategyOverride, User
from tests.admin.conftest import AddWorkload, SignIn

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

ADD = "/admin/rollouts/strategyoverride/add/"
CHECK = "/admin/rollouts/strategyoverride/check/"
LIST = "/admin/rollouts/strategyoverride/"
UPDATE = {"spec.updateStrategy": {"type": "RollingUpdate"}}


def _typed(**fields: str) -> dict[str, Any]:
    until = timezone.now() + timedelta(hours=2)
    common = {
        "namespace": "web",
        "strategy": "OnDelete",
        "reason": "alone at night",
        "expires_at": f"{until:%Y-%m-%dT%H:%M}",
    }
    return {**common, **fields}


def _rows(*rows: dict[str, str]) -> dict[str, str]:
    return {f"components-{index}-{name}": text for index, row in enumerate(rows) for name, text in row.items()}


def test_an_override_is_put_in_force_and_on_record(ada: Client, add_workload: AddWorkload) -> None:
    add_workload(edits=UPDATE, team="search")
    typed = _typed(
        strategy="",
        labels="team=search",
        **_rows({"name": "decode", "max_surge": "25%"}, {"name": "frontend", "by_default": "on"}),
    )
    answer = ada.post(ADD, typed, follow=True)
    assert answer.redirect_chain == [(LIST, 302)]
    row = StrategyOverride.objects.get()
    assert (row.namespace, row.selector, row.author) == ("web", {"team": "search"}, User.objects.get(username="ada"))
    assert row.components == {"decode": {"maxSurge": "25%"}, "frontend": None}
    assert "is in force. It matches 1 workload" in answer.content.decode()
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.command, entry.result, entry.via) == ("ada", "create_override", "Done", "admin")
    assert entry.request_id


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ({"reason": ""}, "Give a reason: other users need it to decide whether the override is still needed."),
        ({"expires_at": ""}, "Choose an end, at most 90 days from now."),
        ({"expires_at": "2020-01-01T00:00"}, "This time is in the past; choose a later one."),
        ({"labels": "team"}, "is not a label; write name=value"),
        ({"max_surge": "some"}, "MaxSurge must be a whole number"),
        (
            {"components-0-name": "encode", "components-0-max_surge": "1"},
            "encode: no workload that it matches has a clique",
        ),
        (
            {"components-0-name": "", "components-0-max_surge": "1"},
            "Enter the name of a clique or scaling group in each row.",
        ),
        ({"cluster": "moon"}, "moon is not one of the available choices"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_nothing_is_saved(
    ada: Client, add_workload: AddWorkload, typed: dict[str, str], sentence: str
) -> None:
    add_workload()
    answer = ada.post(ADD, _typed(**typed))
    assert answer.status_code == 200
    assert sentence in answer.content.decode()
    assert not StrategyOverride.objects.exists()
    assert not AuditEntry.objects.exists()


def test_a_change_says_what_was_before_and_shows_its_history(ada: Client, add_workload: AddWorkload) -> None:
    add_workload()
    ada.post(ADD, _typed())
    row = StrategyOverride.objects.get()
    page = ada.get(f"{LIST}{row.pk}/change/").content.decode()
    assert row.version in page
    ada.post(f"{LIST}{row.pk}/change/", _typed(strategy="RollingRecreate", version=row.version))
    row.refresh_from_db()
    assert row.strategy == "RollingRecreate"
    entry = AuditEntry.objects.get(command="change_override")
    assert entry.before is not None
    assert entry.before["strategy"] == {"type": "OnDelete"}
    assert "change_override" in ada.get(f"{LIST}{row.pk}/change/").content.decode()


def test_who_saw_an_earlier_state_is_told_so_and_changes_nothing(ada: Client, add_workload: AddWorkload) -> None:
    add_workload()
    ada.post(ADD, _typed())
    row = StrategyOverride.objects.get()
    seen = row.version
    ada.post(f"{LIST}{row.pk}/change/", _typed(reason="first", version=seen))
    answer = ada.post(f"{LIST}{row.pk}/change/", _typed(reason="second", version=seen), follow=True)
    assert "has been changed since you loaded it" in answer.content.decode()
    row.refresh_from_db()
    assert row.reason == "first"
    assert AuditEntry.objects.filter(command="change_override", result="Refused").count() == 1


def test_one_is_ended_after_a_question_and_stays_as_history(ada: Client, add_workload: AddWorkload) -> None:
    add_workload()
    ada.post(ADD, _typed())
    row = StrategyOverride.objects.get()
    assert "End override" in ada.get(f"{LIST}{row.pk}/end/").content.decode()
    row.refresh_from_db()
    assert row.is_in_force(timezone.now())
    ada.post(f"{LIST}{row.pk}/end/")
    row.refresh_from_db()
    assert not row.is_in_force(timezone.now())
    page = ada.get(f"{LIST}{row.pk}/change/").content.decode()
    assert 'name="reason"' not in page
    assert "end_override" in page
    assert ada.post(f"{LIST}{row.pk}/change/", _typed()).status_code == 403


def test_several_are_ended_from_the_list(ada: Client, add_workload: AddWorkload) -> None:
    add_workload()
    ada.post(ADD, _typed())
    ada.post(ADD, _typed(reason="another"))
    chosen = [str(row.pk) for row in StrategyOverride.objects.all()]
    ada.post(LIST, {"action": "end", "_selected_action": chosen})
    assert AuditEntry.objects.filter(command="end_override", result="Done").count() == 2


@pytest.mark.parametrize(
    ("state", "found"), [("in-force", "now it counts"), ("ended", "once it counted"), ("", "both")]
)
def test_the_list_is_filtered_by_state(ada: Client, state: str, found: str) -> None:
    now = timezone.now()
    StrategyOverride.objects.create(reason="now it counts", expires_at=now + timedelta(hours=1))
    StrategyOverride.objects.create(reason="once it counted", expires_at=now - timedelta(hours=1))
    text = ada.get(LIST, {"state": state} if state else {}).content.decode()
    shown = {reason for reason in ("now it counts", "once it counted") if reason in text}
    assert shown == ({"now it counts", "once it counted"} if found == "both" else {found})


def test_the_live_check_says_what_saving_would_do(ada: Client, add_workload: AddWorkload) -> None:
    add_workload(edits=UPDATE)
    found = ada.post(CHECK, _typed(strategy="", reason="", **_rows({"name": "decode", "max_surge": "50%"}))).json()
    assert found["errors"] == {
        "reason": ["Give a reason: other users need it to decide whether the override is still needed."]
    }
    assert "sandbox/web/chat" in found["html"]
    assert "maxUnavailable 1, maxSurge 2" in found["html"]
    assert found["components"] == ["decode", "frontend"]
    assert not StrategyOverride.objects.exists()
    assert not AuditEntry.objects.exists()


def test_what_workloads_and_people_write_is_escaped_in_the_live_check(ada: Client, add_workload: AddWorkload) -> None:
    add_workload()
    found = ada.post(CHECK, _typed(namespace="<script>", labels="<b>=<i>")).json()
    assert "<script>" not in found["html"]


def test_an_operator_who_is_given_entry_sees_overrides_and_makes_none(
    sign_in: SignIn, add_workload: AddWorkload
) -> None:
    add_workload()
    olga = sign_in("olga", "operator", is_staff=True)
    assert olga.get(LIST).status_code == 200
    assert olga.get(ADD).status_code == 403
    assert olga.post(ADD, _typed()).status_code == 403
    assert olga.post(CHECK, _typed()).status_code == 403
    assert not StrategyOverride.objects.exists()


def test_who_may_only_there_is_told_so(sign_in: SignIn, add_workload: AddWorkload) -> None:
    from django.contrib.auth.models import Permission

    add_workload()
    sam = sign_in("sam", "viewer", is_staff=True)
    user = User.objects.get(username="sam")
    user.user_permissions.add(*Permission.objects.filter(codename="create_override"))
    NamespaceGrant.objects.create(user=user, namespace="batch")
    assert "no grant for the namespace web" in sam.post(CHECK, _typed()).json()["html"]
    answer = sam.post(ADD, _typed(), follow=True)
    assert "no grant for the namespace web" in answer.content.decode()
    assert not StrategyOverride.objects.exists()
    assert AuditEntry.objects.get().result == "Refused"
    sam.post(ADD, _typed(namespace="batch"))
    assert StrategyOverride.objects.get().namespace == "batch"
