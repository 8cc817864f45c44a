"""Accounts of people who sign in by single sign-on.

Before it: `web.oidc`, which verifies the identity with the provider. After it: a session of the account. The invariant:
single sign-on never gives access to an existing account because of an equal name or address.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState, PermissionDenied
from rollouts.accounts.permissions import ROLES
from rollouts.accounts.tokens import digest_of
from rollouts.models import OidcIdentity, User
from rollouts.services.audit import Caller, Result, record

_USERNAME_LENGTH: Final = 150


@dataclass(frozen=True, slots=True)
class ExternalIdentity:
    """A person as an identity provider describes them."""

    issuer: str
    subject: str  # the id of the person at the provider; it is never given to another person
    username: str  # the preferred user name
    email: str
    first_name: str
    last_name: str
    # None: the provider does not decide about roles.
    roles: Collection[str] | None


def account_ensure_external(caller: Caller, identity: ExternalIdentity) -> User:
    """Return the account of a person who signed in by single sign-on, with its roles updated; create it at first."""
    user = _find_identity(identity) or _make_identity(caller, identity)
    if not user.is_active:
        raise PermissionDenied("Your account is deactivated. Ask an administrator.")
    if identity.roles is not None:
        _ensure_roles(caller, user, set(identity.roles))
    return user


def _find_identity(identity: ExternalIdentity) -> User | None:
    found = OidcIdentity.objects.select_related("user").filter(issuer=identity.issuer, subject=identity.subject).first()
    return found.user if found else None


def _make_identity(caller: Caller, identity: ExternalIdentity) -> User:
    """Create a new account, even if another account has that name: a name is no proof of identity."""
    for name in _username_candidates(identity):
        try:
            with transaction.atomic():
                user = User.objects.create_user(
                    name,
                    email=identity.email,
                    first_name=identity.first_name[:_USERNAME_LENGTH],
                    last_name=identity.last_name[:_USERNAME_LENGTH],
                )
                OidcIdentity.objects.create(user=user, issuer=identity.issuer, subject=identity.subject)
                detail = f"Created for single sign-on with {identity.issuer}."
                record(caller, Command.CHANGE_ACCOUNT, WorkloadRef(name=name), Result.DONE, detail=detail)
        except IntegrityError:
            # Either the name is taken, or the same person signs in twice at the same time.
            if (known := _find_identity(identity)) is not None:
                return known
        else:
            return user
    raise InvalidState("Every possible name for your account is taken. Ask an administrator.")


def _username_candidates(identity: ExternalIdentity) -> list[str]:
    wanted = "".join(letter for letter in identity.username if letter.isalnum() or letter in "@.+-_")
    unmistakable = digest_of(f"{identity.issuer} {identity.subject}")[:8]
    stem = wanted[: _USERNAME_LENGTH - len(unmistakable) - 1] or "person"
    return [stem, f"{stem}-{unmistakable}"]


def _ensure_roles(caller: Caller, user: User, roles: set[str]) -> None:
    """Set exactly these roles; groups that are not roles stay."""
    before = set(user.groups.filter(name__in=ROLES).values_list("name", flat=True))
    is_staff = "admin" in roles
    if before == roles and user.is_staff == is_staff:
        return
    with transaction.atomic():
        user.groups.remove(*Group.objects.filter(name__in=before - roles))
        user.groups.add(*Group.objects.filter(name__in=roles - before))
        User.objects.filter(pk=user.pk).update(is_staff=is_staff)
        user.is_staff = is_staff
        place = WorkloadRef(name=user.get_username())
        detail = "Set the roles that the identity provider names."
        record(
            caller,
            Command.CHANGE_ACCOUNT,
            place,
            Result.DONE,
            before=sorted(before),
            after=sorted(roles),
            detail=detail,
        )
