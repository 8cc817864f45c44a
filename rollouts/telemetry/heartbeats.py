"""Signs of life in Redis: when the queue was last swept, when the cluster last said a word.

The worker and the watcher write them, `readiness` reads them. All times are Redis's own clock, so the ages are right
whatever the clocks of the machines say.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from redis import Redis

_SWEEP = "grove:heartbeat:sweep"
_PROBE = "grove:heartbeat:probe"
_PROBE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class ClusterHeartbeat:
    """The last that was heard from a cluster."""

    # Seconds since the cluster last sent anything (an answer, an event or a bookmark), None when it never did.
    age: float | None
    # Why nothing more comes, None while connected.
    trouble: str | None
    # How many objects of each kind the watcher has seen, by plural.
    counts: Mapping[str, int]


def record_sweep(redis: Redis) -> None:
    """Note that the queue was swept just now."""
    redis.set(_SWEEP, _fetch_now(redis))


def record_probe(redis: Redis) -> None:
    """Write something that is gone soon; raises what keeps Redis from taking writes."""
    redis.set(_PROBE, 1, ex=_PROBE_SECONDS)


def fetch_sweep_age(redis: Redis) -> float | None:
    """Seconds since the last sweep, None when there never was one."""
    stamp = redis.get(_SWEEP)
    return None if stamp is None else max(0.0, _fetch_now(redis) - float(stamp))


def record_cluster_heartbeat(redis: Redis, cluster: str, counts: Mapping[str, int]) -> None:
    """Note that the cluster spoke just now, and what it holds."""
    redis.hset(
        _cluster_key(cluster), mapping={"heard": _fetch_now(redis), "trouble": "", "counts": json.dumps(dict(counts))}
    )


def record_cluster_trouble(redis: Redis, cluster: str, reason: str) -> None:
    """Note that the cluster cannot be heard and why; when it last spoke stays as it was."""
    redis.hset(_cluster_key(cluster), mapping={"trouble": reason})


def fetch_cluster_heartbeat(redis: Redis, cluster: str) -> ClusterHeartbeat:
    """The last that was heard from the cluster."""
    heard, trouble, counts = redis.hmget(_cluster_key(cluster), ["heard", "trouble", "counts"])
    return ClusterHeartbeat(
        age=None if heard is None else max(0.0, _fetch_now(redis) - float(heard)),
        trouble=_text(trouble) or None,
        counts=json.loads(counts or "{}"),
    )


def delete_all(redis: Redis) -> None:
    """Forget every sign of life, so that those of an earlier run are not taken for this one's."""
    for key in redis.scan_iter("grove:heartbeat:*"):
        redis.delete(key)


def _cluster_key(cluster: str) -> str:
    return f"grove:heartbeat:cluster:{cluster}"


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def _fetch_now(redis: Redis) -> float:
    seconds, micros = redis.time()
    return seconds + micros / 1e6
