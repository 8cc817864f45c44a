"""Accounts in the admin site: every change is recorded, no account locks itself out, superusers are protected."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from rollouts.models import ApiToken, AuditEntry, NamespaceGrant, User
from tests.accounts.conftest import bearing, give_token
from tests.admin.conftest import SignIn

pytestmark = [pytest.mark.database, pytest.mark.django_db]

PASSWORD = "staple battery horse correct"


def _user_form(username: str, *groups: str, grants: list[tuple[str, str]] | None = None, **more: str) -> dict[str, Any]:
    rows = {
        f"grants-{index}-{name}": value
        for index, grant in enumerate(grants or [])
        for name, value in zip(("cluster", "namespace"), grant, strict=True)
    }
    management = {"grants-TOTAL_FORMS": str(len(grants or [])), "grants-INITIAL_FORMS": "0"}
    chosen = [str(Group.objects.get(name=name).pk) for name in groups]
    return {"username": username, "is_active": "on", "groups": chosen, **management, **rows, **more}


def _last() -> AuditEntry:
    entry = AuditEntry.objects.order_by("-id").first()
    assert entry is not None
    return entry


def test_an_account_is_made_and_given_a_role_and_a_namespace(ada: Client) -> None:
    ada.post(
        "/admin/rollouts/user/add/",
        {"username": "olga", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD},
    )
    olga = User.objects.get(username="olga")
    assert olga.check_password(PASSWORD)
    assert (_last().command, _last().result, _last().name) == ("change_account", "Done", "olga")
    assert PASSWORD not in str(_last().after)
    answer = ada.post(
        f"/admin/rollouts/user/{olga.pk}/change/", _user_form("olga", "operator", grants=[("sandbox", "web")])
    )
    assert answer.status_code == 302
    grant = NamespaceGrant.objects.get(user=olga)
    assert (grant.cluster, grant.namespace, grant.author) == ("sandbox", "web", User.objects.get(username="ada"))
    entry = _last()
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["groups"], entry.after["groups"]) == ([], ["operator"])
    assert (entry.before["grants"], entry.after["grants"]) == ([], ["sandbox/web"])
    assert olga.password not in str(entry.after)


def test_setting_a_password_is_on_record_without_it(ada: Client) -> None:
    olga = User.objects.create_user("olga")
    form = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    assert ada.post(f"/admin/rollouts/user/{olga.pk}/password/", form).status_code == 302
    olga.refresh_from_db()
    assert olga.check_password(PASSWORD)
    assert _last().detail == "Set the password of olga. 0 tokens revoked."
    assert PASSWORD not in str([_last().before, _last().after])


def test_deleting_an_account_is_on_record(ada: Client) -> None:
    olga = User.objects.create_user("olga")
    ApiToken.objects.create(user=olga, name="laptop", prefix="grove_", digest="1")
    assert ada.post(f"/admin/rollouts/user/{olga.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not User.objects.filter(username="olga").exists()
    assert _last().before is not None
    assert _last().before["username"] == "olga"  # type: ignore[index]


def test_nobody_locks_themselves_out(ada: Client) -> None:
    user = User.objects.get(username="ada")
    assert ada.post(f"/admin/rollouts/user/{user.pk}/delete/", {"post": "yes"}).status_code == 403
    form = _user_form("ada", "admin")
    del form["is_active"]
    ada.post(f"/admin/rollouts/user/{user.pk}/change/", form)
    user.refresh_from_db()
    assert user.is_active


def test_only_superusers_touch_superusers(ada: Client, sign_in: SignIn) -> None:
    root = User.objects.create_superuser("root")
    paths = [f"/admin/rollouts/user/{root.pk}/{page}/" for page in ("change", "password", "delete")]
    assert [ada.post(path, {}).status_code for path in paths] == [403, 403, 403]
    ada.post("/admin/rollouts/user/", {"action": "delete_selected", "_selected_action": [str(root.pk)], "post": "yes"})
    assert User.objects.filter(pk=root.pk).exists()
    other = sign_in("boss", "", is_staff=True, is_superuser=True)
    assert other.post(paths[0], _user_form("root", is_superuser="on", is_staff="on")).status_code == 302
    olga = User.objects.create_user("olga")
    ada.post(f"/admin/rollouts/user/{olga.pk}/change/", _user_form("olga", is_superuser="on"))
    olga.refresh_from_db()
    assert not olga.is_superuser


def test_a_role_is_what_this_version_says(ada: Client) -> None:
    group = Group.objects.get(name="operator")
    before = set(group.permissions.values_list("codename", flat=True))
    form = {
        "name": "other",
        "permissions": [],
        "grants-TOTAL_FORMS": "1",
        "grants-INITIAL_FORMS": "0",
        "grants-0-cluster": "",
        "grants-0-namespace": "web",
    }
    assert ada.post(f"/admin/auth/group/{group.pk}/change/", form).status_code == 302
    group.refresh_from_db()
    assert (group.name, set(group.permissions.values_list("codename", flat=True))) == ("operator", before)
    assert str(NamespaceGrant.objects.get(group=group)) == "*/web"
    assert ada.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"}).status_code == 403


def test_a_group_of_ones_own_is_composed_of_commands(ada: Client) -> None:
    from django.contrib.auth.models import Permission

    scale = Permission.objects.get(codename="scale_workload")
    delete = Permission.objects.get(codename="delete_user")
    form = {"name": "scalers", "permissions": [str(scale.pk)], "grants-TOTAL_FORMS": "0", "grants-INITIAL_FORMS": "0"}
    assert ada.post("/admin/auth/group/add/", {**form, "permissions": [str(delete.pk)]}).status_code == 200
    assert ada.post("/admin/auth/group/add/", form).status_code == 302
    entry = _last()
    assert entry.after == {"name": "scalers", "permissions": ["scale_workload"], "grants": []}


def test_a_grant_is_given_and_taken_in_its_own_list(ada: Client) -> None:
    olga = User.objects.create_user("olga")
    ada.post("/admin/rollouts/namespacegrant/add/", {"user": str(olga.pk), "cluster": "sandbox", "namespace": "web"})
    grant = NamespaceGrant.objects.get()
    assert grant.author == User.objects.get(username="ada")
    assert _last().after == {"user": "olga", "group": None, "cluster": "sandbox", "namespace": "web"}
    ada.post(f"/admin/rollouts/namespacegrant/{grant.pk}/delete/", {"post": "yes"})
    assert not NamespaceGrant.objects.exists()
    assert _last().before == {"user": "olga", "group": None, "cluster": "sandbox", "namespace": "web"}


def test_tokens_are_revoked_one_by_one_and_together(ada: Client) -> None:
    olga = User.objects.create_user("olga")
    tokens = [
        ApiToken.objects.create(user=olga, name=f"t{index}", prefix="grove_", digest=str(index)) for index in range(3)
    ]
    assert "Revoke this token?" in ada.get(f"/admin/rollouts/apitoken/{tokens[0].pk}/revoke/").content.decode()
    assert ApiToken.objects.filter(revoked_at=None).count() == 3
    ada.post(f"/admin/rollouts/apitoken/{tokens[0].pk}/revoke/")
    assert ApiToken.objects.filter(revoked_at=None).count() == 2
    chosen = [str(token.pk) for token in tokens]
    ada.post("/admin/rollouts/apitoken/", {"action": "revoke", "_selected_action": chosen})
    assert not ApiToken.objects.filter(revoked_at=None).exists()
    assert AuditEntry.objects.filter(command="revoke_token", via="admin", result="Done").count() == 4


def _set_active(ada: Client, user: User, *, is_active: bool) -> None:
    form = _user_form(user.username, "viewer")
    if not is_active:
        del form["is_active"]
    assert ada.post(f"/admin/rollouts/user/{user.pk}/change/", form).status_code == 302
    user.refresh_from_db()
    assert user.is_active is is_active


def test_an_account_that_is_activated_again_has_neither_its_sessions_nor_its_tokens(
    ada: Client, sign_in: SignIn
) -> None:
    browser = sign_in("olga", "viewer")
    olga = User.objects.get(username="olga")
    token, text = give_token(olga)
    assert (browser.get("/").status_code, bearing(text).get("/api/v1/me/").status_code) == (200, 200)
    _set_active(ada, olga, is_active=False)
    token.refresh_from_db()
    assert token.revoked_at is not None
    entries = AuditEntry.objects.order_by("-id").values_list("command", "name", "detail")
    assert [*entries[:2]] == [
        ("change_account", "olga", "Changed the user olga."),
        ("end_sessions", "olga", "Ended all sessions of olga. 1 token revoked."),
    ]
    _set_active(ada, olga, is_active=True)
    assert (browser.get("/").status_code, bearing(text).get("/api/v1/me/").status_code) == (302, 401)


def test_tokens_from_before_an_account_was_deactivated_elsewhere_stay_of_no_use(ada: Client) -> None:
    olga = User.objects.create_user("olga", is_active=False)
    _, text = give_token(olga)
    _set_active(ada, olga, is_active=True)
    assert bearing(text).get("/api/v1/me/").status_code == 401


def test_a_change_of_something_else_ends_no_session(ada: Client, sign_in: SignIn) -> None:
    browser = sign_in("olga", "viewer")
    olga = User.objects.get(username="olga")
    _, text = give_token(olga)
    form = _user_form("olga", "viewer", first_name="Olga")
    assert ada.post(f"/admin/rollouts/user/{olga.pk}/change/", form).status_code == 302
    assert (browser.get("/").status_code, bearing(text).get("/api/v1/me/").status_code) == (200, 200)


def test_sessions_and_tokens_of_an_account_are_ended_after_a_question(ada: Client, sign_in: SignIn) -> None:
    theirs = sign_in("olga", "viewer")
    olga = User.objects.get(username="olga")
    ApiToken.objects.create(user=olga, name="laptop", prefix="grove_", digest="1")
    path = f"/admin/rollouts/user/{olga.pk}/end/"
    assert path in ada.get(f"/admin/rollouts/user/{olga.pk}/change/").content.decode()
    assert "End all sessions and revoke all tokens?" in ada.get(path).content.decode()
    assert theirs.get("/account/").status_code == 200
    assert ada.post(path).status_code == 302
    assert theirs.get("/account/").status_code == 302
    assert not ApiToken.objects.filter(revoked_at=None).exists()
    entry = _last()
    assert (entry.command, entry.via, entry.name, entry.result) == ("end_sessions", "admin", "olga", "Done")
    assert entry.detail == "Ended all sessions of olga. 1 token revoked."


def test_nobody_takes_their_own_role_away(ada: Client) -> None:
    user = User.objects.get(username="ada")
    assert ada.post(f"/admin/rollouts/user/{user.pk}/change/", _user_form("ada")).status_code == 302
    assert [group.name for group in user.groups.all()] == ["admin"]


def test_a_namespace_that_is_granted_twice_is_said_beside_the_field(ada: Client) -> None:
    olga = User.objects.create_user("olga")
    form = _user_form("olga", grants=[("sandbox", "web"), ("sandbox", "web")])
    answer = ada.post(f"/admin/rollouts/user/{olga.pk}/change/", form)
    assert "is listed twice" in answer.content.decode()
    assert not NamespaceGrant.objects.exists()
