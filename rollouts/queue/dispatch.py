"""Wakes workloads, and takes a woken one through its passes: the only user of the queue and the only publisher.

Before it: the watcher and the services, which say that something changed (`wake`), and the Celery tasks, a few lines
each. After it: `workqueue`, which knows what is due, and the broker, which carries keys to the workers; `lease`, which
keeps a claim while its pass runs. What a pass does is not known here: it is a function from a key, and a fence to pass
before each write, to an `Outcome`.

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
from rollouts.models import Workload
from rollouts.queue.lease import LEASE_SECONDS, Lease, LeaseLost, held
from rollouts.queue.results import Again, Done, Outcome, Retry, Stop, Wait
from rollouts.queue.workqueue import Claim, Ended, Key, WorkQueue
from rollouts.runtime.connections import redis_client
from rollouts.telemetry import metrics

logger = logging.getLogger(__name__)

RECONCILE: Final = "rollouts.tasks.reconcile"
# So long a key that is due again at once goes on in the same worker, without a message; then others have their turn.
TURN_SECONDS: Final = 0.5
# Together longer than a Redis takes to restart.
_PAUSES_FOR_REDIS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 1.6)
_SERVER_SEEN: Final = "grove:queue:server"
# Of this worker: told apart from every other one, and the same in the processes of its pool, which are forked.
_WORKER: Final = secrets.token_hex(8)

Reconcile = Callable[[Key, Fence], Outcome]
Publish = Callable[[Iterable[Key]], None]


def wake(keys: Iterable[Key]) -> bool:
    """Have workers look at workloads; False when Redis is away: nothing is noted then, try again."""
    try:
        publish(open_queue().add(keys))
    except RedisError as error:
        logger.warning("Workloads cannot be woken: Redis does not answer (%s)", type(error).__name__)
        return False
    return True


def wake_everything() -> bool:
    """Wake every workload of every mirrored cluster."""
    rows = Workload.objects.values_list("cluster__name", "namespace", "name")
    return wake(f"{cluster}/{namespace}/{name}" for cluster, namespace, name in rows.iterator())


def sweep() -> None:
    """Send what the queue says is due or seems lost; after a restart of Redis wake everything."""
    redis = redis_client()
    publish(open_queue().sweep())
    run = str(redis.info("server")["run_id"]).encode()
    # Noted last: if this process ends half-way, the next sweep wakes everything once more.
    if redis.get(_SERVER_SEEN) != run and wake_everything():
        redis.set(_SERVER_SEEN, run)


def work(key: Key, reconcile: Reconcile) -> None:
    """Take a workload through its passes until nothing is due or its turn is over."""
    try:
        run_turn(open_queue(), key, reconcile)
    finally:
        metrics.flush(redis_client())


def open_queue() -> WorkQueue:
    """The queue of workloads to reconcile."""
    return _open_queue(redis_client())


def give_back(pid: int) -> list[Key]:
    """Free what a process of this worker's pool had claimed; called in its parent, which has seen it die."""
    # A client of its own: the parent waits for nobody, and leases run out anyway.
    once = Retrying(NoBackoff(), 0)
    with Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1, retry=once) as redis:
        return _open_queue(redis).give_back(_owner(pid))


def _open_queue(redis: Redis) -> WorkQueue:
    longest = settings.RECONCILE_LEASE_SECONDS
    return WorkQueue(
        redis,
        lease_ms=round(min(LEASE_SECONDS, longest) * 1000),
        longest_ms=round(longest * 1000),
        owner=_owner(os.getpid()),
    )


def _owner(pid: int) -> str:
    return f"{_WORKER}/{pid}"


def publish(keys: Iterable[Key]) -> None:
    """Send the messages of keys that are due; those that cannot be sent are left to the sweep."""
    try:
        with current_app.producer_or_acquire() as producer:
            for key in keys:
                current_app.send_task(RECONCILE, (key,), producer=producer)
    except (KombuError, RedisError, OSError) as error:
        logger.warning("Messages to the workers are late: %s", error)


def run_turn(
    queue: WorkQueue,
    key: Key,
    reconcile: Reconcile,
    *,
    publish: Publish = publish,
    turn_seconds: float = TURN_SECONDS,
) -> None:
    """Claim a key and run passes over it; a doubled message claims nothing and ends here."""
    turn_ends = time.monotonic() + turn_seconds
    while True:
        asked_at = time.monotonic()
        claim = queue.claim(key)
        if claim is None:
            return
        with held(queue, claim, asked_at) as lease:
            outcome = _attempt(claim, lease, reconcile)
            _log(claim, outcome)
            ended = _insist(partial(_settle, queue, claim, outcome))
        if ended is Ended.LOST:
            logger.warning("%s: claim %d outlived its lease; what it found is looked at anew", key, claim.epoch)
        if ended is not Ended.DUE:
            return
        if time.monotonic() >= turn_ends:
            publish([key])
            return


def _attempt(claim: Claim, lease: Lease, reconcile: Reconcile) -> Outcome:
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
    metrics.observe_pass(type(outcome).__name__, time.monotonic() - started)
    return outcome


def _insist(ask: Callable[[], Ended]) -> Ended:
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


def _log(claim: Claim, outcome: Outcome) -> None:
    """Say what went wrong, if something did."""
    match outcome:
        case Retry(error):
            logger.warning("%s: attempt %d failed: %s", claim.key, claim.attempt, error)
        case Stop(error, reason):
            logger.warning("%s: left alone until it changes (%s): %s", claim.key, reason, error)


def _settle(queue: WorkQueue, claim: Claim, outcome: Outcome) -> Ended:
    """End the flight as the pass came out."""
    match outcome:
        case Done() | Stop():
            return queue.done(claim)
        case Again():
            return queue.done(claim, again=True)
        case Wait(after_seconds):
            return queue.wait(claim, max(0, round(after_seconds * 1000)))
        case Retry():
            return queue.back_off(claim)
