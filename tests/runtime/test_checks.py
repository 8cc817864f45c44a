"""`manage.py check` finds settings that would silently lose work."""

import subprocess
import sys
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection
from pytest_django.fixtures import Settings
from redis import Redis

from rollouts.runtime.connections import redis_client
from tests.data_folders import ROOT


def _findings() -> list[str | None]:
    return [finding.id for finding in run_checks() if str(finding.id).startswith("rollouts.")]


def test_the_settings_as_shipped_have_no_finding() -> None:
    assert _findings() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLUSTER_REQUEST_TIMEOUT", 30),
        ("CELERY_TASK_SOFT_TIME_LIMIT", 40),
        ("CELERY_TASK_TIME_LIMIT", 60),
        ("RECONCILE_LEASE_SECONDS", 360),
        ("CELERY_BROKER_TRANSPORT_OPTIONS", {"visibility_timeout": 600}),
    ],
)
def test_limits_out_of_order_are_found(settings: Settings, name: str, value: Any) -> None:
    setattr(settings, name, value)
    assert _findings() == ["rollouts.E001"]


def test_a_result_backend_is_found(settings: Settings) -> None:
    settings.CELERY_RESULT_BACKEND = "redis://localhost/1"
    assert _findings() == ["rollouts.E002"]


def test_eager_tasks_are_found(settings: Settings) -> None:
    settings.CELERY_TASK_ALWAYS_EAGER = True
    assert _findings() == ["rollouts.E003"]


def test_a_redis_that_evicts_is_found_and_ours_does_not(redis: Redis) -> None:
    assert _findings() == []
    redis_client().config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert _findings() == ["rollouts.E004"]
    finally:
        redis_client().config_set("maxmemory-policy", "noeviction")


def test_a_sqlite_that_cannot_return_what_it_changed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("about SQLite only")
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 34, 1))
    assert _findings() == ["rollouts.E005"]


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_admin_site_is_imported_by_its_check_and_by_no_start() -> None:
    is_there = "print('rollouts.admin' in sys.modules)"
    check = "from django.core.checks import run_checks; run_checks(tags=['admin'])"
    assert _run(f"import sys, django; django.setup(); {is_there}; {check}; {is_there}").split() == ["False", "True"]


def test_worker_and_beat_start_without_the_pages() -> None:
    start = "from grove_ui.celery import app; app.loader.import_default_modules()"
    assert _run(f"import sys; {start}; print('rollouts.tasks' in sys.modules, 'grove_ui.urls' in sys.modules)") == (
        "True False\n"
    )
