"""How often the API answers: each token and each person so often, and strangers so often by the address they come from.

Strangers are counted where they are turned away, so that somebody with a valid token never has to wait for others who
come from the same address.
"""

from typing import Any

from django.conf import settings
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from rollouts.accounts import rate_limit
from rollouts.models import ApiToken


class CallerThrottle(BaseThrottle):
    """Counts what somebody asks who is signed in, by token when it came with one."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether to go on."""
        if not request.user.is_authenticated:
            return True
        token = request.auth
        bucket = f"token:{token.pk}" if isinstance(token, ApiToken) else f"user:{request.user.pk}"
        self._seconds = rate_limit.acquire(bucket, settings.ENVIRONMENT.api_rate)
        return self._seconds == 0

    def wait(self) -> float:
        """For how many seconds to wait."""
        return self._seconds


def throttle_anonymous(request: Request) -> None:
    """Count somebody who is turned away; raise Throttled when it was too often."""
    bucket = rate_limit.bucket_name_of_address("stranger", getattr(request, "source_ip", None))
    seconds = rate_limit.acquire(bucket, settings.ENVIRONMENT.stranger_rate)
    if seconds:
        raise Throttled(seconds)
