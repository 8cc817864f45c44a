"""Authentication of API requests: by token, or by the session of a browser.

A token comes as `Authorization: Bearer <token>`; one query finds it by its digest, with its owner. A request that
changes something by session needs the CSRF token. The answer never says why a token is invalid: a person who found a
token must not learn whether it was ever valid.
"""

from typing import Any, Final

from rest_framework import authentication, exceptions
from rest_framework.request import Request

from rollouts.accounts.tokens import find_token
from rollouts.api.throttling import throttle_anonymous
from rollouts.models import ApiToken, User

SCHEME: Final = "Bearer"
_CREDENTIAL_REJECTED: Final = (
    "This token is unknown, expired, revoked, or suspended until its owner signs in again. Use another token."
)


class TokenAuthentication(authentication.BaseAuthentication):
    """Authentication by a token in the header."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return the owner and the token; None if the header has no token."""
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        token = find_token(text.strip())
        if token is None:
            throttle_anonymous(request)
            raise exceptions.AuthenticationFailed(_CREDENTIAL_REJECTED)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """Return the value of WWW-Authenticate."""
        return SCHEME


class SessionAuthentication(authentication.SessionAuthentication):
    """Authentication by the session of a browser, with CSRF protection for requests that change something."""

    def enforce_csrf(self, request: Any) -> None:
        """Refuse a request that another site may have sent."""
        try:
            super().enforce_csrf(request)
        except exceptions.PermissionDenied as error:
            raise exceptions.PermissionDenied(
                "The CSRF token is missing or wrong; send it as the header X-CSRFToken, or use a token."
            ) from error
