"""What people command to accounts: the first one, API tokens, and whom an identity provider vouches for.

Tokens are made for oneself only, so that nobody can act in another's name; an administrator may revoke anybody's. The
invariants: the text of a token is returned once and kept nowhere; an account that is there is never taken over by
somebody who comes by single sign-on with the same name or address.
"""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from django.utils import timezone

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState, NotFound, PermissionDenied, ValidationFailed
from rollouts.accounts.permissions import ROLES
from rollouts.accounts.token_scopes import NO_REQUESTED_SCOPE, RequestedScope, Scope, parse_scope, render_scope_columns
from rollouts.accounts.tokens import digest_of, expiry_of, generate_secret, max_lifetime, shown_prefix_of
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.models import ApiToken, OidcIdentity, User
from rollouts.runtime.connections import configured_cluster_names
from rollouts.services.audit import Caller, Result, Source, audited_command, record, require
from rollouts.services.passwords import require_may_change_account, tokens_revoke_all

DEFAULT_TOKEN_DAYS: Final = 90  # of a token, unless its owner says otherwise
MAX_TOKENS: Final = 50  # of one person, that are of use
_NAME_LENGTH: Final = 100
_CLOCK_SKEW: Final = timedelta(minutes=5)  # of clocks that go fast: of callers that compute the longest life
_USERNAME_LENGTH: Final = 150
_SETTING: Final = "GROVE_ADMIN_TOKEN"
_STARTUP_CALLER: Final = Caller(user=None, name="product start", source_ip=None, request_id="", source=Source.START)


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
        tokens_revoke_all(user)
        _record_start(user, "Changed the password to the one that is set, and revoked the tokens.")
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
            _revoke_derived_tokens(former)
            _record_start(user, f"Revoked the token of an earlier {_SETTING}.")
        if text is None or known.filter(user=user, digest=digest).exists():
            return
        # The digest is unique, and a setting may return to what it was.
        ApiToken.objects.update_or_create(
            digest=digest,
            defaults={
                "user": user,
                "name": _SETTING,
                "prefix": shown_prefix_of(text),
                "is_from_settings": True,
                **render_scope_columns(Scope()),
                "expires_at": None,
                "revoked_at": None,
            },
        )
        _record_start(user, f"Put the token of {_SETTING} in force.")


def _record_start(user: User, detail: str) -> None:
    record(_STARTUP_CALLER, Command.CHANGE_ACCOUNT, WorkloadRef(name=user.get_username()), Result.DONE, detail=detail)


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
    wish: RequestedScope = NO_REQUESTED_SCOPE,
    made_with: ApiToken | None = None,
) -> NewToken:
    """Make a token for the caller. None: it never expires, if that is allowed.

    One that is made with another token (`made_with`) ends with that at the latest, and has its scope or a narrower one.
    """
    with audited_command(caller, Command.CREATE_TOKEN, WorkloadRef(name=caller.name)) as audited:
        user = _account_of(caller)
        scope = _check_token(user, name, expires_at, wish, caller.scope)
        if made_with is not None and (end := expiry_of(made_with)) is not None:
            # Otherwise somebody who found a token could keep what it opens for longer than its owner meant.
            expires_at = min(expires_at or end, end)
        text = generate_secret()
        with transaction.atomic():
            token = ApiToken.objects.create(
                user=user,
                name=name,
                prefix=shown_prefix_of(text),
                digest=digest_of(text),
                expires_at=expires_at,
                **render_scope_columns(scope),
                made_with=made_with,
            )
            if made_with is not None and not _lock_valid_token(made_with):
                raise PermissionDenied("The token that you show was revoked just now.")
            audited.done(after=_render_audit_value(token))
    return NewToken(token, text)


def token_revoke(caller: Caller, number: int) -> None:
    """End a token of the caller's, or anybody's for those who may change accounts, with those that were made with it.

    Revoking it again does nothing.
    """
    with audited_command(caller, Command.REVOKE_TOKEN, WorkloadRef(name=caller.name)) as audited:
        token = ApiToken.objects.select_related("user").filter(pk=number).first()
        if token is None or (token.user != caller.user and not _may_change_accounts(caller)):
            raise NotFound(f"You have no token with the number {number}.")
        if token.user != caller.user:
            require_may_change_account(caller, token.user)
        with transaction.atomic():
            if ApiToken.objects.filter(pk=number, revoked_at=None).update(revoked_at=timezone.now()):
                others = _revoke_derived_tokens([number])
                more = f" {others} made with it ended, too." if others else ""
                audited.done(before=_render_audit_value(token), detail=f"Token of {token.user.get_username()}.{more}")


