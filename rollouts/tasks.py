"""Celery entry points, a few lines each: the work is done by the modules they call."""

from celery import shared_task

from rollouts import heartbeats
from rollouts.connections import redis_client


@shared_task
def sweep() -> None:
    """Look after what the queue may have lost; beat calls it every second, and twice does no harm."""
    heartbeats.record_sweep(redis_client())
