"""Whether the product can do its work right now, part by part.

Read by `/readyz` and the overview page. Each part answers for itself, so that one that is down never hides another.
Nothing here names a password or a URL: the answer is public.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from redis import RedisError

from rollouts import heartbeats
from rollouts.cluster import Misconfigured
from rollouts.connections import cluster_names, redis_client


@dataclass(frozen=True, slots=True)
class Part:
    """One thing the product needs, and how it is."""

    name: str
    ok: bool
    # One sentence for people.
    detail: str
    # One of several clusters: those that answer can be worked on whatever the others do.
    is_one_of_several: bool = False


def readiness_detail() -> list[Part]:
    """Ask every part how it is."""
    parts: list[tuple[str, Callable[[], Part]]] = [("database", _database), ("redis", _redis), ("sweep", _sweep)]
    return [*(_ask(name, question) for name, question in parts), *_clusters()]


def is_ready(parts: Sequence[Part]) -> bool:
    """Say whether work can be done: every part must be well, and of several clusters one."""
    several = [part.ok for part in parts if part.is_one_of_several]
    return all(part.ok for part in parts if not part.is_one_of_several) and (any(several) or not several)


def _ask(name: str, question: Callable[[], Part], *, is_one_of_several: bool = False) -> Part:
    try:
        return question()
    except RedisError as error:
        detail = f"Redis does not answer ({type(error).__name__})."
        return Part(name, ok=False, detail=detail, is_one_of_several=is_one_of_several)


def _database() -> Part:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return Part("database", ok=False, detail=f"The database does not answer ({type(error).__name__}).")
    return Part("database", ok=True, detail=f"{connection.display_name} answers.")


def _redis() -> Part:
    redis_client().ping()
    return Part("redis", ok=True, detail="Redis answers.")


def _sweep() -> Part:
    age = heartbeats.sweep_age(redis_client())
    if age is None:
        return Part("sweep", ok=False, detail="The queue was never swept: worker and beat have not started yet.")
    if age > settings.SWEEP_MAX_AGE_SECONDS:
        return Part("sweep", ok=False, detail=f"The last sweep was {age:.0f} s ago: is a worker and beat running?")
    return Part("sweep", ok=True, detail=f"The queue was swept {age:.0f} s ago.")


def _clusters() -> list[Part]:
    try:
        names = cluster_names()
    except Misconfigured as error:
        return [Part("cluster", ok=False, detail=str(error))]
    if len(names) == 1:
        return [_ask("cluster", partial(_cluster, "cluster", names[0]))]
    return [
        _ask(
            f"cluster {name}",
            partial(_cluster, f"cluster {name}", name, is_one_of_several=True),
            is_one_of_several=True,
        )
        for name in names
    ]


def _cluster(part: str, name: str, *, is_one_of_several: bool = False) -> Part:
    word = heartbeats.cluster_word(redis_client(), name)
    heard = "never heard" if word.age is None else f"last heard {word.age:.0f} s ago"
    if word.trouble:
        ok, detail = False, f"Cluster {name} is out of reach, {heard}: {word.trouble}"
    elif word.age is None:
        ok, detail = False, f"Cluster {name} has not been heard yet: is the watcher running?"
    else:
        ok, detail = word.age <= settings.CLUSTER_MAX_AGE_SECONDS, f"Cluster {name}: {heard}."
    return Part(part, ok=ok, detail=detail, is_one_of_several=is_one_of_several)
