"""The Celery tasks, a few lines each: the modules that they call do the work."""

import time
from importlib import import_module

from celery import shared_task
from django.conf import settings

from rollouts.controller import history, reconciler
from rollouts.queue import dispatch
from rollouts.runtime.connections import redis_client
from rollouts.telemetry import heartbeats


@shared_task
def reconcile(key: str) -> None:
    """Run passes over one workload, if it is due and no other worker has it."""
    dispatch.process_message(key, reconciler.reconcile)


@shared_task
def sweep() -> None:
    """Send what is due and what the broker may have lost; beat calls this every second, and two calls do no harm."""
    dispatch.sweep()
    heartbeats.record_sweep(redis_client())


@shared_task
def resync() -> None:
    """Enqueue every workload, and delete expired history and sessions; beat calls this every few minutes."""
    dispatch.enqueue_all()
    history.delete_expired(time.time())
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()
