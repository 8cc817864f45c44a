"""Permissions by role, grants by namespace, and the two kinds of read-only."""

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group
from pytest_django.fixtures import Settings

from rollouts.accounts import permissions
from rollouts.accounts.commands import Command
from rollouts.accounts.permissions import OVERRIDE_COMMANDS, WORKLOAD_COMMANDS, RefusalReason, find_refusal
from rollouts.accounts.token_scopes import Scope
from rollouts.models import NamespaceGrant, User
from tests.accounts.conftest import MakePerson

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def reason_of(user: Any, command: Command, cluster: str = "sandbox", namespace: str = "team-a", **more: Any) -> str:
    """Return the reason of the refusal, or "may"."""
    refusal = find_refusal(user, command, cluster, namespace, **more)
    return refusal.reason if refusal else "may"


def grant(whom: User | Group, cluster: str = "", namespace: str = "") -> None:
    kind = "user" if isinstance(whom, User) else "group"
    NamespaceGrant.objects.create(cluster=cluster, namespace=namespace, **{kind: whom})


def again(user: User) -> User:
    """Return the account as the next request sees it."""
    return User.objects.get(pk=user.pk)


def test_a_stranger_may_neither_see_nor_command() -> None:
    assert not permissions.may_view(AnonymousUser())
    assert reason_of(AnonymousUser(), Command.SCALE_WORKLOAD) == RefusalReason.NOT_SIGNED_IN
    assert reason_of(None, Command.SCALE_WORKLOAD) == RefusalReason.NOT_SIGNED_IN


def test_an_account_without_a_role_sees_nothing(make_person: MakePerson) -> None:
    assert not permissions.may_view(make_person("ana"))
    assert permissions.may_view(make_person("bea", "viewer"))


@pytest.mark.parametrize("command", sorted(WORKLOAD_COMMANDS))
def test_an_operator_may_where_granted_and_a_viewer_nowhere(make_person: MakePerson, command: Command) -> None:
    operator, viewer = make_person("ana", "operator"), make_person("bea", "viewer")
    for person in (operator, viewer):
        grant(person, "sandbox", "team-a")
    assert reason_of(operator, command) == "may"
    assert reason_of(operator, command, namespace="team-b") == RefusalReason.GRANT_MISSING
    assert reason_of(operator, command, cluster="other") == RefusalReason.GRANT_MISSING
    assert reason_of(viewer, command) == RefusalReason.PERMISSION_MISSING


@pytest.mark.parametrize("command", sorted(OVERRIDE_COMMANDS | {Command.TEST_CLUSTER, Command.CHANGE_ACCOUNT}))
def test_only_an_admin_may_override_and_change_accounts(make_person: MakePerson, command: Command) -> None:
    operator = make_person("ana", "operator")
    grant(operator)
    assert reason_of(operator, command) == RefusalReason.PERMISSION_MISSING
    assert reason_of(make_person("bea", "admin"), command) == "may"


@pytest.mark.parametrize("command", list(Command))
def test_admins_and_superusers_need_no_grant(make_person: MakePerson, command: Command) -> None:
    assert reason_of(make_person("ana", "admin"), command) == "may"
    assert reason_of(User.objects.create_superuser("root"), command) == "may"


@pytest.mark.parametrize(
    ("cluster", "namespace", "asked", "answer"),
    [
        ("sandbox", "team-a", ("sandbox", "team-a"), "may"),
        ("sandbox", "", ("sandbox", "team-a"), "may"),
        ("", "team-a", ("sandbox", "team-a"), "may"),
        ("", "", ("sandbox", "team-a"), "may"),
        ("sandbox", "team-a", ("sandbox", ""), RefusalReason.GRANT_MISSING),
        ("sandbox", "", ("", ""), RefusalReason.GRANT_MISSING),
        ("sandbox", "", ("sandbox", ""), "may"),
        ("sandbox", "team", ("sandbox", "team-a"), RefusalReason.GRANT_MISSING),
    ],
)
def test_a_grant_covers_its_place_and_no_more(
    make_person: MakePerson, cluster: str, namespace: str, asked: tuple[str, str], answer: str
) -> None:
    person = make_person("ana", "operator")
    grant(person, cluster, namespace)
    assert reason_of(person, Command.SCALE_WORKLOAD, *asked) == answer


def test_a_grant_to_a_group_is_a_grant_to_its_members(make_person: MakePerson) -> None:
    person, other = make_person("ana", "operator"), make_person("bea", "operator")
    team = Group.objects.create(name="team-a")
    grant(team, "sandbox", "team-a")
    person.groups.add(team)
    assert reason_of(person, Command.SCALE_WORKLOAD) == "may"
    assert reason_of(other, Command.SCALE_WORKLOAD) == RefusalReason.GRANT_MISSING


def test_a_group_of_ones_own_mixes_permissions(make_person: MakePerson) -> None:
    from django.contrib.auth.models import Permission

    team = Group.objects.create(name="scalers")
    team.permissions.add(Permission.objects.get(codename="scale_workload"))
    grant(team)
    person = make_person("ana", "viewer")
    person.groups.add(team)
    assert reason_of(person, Command.SCALE_WORKLOAD) == "may"
    assert reason_of(person, Command.SET_IMAGES) == RefusalReason.PERMISSION_MISSING


