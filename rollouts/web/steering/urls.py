"""Where the pages hang from which people command: each below the address of the workload that it is about."""

from django.urls import URLPattern

from rollouts.web.steering.deletion import deletion_urlpatterns
from rollouts.web.steering.pods import AnyPods, Pods
from rollouts.web.steering.restart import Restart
from rollouts.web.steering.strategy import EditStrategy

_DESKS = (EditStrategy(), Restart(), Pods(), AnyPods())


def steering_urlpatterns(below: str) -> list[URLPattern]:
    """Return the addresses of all forms, below the address of a workload."""
    return [*(pattern for desk in _DESKS for pattern in desk.urlpatterns(below)), *deletion_urlpatterns(below)]
