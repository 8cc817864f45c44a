"""What a view asks before it does anything: that somebody is signed in, and that they may see.

Whether somebody may give a command is asked by the service (`audit.audited_command`), wherever the command comes from;
here it is only made sure that a stranger gets nowhere.
"""

from typing import Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from rollouts.accounts import permissions
from rollouts.api.throttling import throttle_anonymous


class IsSignedIn(BasePermission):
    """Somebody, whatever they may."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether the request is that of an account; strangers are counted."""
        if request.user.is_authenticated and request.user.is_active:
            return True
        throttle_anonymous(request)
        return False


class CanViewWorkloads(IsSignedIn):
    """Somebody who may see workloads: what every view asks that does not say otherwise."""

    message = "You may not see anything here yet: your account has no role. Ask an administrator for the role viewer."

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether they may read; what they may not command is refused by the service, which puts that on record."""
        is_read = request.method in SAFE_METHODS
        return super().has_permission(request, view) and (not is_read or permissions.may_view(request.user))
