"""How often somebody may ask: buckets that fill again, counted in Redis for all web processes together.

The API asks before it answers (`apiserver.throttling`), the sign-in page before it looks at a password (`web.sign_in`).
A bucket holds as many as the rate says and fills evenly, so nobody can use a full measure on either side of a turn of
the clock. Each question is one script on Redis's own clock.

Without Redis each process counts for itself: nobody is kept from working, and passwords cannot be guessed without an
end. The log says so once.
"""

import logging
import threading
import time
from hashlib import sha256
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final

from redis import RedisError

from grove_ui.environment import Rate
from rollouts.runtime.connections import redis_client

logger = logging.getLogger(__name__)

_IPV6: Final = 6
_PREFIX: Final = "grove:rate:"
_SCRIPT: Final = Path(__file__).with_suffix(".lua").read_text()

# Set while Redis is away, so that it is said once and not with every request.
_redis_is_down = threading.Event()
# So many a process remembers itself; then it forgets those that were asked longest ago.
_MAX_LOCAL_BUCKETS: Final = 10_000


class LocalBuckets:
    """The buckets of this process, for as long as Redis is away."""

    def __init__(self) -> None:
        self._full: dict[str, float] = {}  # when each will be full again, by the monotonic clock
        self._lock = threading.Lock()

    def update(self, bucket: str, rate: Rate, taken: int) -> float:
        """Do what the script does."""
        with self._lock:
            now = time.monotonic()
            full = max(self._full.pop(bucket, 0.0), now) + taken * rate.seconds / rate.count
            wait = max(0.0, full - rate.seconds - now)
            if wait:
                full -= taken * rate.seconds / rate.count
            if full > now:
                self._full[bucket] = full
            if len(self._full) > _MAX_LOCAL_BUCKETS:
                del self._full[next(iter(self._full))]
            return wait


_local_buckets = LocalBuckets()


def acquire(bucket: str, rate: Rate | None) -> float:
    """Take one out; return for how many seconds to wait instead, 0 when it was there."""
    return _update_bucket(bucket, rate, taken=1)


def release(bucket: str, rate: Rate | None) -> None:
    """Put one back that was taken for something that does not count after all."""
    _update_bucket(bucket, rate, taken=-1)


def bucket_name(kind: str, identity: str) -> str:
    """Name a bucket. Who it belongs to is not to be read from it: people type passwords where names belong."""
    return f"{kind}:{sha256(identity.encode(errors='surrogateescape')).hexdigest()[:32]}"


def bucket_name_of_address(kind: str, address: str | None) -> str:
    """Name the bucket of an address. Of IPv6 whoever has one address has the 2⁶⁴ around it, so they count as one."""
    if address is None:
        return bucket_name(kind, "nowhere")
    parsed = ip_address(address)
    return bucket_name(kind, str(ip_network((parsed, 64), strict=False)) if parsed.version == _IPV6 else address)


def _update_bucket(bucket: str, rate: Rate | None, *, taken: int) -> float:
    if rate is None:
        return 0.0
    try:
        milliseconds = redis_client().eval(
            _SCRIPT, 1, _PREFIX + bucket, str(rate.seconds * 1000), str(rate.count), str(taken)
        )
    except RedisError as error:
        if not _redis_is_down.is_set():
            logger.warning(
                "Each web process counts requests for itself: Redis does not answer (%s)", type(error).__name__
            )
        _redis_is_down.set()
        return _local_buckets.update(bucket, rate, taken)
    _redis_is_down.clear()
    return int(milliseconds) / 1000
