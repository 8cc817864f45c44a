"""The ASGI application of the web process: Django behind the limits for requests."""

import os
from importlib import import_module

from django.conf import settings
from django.core.asgi import get_asgi_application

from rollouts.runtime.gc_tuning import tune_garbage_collector

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "grove_ui.settings")

_django = get_asgi_application()

from grove_ui.concurrency_limit import ConcurrencyLimit  # noqa: E402 (Django must be set up)
from grove_ui.probes import Probes  # noqa: E402
from grove_ui.request_limits import RequestLimits  # noqa: E402
from grove_ui.static_responses import StaticResponses  # noqa: E402

application = RequestLimits(Probes(StaticResponses(ConcurrencyLimit(_django))))

# Import all views now, so that no first request waits for it.
import_module(settings.ROOT_URLCONF)
tune_garbage_collector()
