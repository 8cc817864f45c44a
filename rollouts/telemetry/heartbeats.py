"""Heartbeats in Redis: when a worker last swept the queue, when a watcher last received data from a cluster.

The worker and the watcher write them; `runtime.readiness` reads them. All times are of the clock of Redis, so ages are
right even if the clocks of the machines differ.
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
    """The last heartbeat of a cluster."""

    # Seconds since the cluster last sent anything (an answer, an event or a bookmark); None: never.
    age: float | None
    # Why the watcher receives nothing; None while connected.
    trouble: str | None
    # The number of objects that the watcher knows, by plural resource name.
    counts: Mapping[str, int]


def record_sweep(redis: Redis) -> None:
    """Record that the queue was swept just now."""
    redis.set(_SWEEP, _fetch_now(redis))


def record_probe(redis: Redis) -> None:
    """Write a key that expires soon; raises if Redis rejects writes."""
    redis.set(_PROBE, 1, ex=_PROBE_SECONDS)


def fetch_sweep_age(redis: Redis) -> float | None:
    """Return the seconds since the last sweep; None: never."""
    stamp = redis.get(_SWEEP)
    return None if stamp is None else max(0.0, _fetch_now(redis) - float(stamp))


def record_cluster_heartbeat(redis: Redis, cluster: str, counts: Mapping[str, int]) -> None:
    """Record that the cluster sent data just now, and the number of its objects."""
    redis.hset(
        _cluster_key(cluster), mapping={"heard": _fetch_now(redis), "trouble": "", "counts": json.dumps(dict(counts))}
    )


def record_cluster_trouble(redis: Redis, cluster: str, reason: str) -> None:
    """Record why nothing is received from the cluster; the time of its last data stays."""
    redis.hset(_cluster_key(cluster), mapping={"trouble": reason})


def fetch_cluster_heartbeat(redis: Redis, cluster: str) -> ClusterHeartbeat:
    """Return the last heartbeat of a cluster."""
    heard, trouble, counts = redis.hmget(_cluster_key(cluster), ["heard", "trouble", "counts"])
    return ClusterHeartbeat(
        age=None if heard is None else max(0.0, _fetch_now(redis) - float(heard)),
        trouble=_text(trouble) or None,
        counts=json.loads(counts or "{}"),
    )


def delete_all(redis: Redis) -> None:
    """Delete all heartbeats, so that those of an earlier run do not count for this one."""
    for key in redis.scan_iter("grove:heartbeat:*"):
        redis.delete(key)


def _cluster_key(cluster: str) -> str:
    return f"grove:heartbeat:cluster:{cluster}"


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def _fetch_now(redis: Redis) -> float:
    seconds, micros = redis.time()
    return seconds + micros / 1e6
