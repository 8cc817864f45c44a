"""OpenID Connect: redirects users to the identity provider and verifies the identity that it returns.

Uses the authorization code flow with PKCE, state and nonce, all three bound to the session that started it. `sign_in`
has the pages before and after; `services.single_sign_on` maps an identity to an account. The invariants: an identity
comes only from a signed ID token of the configured issuer, issued to this client for this attempt; log lines name the
kind of an error and never contain a code or a token.

The metadata and keys of the provider are fetched on first use and again every hour; an unknown key is fetched at once.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from authlib.integrations.base_client import OAuthError
from authlib.integrations.django_client import OAuth
from django.http import HttpRequest, HttpResponse
from joserfc.errors import JoseError

from grove_ui.environment import Oidc
from rollouts.services.single_sign_on import ExternalIdentity

logger = logging.getLogger(__name__)

# Asymmetric algorithms only: with others the public key or the client secret would be enough to sign.
_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
_TIMEOUT_SECONDS: Final = 5
_METADATA_TTL_SECONDS: Final = 3600
_MAX_SUBJECT_LENGTH: Final = 255  # the limit of the standard
# What the library raises: an error of the provider, a wrong signature or claim, no answer, a malformed answer.
_ERRORS: Final = (OAuthError, JoseError, OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError)


class SignInRejected(Exception):  # noqa: N818 (the name states the event)
    """The provider returned no valid identity; the text is the sentence to show."""


def redirect_to_provider(oidc: Oidc, request: HttpRequest, return_to: str) -> HttpResponse:
    """Redirect the browser to the provider."""
    try:
        response: HttpResponse = _client(oidc).authorize_redirect(request, return_to)
    except _ERRORS as error:
        logger.warning("The identity provider is not usable: %s", _describe_error(error))
        raise SignInRejected("The identity provider does not answer. Try again in a moment.") from error
    return response


def fetch_identity(oidc: Oidc, request: HttpRequest) -> ExternalIdentity:
    """Return the identity that the provider confirms."""
    try:
        claims = _fetch_claims(oidc, request)
    except _ERRORS as error:
        logger.warning("A sign-in through the identity provider failed: %s", _describe_error(error))
        raise SignInRejected("The identity provider did not confirm your identity. Try again.") from error
    return _make_identity(oidc, claims)


def _fetch_claims(oidc: Oidc, request: HttpRequest) -> Mapping[str, Any]:
    client = _client(oidc)
    expected = {"iss": {"essential": True, "value": oidc.issuer}, "aud": {"essential": True, "value": oidc.client_id}}
    token = client.authorize_access_token(request, claims_options=expected)
    claims: Mapping[str, Any] = token["userinfo"]  # missing without an ID token
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_SUBJECT_LENGTH:
        raise ValueError("the subject is empty or too long")
    if oidc.groups_claim in claims or not oidc.roles or "userinfo_endpoint" not in client.server_metadata:
        return claims
    # Some providers keep ID tokens short and return the groups only from the userinfo endpoint.
    # Without `expires_at`: the library treats a token that expires within a minute as expired.
    more: Mapping[str, Any] = client.userinfo(token={"access_token": token["access_token"], "token_type": "Bearer"})
    if more.get("sub") != subject:
        raise ValueError("the userinfo answer has another subject")
    return {**more, **claims}


def _make_identity(oidc: Oidc, claims: Mapping[str, Any]) -> ExternalIdentity:
    return ExternalIdentity(
        issuer=oidc.issuer,
        subject=claims["sub"],
        username=_claim_text(claims, oidc.username_claim) or _claim_text(claims, "email").partition("@")[0],
        email=_claim_text(claims, "email"),
        first_name=_claim_text(claims, "given_name"),
        last_name=_claim_text(claims, "family_name"),
        roles=choose_roles(claims.get(oidc.groups_claim), oidc.roles) if oidc.roles else None,
    )


def choose_roles(groups: object, roles: Mapping[str, str]) -> frozenset[str]:
    """Return the roles for these groups of the provider; `*` matches every user."""
    names: Iterable[object] = groups if isinstance(groups, list) else [groups]
    held = {name for name in names if isinstance(name, str)} | {"*"}
    return frozenset(role for group, role in roles.items() if group in held)


def _claim_text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    return value[:150].replace("\0", "") if isinstance(value, str) else ""


def _client(oidc: Oidc) -> Any:
    """Return the client of the provider with its metadata loaded and checked."""
    scopes = " ".join(dict.fromkeys(["openid", *oidc.scopes.split()]))
    client = _make_client(
        oidc.issuer, oidc.client_id, oidc.client_secret, scopes, int(time.time() / _METADATA_TTL_SECONDS)
    )
    metadata = client.load_server_metadata()
    if metadata.get("issuer") != oidc.issuer:
        raise ValueError("the metadata names another issuer than OIDC_ISSUER")
    offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
    metadata["id_token_signing_alg_values_supported"] = [name for name in offered if name in _ALGORITHMS]
    return client


@lru_cache(maxsize=2)
def _make_client(issuer: str, client_id: str, client_secret: str, scopes: str, _hour: int) -> Any:
    return OAuth().register(
        "provider",
        client_id=client_id,
        client_secret=client_secret,
        server_metadata_url=f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        client_kwargs={"scope": scopes, "code_challenge_method": "S256", "default_timeout": _TIMEOUT_SECONDS},
    )


def _describe_error(error: Exception) -> str:
    """Name an error without its message, which may contain input of the browser or the provider."""
    ours = str(error) if type(error) is ValueError and error.args else ""
    return f"{type(error).__name__} {ours}".strip()
