"""Whether the product can do its work right now, part by part.

Read by `/readyz` and the overview page. Each part answers for itself, so that one that is down never hides another.
Nothing here names a password or a URL: the answer is public.
"""

from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from redis import RedisError

from rollouts import heartbeats
from rollouts.connections import redis_client


@dataclass(frozen=True, slots=True)
class Part:
    """One thing the product needs, and how it is."""

    name: str
    ok: bool
    # One sentence for people.
    detail: str


def readiness_detail() -> list[Part]:
    """Ask every part how it is."""
    parts: list[tuple[str, Callable[[], Part]]] = [
        ("database", _database),
        ("redis", _redis),
        ("sweep", _sweep),
        ("cluster", _cluster),
    ]
    return [_ask(name, question) for name, question in parts]


def _ask(name: str, question: Callable[[], Part]) -> Part:
    try:
        return question()
    except RedisError as error:
        return Part(name, ok=False, detail=f"Redis does not answer ({type(error).__name__}).")


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


def _cluster() -> Part:
    name = settings.ENVIRONMENT.cluster
    word = heartbeats.cluster_word(redis_client(), name)
    heard = "never heard" if word.age is None else f"last heard {word.age:.0f} s ago"
    if word.trouble:
        return Part("cluster", ok=False, detail=f"Cluster {name} is out of reach, {heard}: {word.trouble}")
    if word.age is None:
        return Part("cluster", ok=False, detail=f"Cluster {name} has not been heard yet: is the watcher running?")
    return Part("cluster", ok=word.age <= settings.CLUSTER_MAX_AGE_SECONDS, detail=f"Cluster {name}: {heard}.")
