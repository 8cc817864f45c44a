"""Rate limits for wrong passwords, by source address, by the name that is tried, and by account.

`sign_in` and `account` count an attempt before they check a password, so that many simultaneous guesses cannot all
pass, and uncount it if the password was right.
"""

from collections.abc import Sequence
from math import ceil
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from grove_ui.environment import Rate
from rollouts.accounts import rate_limit
from rollouts.models import User

AttemptBuckets = Sequence[tuple[str, Rate | None]]

# An attacker may try a name from many addresses. The limit for a name is five times that for an address, because
# exhausting it locks out the owner too.
_NAME_RATE_FACTOR: Final = 5


def sign_in_buckets(request: HttpRequest | None, name: str = "") -> AttemptBuckets:
    """Return the buckets of an attempt to sign in."""
    rate: Rate | None = settings.ENVIRONMENT.sign_in_rate
    attempts = [_address_bucket(request, rate)]
    if name and rate:
        attempts.append(
            (rate_limit.bucket_name("name", name.casefold()), Rate(rate.count * _NAME_RATE_FACTOR, rate.seconds))
        )
    return attempts


def old_password_buckets(request: HttpRequest, user: User) -> AttemptBuckets:
    """Return the buckets of an old password. Only sessions of the account get here, so it has the full rate."""
    rate: Rate | None = settings.ENVIRONMENT.sign_in_rate
    return [_address_bucket(request, rate), (rate_limit.bucket_name("old-password", str(user.pk)), rate)]


def count_attempt(attempts: AttemptBuckets) -> float:
    """Count an attempt; return the seconds to wait if the limit is reached, else 0."""
    return max(rate_limit.acquire(bucket, rate) for bucket, rate in attempts)


def uncount_attempt(attempts: AttemptBuckets) -> None:
    """Take an attempt back."""
    for bucket, rate in attempts:
        rate_limit.release(bucket, rate)


def set_retry_after(response: HttpResponse, seconds: float) -> HttpResponse:
    """Set the Retry-After header."""
    response["Retry-After"] = str(ceil(seconds))
    return response


def _address_bucket(request: HttpRequest | None, rate: Rate | None) -> tuple[str, Rate | None]:
    return rate_limit.bucket_name_of_address("sign-in", getattr(request, "source_ip", None)), rate
