"""The audit records every command with its outcome, and its entries stay."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import ClusterUnavailable, PermissionDenied, ValidationFailed
from rollouts.models import AuditEntry, User
from rollouts.models.audit import AppendOnlyError
from rollouts.services.audit import NOTHING_TO_CHANGE, audited_command, recorded_permissions, require
from rollouts.services.audit_values import MAX_VALUE_BYTES
from tests.accounts.conftest import MakePerson, call_as

pytestmark = [pytest.mark.database, pytest.mark.django_db]
PLACE = WorkloadRef("sandbox", "team-a", "web")


def entries() -> list[tuple[str, str]]:
    """Return the audit entries in the order of writing."""
    return list(AuditEntry.objects.order_by("id").values_list("result", "detail"))


def begin_and_raise(user: User, error: BaseException, *, is_done: bool = False) -> None:
    """Run a command that fails with an error."""
    with audited_command(call_as(user), Command.SCALE_WORKLOAD, PLACE) as it:
        it.begin()
        if is_done:
            it.done()
        raise error


def test_a_command_is_on_record_before_it_is_sent_and_after(make_person: MakePerson) -> None:
    caller = call_as(make_person("ana", "admin"), token="ci")
    with audited_command(caller, Command.SCALE_WORKLOAD, PLACE) as it:
        it.begin(before={"replicas": 3}, after={"replicas": 5})
        assert entries() == [("Begun", "")]
        it.done(detail="3 → 5")
    begun, outcome = AuditEntry.objects.order_by("id")
    assert (begun.actor, begun.token, begun.via, begun.source_ip) == ("ana", "ci", "api", "192.0.2.7")
    assert (begun.command, begun.cluster, begun.namespace, begun.name) == ("scale_workload", "sandbox", "team-a", "web")
    assert (begun.before, begun.after, begun.request_id) == ({"replicas": 3}, {"replicas": 5}, "request-1")
    assert (outcome.result, outcome.detail, outcome.begun, begun.outcome) == ("Done", "3 → 5", begun, outcome)


def test_somebody_who_may_not_is_refused_and_on_record(make_person: MakePerson) -> None:
    reached = False
    with (
        pytest.raises(PermissionDenied),
        audited_command(call_as(make_person("ana", "viewer")), Command.SCALE_WORKLOAD, PLACE),
    ):
        reached = True
    assert not reached
    [(result, detail)] = entries()
    assert result == "Refused"
    assert "lacks the permission" in detail


def test_a_rule_that_refuses_leaves_one_entry(make_person: MakePerson) -> None:
    with (
        pytest.raises(ValidationFailed),
        audited_command(call_as(make_person("ana", "admin")), Command.SCALE_WORKLOAD, PLACE),
    ):
        raise ValidationFailed("Replicas must be 1 or more.")
    assert entries() == [("Refused", "Replicas must be 1 or more.")]


def test_a_cluster_that_went_away_half_way_leaves_a_failure(make_person: MakePerson) -> None:
    with pytest.raises(ClusterUnavailable):
        begin_and_raise(make_person("ana", "admin"), ClusterUnavailable("No answer; it may have been carried out."))
    assert entries() == [("Begun", ""), ("Failed", "No answer; it may have been carried out.")]


def test_an_unexpected_error_is_on_record_without_its_words(make_person: MakePerson) -> None:
    with (
        pytest.raises(ValueError, match="s3cret"),
        audited_command(call_as(make_person("ana", "admin")), Command.RESTART_WORKLOAD),
    ):
        raise ValueError("s3cret")
    assert entries() == [("Failed", "ValueError; see the log")]


def test_what_failed_after_it_was_done_was_done(make_person: MakePerson) -> None:
    with pytest.raises(ValueError, match="late"):
        begin_and_raise(make_person("ana", "admin"), ValueError("late"), is_done=True)
    assert entries() == [("Begun", ""), ("Done", "")]


def test_nothing_to_do_is_on_record_as_that(make_person: MakePerson) -> None:
    with audited_command(call_as(make_person("ana", "admin")), Command.SCALE_WORKLOAD, PLACE):
        pass
    assert entries() == [("Done", NOTHING_TO_CHANGE)]


def test_a_dry_run_needs_the_permission_and_leaves_nothing(make_person: MakePerson) -> None:
    with audited_command(call_as(make_person("ana", "admin")), Command.SCALE_WORKLOAD, PLACE, dry_run=True) as it:
        it.begin(before=1, after=2)
    caller = call_as(make_person("bea", "viewer"))
    with pytest.raises(PermissionDenied), audited_command(caller, Command.SCALE_WORKLOAD, PLACE, dry_run=True):
        pass
    assert entries() == []


def test_a_process_that_ends_half_way_leaves_a_beginning_alone(make_person: MakePerson) -> None:
    with pytest.raises(SystemExit):
        begin_and_raise(make_person("ana", "admin"), SystemExit())
    assert entries() == [("Begun", "")]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"text": "x" * MAX_VALUE_BYTES, "n": 1}, {"text": f"omitted: {MAX_VALUE_BYTES + 2} bytes", "n": 1}),
        (["a\0b", {"\0k": r"\u0000"}], ["ab", {"k": r"\u0000"}]),
        (None, None),
    ],
)
def test_values_are_bounded_and_fit_every_database(make_person: MakePerson, value: Any, kept: Any) -> None:
    place = WorkloadRef("c" * 300, "n\0" * 300, "w")
    with audited_command(call_as(make_person("ana", "admin")), Command.SCALE_WORKLOAD, place) as it:
        it.done(after=value, detail="d\0" * 9000)
    assert AuditEntry.objects.get().after == kept


def test_entries_cannot_be_changed_nor_deleted(make_person: MakePerson) -> None:
    with audited_command(call_as(make_person("ana", "admin")), Command.SCALE_WORKLOAD, PLACE):
        pass
    entry = AuditEntry.objects.get()
    for change in (entry.save, entry.delete, AuditEntry.objects.all().delete):
        with pytest.raises(AppendOnlyError):
            change()
    with pytest.raises(AppendOnlyError):
        AuditEntry.objects.update(actor="bea")


@pytest.mark.parametrize(
    "statement", ["UPDATE rollouts_auditentry SET actor = 'bea'", "DELETE FROM rollouts_auditentry"]
)
def test_postgresql_itself_refuses_to_change_entries(make_person: MakePerson, statement: str) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("about PostgreSQL only")
    with audited_command(call_as(make_person("ana", "admin")), Command.SCALE_WORKLOAD, PLACE):
        pass
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_permissions_that_were_given_are_noted_and_those_that_were_refused_are_not(make_person: MakePerson) -> None:
    caller = call_as(make_person("ana", "viewer"))
    with recorded_permissions() as needs:
        require(caller, Command.CREATE_TOKEN)
        with pytest.raises(PermissionDenied):
            require(caller, Command.SCALE_WORKLOAD, PLACE)
    require(caller, Command.CREATE_TOKEN)
    assert needs == [(Command.CREATE_TOKEN, "", "")]
