"""The Celery application with a toy in place of the reconciler: `celery -A tests.queue.toy_worker worker`.

Everything else is the product: settings, tasks, dispatch, queue, broker. A pass of the toy writes what it does into
Redis, and does what the name of its workload says.
"""

import os
import time

import django
from redis import Redis

from grove_ui.celery import app
from rollouts.cluster import Fence

django.setup()

from rollouts.controller import reconciler  # noqa: E402
from rollouts.queue.lease import LeaseLost  # noqa: E402
from rollouts.queue.results import Done, ReconcileResult, Requeue  # noqa: E402
from rollouts.runtime.connections import redis_client  # noqa: E402
from tests.queue.toy_names import AT_ONCE, BEGUN, CLASHED, ENDED, FENCED, RELEASED, WORKERS, WROTE  # noqa: E402

__all__ = ["app"]


def toy_reconcile(key: str, fence: Fence) -> ReconcileResult:
    """Start, do as the name says, write as far as the fence allows, end."""
    redis = redis_client()
    redis.lpush(WORKERS.format(key), os.getpid())
    begun = redis.incr(BEGUN.format(key))
    if redis.incr(AT_ONCE.format(key)) > 1:
        redis.incr(CLASHED.format(key))
    try:
        _do(redis, key, begun)
        fence()
        redis.rpush(WROTE.format(key), os.getpid())
    except LeaseLost:
        redis.rpush(FENCED.format(key), os.getpid())
        raise
    finally:
        redis.decr(AT_ONCE.format(key))
    redis.incr(ENDED.format(key))
    return Requeue() if key.endswith("-for-ever") else Done()


def _do(redis: Redis, key: str, begun: int) -> None:
    behaviour = key.rpartition("/")[2].partition("-")[0]
    if behaviour == "hangs" and begun == 1:
        time.sleep(3600)
    if behaviour == "waits" and begun == 1:
        while not redis.exists(RELEASED.format(key)):
            time.sleep(0.01)
    if behaviour == "slow":
        time.sleep(0.1)
    if behaviour == "raises" and begun <= 2:
        raise ValueError("poisoned")


reconciler.reconcile = toy_reconcile  # type: ignore[assignment]
