"""Overrides put in force, changed and ended: who may, what is on record afterwards, and who is woken."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from redis import Redis

from rollouts.accounts.errors import (
    CommandRefused,
    InvalidState,
    NotFound,
    PermissionDenied,
    ValidationFailed,
    VersionConflict,
)
from rollouts.controller.effective_strategy import list_overrides
from rollouts.live.change_feed import FIRST_ID
from rollouts.models import AuditEntry, NamespaceGrant, StrategyOverride
from rollouts.queue.dispatch import open_queue
from rollouts.services.audit import Caller
from rollouts.services.overrides import (
    override_change,
    override_create,
    override_dry_run,
    override_end,
)
from tests.live import feed_reader
from tests.overrides.conftest import AddWorkload, make_caller
from tests.overrides.drafts import draft, draft_of

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def _entries() -> list[tuple[str, str, str]]:
    return [(entry.actor, entry.command, entry.result) for entry in AuditEntry.objects.order_by("id")]


def _is_due(key: str) -> bool:
    return open_queue().claim(key) is not None


def test_an_override_is_put_in_force_with_its_author_and_an_entry(admin: Caller, add_workload: AddWorkload) -> None:
    add_workload()
    made = override_create(admin, draft(namespace="web", reason="  the night shift is alone "))
    row = StrategyOverride.objects.get()
    assert row == made.override
    assert (row.author, row.reason, row.strategy) == (admin.user, "the night shift is alone", "OnDelete")
    (entry,) = AuditEntry.objects.all()
    assert (entry.actor, entry.command, entry.result) == ("ada", "create_override", "Done")
    assert (entry.namespace, entry.request_id, entry.source_ip) == ("web", "req-1", "192.0.2.7")
    assert entry.before is None
    assert entry.after is not None
    assert (entry.after["id"], entry.after["strategy"]) == (row.pk, {"type": "OnDelete"})


def test_the_same_override_again_is_the_one_that_is_in_force(admin: Caller, add_workload: AddWorkload) -> None:
    add_workload()
    wanted = draft(namespace="web")
    first, again = override_create(admin, wanted).override, override_create(admin, wanted).override
    other = override_create(admin, replace(wanted, reason="another reason")).override
    assert first.pk == again.pk != other.pk
    override_end(admin, first.pk)
    assert override_create(admin, wanted).override.pk not in (first.pk, other.pk)


def test_workloads_that_it_hits_are_woken_and_pages_are_told(
    admin: Caller, add_workload: AddWorkload, redis: Redis
) -> None:
    hit, other = add_workload("chat", "web"), add_workload("train", "batch")
    row = override_create(admin, draft(namespace="web")).override
    assert _is_due(hit)
    assert not _is_due(other)
    told = [(change.kind, change.key) for _, change in feed_reader.read(FIRST_ID).entries if change.kind != "audit"]
    assert told == [("override", str(row.pk)), ("workload", hit)]


def test_moving_an_override_wakes_both_those_it_leaves_and_those_it_hits(
    admin: Caller, add_workload: AddWorkload, redis: Redis
) -> None:
    former, new = add_workload("chat", "web"), add_workload("train", "batch")
    row = override_create(admin, draft(namespace="web")).override
    redis.flushall()
    override_change(admin, row.pk, draft(namespace="batch"))
    assert _is_due(former)
    assert _is_due(new)


def test_a_change_is_on_record_with_what_was_before_and_after(admin: Caller, add_workload: AddWorkload) -> None:
    add_workload()
    row = override_create(admin, draft()).override
    created, author = row.created, row.author
    override_change(admin, row.pk, draft(strategy="ReplicaRecreate", max_surge="10%"))
    entry = AuditEntry.objects.get(command="change_override")
    assert entry.before is not None
    assert entry.after is not None
    assert entry.before["strategy"] == {"type": "OnDelete"}
    assert entry.after["strategy"] == {"type": "ReplicaRecreate", "maxSurge": "10%"}
    row.refresh_from_db()
    assert (row.strategy, row.max_surge, row.created, row.author) == ("ReplicaRecreate", "10%", created, author)


def test_a_change_that_changes_nothing_is_on_record_as_that(admin: Caller, add_workload: AddWorkload) -> None:
    add_workload()
    row = override_create(admin, draft()).override
    override_change(admin, row.pk, draft_of(row))
    entry = AuditEntry.objects.get(command="change_override")
    assert (entry.result, entry.detail, entry.after) == ("Done", "Nothing to change.", None)


def test_ending_keeps_the_record_as_history(admin: Caller, add_workload: AddWorkload, redis: Redis) -> None:
    key = add_workload()
    row = override_create(admin, draft()).override
    redis.flushall()
    ended = override_end(admin, row.pk)
    assert ended.expires_at is not None
    assert ended.expires_at <= timezone.now()
    assert StrategyOverride.objects.get().reason == row.reason
    before, after = AuditEntry.objects.values_list("before__expires_at", "after__expires_at").get(
        command="end_override"
    )
    assert after < before
    assert _is_due(key)


def test_an_override_that_has_ended_never_comes_back(admin: Caller, add_workload: AddWorkload) -> None:
    add_workload()
    row = override_create(admin, draft()).override
    override_end(admin, row.pk)
    with pytest.raises(InvalidState, match="has ended and stays as history"):
        override_change(admin, row.pk, draft())
    with pytest.raises(InvalidState):
        override_end(admin, row.pk)
    assert [result for *_, result in _entries()] == ["Done", "Done", "Refused", "Refused"]


def test_what_is_wrong_is_raised_with_its_findings_and_changes_nothing(
    admin: Caller, add_workload: AddWorkload
) -> None:
    add_workload()
    wrong = draft(reason="", expires_at=timezone.now() + timedelta(days=100))
    with pytest.raises(ValidationFailed) as refusal:
        override_create(admin, wrong)
    assert [finding.field for finding in refusal.value.findings] == ["expires_at", "reason"]
    assert not StrategyOverride.objects.exists()
    row = override_create(admin, draft()).override
    with pytest.raises(ValidationFailed):
        override_change(admin, row.pk, wrong)
    assert StrategyOverride.objects.get().version == row.version


def test_who_has_seen_an_earlier_state_is_told_so(admin: Caller, add_workload: AddWorkload) -> None:
    add_workload()
    row = override_create(admin, draft()).override
    seen = f'"{row.version}"'
    changed = override_change(admin, row.pk, draft(strategy="RollingRecreate"), seen).override
    for command in (
        lambda: override_change(admin, row.pk, draft(), seen),
        lambda: override_end(admin, row.pk, seen),
    ):
        with pytest.raises(VersionConflict, match="changed since you loaded it"):
            command()
    override_end(admin, row.pk, f'"{changed.version}"')


def test_an_override_that_is_not_there_is_told_so(admin: Caller) -> None:
    for command in (lambda: override_change(admin, 404, draft()), lambda: override_end(admin, 404)):
        with pytest.raises(NotFound, match="no override 404"):
            command()


Act = Callable[[Caller, StrategyOverride], Any]
ACTS: list[tuple[str, Act]] = [
    ("create_override", lambda caller, _: override_create(caller, draft(cluster="sandbox", namespace="web"))),
    ("change_override", lambda caller, row: override_change(caller, row.pk, replace(draft_of(row), reason="other"))),
    ("end_override", lambda caller, row: override_end(caller, row.pk)),
]


@pytest.mark.parametrize(("command", "act"), ACTS, ids=[name for name, _ in ACTS])
def test_an_operator_may_not_and_an_admin_may(
    admin: Caller, operator: Caller, add_workload: AddWorkload, command: str, act: Act
) -> None:
    add_workload()
    row = override_create(admin, draft(cluster="sandbox", namespace="web")).override
    with pytest.raises(PermissionDenied, match=command):
        act(operator, row)
    assert _entries()[1:] == [("olga", command, "Refused")]
    act(admin, row)
    assert _entries()[2:] == [("ada", command, "Done")]


@pytest.mark.parametrize(("command", "act"), ACTS, ids=[name for name, _ in ACTS])
def test_who_may_only_there_may_only_there(admin: Caller, add_workload: AddWorkload, command: str, act: Act) -> None:
    from django.contrib.auth.models import Permission

    add_workload()
    somebody = make_caller("sam", "viewer")
    assert somebody.user is not None
    somebody.user.user_permissions.add(*Permission.objects.filter(codename__endswith="_override"))
    grant = NamespaceGrant.objects.create(user=somebody.user, cluster="sandbox", namespace="elsewhere")
    row = override_create(admin, draft(cluster="sandbox", namespace="web")).override
    with pytest.raises(PermissionDenied, match="no grant"):
        act(_anew(somebody), row)
    grant.namespace = "web"
    grant.save()
    act(_anew(somebody), row)


def test_nobody_takes_an_override_away_from_where_they_may_not(admin: Caller, add_workload: AddWorkload) -> None:
    from django.contrib.auth.models import Permission

    add_workload()
    somebody = make_caller("sam", "viewer")
    assert somebody.user is not None
    somebody.user.user_permissions.add(*Permission.objects.filter(codename__endswith="_override"))
    NamespaceGrant.objects.create(user=somebody.user, cluster="sandbox", namespace="mine")
    row = override_create(admin, draft(cluster="sandbox", namespace="web")).override
    with pytest.raises(PermissionDenied, match="no grant"):
        override_change(somebody, row.pk, draft(cluster="sandbox", namespace="mine"))
    with pytest.raises(PermissionDenied, match="all namespaces"):
        override_create(somebody, draft(cluster="sandbox"))


def test_a_try_needs_the_permission_and_leaves_nothing(
    admin: Caller, operator: Caller, add_workload: AddWorkload
) -> None:
    add_workload()
    assert override_dry_run(admin, draft()).total == 1
    with pytest.raises(CommandRefused):
        override_dry_run(operator, draft())
    assert not AuditEntry.objects.exists()
    assert not StrategyOverride.objects.exists()


def test_without_redis_an_override_is_put_in_force_all_the_same(
    admin: Caller, add_workload: AddWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rollouts.queue import dispatch
    from rollouts.services import overrides

    add_workload()
    nowhere = Redis.from_url("unix:///nonexistent/redis.sock")
    for module in (dispatch, overrides):
        monkeypatch.setattr(module, "redis_client", lambda: nowhere)
    assert override_create(admin, draft()).override.pk


def _anew(caller: Caller) -> Caller:
    """Return somebody as the next request would know them: permissions and grants are remembered for one."""
    assert caller.user is not None
    return replace(caller, user=type(caller.user).objects.get(pk=caller.user.pk))


def test_all_who_ask_agree_on_which_overrides_are_in_force(admin: Caller) -> None:
    now = timezone.now()
    for expires_at in (None, now - timedelta(hours=1), now, now + timedelta(hours=1)):
        StrategyOverride.objects.create(cluster="sandbox", reason="night shift", author=None, expires_at=expires_at)
    rows = StrategyOverride.objects.all()
    in_force = {row.pk for row in rows if row.is_in_force(now)}
    assert len(in_force) == 2
    assert {row.pk for row in rows.in_force(now)} == in_force
    assert {row.pk for row in rows.ended(now)} == {row.pk for row in rows} - in_force
    # Every pass of a worker asks with a statement of its own, which is faster.
    assert {one.id for one in list_overrides("sandbox")} == in_force
