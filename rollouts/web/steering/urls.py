"""Where the pages hang from which people command: each below the address of the workload that it is about."""

from typing import Final

from django.urls import URLPattern

from rollouts.web.steering.apply import Apply, NewWorkload
from rollouts.web.steering.delete import Delete
from rollouts.web.steering.deletion import deletion_urlpatterns
from rollouts.web.steering.desk import Form
from rollouts.web.steering.images import Images
from rollouts.web.steering.pods import AnyPods, Pods
from rollouts.web.steering.remedies import REMEDY_FORMS, remedy_urlpatterns
from rollouts.web.steering.restart import Restart
from rollouts.web.steering.roll_back import RollBack
from rollouts.web.steering.scale import Scale
from rollouts.web.steering.strategy import EditStrategy
from rollouts.web.steering.take_over import TakeOver

_DESKS: Final[tuple[Form, ...]] = (
    Images(),
    EditStrategy(),
    Scale(),
    Restart(),
    RollBack(),
    Apply(),
    NewWorkload(),
    Pods(),
    AnyPods(),
    TakeOver(),
    Delete(),
    *REMEDY_FORMS,
)


def steering_urlpatterns(below: str) -> list[URLPattern]:
    """Return the addresses of all forms, below the address of a workload."""
    forms = [pattern for desk in _DESKS for pattern in desk.urlpatterns(below)]
    return [*forms, *deletion_urlpatterns(below), *remedy_urlpatterns(below)]
