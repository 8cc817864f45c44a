"""What people command to accounts: the first one, API tokens, and whom an identity provider vouches for.

Tokens are made for oneself only, so that nobody can act in another's name; an administrator may revoke anybody's. The
invariants: the text of a token is returned once and kept nowhere; an account that is there is never taken over by
somebody who comes by single sign-on with the same name or address.
"""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from django.utils import timezone

from rollouts.access import ROLES
from rollouts.audit import Caller, Result, Via, deed, record, require
from rollouts.commands import Command, Place
from rollouts.engine.findings import Code, Finding
from rollouts.models import ApiToken, OidcIdentity, User
from rollouts.refusals import Contradiction, Invalid, NotAllowed, NotThere
from rollouts.tokens import digest_of, make_secret, prefix_of

DAYS_TO_LIVE: Final = 90  # of a token, unless its owner says otherwise
MOST_TOKENS: Final = 50  # of one person, that are of use
_NAME_LENGTH: Final = 100
_USERNAME_LENGTH: Final = 150
_SETTING: Final = "GROVE_ADMIN_TOKEN"
_START: Final = Caller(user=None, name="product start", source_ip=None, request_id="", via=Via.START)


# --- The first account ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FirstAccount:
    """The account that is there from the start."""

    username: str
    # The password that was made up just now; None when it was given, or made up by an earlier run.
    new_password: str | None


def account_ensure_first(username: str, password: str | None, token: str | None = None) -> FirstAccount:
    """Make sure the first administrator exists; a given password and token are put in force.

    Without a password one is made up once. Without a token the one that an earlier start has put in force is revoked.
    """
    user = User.objects.filter(username=username).first()
    made_up = None
    if user is None:
        made_up = None if password else secrets.token_urlsafe(12)
        user = User.objects.create_superuser(username, password=password or made_up)
        _record_start(user, "Created the first account.")
    elif password and not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
        _record_start(user, "Changed the password to the one that is set.")
    _ensure_token(user, token)
    return FirstAccount(username, made_up)


def _ensure_token(user: User, text: str | None) -> None:
    """Leave exactly the token in force that the setting names, whoever it belonged to before."""
    now = timezone.now()
    digest = digest_of(text) if text else ""
    with transaction.atomic():
        known = ApiToken.objects.filter(is_from_settings=True, revoked_at=None)
        former = list(known.exclude(user=user, digest=digest).values_list("pk", flat=True))
        if known.filter(pk__in=former).update(revoked_at=now):
            _revoke_made_with(former)
            _record_start(user, f"Revoked the token of an earlier {_SETTING}.")
        if text is None or known.filter(user=user, digest=digest).exists():
            return
        # The digest is unique, and a setting may return to what it was.
        ApiToken.objects.update_or_create(
            digest=digest,
            defaults={
                "user": user,
                "name": _SETTING,
                "prefix": prefix_of(text),
                "is_from_settings": True,
                "read_only": False,
                "expires_at": None,
                "revoked_at": None,
            },
        )
        _record_start(user, f"Put the token of {_SETTING} in force.")


def _record_start(user: User, detail: str) -> None:
    record(_START, Command.CHANGE_ACCOUNT, Place(name=user.get_username()), Result.DONE, detail=detail)


# --- Tokens -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made, with its text: the only time that it is to be had."""

    token: ApiToken
    text: str


def token_create(
    caller: Caller,
    name: str,
    expires_at: datetime | None,
    *,
    read_only: bool = False,
    made_with: ApiToken | None = None,
) -> NewToken:
    """Make a token for the caller. None: it never expires, unless the token that they show does (`made_with`)."""
    with deed(caller, Command.CREATE_TOKEN, Place(name=caller.name)) as it:
        user = _account_of(caller)
        _check_token(user, name, expires_at)
        if made_with is not None and made_with.expires_at is not None:
            # Otherwise somebody who found a token could keep what it opens for longer than its owner meant.
            expires_at = min(expires_at or made_with.expires_at, made_with.expires_at)
        text = make_secret()
        with transaction.atomic():
            token = ApiToken.objects.create(
                user=user,
                name=name,
                prefix=prefix_of(text),
                digest=digest_of(text),
                expires_at=expires_at,
                read_only=read_only,
                made_with=made_with,
            )
            if made_with is not None and not _hold_valid(made_with):
                raise NotAllowed("The token that you show was revoked just now.")
            it.done(after=_shown(token))
    return NewToken(token, text)


def token_revoke(caller: Caller, number: int) -> None:
    """End a token of the caller's, or anybody's for those who may change accounts, with those that were made with it.

    Revoking it again does nothing.
    """
    with deed(caller, Command.REVOKE_TOKEN, Place(name=caller.name)) as it:
        token = ApiToken.objects.select_related("user").filter(pk=number).first()
        if token is None or (token.user != caller.user and not _may_change_accounts(caller)):
            raise NotThere(f"You have no token with the number {number}.")
        with transaction.atomic():
            if ApiToken.objects.filter(pk=number, revoked_at=None).update(revoked_at=timezone.now()):
                others = _revoke_made_with([number])
                more = f" {others} made with it ended, too." if others else ""
                it.done(before=_shown(token), detail=f"Token of {token.user.get_username()}.{more}")


