"""Django system checks for settings that would silently lose work.

The settings bound a pass over a workload by several time limits; these checks keep the limits in order, and reject
features of Celery and Redis on which the queue must not depend.
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

# The broker redelivers after its visibility timeout; well before, the sweep has reclaimed every expired lease.
_LEASES_IN_A_VISIBILITY_TIMEOUT = 10
_OLDEST_SQLITE = (3, 35, 0)


@register()
def time_limits_are_in_order(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Require request timeout < soft limit < hard limit < lease << visibility timeout."""
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
            f"{lower} ({low:g} s) must be lower than {upper} ({high:g} s).",
            hint=f"Lower {lower} or raise {upper}.",
            id="rollouts.E001",
        )
        for (lower, low), (upper, high) in pairwise(ladder)
        if low >= high
    ]


@register()
def celery_is_only_a_process_pool(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Forbid a result backend and eager tasks: neither survives when a process is killed."""
    findings: list[CheckMessage] = []
    if getattr(settings, "CELERY_RESULT_BACKEND", None):
        findings.append(
            Error(
                "CELERY_RESULT_BACKEND is set, but nothing reads task results: the cluster holds the state.",
                hint="Remove CELERY_RESULT_BACKEND.",
                id="rollouts.E002",
            )
        )
    if getattr(settings, "CELERY_TASK_ALWAYS_EAGER", False):
        findings.append(
            Error(
                "CELERY_TASK_ALWAYS_EAGER is set: tasks would run inside the process that sends them.",
                hint="Remove CELERY_TASK_ALWAYS_EAGER.",
                id="rollouts.E003",
            )
        )
    return findings


@register()
def redis_never_evicts(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Forbid eviction of keys in Redis. If Redis does not answer, /readyz reports it instead."""
    try:
        policy = redis_client().config_get("maxmemory-policy").get("maxmemory-policy")
    except RedisError:
        return []
    if policy in (None, "noeviction"):
        return []
    return [
        Error(
            f"The maxmemory-policy of Redis is {policy}: at its memory limit Redis would drop parts of the queue.",
            hint="Set maxmemory-policy to noeviction in the configuration of Redis.",
            id="rollouts.E004",
        )
    ]


@register()
def sqlite_is_recent_enough(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Require SQLite 3.35, the first version with RETURNING, which the mirror uses."""
    if connection.vendor != "sqlite" or sqlite3.sqlite_version_info >= _OLDEST_SQLITE:
        return []
    return [
        Error(
            f"SQLite is {sqlite3.sqlite_version}, but the mirror needs 3.35 or newer.",
            hint="Use a Python with a newer SQLite, or set DATABASE_URL to a PostgreSQL database.",
            id="rollouts.E005",
        )
    ]
