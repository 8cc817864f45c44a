"""What a debug page, or any report of an error, shows: the traceback, and neither settings nor secrets.

Django's own filter hides what is named like a secret, and shows addresses with the password in them. DEBUG=1 answers
strangers with such a page, so no setting is on it at all, and what frames and requests hold is hidden by its name or
by what it looks like.
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
    """Hides as much on a debug page as in a report that leaves the machine."""

    hidden_settings = _SECRET_NAMES

    def is_active(self, request: HttpRequest | None) -> bool:
        """Hide with DEBUG, too."""
        return True

    def get_safe_settings(self) -> dict[str, Any]:
        """Return no setting: nobody debugs with them, and each new one could hold a secret."""
        return {}

    def get_traceback_frame_variables(self, request: HttpRequest | None, tb_frame: Any) -> ItemsView[str, Any]:
        """Return the variables of a frame, cleansed by their names and of the users in addresses."""
        found = super().get_traceback_frame_variables(request, tb_frame)
        return {name: self.cleanse_setting(name, value) for name, value in found}.items()

    def cleanse_setting(self, key: str | int, value: Any) -> Any:
        """Hide a value with a telling name, and the user part of an address in any other."""
        cleansed = super().cleanse_setting(key, value)
        if isinstance(cleansed, str):
            return _URL_CREDENTIALS.sub(f"{self.cleansed_substitute}@", cleansed)
        return cleansed
