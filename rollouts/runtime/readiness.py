"""Readiness: whether each part of the product works right now.

`/readyz` and the overview page show it. Each part is checked on its own, so that a failure never hides another. No
sentence names a password, a URL or a path: the answer is public. A check may take as long as the service does that it
asks: `CHECKS` has one for each service, so that one that hangs need not delay the others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import ProgrammingError, connection
from redis import RedisError
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from rollouts.cluster import Misconfigured
from rollouts.runtime import database
from rollouts.runtime.connections import cluster_names, redis_client
from rollouts.telemetry import heartbeats

_TABLES_ARE_GONE: Final = "The database lacks tables that its migrations created: restore it, or create a new one."


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    """The state of one part."""

    name: str
    ok: bool
    # One sentence for people.
    detail: str
    # One of several clusters: the product is ready if one of them is.
    is_one_of_several: bool = False


def readiness_detail() -> list[ReadinessCheck]:
    """Return the state of every part."""
    return [part for check in CHECKS.values() for part in check()]


def is_ready(parts: Sequence[ReadinessCheck]) -> bool:
    """Whether the product is ready: every part must work, but only one of several clusters."""
    several = [part.ok for part in parts if part.is_one_of_several]
    return all(part.ok for part in parts if not part.is_one_of_several) and (any(several) or not several)


def _run_check(name: str, question: Callable[[], ReadinessCheck], *, is_one_of_several: bool = False) -> ReadinessCheck:
    try:
        return question()
    except RedisError as error:
        return ReadinessCheck(name, ok=False, detail=_explain_redis_error(error), is_one_of_several=is_one_of_several)


def _explain_redis_error(error: RedisError) -> str:
    """Return the problem with Redis, with a remedy if the error names its cause."""
    if isinstance(error, OutOfMemoryError):
        return "Redis is at its memory limit and rejects writes: raise maxmemory, or free memory."
    if isinstance(error, ReadOnlyError):
        return "Redis rejects writes because it is a replica: connect to the primary."
    if str(error).startswith("MISCONF"):
        return "Redis rejects writes because it cannot save to its disk: is the disk full?"
    return f"Redis does not answer ({type(error).__name__})."


def _database() -> list[ReadinessCheck]:
    try:
        missing = database.list_missing_migrations()
        if missing:
            detail = f"The database lacks migrations ({', '.join(missing)}): run manage.py migrate."
        elif database.is_write_locked():
            detail = "Another process holds the write lock of the database: writes wait until it releases the lock."
        else:
            return [ReadinessCheck("database", ok=True, detail=f"{connection.display_name} answers.")]
    except ProgrammingError:
        detail = _TABLES_ARE_GONE
    except DatabaseError as error:
        # SQLite has one class for all of its errors.
        is_gone = "no such table" in str(error)
        detail = _TABLES_ARE_GONE if is_gone else f"The database does not answer ({type(error).__name__})."
    return [ReadinessCheck("database", ok=False, detail=detail)]


def _disk() -> list[ReadinessCheck]:
    """Check the disk of DATA_DIR if the database or Redis writes to it."""
    if connection.vendor != "sqlite" and settings.ENVIRONMENT.redis_url:
        return []
    trouble = database.find_disk_problem(settings.DATA_DIR)
    if trouble:
        return [ReadinessCheck("disk", ok=False, detail=f"The disk of DATA_DIR {trouble}.")]
    return [ReadinessCheck("disk", ok=True, detail="The disk of DATA_DIR is writable.")]


def _redis_and_heartbeats() -> list[ReadinessCheck]:
    redis = _run_check("redis", _redis)
    return [redis, _run_check("sweep", partial(_sweep, redis)), *_clusters()]


def _redis() -> ReadinessCheck:
    heartbeats.record_probe(redis_client())
    return ReadinessCheck("redis", ok=True, detail="Redis answers.")


def _sweep(redis: ReadinessCheck) -> ReadinessCheck:
    age = heartbeats.fetch_sweep_age(redis_client())
    if not redis.ok:
        return ReadinessCheck("sweep", ok=False, detail="The queue cannot be swept until Redis accepts writes.")
    if age is None:
        return ReadinessCheck(
            "sweep", ok=False, detail="The queue was never swept: worker and beat have not started yet."
        )
    if age > settings.SWEEP_MAX_AGE_SECONDS:
        return ReadinessCheck(
            "sweep", ok=False, detail=f"The last sweep was {age:.0f} s ago: are a worker and beat running?"
        )
    return ReadinessCheck("sweep", ok=True, detail=f"The queue was swept {age:.0f} s ago.")


def _clusters() -> list[ReadinessCheck]:
    try:
        names = cluster_names()
    except Misconfigured as error:
        return [ReadinessCheck("cluster", ok=False, detail=str(error))]
    if len(names) == 1:
        return [_run_check("cluster", partial(_cluster, "cluster", names[0]))]
    return [
        _run_check(
            f"cluster {name}",
            partial(_cluster, f"cluster {name}", name, is_one_of_several=True),
            is_one_of_several=True,
        )
        for name in names
    ]


def _cluster(part: str, name: str, *, is_one_of_several: bool = False) -> ReadinessCheck:
    heartbeat = heartbeats.fetch_cluster_heartbeat(redis_client(), name)
    last_data = "no data yet" if heartbeat.age is None else f"last data {heartbeat.age:.0f} s ago"
    if heartbeat.trouble:
        ok, detail = False, f"Cluster {name} is not usable ({last_data}): {heartbeat.trouble}"
    elif heartbeat.age is None:
        ok, detail = False, f"Cluster {name} has sent no data yet: is the watcher running?"
    else:
        ok, detail = heartbeat.age <= settings.CLUSTER_MAX_AGE_SECONDS, f"Cluster {name}: {last_data}."
    return ReadinessCheck(part, ok=ok, detail=detail, is_one_of_several=is_one_of_several)


# The checks by the service that they ask, which is also the name of their first part.
CHECKS: Final[Mapping[str, Callable[[], list[ReadinessCheck]]]] = {
    "database": _database,
    "disk": _disk,
    "redis": _redis_and_heartbeats,
}
