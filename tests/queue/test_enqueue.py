"""Any process can enqueue workloads: through the queue, with a message each, and without an error for the caller."""

import base64
import json
import threading
from typing import Any

import pytest
from celery import current_app
from kombu.exceptions import OperationalError
from redis import Redis

from rollouts import models
from rollouts.cluster import Fence
from rollouts.queue import dispatch
from rollouts.queue.results import Done, ReconcileResult
from rollouts.queue.workqueue import Depth
from rollouts.telemetry import metrics

KEYS = ["sandbox/default/a", "sandbox/default/b"]


def _messages(redis: Redis) -> list[str]:
    """The keys of the messages in the broker, oldest first."""
    bodies = [json.loads(message)["body"] for message in reversed(redis.lrange("reconcile", 0, -1))]
    return [json.loads(base64.b64decode(body))[0][0] for body in bodies]


def _mirror(*names: str) -> None:
    cluster, _ = models.Cluster.objects.get_or_create(name="sandbox")
    for name in names:
        models.Workload.objects.create(
            cluster=cluster, namespace="default", name=name, uid=name, resource_version=1, created=0.0, manifest={}
        )


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Redis:
    """A Redis that does not answer."""
    client: Redis = Redis.from_url("unix:///nonexistent/redis.sock")
    monkeypatch.setattr(dispatch, "redis_client", lambda: client)
    return client


def test_a_woken_workload_is_due_and_has_one_message(redis: Redis) -> None:
    assert dispatch.enqueue(KEYS)
    assert dispatch.enqueue(KEYS[:1])
    assert _messages(redis) == KEYS
    assert dispatch.open_queue().depth().ready == 2


def test_a_redis_that_is_away_is_told_to_the_caller_and_raises_nothing(nowhere: Redis) -> None:
    assert dispatch.enqueue(KEYS) is False


def test_a_message_that_cannot_be_sent_leaves_the_workload_due(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(current_app, "send_task", refuse)
    assert dispatch.enqueue(KEYS)
    assert dispatch.open_queue().depth().ready == 2


def test_a_turn_works_on_the_queue_of_the_settings_and_hands_over_the_counts(redis: Redis) -> None:
    seen: list[str] = []

    def reconcile(key: str, fence: Fence) -> ReconcileResult:
        seen.append(key)
        return Done()

    dispatch.enqueue(KEYS)
    for key in (*KEYS, *KEYS):
        dispatch.process_message(key, reconcile)
    assert seen == KEYS
    passes = next(spreads for histogram, spreads in metrics.read(redis) if histogram is metrics.PASS_SECONDS)
    assert sum(spread.buckets[-1][1] for spread in passes) >= 2


@pytest.mark.database
@pytest.mark.django_db
def test_everything_mirrored_is_woken_and_nothing_that_is_gone(redis: Redis) -> None:
    _mirror("a", "b", "gone")
    models.Workload.objects.filter(name="gone").update(gone_at=1.0)
    assert dispatch.enqueue_all()
    assert sorted(_messages(redis)) == KEYS


@pytest.mark.database
@pytest.mark.django_db
def test_a_sweep_wakes_everything_once_for_each_run_of_the_redis_server(redis: Redis) -> None:
    _mirror("a", "b")
    dispatch.sweep()
    assert dispatch.open_queue().depth().ready == 2
    for key in KEYS:
        dispatch.process_message(key, lambda _key, _fence: Done())
    dispatch.sweep()
    assert dispatch.open_queue().depth() == Depth(ready=0, processing=0, dirty=0, delayed=0, oldest_ms=0)
    redis.set("grove:queue:server", "another run")
    dispatch.sweep()
    assert dispatch.open_queue().depth().ready == 2


def test_any_thread_can_wake(redis: Redis) -> None:
    thread = threading.Thread(target=dispatch.enqueue, args=(KEYS,))
    thread.start()
    thread.join()
    assert _messages(redis) == KEYS
