"""Duplicate messages: every workload's message is sent again and again, whatever the state of the queue.

A broker may deliver a message twice, and redelivers a dead worker's message long after another worker did its work.
The queue must ignore both.
"""

import contextlib
import threading
from collections.abc import Iterator

from celery import Celery
from django.conf import settings

from rollouts.cluster import ClusterError
from rollouts.cluster.resources import PODCLIQUESETS
from tests.scenarios.running_clusters import TargetCluster

SECONDS_BETWEEN = 0.5
TASK = "rollouts.tasks.reconcile"


@contextlib.contextmanager
def doubled_messages(target: TargetCluster, redis_url: str) -> Iterator[None]:
    """Send the message of every workload of a cluster repeatedly, until the block ends."""
    over = threading.Event()
    thread = threading.Thread(target=_send, args=(target, redis_url, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def _send(target: TargetCluster, redis_url: str, over: threading.Event) -> None:
    broker = redis_url.replace("unix://", "redis+socket://", 1)
    sender = Celery("doubling", broker=broker, set_as_current=False)
    while not over.wait(SECONDS_BETWEEN):
        with contextlib.suppress(ClusterError):
            for obj in target.cluster.list(PODCLIQUESETS).items:
                metadata = obj["metadata"]
                key = f"{target.name}/{metadata['namespace']}/{metadata['name']}"
                sender.send_task(TASK, (key,), queue=settings.CELERY_TASK_DEFAULT_QUEUE)
