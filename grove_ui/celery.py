"""The Celery application: the process pool of the workers, and messages that wake them.

Messages carry no state: the work queue in Redis and the cluster hold what is due, so a lost or duplicate message costs
at most a second. The settings are in `grove_ui.settings`; `rollouts.runtime.checks` checks them.
"""

import os
import warnings
from typing import Any

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging, worker_process_init

from rollouts.runtime.gc_tuning import tune_garbage_collector

# Celery warns root about untrusted pickles, but the workers accept JSON only, and containers often run as root.
warnings.filterwarnings("ignore", category=SecurityWarning)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "grove_ui.settings")
# At each start of worker and beat Celery would import all pages for Django's checks, and throw away what these find.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("grove_ui")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def configure_logging(**_: Any) -> None:
    """Configure logging by the settings: otherwise Celery installs its own handlers."""
    from logging.config import dictConfig  # noqa: PLC0415 (settings must be configured first)

    from django.conf import settings  # noqa: PLC0415

    dictConfig(settings.LOGGING)


@worker_process_init.connect
def tune_pool_process(**_: Any) -> None:
    """Tune the garbage collector in each process of the pool."""
    tune_garbage_collector()
