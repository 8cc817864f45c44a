"""Permission classes of the views: the caller is signed in and may view workloads.

The service (`services.audit.audited_command`) checks the permission for a command, for the API, pages and admin site
alike. The classes here only keep anonymous callers out and protect reading.
"""

from typing import Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from rollouts.accounts import permissions
from rollouts.api.throttling import throttle_anonymous


class IsSignedIn(BasePermission):
    """Any active account, whatever its permissions."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return whether the caller is signed in; count anonymous requests against their limit."""
        if request.user.is_authenticated and request.user.is_active:
            return True
        throttle_anonymous(request)
        return False


class CanViewWorkloads(IsSignedIn):
    """An account that may view workloads: the default of all views."""

    message = permissions.NO_ROLE_SENTENCE

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return whether the caller may read; for other methods the service checks and records refusals."""
        is_read = request.method in SAFE_METHODS
        return super().has_permission(request, view) and (not is_read or permissions.may_view(request.user))
