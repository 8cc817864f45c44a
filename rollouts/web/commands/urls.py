"""Where the pages hang from which people command: each below the address of the workload that it is about."""

from typing import Final

from django.urls import URLPattern

from rollouts.web.commands.apply import Apply, NewWorkload
from rollouts.web.commands.delete import Delete
from rollouts.web.commands.forms import Form
from rollouts.web.commands.images import Images
from rollouts.web.commands.pod_deletion import deletion_urlpatterns
from rollouts.web.commands.pods import AnyPods, Pods
from rollouts.web.commands.remedies import REMEDY_FORMS, remedy_urlpatterns
from rollouts.web.commands.restart import Restart
from rollouts.web.commands.roll_back import RollBack
from rollouts.web.commands.scale import Scale
from rollouts.web.commands.strategy import EditStrategy
from rollouts.web.commands.take_over import TakeOver

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
