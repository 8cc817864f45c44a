"""The URLs of all forms, below the URL of a workload or of a cluster."""

from typing import Final

from django.urls import URLPattern

from rollouts.web.commands.apply import ApplyForm, NewWorkloadForm
from rollouts.web.commands.delete import DeleteForm
from rollouts.web.commands.forms import CommandForm
from rollouts.web.commands.images import ImagesForm
from rollouts.web.commands.pod_deletion import deletion_urlpatterns
from rollouts.web.commands.pods import AnyPodsForm, OutdatedPodsForm
from rollouts.web.commands.remedies import REMEDY_FORMS, remedy_urlpatterns
from rollouts.web.commands.restart import RestartForm
from rollouts.web.commands.roll_back import RollBackForm
from rollouts.web.commands.scale import ScaleForm
from rollouts.web.commands.strategy import StrategyForm
from rollouts.web.commands.take_over import TakeOverForm
from rollouts.web.commands.take_over_cluster import TakeOverClusterForm

_FORMS: Final[tuple[CommandForm, ...]] = (
    ImagesForm(),
    StrategyForm(),
    ScaleForm(),
    RestartForm(),
    RollBackForm(),
    ApplyForm(),
    NewWorkloadForm(),
    OutdatedPodsForm(),
    AnyPodsForm(),
    TakeOverForm(),
    DeleteForm(),
    *REMEDY_FORMS,
)


def command_urlpatterns(below: str, below_cluster: str) -> list[URLPattern]:
    """Return the URL patterns of all forms, below the URL of a workload or of a cluster."""
    forms = [pattern for form in _FORMS for pattern in form.urlpatterns(below)]
    of_clusters = TakeOverClusterForm().urlpatterns(below_cluster)
    return [*forms, *of_clusters, *deletion_urlpatterns(below), *remedy_urlpatterns(below)]