def _revoke_made_with(tokens: Collection[int]) -> int:
    """Revoke what was made with tokens, and with that in turn; return how many that were."""
    count = 0
    while tokens:
        made = ApiToken.objects.filter(made_with__in=tokens)
        count += made.filter(revoked_at=None).update(revoked_at=timezone.now())
        tokens = list(made.values_list("pk", flat=True))
    return count


def _hold_valid(token: ApiToken) -> bool:
    """Say whether a token is not revoked, and let nobody revoke it before the transaction ends."""
    return ApiToken.objects.select_for_update().filter(pk=token.pk, revoked_at=None).first() is not None


def _check_token(user: User, name: str, expires_at: datetime | None) -> None:
    now = timezone.now()
    findings = []
    if not name.strip() or len(name) > _NAME_LENGTH or not name.isprintable():
        message = f"Say in 1 to {_NAME_LENGTH} letters what the token is for."
        findings.append(Finding("name", Code.INVALID_NAME, message))
    if expires_at is not None and expires_at <= now:
        findings.append(
            Finding("expires_at", Code.OUT_OF_RANGE, "The token would have expired already; name a later time.")
        )
    if findings:
        raise Invalid("The token cannot be made like that.", findings)
    alive = user.tokens.filter(revoked_at=None).exclude(expires_at__lte=now)
    if alive.count() >= MOST_TOKENS:
        raise Contradiction(f"You have {MOST_TOKENS} tokens; revoke those that you no longer use first.")


def _may_change_accounts(caller: Caller) -> bool:
    try:
        require(caller, Command.CHANGE_ACCOUNT)
    except NotAllowed:
        return False
    return True


def _account_of(caller: Caller) -> User:
    if caller.user is None:  # `deed` has refused strangers
        raise NotAllowed("Sign in first.")
    return caller.user


def _shown(token: ApiToken) -> dict[str, object]:
    # Not called a token: what hangs by that name is masked.
    return {
        "name": token.name,
        "begins_with": token.prefix,
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
        "read_only": token.read_only,
    }


# --- Single sign-on ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Vouched:
    """Somebody whom an identity provider vouches for."""

    issuer: str
    subject: str  # the provider's name for them, which it never gives to somebody else
    username: str  # how they would like to be called
    email: str
    first_name: str
    last_name: str
    # What they are to be here; None: the provider has no say in it.
    roles: Collection[str] | None


def account_vouched_for(caller: Caller, vouched: Vouched) -> User:
    """Return the account of somebody who came by single sign-on, made when they come first, with the roles of today."""
    user = _find_identity(vouched) or _make_identity(caller, vouched)
    if not user.is_active:
        raise NotAllowed("Your account here was deactivated. Ask an administrator.")
    if vouched.roles is not None:
        _ensure_roles(caller, user, set(vouched.roles))
    return user


def _find_identity(vouched: Vouched) -> User | None:
    found = OidcIdentity.objects.select_related("user").filter(issuer=vouched.issuer, subject=vouched.subject).first()
    return found.user if found else None


def _make_identity(caller: Caller, vouched: Vouched) -> User:
    """Make an account of its own, whatever others are called: a name is no proof of who somebody is."""
    for name in _names_for(vouched):
        try:
            with transaction.atomic():
                user = User.objects.create_user(
                    name,
                    email=vouched.email,
                    first_name=vouched.first_name[:_USERNAME_LENGTH],
                    last_name=vouched.last_name[:_USERNAME_LENGTH],
                )
                OidcIdentity.objects.create(user=user, issuer=vouched.issuer, subject=vouched.subject)
                detail = f"Created for somebody whom {vouched.issuer} vouches for."
                record(caller, Command.CHANGE_ACCOUNT, Place(name=name), Result.DONE, detail=detail)
        except IntegrityError:
            # Either the name is taken, or the same person has just come in through another window.
            if (known := _find_identity(vouched)) is not None:
                return known
        else:
            return user
    raise Contradiction("No name is free for your account here. Ask an administrator.")


def _names_for(vouched: Vouched) -> list[str]:
    wanted = "".join(letter for letter in vouched.username if letter.isalnum() or letter in "@.+-_")
    unmistakable = digest_of(f"{vouched.issuer} {vouched.subject}")[:8]
    stem = wanted[: _USERNAME_LENGTH - len(unmistakable) - 1] or "person"
    return [stem, f"{stem}-{unmistakable}"]


def _ensure_roles(caller: Caller, user: User, roles: set[str]) -> None:
    """Give somebody exactly these of our roles; groups that are no roles are not the provider's business."""
    before = set(user.groups.filter(name__in=ROLES).values_list("name", flat=True))
    is_staff = "admin" in roles
    if before == roles and user.is_staff == is_staff:
        return
    with transaction.atomic():
        user.groups.remove(*Group.objects.filter(name__in=before - roles))
        user.groups.add(*Group.objects.filter(name__in=roles - before))
        User.objects.filter(pk=user.pk).update(is_staff=is_staff)
        user.is_staff = is_staff
        place = Place(name=user.get_username())
        detail = "Roles as the identity provider says."
        record(
            caller,
            Command.CHANGE_ACCOUNT,
            place,
            Result.DONE,
            before=sorted(before),
            after=sorted(roles),
            detail=detail,
        )
