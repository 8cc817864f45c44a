"""Celery entry points, a few lines each: the work is done by the modules they call."""

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
    """Take one workload further, if it is due and nobody else works on it."""
    dispatch.process_message(key, reconciler.reconcile)


@shared_task
def sweep() -> None:
    """Look after what the queue may have lost; beat calls it every second, and twice does no harm."""
    dispatch.sweep()
    heartbeats.record_sweep(redis_client())


@shared_task
def resync() -> None:
    """Wake every workload, whatever was missed, and drop what is long over; beat calls it every few minutes."""
    dispatch.enqueue_all()
    history.delete_expired(time.time())
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()
