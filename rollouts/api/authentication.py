"""Who sends a request to the API: by token, or by the session of a browser.

A token comes as `Authorization: Bearer <token>`; it is looked up by its digest, with its owner, in one query. A session
is taken only with the CSRF token where something is changed. Nothing here says why a token is of no use: whoever has
found one need not learn whether it ever was.
"""

from typing import Any, Final

from rest_framework import authentication, exceptions
from rest_framework.request import Request

from rollouts.accounts.tokens import find_token
from rollouts.api.throttling import throttle_anonymous
from rollouts.models import ApiToken, User

SCHEME: Final = "Bearer"
_CREDENTIAL_REJECTED: Final = (
    "This token is not known, has expired, was revoked, or sleeps until its owner signs in again; use another one."
)


class TokenAuthentication(authentication.BaseAuthentication):
    """By a token in the header."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return the owner and the token; None when the header shows none."""
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        token = find_token(text.strip())
        if token is None:
            throttle_anonymous(request)
            raise exceptions.AuthenticationFailed(_CREDENTIAL_REJECTED)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """Say what to send instead."""
        return SCHEME


class SessionAuthentication(authentication.SessionAuthentication):
    """By the session of a browser, which must prove where something is changed that its own page sent it."""

    def enforce_csrf(self, request: Any) -> None:
        """Refuse what another site may have sent."""
        try:
            super().enforce_csrf(request)
        except exceptions.PermissionDenied as error:
            raise exceptions.PermissionDenied(
                "The CSRF token is missing or wrong; send it as the header X-CSRFToken, or use a token."
            ) from error
