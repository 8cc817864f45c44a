"""How often somebody may ask: buckets that fill again, counted in Redis for all web processes together.

The API asks before it answers (`api.throttling`), the sign-in page before it looks at a password (`web.sign_in`). A
bucket holds as many as the rate says and fills evenly, so nobody can use a full measure on either side of a turn of the
clock. Each question is one script on Redis's own clock.

Without Redis everybody may ask: that nobody can work would be worse than that nobody is counted. It is said in the log
once.
"""

import logging
import threading
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Final

from redis import RedisError

from grove_ui.environment import Rate
from rollouts.connections import redis_client

logger = logging.getLogger(__name__)

_IPV6: Final = 6
_PREFIX: Final = "grove:rate:"
# One key holds when the bucket will be full again. Taking one out moves that by period / count; if it would then lie
# further ahead than a whole period, the bucket is empty until it does not.
_SCRIPT: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local period, count, taken = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now) + taken * period / count
if full - period > now then return math.ceil(full - period - now) end
if full > now then redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil(full - now))
else redis.call('DEL', KEYS[1]) end
return 0
"""

# Set while Redis is away, so that it is said once and not with every request.
_away = threading.Event()


def take(bucket: str, rate: Rate | None) -> float:
    """Take one out; return for how many seconds to wait instead, 0 when it was there."""
    return _ask(bucket, rate, taken=1)


def put_back(bucket: str, rate: Rate | None) -> None:
    """Put one back that was taken for something that does not count after all."""
    _ask(bucket, rate, taken=-1)


def bucket_of(kind: str, who: str) -> str:
    """Name a bucket. Who it belongs to is not to be read from it: people type passwords where names belong."""
    return f"{kind}:{sha256(who.encode(errors='surrogateescape')).hexdigest()[:32]}"


def bucket_of_address(kind: str, address: str | None) -> str:
    """Name the bucket of an address. Of IPv6 whoever has one address has the 2⁶⁴ around it, so they count as one."""
    if address is None:
        return bucket_of(kind, "nowhere")
    parsed = ip_address(address)
    return bucket_of(kind, str(ip_network((parsed, 64), strict=False)) if parsed.version == _IPV6 else address)


def _ask(bucket: str, rate: Rate | None, *, taken: int) -> float:
    if rate is None:
        return 0.0
    try:
        milliseconds = redis_client().eval(
            _SCRIPT, 1, _PREFIX + bucket, str(rate.seconds * 1000), str(rate.count), str(taken)
        )
    except RedisError as error:
        if not _away.is_set():
            logger.warning("Requests are not counted: Redis does not answer (%s)", type(error).__name__)
        _away.set()
        return 0.0
    _away.clear()
    return int(milliseconds) / 1000
