"""The ASGI entry of the web process."""

import gc
import os
from importlib import import_module

from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "grove_ui.settings")

application = get_asgi_application()

# Everything that answers is loaded now, so that nobody's first request waits for it. It stays as long as the process,
# so the collector need not look through it again and again: that takes a tenth of a second, and everybody waits.
import_module(settings.ROOT_URLCONF)
gc.collect()
gc.freeze()