def _revoke_derived_tokens(tokens: Collection[int]) -> int:
    """Revoke what was made with tokens, and with that in turn; return how many that were."""
    count = 0
    while tokens:
        made = ApiToken.objects.filter(made_with__in=tokens)
        count += made.filter(revoked_at=None).update(revoked_at=timezone.now())
        tokens = list(made.values_list("pk", flat=True))
    return count


def _lock_valid_token(token: ApiToken) -> bool:
    """Say whether a token is not revoked, and let nobody revoke it before the transaction ends."""
    return ApiToken.objects.select_for_update().filter(pk=token.pk, revoked_at=None).first() is not None


def default_expiry() -> datetime:
    """Return when a token ends unless the caller says."""
    usual, longest = timedelta(days=DEFAULT_TOKEN_DAYS), max_lifetime()
    return timezone.now() + (usual if longest is None else min(usual, longest))


def _check_token(user: User, name: str, expires_at: datetime | None, wish: RequestedScope, outer: Scope) -> Scope:
    """Return the scope of a token that is asked for; raise what is in its way."""
    now = timezone.now()
    scope, found = parse_scope(wish, configured_cluster_names() if wish.namespaces else ())
    findings = [*found, *scope.find_excess(outer), *_check_expiry(expires_at, now)]
    if not name.strip() or len(name) > _NAME_LENGTH or not name.isprintable():
        message = f"Say in 1 to {_NAME_LENGTH} letters what the token is for."
        findings.append(Finding("name", FindingCode.INVALID_NAME, message))
    if findings:
        raise ValidationFailed("The token cannot be made like that.", findings)
    alive = user.tokens.filter(revoked_at=None).exclude(expires_at__lte=now)
    if alive.count() >= MAX_TOKENS:
        raise InvalidState(f"You have {MAX_TOKENS} tokens; revoke those that you no longer use first.")
    return scope.narrowed_by(outer)


def _check_expiry(end: datetime | None, now: datetime) -> list[Finding]:
    longest = max_lifetime()
    if end is not None and end <= now:
        sentence = "The token would have expired already; name a later time."
    elif longest is not None and (end is None or end > now + longest + _CLOCK_SKEW):
        sentence = f"A token lives at most {longest.days} days here (TOKEN_MAX_DAYS); name an earlier time."
    else:
        return []
    return [Finding("expires_at", FindingCode.OUT_OF_RANGE, sentence)]


def _may_change_accounts(caller: Caller) -> bool:
    try:
        require(caller, Command.CHANGE_ACCOUNT)
    except PermissionDenied:
        return False
    return True


def _account_of(caller: Caller) -> User:
    if caller.user is None:  # `audited_command` has refused strangers
        raise PermissionDenied("Sign in first.")
    return caller.user


def _render_audit_value(token: ApiToken) -> dict[str, object]:
    # Not called a token: what hangs by that name is masked.
    return {
        "name": token.name,
        "begins_with": token.prefix,
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
        "read_only": token.read_only,
        "namespaces": token.namespaces,
        "commands": token.commands,
    }


# --- Single sign-on ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExternalIdentity:
    """Somebody whom an identity provider vouches for."""

    issuer: str
    subject: str  # the provider's name for them, which it never gives to somebody else
    username: str  # how they would like to be called
    email: str
    first_name: str
    last_name: str
    # What they are to be here; None: the provider has no say in it.
    roles: Collection[str] | None


def account_ensure_external(caller: Caller, vouched: ExternalIdentity) -> User:
    """Return the account of somebody who came by single sign-on, made when they come first, with the roles of today."""
    user = _find_identity(vouched) or _make_identity(caller, vouched)
    if not user.is_active:
        raise PermissionDenied("Your account here was deactivated. Ask an administrator.")
    if vouched.roles is not None:
        _ensure_roles(caller, user, set(vouched.roles))
    return user


def _find_identity(vouched: ExternalIdentity) -> User | None:
    found = OidcIdentity.objects.select_related("user").filter(issuer=vouched.issuer, subject=vouched.subject).first()
    return found.user if found else None


def _make_identity(caller: Caller, vouched: ExternalIdentity) -> User:
    """Make an account of its own, whatever others are called: a name is no proof of who somebody is."""
    for name in _username_candidates(vouched):
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
                record(caller, Command.CHANGE_ACCOUNT, WorkloadRef(name=name), Result.DONE, detail=detail)
        except IntegrityError:
            # Either the name is taken, or the same person has just come in through another window.
            if (known := _find_identity(vouched)) is not None:
                return known
        else:
            return user
    raise InvalidState("No name is free for your account here. Ask an administrator.")


def _username_candidates(vouched: ExternalIdentity) -> list[str]:
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
        place = WorkloadRef(name=user.get_username())
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
