"""Wakes workloads, and takes a woken one through its passes: the only user of the queue and the only publisher.

Before it: the watcher and the services, which say that something changed (`enqueue`), and the Celery tasks, a few lines
each. After it: `workqueue`, which knows what is due, and the broker, which carries keys to the workers; `lease`, which
keeps a claim while its pass runs. What a pass does is not known here: it is a function from a key, and a fence to pass
before each write, to an `ReconcileResult`.

A message that cannot be sent is nobody's problem: the key is due in the queue and the sweep sends it again. A Redis
that loses what it held, all of it or the last second, comes back as another run of the server: the next sweep sees that
and wakes everything.
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
# So long a key that is due again at once goes on in the same worker, without a message; then others have their turn.
YIELD_AFTER_SECONDS: Final = 0.5
# Together longer than a Redis takes to restart.
_PAUSES_FOR_REDIS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 1.6)
_REDIS_RUN_KEY: Final = "grove:queue:server"
# Of this worker: told apart from every other one, and the same in the processes of its pool, which are forked.
_WORKER_ID: Final = secrets.token_hex(8)

Reconcile = Callable[[Key, Fence], ReconcileResult]
PublishKeys = Callable[[Iterable[Key]], None]


def enqueue(keys: Iterable[Key]) -> bool:
    """Have workers look at workloads; False when Redis is away: nothing is noted then, try again."""
    try:
        publish_keys(open_queue().add(keys))
    except RedisError as error:
        logger.warning("Workloads cannot be woken: Redis does not answer (%s)", type(error).__name__)
        return False
    return True


def enqueue_all() -> bool:
    """Wake every workload of every mirrored cluster."""
    rows = Workload.objects.values_list("cluster__name", "namespace", "name")
    return enqueue(starmap(workload_key, rows.iterator()))


def sweep() -> None:
    """Send what the queue says is due or seems lost; after a restart of Redis wake everything."""
    redis = redis_client()
    publish_keys(open_queue().sweep())
    run = str(redis.info("server")["run_id"]).encode()
    # Noted last: if this process ends half-way, the next sweep wakes everything once more.
    if redis.get(_REDIS_RUN_KEY) != run and enqueue_all():
        redis.set(_REDIS_RUN_KEY, run)


def process_message(key: Key, reconcile: Reconcile) -> None:
    """Take a workload through its passes until nothing is due or its turn is over."""
    try:
        process_key(open_queue(), key, reconcile)
    finally:
        metrics.flush(redis_client())


def open_queue() -> WorkQueue:
    """The queue of workloads to reconcile."""
    return _open_queue(redis_client())


def release_claims(pid: int) -> list[Key]:
    """Free what a process of this worker's pool had claimed; called in its parent, which has seen it die."""
    # A client of its own: the parent waits for nobody, and leases run out anyway.
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
    """Send the messages of keys that are due; those that cannot be sent are left to the sweep."""
    try:
        with current_app.producer_or_acquire() as producer:
            for key in keys:
                current_app.send_task(RECONCILE_TASK, (key,), producer=producer)
    except (KombuError, RedisError, OSError) as error:
        logger.warning("Messages to the workers are late: %s", error)


def process_key(
    queue: WorkQueue,
    key: Key,
    reconcile: Reconcile,
    *,
    publish: PublishKeys = publish_keys,
    yield_after_seconds: float = YIELD_AFTER_SECONDS,
) -> None:
    """Claim a key and run passes over it; a doubled message claims nothing and ends here."""
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
            logger.warning("%s: claim %d outlived its lease; what it found is looked at anew", key, claim.epoch)
        if ended is not FinishResult.DUE:
            return
        if time.monotonic() >= yield_at:
            publish([key])
            return


def _run_pass(claim: Claim, lease: Lease, reconcile: Reconcile) -> ReconcileResult:
    """Run one pass. Whatever it raises concerns this workload alone: it is retried, and the others go on."""
    started = time.monotonic()
    try:
        outcome = reconcile(claim.key, lease.check)
    except LeaseLost as error:
        outcome = Retry(str(error))
    except SoftTimeLimitExceeded:
        outcome = Retry("the pass took longer than its time limit")
    except DatabaseError as error:
        # Its words may quote what was to be stored, and a template may hold what is nobody else's business.
        outcome = Retry(f"the database refused it ({type(error).__name__})")
    except Exception as error:
        if claim.attempt == 1:  # the whole story once, not with every attempt
            logger.warning("%s: the pass raised", claim.key, exc_info=True)
        outcome = Retry(f"{type(error).__name__}: {error}")
    metrics.observe_pass(outcome.label, time.monotonic() - started)
    return outcome


def _retry_while_redis_is_down(ask: Callable[[], FinishResult]) -> FinishResult:
    """Ask until Redis answers: a restart of it should not cost a workload the rest of its lease.

    Asked twice because an answer was lost, the queue says that the claim is gone; then the sweep sends what is due.
    """
    for pause in _PAUSES_FOR_REDIS:
        try:
            return ask()
        except RedisError as error:
            logger.info("Redis does not answer (%s); once more in %g s", type(error).__name__, pause)
            time.sleep(pause)
    return ask()


def _log_failure(claim: Claim, outcome: ReconcileResult) -> None:
    """Say what went wrong, if something did."""
    match outcome:
        case Retry(error):
            logger.warning("%s: attempt %d failed: %s", claim.key, claim.attempt, error)
        case Stop(error, reason):
            logger.warning("%s: left alone until it changes (%s): %s", claim.key, reason, error)


def _finish(queue: WorkQueue, claim: Claim, outcome: ReconcileResult) -> FinishResult:
    """End the flight as the pass came out."""
    match outcome:
        case Done() | Stop():
            return queue.done(claim)
        case Requeue():
            return queue.done(claim, requeue=True)
        case RequeueAfter(after_seconds):
            return queue.requeue_after(claim, max(0, round(after_seconds * 1000)))
        case Retry():
            return queue.back_off(claim)
