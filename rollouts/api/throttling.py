"""Rate limits of the API: by token or account, and by address for anonymous requests.

Anonymous requests are counted where they are refused, so a caller with a valid token never waits because of others at
the same address.
"""

from typing import Any

from django.conf import settings
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from rollouts.accounts import rate_limit
from rollouts.models import ApiToken


class CallerThrottle(BaseThrottle):
    """Counts the requests of a token, or of an account that uses a session."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        """Return whether the request is within the limit."""
        if not request.user.is_authenticated:
            return True
        token = request.auth
        bucket = f"token:{token.pk}" if isinstance(token, ApiToken) else f"user:{request.user.pk}"
        self._seconds = rate_limit.acquire(bucket, settings.ENVIRONMENT.api_rate)
        return self._seconds == 0

    def wait(self) -> float:
        """Return how many seconds the caller must wait."""
        return self._seconds


def throttle_anonymous(request: Request) -> None:
    """Count an anonymous request that is refused; raise Throttled above the limit."""
    bucket = rate_limit.bucket_name_of_address("stranger", getattr(request, "source_ip", None))
    seconds = rate_limit.acquire(bucket, settings.ENVIRONMENT.stranger_rate)
    if seconds:
        raise Throttled(seconds)
