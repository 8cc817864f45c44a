"""The first account: created once, with a given or a generated password."""

import pytest
from django.contrib.auth import authenticate

from rollouts.models import User
from rollouts.services.first_account import account_ensure_first

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def test_a_password_is_made_up_once_and_works() -> None:
    first = account_ensure_first("admin", None)
    assert first.new_password is not None
    assert authenticate(username="admin", password=first.new_password) == User.objects.get()
    assert account_ensure_first("admin", None).new_password is None
    assert authenticate(username="admin", password=first.new_password) is not None


def test_the_first_account_is_an_administrator() -> None:
    account_ensure_first("root", "given password")
    user = User.objects.get(username="root")
    assert (user.is_staff, user.is_superuser) == (True, True)


def test_a_given_password_is_put_in_force_and_never_returned() -> None:
    account_ensure_first("admin", None)
    assert account_ensure_first("admin", "given password").new_password is None
    assert authenticate(username="admin", password="given password") is not None


def test_an_account_that_already_has_the_password_keeps_its_sessions() -> None:
    account_ensure_first("admin", "given password")
    before = User.objects.get().password
    account_ensure_first("admin", "given password")
    assert User.objects.get().password == before
