"""How often a password may be wrong: counted by the address, by the name that is tried, and by the account.

`sign_in` and `account` take an attempt before they look at a password, so that many guesses at once do not all find the
bucket full, and put it back when the password was right.
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

# A name is tried from many addresses when somebody has many; five times as often as from one, since whoever tries a
# name on purpose until nobody is let in keeps its owner out as well.
_NAME_RATE_FACTOR: Final = 5


def sign_in_buckets(request: HttpRequest | None, name: str = "") -> AttemptBuckets:
    """Name what an attempt to sign in is counted in."""
    rate: Rate | None = settings.ENVIRONMENT.sign_in_rate
    attempts = [_address_bucket(request, rate)]
    if name and rate:
        attempts.append(
            (rate_limit.bucket_name("name", name.casefold()), Rate(rate.count * _NAME_RATE_FACTOR, rate.seconds))
        )
    return attempts


def old_password_buckets(request: HttpRequest, user: User) -> AttemptBuckets:
    """Name what an old password is counted in. Only sessions of the account come here, so it bears the full rate."""
    rate: Rate | None = settings.ENVIRONMENT.sign_in_rate
    return [_address_bucket(request, rate), (rate_limit.bucket_name("old-password", str(user.pk)), rate)]


def count_attempt(attempts: AttemptBuckets) -> float:
    """Count an attempt; return for how many seconds to wait instead."""
    return max(rate_limit.acquire(bucket, rate) for bucket, rate in attempts)


def uncount_attempt(attempts: AttemptBuckets) -> None:
    """Count it no more."""
    for bucket, rate in attempts:
        rate_limit.release(bucket, rate)


def set_retry_after(response: HttpResponse, seconds: float) -> HttpResponse:
    """Tell programs in an answer when to come again."""
    response["Retry-After"] = str(ceil(seconds))
    return response


def _address_bucket(request: HttpRequest | None, rate: Rate | None) -> tuple[str, Rate | None]:
    return rate_limit.bucket_name_of_address("sign-in", getattr(request, "source_ip", None)), rate
