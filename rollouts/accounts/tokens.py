"""API tokens: how they are generated and found, and how long they are valid.

`services.tokens` creates and revokes tokens; authentication of the API, the feed and the metrics page finds the owner
of a token here. The invariant: only the digest of a token is stored; its text is shown once, to its owner.

A token is valid until it expires or is revoked, and while its owner is active. An identity provider does not report
that it deleted a person. So the tokens of an account with single sign-on are suspended some days after its last
sign-in, and valid again after the next one.
"""

import secrets
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from rollouts.models import ApiToken, OidcIdentity
from rollouts.models.accounts import PREFIX_LENGTH

# So that people, and programs that scan for leaked secrets, recognise a token.
TOKEN_PREFIX: Final = "grove_"  # noqa: S105 (it is public)
_SECRET_BYTES: Final = 32
# The accuracy of the time of last use: a busy token costs one write a minute, not one a request.
_LAST_USE_RESOLUTION: Final = timedelta(minutes=1)


class TokenState(StrEnum):
    """Whether a token is valid, and if not, why."""

    VALID = "valid"
    REVOKED = "revoked"
    EXPIRED = "expired"
    ASLEEP = "asleep"  # suspended: its owner has not signed in for a while
    OWNER_INACTIVE = "owner inactive"


def generate_secret() -> str:
    """Return the text of a new token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest_of(text: str) -> str:
    """Return the stored digest of a token; `models.ApiToken` explains why no slow hash is needed."""
    return sha256(text.encode(errors="surrogateescape")).hexdigest()


def shown_prefix_of(text: str) -> str:
    """Return the prefix by which people recognise a token; empty for a token that this product did not generate."""
    return text[:PREFIX_LENGTH] if text.startswith(TOKEN_PREFIX) else ""


def find_token(text: str) -> ApiToken | None:
    """Return a token with its owner if it is valid now, and record its use."""
    token = tokens_with_owners().filter(digest=digest_of(text)).first()
    if token is None or state_of(token, timezone.now()) is not TokenState.VALID:
        return None
    _record_use(token)
    return token


def tokens_with_owners() -> QuerySet[ApiToken]:
    """Return all tokens with the data that `state_of` needs, in one query."""
    return with_owners(ApiToken.objects.all())


def with_owners(tokens: QuerySet[ApiToken]) -> QuerySet[ApiToken]:
    """Add the data that `state_of` needs to a query."""
    identities = OidcIdentity.objects.filter(user=OuterRef("user"))
    return tokens.select_related("user").annotate(by_sso=Exists(identities))


def state_of(token: ApiToken, now: datetime) -> TokenState:
    """Return the state of a token that was read by `with_owners`."""
    if token.revoked_at is not None:
        return TokenState.REVOKED
    end = expiry_of(token)
    if end is not None and end <= now:
        return TokenState.EXPIRED
    if not token.user.is_active:
        return TokenState.OWNER_INACTIVE
    return TokenState.ASLEEP if _is_asleep(token, now) else TokenState.VALID


def expiry_of(token: ApiToken) -> datetime | None:
    """Return when a token expires: at its own expiry, but TOKEN_MAX_DAYS after creation at the latest. None: never."""
    longest = max_lifetime()
    if longest is None or token.is_from_settings:  # it lives as long as GROVE_ADMIN_TOKEN holds it
        return token.expires_at
    latest = token.created + longest
    return latest if token.expires_at is None else min(token.expires_at, latest)


def max_lifetime() -> timedelta | None:
    """Return how long a token may be valid; None: for ever."""
    days: int | None = settings.ENVIRONMENT.token_max_days
    return None if days is None else timedelta(days=days)


def _is_asleep(token: ApiToken, now: datetime) -> bool:
    days: int | None = settings.ENVIRONMENT.oidc_token_days
    by_sso: bool = token.by_sso  # type: ignore[attr-defined]  # annotated by `with_owners`
    if days is None or not by_sso or token.is_from_settings:
        return False
    last = token.user.last_login
    return last is None or last + timedelta(days=days) <= now


def _record_use(token: ApiToken) -> None:
    now = timezone.now()
    since = now - _LAST_USE_RESOLUTION
    if token.last_used_at is not None and token.last_used_at > since:
        return
    stale = Q(last_used_at=None) | Q(last_used_at__lte=since)
    with suppress(DatabaseError):  # with a read-only database, viewers can still read
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    token.last_used_at = now
