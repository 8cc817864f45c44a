"""Enqueues workloads and runs their passes: the only user of the queue, and the only sender of its messages.

Before it: the watcher and the services, which enqueue a workload that has changed, and the Celery tasks, a few lines
each. After it: `workqueue`, which knows what is due, the broker, which carries keys to the workers, and `lease`, which
renews a claim while its pass runs. What a pass does is not known here: it is a function of a key and a fence, which it
calls before each write, and it returns a `ReconcileResult`.

A message that cannot be sent needs no attention: the key is due in the queue, and the sweep sends it again. A Redis
that loses data, all of it or the last second, returns with another run ID: the next sweep notices, and enqueues all
workloads.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import starmap
from typing import Final

from celery import current_app
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import Error as DatabaseError
from kombu.exceptions import KombuError
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry as Retrying

from rollouts.cluster import Fence
from rollouts.manifests.workload_ref import workload_key
from rollouts.models import Workload
from rollouts.queue.lease import LEASE_SECONDS, Lease, LeaseLost, renewed_lease
from rollouts.queue.results import Done, ReconcileResult, Requeue, RequeueAfter, Retry, Stop
from rollouts.queue.workqueue import Claim, FinishResult, Key, WorkQueue
from rollouts.runtime.connections import redis_client
from rollouts.telemetry import metrics

logger = logging.getLogger(__name__)

RECONCILE_TASK: Final = "rollouts.tasks.reconcile"
# How long a worker keeps a key that is immediately due again before it yields to other keys.
YIELD_AFTER_SECONDS: Final = 0.5
# Together longer than a restart of Redis takes.
_PAUSES_FOR_REDIS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 1.6)
_REDIS_RUN_KEY: Final = "grove:queue:server"
# Unique to this worker, and the same in the processes of its pool, which are forked.
_WORKER_ID: Final = secrets.token_hex(8)

Reconcile = Callable[[Key, Fence], ReconcileResult]
PublishKeys = Callable[[Iterable[Key]], None]


def enqueue(keys: Iterable[Key]) -> bool:
    """Make workloads due; return False, with nothing enqueued, if Redis does not answer: the caller tries again."""
    try:
        publish_keys(open_queue().add(keys))
    except RedisError as error:
        logger.warning("Workloads are not enqueued: Redis does not answer (%s)", type(error).__name__)
        return False
    return True


def enqueue_all() -> bool:
    """Enqueue every workload of every mirrored cluster."""
    rows = Workload.objects.values_list("cluster__name", "namespace", "name")
    return enqueue(starmap(workload_key, rows.iterator()))


def sweep() -> None:
    """Send the keys that are due or whose message seems lost; after a restart of Redis enqueue all workloads."""
    redis = redis_client()
    publish_keys(open_queue().sweep())
    run = str(redis.info("server")["run_id"]).encode()
    # Stored last: if this process dies before, the next sweep enqueues all workloads once more.
    if redis.get(_REDIS_RUN_KEY) != run and enqueue_all():
        redis.set(_REDIS_RUN_KEY, run)


def process_message(key: Key, reconcile: Reconcile) -> None:
    """Run passes over a workload until nothing is due or the worker yields."""
    try:
        process_key(open_queue(), key, reconcile)
    finally:
        metrics.flush(redis_client())


def open_queue() -> WorkQueue:
    """Return the queue of workloads to reconcile."""
    return _open_queue(redis_client())


def release_claims(pid: int) -> list[Key]:
    """Release the claims of a process of this worker's pool; its parent, which has seen it die, calls this."""
    # A separate client without retries: the parent must not wait, and the leases run out anyway.
    once = Retrying(NoBackoff(), 0)
    with Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1, retry=once) as redis:
        return _open_queue(redis).release_claims(_claim_owner(pid))