def test_a_deactivated_account_may_nothing(make_person: MakePerson) -> None:
    person = make_person("ana", "admin")
    assert (permissions.may_view(person), reason_of(person, Command.SCALE_WORKLOAD)) == (True, "may")
    person.is_active = False
    person.save()
    person = again(person)
    assert (permissions.may_view(person), reason_of(person, Command.SCALE_WORKLOAD)) == (
        False,
        RefusalReason.NOT_SIGNED_IN,
    )


def test_a_read_only_installation_takes_no_command_but_lets_people_see(
    make_person: MakePerson, settings: Settings
) -> None:
    admin = make_person("ana", "admin")
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, read_only=True)
    assert reason_of(admin, Command.SCALE_WORKLOAD) == RefusalReason.READ_ONLY_INSTALLATION
    assert reason_of(admin, Command.CREATE_OVERRIDE) == RefusalReason.READ_ONLY_INSTALLATION
    assert (
        reason_of(User.objects.create_superuser("root"), Command.SCALE_WORKLOAD) == RefusalReason.READ_ONLY_INSTALLATION
    )
    assert reason_of(admin, Command.CHANGE_ACCOUNT) == "may"
    assert permissions.may_view(admin)


def test_the_refusal_of_a_read_only_installation_says_that_the_controller_continues(
    make_person: MakePerson, settings: Settings
) -> None:
    admin = make_person("ana", "admin")
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, read_only=True)
    refusal = permissions.find_refusal(admin, Command.SCALE_WORKLOAD)
    assert refusal is not None
    assert refusal.sentence == (
        "You may not scale a workload: this installation is read-only (READ_ONLY is set). "
        "The controller still creates and deletes pods. OBSERVE=1 stops that."
    )
    # It does not, if OBSERVE is set as well.
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, observe=True)
    assert reason_of(admin, Command.SCALE_WORKLOAD) == RefusalReason.OBSERVING_INSTALLATION


def test_an_observing_installation_takes_no_commands(make_person: MakePerson, settings: Settings) -> None:
    admin = make_person("ana", "admin")
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, observe=True)
    assert reason_of(admin, Command.SCALE_WORKLOAD) == RefusalReason.OBSERVING_INSTALLATION
    assert reason_of(admin, Command.CREATE_OVERRIDE) == RefusalReason.OBSERVING_INSTALLATION
    assert reason_of(admin, Command.CHANGE_ACCOUNT) == "may"


def test_a_read_only_token_only_reads(make_person: MakePerson) -> None:
    admin = make_person("ana", "admin")
    reading = {Command.TEST_CLUSTER, Command.EXPORT_AUDIT}
    for command in Command:
        expected = "may" if command in reading else RefusalReason.READ_ONLY_TOKEN
        assert reason_of(admin, command, scope=Scope(read_only=True)) == expected


def test_two_queries_answer_for_any_number_of_places(make_person: MakePerson, django_assert_num_queries: Any) -> None:
    person = again(make_person("ana", "operator", "viewer"))
    grant(person, "sandbox", "team-3")
    with django_assert_num_queries(2):
        assert permissions.may_view(person)
        places = [f"team-{number}" for number in range(100)]
        answers = [reason_of(person, command, namespace=place) for place in places for command in Command]
    assert "may" in answers
    assert RefusalReason.GRANT_MISSING in answers


def test_a_grant_is_to_a_user_or_to_a_group(make_person: MakePerson) -> None:
    from django.db import IntegrityError, transaction

    person, team = make_person("ana"), Group.objects.create(name="team")
    for whom in ({}, {"user": person, "group": team}):
        with pytest.raises(IntegrityError), transaction.atomic():
            NamespaceGrant.objects.create(**whom)


def test_the_roles_are_brought_back_to_what_this_version_says() -> None:
    viewer = Group.objects.get(name="viewer")
    before = set(viewer.permissions.values_list("codename", flat=True))
    viewer.permissions.clear()
    Group.objects.get(name="operator").delete()
    own = Group.objects.create(name="own")
    permissions.ensure_roles()
    assert set(viewer.permissions.values_list("codename", flat=True)) == before
    assert {"view_workload", "create_token"} <= before
    assert Group.objects.get(name="operator").permissions.filter(codename="delete_any_pods").exists()
    assert not own.permissions.exists()


def test_roles_see_no_secrets_of_accounts() -> None:
    for role in ("viewer", "operator"):
        codes = Group.objects.get(name=role).permissions.values_list("codename", flat=True)
        assert not {"view_apitoken", "view_user", "view_call", "view_oidcidentity"} & set(codes)


def test_every_command_but_those_to_oneself_has_a_permission() -> None:
    codes = set(Group.objects.get(name="admin").permissions.values_list("codename", flat=True))
    assert {command.value for command in Command} - codes == {command.value for command in permissions.SELF_COMMANDS}


def test_the_sentence_says_what_is_missing_and_whom_to_ask(make_person: MakePerson) -> None:
    refusal = find_refusal(make_person("ana", "operator"), Command.SCALE_WORKLOAD, "sandbox", "team-a")
    assert refusal is not None
    assert refusal.sentence == (
        "You may not scale a workload there: your account has no grant for the namespace team-a of the cluster "
        "sandbox. Ask an administrator for one."
    )
