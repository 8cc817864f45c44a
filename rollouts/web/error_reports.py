"""Debug pages and error reports show the traceback, but no settings and no secrets.

Django's own filter hides values with names like secrets, but shows URLs with the password in them. With DEBUG=1
anonymous visitors get such a page. So it contains no settings, and the filter hides values of frames and requests by
their name or their form.
"""

import re
from collections.abc import ItemsView
from typing import Any, Final

from django.http import HttpRequest
from django.views.debug import SafeExceptionReporterFilter

_SECRET_NAMES: Final = re.compile(
    "API|AUTH|TOKEN|KEY|SECRET|PASS|SIGNATURE|HTTP_COOKIE|COOKIE|SESSION|DATABASES|CACHES|(?:REDIS|BROKER|DATABASE)_URL",
    flags=re.IGNORECASE,
)
_URL_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s'\"@]*+@(?:[^/\s'\"@]*+@)*+")


class ErrorReportFilter(SafeExceptionReporterFilter):
    """Hides as much on a debug page as in a report by mail."""

    hidden_settings = _SECRET_NAMES

    def is_active(self, request: HttpRequest | None) -> bool:
        """Return True, also with DEBUG."""
        return True

    def get_safe_settings(self) -> dict[str, Any]:
        """Return no settings, because each new one could hold a secret."""
        return {}

    def get_traceback_frame_variables(self, request: HttpRequest | None, tb_frame: Any) -> ItemsView[str, Any]:
        """Return the variables of a frame without secrets and without credentials in URLs."""
        found = super().get_traceback_frame_variables(request, tb_frame)
        return {name: self.cleanse_setting(name, value) for name, value in found}.items()

    def cleanse_setting(self, key: str | int, value: Any) -> Any:
        """Hide a value whose name suggests a secret, and the credentials in other URLs."""
        cleansed = super().cleanse_setting(key, value)
        if isinstance(cleansed, str):
            return _URL_CREDENTIALS.sub(f"{self.cleansed_substitute}@", cleansed)
        return cleansed