def _open_queue(redis: Redis) -> WorkQueue:
    max_claim_seconds = settings.RECONCILE_LEASE_SECONDS
    return WorkQueue(
        redis,
        lease_ms=round(min(LEASE_SECONDS, max_claim_seconds) * 1000),
        max_claim_ms=round(max_claim_seconds * 1000),
        owner=_claim_owner(os.getpid()),
    )


def _claim_owner(pid: int) -> str:
    return f"{_WORKER_ID}/{pid}"


def publish_keys(keys: Iterable[Key]) -> None:
    """Send the messages of keys that are due; the sweep sends those that fail."""
    try:
        with current_app.producer_or_acquire() as producer:
            for key in keys:
                current_app.send_task(RECONCILE_TASK, (key,), producer=producer)
    except (KombuError, RedisError, OSError) as error:
        logger.warning("Messages to the workers are delayed: %s", error)


def process_key(
    queue: WorkQueue,
    key: Key,
    reconcile: Reconcile,
    *,
    publish: PublishKeys = publish_keys,
    yield_after_seconds: float = YIELD_AFTER_SECONDS,
) -> None:
    """Claim a key and run passes over it; for a doubled message there is nothing to claim."""
    yield_at = time.monotonic() + yield_after_seconds
    while True:
        asked_at = time.monotonic()
        claim = queue.claim(key)
        if claim is None:
            return
        with renewed_lease(queue, claim, asked_at) as lease:
            outcome = _run_pass(claim, lease, reconcile)
            _log_failure(claim, outcome)
            ended = _retry_while_redis_is_down(partial(_finish, queue, claim, outcome))
        if ended is FinishResult.LOST:
            logger.warning("%s: claim %d outlived its lease; another pass follows", key, claim.epoch)
        if ended is not FinishResult.DUE:
            return
        if time.monotonic() >= yield_at:
            publish([key])
            return


def _run_pass(claim: Claim, lease: Lease, reconcile: Reconcile) -> ReconcileResult:
    """Run one pass. An exception concerns this workload alone: it is retried, and others are processed."""
    started = time.monotonic()
    try:
        outcome = reconcile(claim.key, lease.check)
    except LeaseLost as error:
        outcome = Retry(str(error))
    except SoftTimeLimitExceeded:
        outcome = Retry("the pass took longer than its time limit")
    except DatabaseError as error:
        # Without its message: that may quote what was to be stored, and a template may hold secrets.
        outcome = Retry(f"the database reported an error ({type(error).__name__})")
    except Exception as error:
        if claim.attempt == 1:  # the traceback once, not with every attempt
            logger.warning("%s: the pass raised an exception", claim.key, exc_info=True)
        outcome = Retry(f"{type(error).__name__}: {error}")
    metrics.observe_pass(outcome.label, time.monotonic() - started)
    return outcome


def _retry_while_redis_is_down(call: Callable[[], FinishResult]) -> FinishResult:
    """Repeat a call until Redis answers: a restart of Redis must not block a workload for the rest of its lease.

    If only the answer was lost, the second call finds the claim gone; then the sweep sends the key if it is due.
    """
    for pause in _PAUSES_FOR_REDIS:
        try:
            return call()
        except RedisError as error:
            logger.info("Redis does not answer (%s); trying again in %g s", type(error).__name__, pause)
            time.sleep(pause)
    return call()


def _log_failure(claim: Claim, outcome: ReconcileResult) -> None:
    """Log a failed pass."""
    match outcome:
        case Retry(error):
            logger.warning("%s: attempt %d failed: %s", claim.key, claim.attempt, error)
        case Stop(error, reason):
            logger.warning("%s: no further pass until it changes (%s): %s", claim.key, reason, error)


def _finish(queue: WorkQueue, claim: Claim, outcome: ReconcileResult) -> FinishResult:
    """End the claim as the result says."""
    match outcome:
        case Done() | Stop():
            return queue.done(claim)
        case Requeue():
            return queue.done(claim, requeue=True)
        case RequeueAfter(after_seconds):
            return queue.requeue_after(claim, max(0, round(after_seconds * 1000)))
        case Retry():
            return queue.back_off(claim)
