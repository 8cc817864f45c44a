"""Rate limits as token buckets in Redis, shared by all web processes.

The API asks before it answers (`api.throttling`), the sign-in page before it checks a password
(`web.password_attempts`). A bucket holds as many requests as the rate allows and refills evenly, so a client cannot use
two full buckets around a turn of the clock. Each request runs one script on the clock of Redis.

While Redis is down each process counts for itself, and logs that once: people can work on, and passwords still cannot
be guessed without limit.
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
from rollouts.telemetry.outage_log import OutageLog

logger = logging.getLogger(__name__)

_IPV6: Final = 6
_PREFIX: Final = "grove:rate:"
_SCRIPT: Final = Path(__file__).with_suffix(".lua").read_text()

_redis_outage: Final = OutageLog(logger, "Redis is down; each web process counts requests for itself (%s)")
# With more buckets a process drops those that were used longest ago.
_MAX_LOCAL_BUCKETS: Final = 10_000


class LocalBuckets:
    """The buckets of this process, used while Redis is down."""

    def __init__(self) -> None:
        self._full: dict[str, float] = {}  # when each bucket will be full again, monotonic clock
        self._lock = threading.Lock()

    def update(self, bucket: str, rate: Rate, taken: int) -> float:
        """Take from a bucket like the script; return the seconds to wait."""
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
    """Take one request from a bucket; return 0, or the seconds to wait if the bucket is empty."""
    return _update_bucket(bucket, rate, taken=1)


def release(bucket: str, rate: Rate | None) -> None:
    """Put a request back that does not count after all."""
    _update_bucket(bucket, rate, taken=-1)


def bucket_name(kind: str, identity: str) -> str:
    """Return the key of a bucket, with a digest of the identity: people type passwords into the name field."""
    return f"{kind}:{sha256(identity.encode(errors='surrogateescape')).hexdigest()[:32]}"


def bucket_name_of_address(kind: str, address: str | None) -> str:
    """Return the key for an address. A client of IPv6 usually has a whole /64 network, which counts as one."""
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
        _redis_outage.failed(error)
        return _local_buckets.update(bucket, rate, taken)
    _redis_outage.succeeded()
    return int(milliseconds) / 1000
