"""No account changes an account or a group that has, or would get, more than it has itself: a matrix.

The actors may all change accounts; they differ in what else they may. Each tries every change on every account.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client

from rollouts.models import ApiToken, AuditEntry, NamespaceGrant, OidcIdentity, User
from tests.admin.conftest import SignIn
from tests.admin.test_accounts import PASSWORD, _user_form

pytestmark = [pytest.mark.database, pytest.mark.django_db]

# Who acts, and whom each may touch. A plain account has no role; a peer is as the actor.
TARGETS = ("plain", "viewer", "operator there", "operator elsewhere", "admin", "superuser")
REACH = {
    "account manager": {"plain"},
    "viewing manager": {"plain", "viewer"},
    "managing operator": {"plain", "viewer", "operator there"},
    "admin": {"plain", "viewer", "operator there", "operator elsewhere", "admin"},
    "superuser": set(TARGETS),
}
Act = Callable[[Client, User], Any]


def _group(name: str, *codenames: str) -> Group:
    group = Group.objects.create(name=name)
    group.permissions.set(Permission.objects.filter(codename__in=codenames))
    return group


def _enter(sign_in: SignIn, actor: str) -> Client:
    if actor == "superuser":
        return sign_in("root", "", is_superuser=True)
    if actor == "admin":
        return sign_in("ada", "admin")
    role = {"account manager": "", "viewing manager": "viewer", "managing operator": "operator"}[actor]
    client = sign_in("acct", role)
    user = User.objects.get(username="acct")
    user.groups.add(_group("account managers", "view_workload", "change_account"))
    if role == "operator":
        NamespaceGrant.objects.create(user=user, cluster="sandbox", namespace="team-a")
    return client


def _target(kind: str) -> User:
    user = User.objects.create_user("target", is_superuser=kind == "superuser")
    role = {"viewer": "viewer", "operator there": "operator", "operator elsewhere": "operator", "admin": "admin"}.get(
        kind
    )
    if role:
        user.groups.add(Group.objects.get(name=role))
    if role == "operator":
        namespace = "team-a" if kind == "operator there" else "team-b"
        NamespaceGrant.objects.create(user=user, cluster="sandbox", namespace=namespace)
    ApiToken.objects.create(user=user, name="laptop", prefix="grove_", digest="1")
    return user


def _state(user: User) -> Any:
    """Everything that a change of an account could change."""
    return (
        list(User.objects.filter(pk=user.pk).values()),
        sorted(user.groups.values_list("name", flat=True)),
        sorted(map(str, NamespaceGrant.objects.filter(user=user.pk))),
        list(ApiToken.objects.filter(user=user.pk, revoked_at=None).values_list("pk", flat=True)),
    )


def _set_password(client: Client, user: User) -> Any:
    form = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    return client.post(f"/admin/rollouts/user/{user.pk}/password/", form)


def _deactivate(client: Client, user: User) -> Any:
    form = _user_form("target")
    del form["is_active"]
    return client.post(f"/admin/rollouts/user/{user.pk}/change/", form)


def _delete(client: Client, user: User) -> Any:
    return client.post(f"/admin/rollouts/user/{user.pk}/delete/", {"post": "yes"})


def _end_sessions(client: Client, user: User) -> Any:
    return client.post(f"/admin/rollouts/user/{user.pk}/end/")


def _revoke_token(client: Client, user: User) -> Any:
    return client.post(f"/admin/rollouts/apitoken/{ApiToken.objects.get(user=user).pk}/revoke/")


CHANGES: tuple[Act, ...] = (_set_password, _deactivate, _delete, _end_sessions, _revoke_token)


@pytest.mark.parametrize("actor", REACH)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_an_account_is_changed_only_by_those_who_have_as_much(sign_in: SignIn, actor: str, change: Act) -> None:
    client = _enter(sign_in, actor)
    surprises = []
    for kind in TARGETS:
        user = _target(kind)
        before, entries = _state(user), AuditEntry.objects.count()
        change(client, user)
        if (_state(user) != before) != (kind in REACH[actor]):
            surprises.append(f"{kind}: {'left alone' if kind in REACH[actor] else 'changed'}")
        latest = AuditEntry.objects.latest("id").result if AuditEntry.objects.count() > entries else "nothing"
        if latest != ("Done" if kind in REACH[actor] else "Refused"):
            surprises.append(f"{kind}: {latest} on record")
        User.objects.filter(pk=user.pk).delete()
    assert not surprises


@pytest.mark.parametrize(
    ("actor", "groups", "may"),
    [
        ("account manager", ["viewer"], False),
        ("viewing manager", ["viewer"], True),
        ("viewing manager", ["operator"], False),
        ("viewing manager", ["viewer", "admin"], False),
        ("managing operator", ["operator"], True),
        ("managing operator", ["admin"], False),
        ("admin", ["admin"], True),
        ("superuser", ["admin"], True),
    ],
)
def test_nobody_gives_a_membership_that_gives_more(sign_in: SignIn, actor: str, groups: list[str], may: bool) -> None:
    client, user = _enter(sign_in, actor), _target("plain")
    answer = client.post(f"/admin/rollouts/user/{user.pk}/change/", _user_form("target", *groups))
    assert sorted(user.groups.values_list("name", flat=True)) == (groups if may else [])
    assert may or "You may not change this" in answer.content.decode()


def test_a_group_that_has_a_grant_gives_it_with_the_membership(sign_in: SignIn) -> None:
    client, user = _enter(sign_in, "managing operator"), _target("plain")
    for name, namespace in (("theirs", "team-b"), ("ours", "team-a")):
        NamespaceGrant.objects.create(group=_group(name), cluster="sandbox", namespace=namespace)
        client.post(f"/admin/rollouts/user/{user.pk}/change/", _user_form("target", name))
    assert [group.name for group in user.groups.all()] == ["ours"]


GRANTS = [
    ("managing operator", "sandbox/team-a", True),
    ("managing operator", "sandbox/team-b", False),
    ("managing operator", "sandbox/*", False),
    ("managing operator", "*/*", False),
    ("account manager", "sandbox/team-a", False),
    ("admin", "sandbox/*", True),
    ("superuser", "sandbox/*", True),
]


def _granted(user: User) -> list[str]:
    return sorted(map(str, NamespaceGrant.objects.filter(user=user)))


@pytest.mark.parametrize(("actor", "place", "may"), GRANTS)
def test_nobody_grants_what_they_lack(sign_in: SignIn, actor: str, place: str, may: bool) -> None:
    client, user = _enter(sign_in, actor), _target("plain")
    cluster, namespace = place.replace("*", "").split("/")
    form = {"user": str(user.pk), "cluster": cluster, "namespace": namespace}
    client.post("/admin/rollouts/namespacegrant/add/", form)
    assert _granted(user) == ([place] if may else [])
    NamespaceGrant.objects.filter(user=user).delete()
    client.post(f"/admin/rollouts/user/{user.pk}/change/", _user_form("target", grants=[(cluster, namespace)]))
    assert _granted(user) == ([place] if may else [])  # an empty line of that form is none


@pytest.mark.parametrize("place", [("sandbox", "team-b"), ("sandbox", ""), ("", "team-a")])
def test_nobody_grants_themselves_what_they_lack(sign_in: SignIn, place: tuple[str, str]) -> None:
    client = _enter(sign_in, "managing operator")
    acct = User.objects.get(username="acct")
    answer = client.post(f"/admin/rollouts/user/{acct.pk}/change/", _user_form("acct", grants=[place]))
    assert "your own account lacks: a grant for" in answer.content.decode()
    assert _granted(acct) == ["sandbox/team-a"]


@pytest.mark.parametrize(
    ("actor", "may"), [("account manager", False), ("managing operator", False), ("admin", True), ("superuser", True)]
)
def test_a_grant_is_taken_only_from_those_who_have_no_more(sign_in: SignIn, actor: str, may: bool) -> None:
    client, user = _enter(sign_in, actor), _target("operator elsewhere")
    grant = NamespaceGrant.objects.get(user=user)
    form = {"user": str(user.pk), "cluster": "sandbox", "namespace": "team-a"}
    client.post(f"/admin/rollouts/namespacegrant/{grant.pk}/change/", form)
    assert str(NamespaceGrant.objects.get(pk=grant.pk)) == ("sandbox/team-a" if may else "sandbox/team-b")
    client.post(f"/admin/rollouts/namespacegrant/{grant.pk}/delete/", {"post": "yes"})
    assert NamespaceGrant.objects.filter(pk=grant.pk).exists() is not may


def _group_form(group: Group, *codenames: str, grant: str = "") -> dict[str, Any]:
    chosen = [str(pk) for pk in Permission.objects.filter(codename__in=codenames).values_list("pk", flat=True)]
    form = {
        "name": group.name,
        "permissions": chosen,
        "grants-TOTAL_FORMS": "1" if grant else "0",
        "grants-INITIAL_FORMS": "0",
    }
    return {**form, "grants-0-cluster": "sandbox", "grants-0-namespace": grant} if grant else form


def _gives(group: Group) -> set[str]:
    return {
        *group.permissions.values_list("codename", flat=True),
        *map(str, NamespaceGrant.objects.filter(group=group)),
    }


@pytest.mark.parametrize(
    ("actor", "codename", "grant", "may"),
    [
        ("account manager", "scale_workload", "", False),
        ("managing operator", "scale_workload", "team-a", True),
        ("managing operator", "create_override", "", False),
        ("managing operator", "scale_workload", "team-b", False),
        ("admin", "create_override", "team-b", True),
        ("superuser", "create_override", "team-b", True),
    ],
)
def test_nobody_composes_a_group_that_gives_more(
    sign_in: SignIn,
    actor: str,
    codename: str,
    grant: str,
    may: bool,
) -> None:
    client, group = _enter(sign_in, actor), _group("own")
    client.post(f"/admin/auth/group/{group.pk}/change/", _group_form(group, codename, grant=grant))
    wanted = {codename} | ({f"sandbox/{grant}"} if grant else set())
    assert _gives(group) == (wanted if may else set())


def test_nobody_makes_their_own_group_give_more(sign_in: SignIn) -> None:
    client = _enter(sign_in, "account manager")
    group = Group.objects.get(name="account managers")
    before = _gives(group)
    form = _group_form(group, "view_workload", "change_account", "command_anywhere", "scale_workload")
    answer = client.post(f"/admin/auth/group/{group.pk}/change/", form)
    assert "your own account lacks: scale_workload, command_anywhere" in answer.content.decode()
    assert _gives(group) == before


@pytest.mark.parametrize(("member", "may"), [("viewer", True), ("operator elsewhere", False), ("admin", False)])
def test_a_group_is_left_alone_that_has_members_who_have_more(sign_in: SignIn, member: str, may: bool) -> None:
    client, group = _enter(sign_in, "managing operator"), _group("own")
    group.user_set.add(_target(member))
    client.post(f"/admin/auth/group/{group.pk}/change/", _group_form(group, grant="team-a"))
    assert _gives(group) == ({"sandbox/team-a"} if may else set())
    path, form = (
        "/admin/rollouts/namespacegrant/add/",
        {"group": str(group.pk), "cluster": "sandbox", "namespace": "team-a"},
    )
    client.post(path, form)
    assert _gives(group) == ({"sandbox/team-a"} if may else set())
    client.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"})
    assert Group.objects.filter(pk=group.pk).exists() is not may


def test_what_is_refused_names_what_is_missing_and_is_on_record(sign_in: SignIn) -> None:
    client, user = _enter(sign_in, "account manager"), _target("admin")
    answer = _set_password(client, user)
    assert answer.status_code == 403
    entry = AuditEntry.objects.latest("id")
    assert (entry.actor, entry.command, entry.name, entry.result) == ("acct", "change_account", "target", "Refused")
    assert entry.detail == "The account may not change the user target."


def test_an_account_that_was_deactivated_keeps_what_it_had(sign_in: SignIn) -> None:
    client, user = _enter(sign_in, "account manager"), _target("admin")
    User.objects.filter(pk=user.pk).update(is_active=False)
    _set_password(client, user)
    user.refresh_from_db()
    assert not user.has_usable_password()


@pytest.mark.parametrize(("kind", "status"), [("admin", 403), ("viewer", 302)])
def test_a_link_to_single_sign_on_is_cut_by_those_who_have_as_much_and_ends_everything(
    sign_in: SignIn, kind: str, status: int
) -> None:
    client, user = _enter(sign_in, "viewing manager"), _target(kind)
    identity = OidcIdentity.objects.create(user=user, issuer="https://id.example", subject="1")
    form = _user_form("target", *(["viewer"] if kind == "viewer" else [])) | {
        "identities-TOTAL_FORMS": "1",
        "identities-INITIAL_FORMS": "1",
        "identities-0-id": str(identity.pk),
        "identities-0-user": str(user.pk),
        "identities-0-DELETE": "on",
    }
    theirs = Client()
    theirs.force_login(user, "rollouts.accounts.permissions.AccountBackend")
    assert client.post(f"/admin/rollouts/user/{user.pk}/change/", form).status_code == status
    assert OidcIdentity.objects.exists() is (status == 403)
    assert ApiToken.objects.filter(revoked_at=None).exists() is (status == 403)
    assert theirs.get("/account/").status_code == (200 if status == 403 else 302)
