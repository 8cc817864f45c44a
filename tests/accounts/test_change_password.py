"""`manage.py changepassword` ends the sessions and revokes the tokens of an account, like the admin site."""

import getpass
import io

import pytest
from django.core.management import CommandError, call_command

from rollouts.models import AuditEntry, User
from tests.accounts.conftest import PASSWORD, MakePerson, bearing, give_token
from tests.web.test_account import ANOTHER, browser_of

pytestmark = [pytest.mark.database, pytest.mark.django_db, pytest.mark.usefixtures("redis")]


@pytest.fixture
def ana(make_person: MakePerson) -> User:
    """A viewer with a password."""
    return make_person("ana", "viewer", password=PASSWORD)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is typed into the terminal, line by line."""
    lines = [ANOTHER, ANOTHER]
    monkeypatch.setattr(getpass, "getpass", lambda prompt="": lines.pop(0))
    return lines


def test_a_password_that_is_set_by_command_ends_sessions_and_tokens(
    ana: User, make_person: MakePerson, typed: list[str]
) -> None:
    browser, others = browser_of(ana), [give_token(user)[1] for user in (ana, make_person("bea", "viewer"))]
    assert browser.get("/account/").status_code == 200
    output = io.StringIO()
    call_command("changepassword", "ana", stdout=output)
    ana.refresh_from_db()
    assert ana.check_password(ANOTHER)
    assert browser.get("/account/").status_code == 302, "sessions end"
    assert [bearing(text).get("/api/v1/me/").status_code for text in others] == [401, 200]
    entry = AuditEntry.objects.get()
    assert (entry.command, entry.name, entry.via, entry.result) == ("change_account", "ana", "command", "Done")
    assert entry.detail == "Set the password of ana. 1 token revoked."
    assert "Sessions ended, 1 token revoked." in output.getvalue()


def test_a_password_that_is_not_set_by_command_ends_nothing(ana: User, typed: list[str]) -> None:
    _, text = give_token(ana)
    typed[:] = [ANOTHER, PASSWORD] * 3
    with pytest.raises(CommandError, match="Aborting"):
        call_command("changepassword", "ana", stdout=io.StringIO())
    assert bearing(text).get("/api/v1/me/").status_code == 200
    assert not AuditEntry.objects.exists()
