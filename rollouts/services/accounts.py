"""What people command. So far: the first account of an installation."""

import secrets
from dataclasses import dataclass

from rollouts.models import User


@dataclass(frozen=True, slots=True)
class FirstAccount:
    """The account that is there from the start."""

    username: str
    # The password that was made up just now; None when it was given, or made up by an earlier run.
    new_password: str | None


def account_ensure_first(username: str, password: str | None) -> FirstAccount:
    """Make sure the first administrator exists; a given password is put in force, else one is made up once."""
    user = User.objects.filter(username=username).first()
    if user is None:
        made_up = None if password else secrets.token_urlsafe(12)
        User.objects.create_superuser(username, password=password or made_up)
        return FirstAccount(username, made_up)
    if password and not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
    return FirstAccount(username, None)
