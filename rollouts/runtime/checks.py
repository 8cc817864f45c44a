"""`manage.py check` findings for settings that would lose work silently.

A pass over a workload is bounded on every side (see the settings); these checks keep the bounds in their order, and
keep out the Celery and Redis features that the queue must not rest on.
"""

import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.db import connection
from redis import RedisError

from rollouts.runtime.connections import redis_client

# The broker redelivers after its visibility timeout; well before that the sweep has put every expired lease right.
_LEASES_IN_A_VISIBILITY_TIMEOUT = 10
_OLDEST_SQLITE = (3, 35, 0)


@register()
def time_limits_are_in_order(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Request timeout < soft limit < hard limit < lease « visibility timeout."""
    visibility = settings.CELERY_BROKER_TRANSPORT_OPTIONS.get("visibility_timeout", 3600)
    ladder = [
        ("CLUSTER_REQUEST_TIMEOUT", settings.CLUSTER_REQUEST_TIMEOUT),
        ("CELERY_TASK_SOFT_TIME_LIMIT", settings.CELERY_TASK_SOFT_TIME_LIMIT),
        ("CELERY_TASK_TIME_LIMIT", settings.CELERY_TASK_TIME_LIMIT),
        ("RECONCILE_LEASE_SECONDS", settings.RECONCILE_LEASE_SECONDS),
        (
            f"visibility_timeout / {_LEASES_IN_A_VISIBILITY_TIMEOUT} of CELERY_BROKER_TRANSPORT_OPTIONS",
            visibility / _LEASES_IN_A_VISIBILITY_TIMEOUT,
        ),
    ]
    return [
        Error(
            f"{lower} is {low:g} s and {upper} is {high:g} s: the first must be the smaller one.",
            hint=f"Lower {lower} or raise {upper}.",
            id="rollouts.E001",
        )
        for (lower, low), (upper, high) in pairwise(ladder)
        if low >= high
    ]


@register()
def celery_is_only_a_process_pool(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """No result backend and no eager tasks: neither is there when a process is killed."""
    findings: list[CheckMessage] = []
    if getattr(settings, "CELERY_RESULT_BACKEND", None):
        findings.append(
            Error(
                "CELERY_RESULT_BACKEND is set, but results of tasks are kept nowhere: the cluster has the truth.",
                hint="Remove CELERY_RESULT_BACKEND.",
                id="rollouts.E002",
            )
        )
    if getattr(settings, "CELERY_TASK_ALWAYS_EAGER", False):
        findings.append(
            Error(
                "CELERY_TASK_ALWAYS_EAGER is set: tasks would run inside the process that wakes them.",
                hint="Remove CELERY_TASK_ALWAYS_EAGER.",
                id="rollouts.E003",
            )
        )
    return findings


@register()
def redis_never_evicts(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Ask Redis for its eviction policy. One that does not answer is no finding here: /readyz says so."""
    try:
        policy = redis_client().config_get("maxmemory-policy").get("maxmemory-policy")
    except RedisError:
        return []
    if policy in (None, "noeviction"):
        return []
    return [
        Error(
            f"Redis has maxmemory-policy {policy}: under memory pressure it would drop parts of the queue.",
            hint="Set maxmemory-policy to noeviction in the configuration of that Redis.",
            id="rollouts.E004",
        )
    ]


@register()
def sqlite_is_recent_enough(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """The mirror's writes return the rows they changed, which SQLite learned in 3.35."""
    if connection.vendor != "sqlite" or sqlite3.sqlite_version_info >= _OLDEST_SQLITE:
        return []
    return [
        Error(
            f"SQLite is {sqlite3.sqlite_version}, and the mirror needs 3.35 or newer.",
            hint="Use a Python with a newer SQLite, or PostgreSQL by DATABASE_URL.",
            id="rollouts.E005",
        )
    ]
