"""Creates and revokes API tokens.

A caller creates tokens for their own account only, so nobody can act in another's name; an administrator may revoke any
token. The invariants: the text of a token is returned once and stored nowhere; and a token that was created with
another token never outlives it or exceeds its scope.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState, NotFound, PermissionDenied, ValidationFailed
from rollouts.accounts.token_scopes import NO_REQUESTED_SCOPE, RequestedScope, Scope, parse_scope, render_scope_columns
from rollouts.accounts.tokens import digest_of, expiry_of, generate_secret, max_lifetime, shown_prefix_of
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.models import ApiToken, User
from rollouts.runtime.connections import configured_cluster_names
from rollouts.services.audit import Caller, audited_command, require
from rollouts.services.passwords import require_may_change_account

DEFAULT_TOKEN_DAYS: Final = 90  # the lifetime of a token, unless its owner names another
MAX_TOKENS: Final = 50  # valid ones, of one account
_NAME_LENGTH: Final = 100
_CLOCK_SKEW: Final = timedelta(minutes=5)  # of callers whose clock is fast and who ask for the longest lifetime


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token with its text, which is shown only once."""

    token: ApiToken
    text: str


def token_create(
    caller: Caller,
    name: str,
    expires_at: datetime | None,
    *,
    requested: RequestedScope = NO_REQUESTED_SCOPE,
    made_with: ApiToken | None = None,
) -> NewToken:
    """Create a token for the caller; without `expires_at` it never expires, if that is allowed.

    A token that was created with another token (`made_with`) ends with that token at the latest, and has its scope or a
    narrower one.
    """
    with audited_command(caller, Command.CREATE_TOKEN, WorkloadRef(name=caller.name)) as audited:
        user = _account_of(caller)
        scope = _check_token(user, name, expires_at, requested, caller.scope)
        if made_with is not None and (end := expiry_of(made_with)) is not None:
            # Otherwise a stolen token could give access for longer than its owner allowed.
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
                raise PermissionDenied("The token of this request was revoked a moment ago.")
            audited.done(after=_render_audit_value(token))
    return NewToken(token, text)


def token_revoke(caller: Caller, number: int) -> None:
    """Revoke a token of the caller, or any token if the caller may change accounts, with all tokens created with it.

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
                others = revoke_derived_tokens([number])
                more = f" {others} tokens created with it were revoked too." if others else ""
                audited.done(before=_render_audit_value(token), detail=f"Token of {token.user.get_username()}.{more}")


def revoke_derived_tokens(tokens: Collection[int]) -> int:
    """Revoke the tokens created with these tokens, and so on; return how many were valid."""
    count = 0
    while tokens:
        made = ApiToken.objects.filter(made_with__in=tokens)
        count += made.filter(revoked_at=None).update(revoked_at=timezone.now())
        tokens = list(made.values_list("pk", flat=True))
    return count


def _lock_valid_token(token: ApiToken) -> bool:
    """Return whether a token is valid, and keep it so until the transaction ends."""
    return ApiToken.objects.select_for_update().filter(pk=token.pk, revoked_at=None).first() is not None


def default_expiry() -> datetime:
    """Return when a token expires unless the caller names a time."""
    usual, longest = timedelta(days=DEFAULT_TOKEN_DAYS), max_lifetime()
    return timezone.now() + (usual if longest is None else min(usual, longest))


def _check_token(user: User, name: str, expires_at: datetime | None, requested: RequestedScope, outer: Scope) -> Scope:
    """Return the scope of the requested token; raises ValidationFailed and InvalidState."""
    now = timezone.now()
    scope, found = parse_scope(requested, configured_cluster_names() if requested.namespaces else ())
    findings = [*found, *scope.find_excess(outer), *_check_expiry(expires_at, now)]
    if not name.strip() or len(name) > _NAME_LENGTH or not name.isprintable():
        message = f"Describe in 1 to {_NAME_LENGTH} characters what the token is for."
        findings.append(Finding("name", FindingCode.INVALID_NAME, message))
    if findings:
        raise ValidationFailed("The token cannot be created.", findings)
    alive = user.tokens.filter(revoked_at=None).exclude(expires_at__lte=now)
    if alive.count() >= MAX_TOKENS:
        raise InvalidState(f"You have {MAX_TOKENS} tokens. Revoke those that you no longer use first.")
    return scope.narrowed_by(outer)


def _check_expiry(end: datetime | None, now: datetime) -> list[Finding]:
    longest = max_lifetime()
    if end is not None and end <= now:
        sentence = "This time is in the past; choose a later one."
    elif longest is not None and (end is None or end > now + longest + _CLOCK_SKEW):
        sentence = f"A token is valid for at most {longest.days} days (TOKEN_MAX_DAYS); choose an earlier time."
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
    if caller.user is None:  # `audited_command` has refused anonymous callers
        raise PermissionDenied("Sign in first.")
    return caller.user


def _render_audit_value(token: ApiToken) -> dict[str, object]:
    # The key is not "token", because values under that key are masked.
    return {
        "name": token.name,
        "begins_with": token.prefix,
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
        "read_only": token.read_only,
        "namespaces": token.namespaces,
        "commands": token.commands,
    }
