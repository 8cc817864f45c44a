"""API tokens: made, recognised when they are shown, and how long they are of use.

`services.accounts` makes and revokes them; everything that programs call finds their owner here. The invariant: the
text of a token is known to whoever it was shown to and to nobody else; what is stored is its digest.

A token is of use until it ends or is revoked, and while its owner may sign in. Nobody tells us when an identity
provider forgets a person. So the tokens of an account that comes by single sign-on sleep some days after its last
sign-in, and wake with the next one.
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

# Tells people, and programs that look for leaked secrets, what it is.
TOKEN_PREFIX: Final = "grove_"  # noqa: S105 (it is public)
_SECRET_BYTES: Final = 32
# How far behind the time of last use may be: a busy token costs one write a minute and not one a request.
_LAST_USE_RESOLUTION: Final = timedelta(minutes=1)


class TokenState(StrEnum):
    """Whether a token is of use."""

    VALID = "valid"
    REVOKED = "revoked"
    EXPIRED = "expired"
    ASLEEP = "asleep"  # its owner has not signed in for a while
    OWNER_INACTIVE = "owner inactive"


def generate_secret() -> str:
    """Make the text of a new token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest_of(text: str) -> str:
    """Return what is stored of a token; see `models.ApiToken` for why no slow hash."""
    return sha256(text.encode(errors="surrogateescape")).hexdigest()


def shown_prefix_of(text: str) -> str:
    """Return what people tell a token by; of one that we did not make nothing is shown."""
    return text[:PREFIX_LENGTH] if text.startswith(TOKEN_PREFIX) else ""


def find_token(text: str) -> ApiToken | None:
    """Return the token with its owner if both are of use now, and note that it was used."""
    token = tokens_with_owners().filter(digest=digest_of(text)).first()
    if token is None or state_of(token, timezone.now()) is not TokenState.VALID:
        return None
    _record_use(token)
    return token


def tokens_with_owners() -> QuerySet[ApiToken]:
    """Return all tokens with what their state depends on, in one query."""
    return with_owners(ApiToken.objects.all())


def with_owners(tokens: QuerySet[ApiToken]) -> QuerySet[ApiToken]:
    """Bring along what the state of tokens depends on."""
    identities = OidcIdentity.objects.filter(user=OuterRef("user"))
    return tokens.select_related("user").annotate(by_sso=Exists(identities))


def state_of(token: ApiToken, now: datetime) -> TokenState:
    """Say whether a token, read with its owner (`with_owners`), is of use, and if not, why."""
    if token.revoked_at is not None:
        return TokenState.REVOKED
    end = expiry_of(token)
    if end is not None and end <= now:
        return TokenState.EXPIRED
    if not token.user.is_active:
        return TokenState.OWNER_INACTIVE
    return TokenState.ASLEEP if _is_asleep(token, now) else TokenState.VALID


def expiry_of(token: ApiToken) -> datetime | None:
    """Return when a token ends: at its own end, at the latest when TOKEN_MAX_DAYS says so. None: never."""
    longest = max_lifetime()
    if longest is None or token.is_from_settings:  # the setting that names it ends it
        return token.expires_at
    latest = token.created + longest
    return latest if token.expires_at is None else min(token.expires_at, latest)


def max_lifetime() -> timedelta | None:
    """Return how long a token may live; None: for good."""
    days: int | None = settings.ENVIRONMENT.token_max_days
    return None if days is None else timedelta(days=days)


def _is_asleep(token: ApiToken, now: datetime) -> bool:
    days: int | None = settings.ENVIRONMENT.oidc_token_days
    by_sso: bool = token.by_sso  # type: ignore[attr-defined]  # of `with_owners`
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
    with suppress(DatabaseError):  # a database that can only be read still lets people read
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    token.last_used_at = now
