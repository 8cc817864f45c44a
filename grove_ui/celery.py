"""The Celery application: the process pool of the workers and their wake-up channel, never the truth.

What is due lives in Redis and in the cluster; a lost or doubled message may cost a second, not a workload. The
settings that this rests on are in `grove_ui.settings` and checked by `rollouts.runtime.checks`.
"""

import os
import warnings
from typing import Any

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging, worker_process_init

from rollouts.runtime.gc_tuning import tune_garbage_collector

# Celery warns root of untrusted pickles; we accept JSON only, and in a container root is nobody special.
warnings.filterwarnings("ignore", category=SecurityWarning)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "grove_ui.settings")
# At each start of worker and beat Celery would import all pages for Django's checks, and throw away what these find.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("grove_ui")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def configure_logging(**_: Any) -> None:
    """Log as the rest of the product does: Celery would install handlers of its own otherwise."""
    from logging.config import dictConfig  # noqa: PLC0415 (settings must be configured first)

    from django.conf import settings  # noqa: PLC0415

    dictConfig(settings.LOGGING)


@worker_process_init.connect
def tune_pool_process(**_: Any) -> None:
    """Have a process of the pool collect garbage as those do that stay."""
    tune_garbage_collector()
