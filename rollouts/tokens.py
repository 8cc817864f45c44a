"""API tokens: made, and recognised when they are shown.

`services.accounts` makes and revokes them; everything that programs call finds their owner here. The invariant: the
text of a token is known to whoever it was shown to and to nobody else; what is stored is its digest.
"""

import secrets
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import Final

from django.db import DatabaseError
from django.db.models import Q
from django.utils import timezone

from rollouts.models import ApiToken
from rollouts.models.accounts import PREFIX_LENGTH

# Tells people, and programs that look for leaked secrets, what it is.
MARK: Final = "grove_"
_BYTES: Final = 32
# How far behind the time of last use may be: a busy token costs one write a minute and not one a request.
_USE_IS_NOTED_AFTER: Final = timedelta(minutes=1)


def make_secret() -> str:
    """Make the text of a new token."""
    return MARK + secrets.token_urlsafe(_BYTES)


def digest_of(text: str) -> str:
    """Return what is stored of a token; see `models.ApiToken` for why no slow hash."""
    return sha256(text.encode(errors="surrogateescape")).hexdigest()


def prefix_of(text: str) -> str:
    """Return what people tell a token by; of one that we did not make nothing is shown."""
    return text[:PREFIX_LENGTH] if text.startswith(MARK) else ""


def find_token(text: str) -> ApiToken | None:
    """Return the token with its owner if both are of use now, and note that it was used."""
    token = ApiToken.objects.select_related("user").filter(digest=digest_of(text)).first()
    if token is None or not token.is_valid(timezone.now()) or not token.user.is_active:
        return None
    _note_use(token)
    return token


def _note_use(token: ApiToken) -> None:
    now = timezone.now()
    since = now - _USE_IS_NOTED_AFTER
    if token.last_used_at is not None and token.last_used_at > since:
        return
    stale = Q(last_used_at=None) | Q(last_used_at__lte=since)
    with suppress(DatabaseError):  # a database that can only be read still lets people read
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    token.last_used_at = now
