"""The surge of a workload by HTTP: what stands beyond the wanted numbers, and its deletion.

What is surge is decided by `services.surge`, over the same look at a workload that everything else shows. A unit is
answered with a mark of the very objects that were looked at; sent back with its name, no other surge is deleted that
has taken the name since.
"""

from dataclasses import dataclass

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.accounts.commands import Command, Place
from rollouts.api.commands import describe_command
from rollouts.api.paths import WORKLOAD
from rollouts.api.pods import DeletedPodsAnswer, DeletionView
from rollouts.api.query_params import no_parameters
from rollouts.api.rendering import answer_version
from rollouts.api.response_serializers import page_of, shape_of
from rollouts.api.schema import CONDITIONAL, NOT_MODIFIED
from rollouts.api.serializers import Body, Text
from rollouts.engine.manifest.findings import Finding
from rollouts.selectors.workload_snapshot import look_at
from rollouts.services.pods import MOST_PODS
from rollouts.services.surge import NamedUnit, SurgeUnit, find_surge, surge_delete


@dataclass(frozen=True, slots=True)
class SurgePod:
    """A pod of surge."""

    name: str
    uid: str
    node: str  # empty while it has none
    available: bool


@dataclass(frozen=True, slots=True)
class SurgeItem:
    """Something beyond the wanted number that is deleted as a whole."""

    name: str  # of a replica of the set or of a scaling group, or of a pod
    mark: str  # what tells it from another one that has its name later
    component: str  # the set, scaling group or PodClique that it is surge of
    pods: tuple[SurgePod, ...]


class UnitBody(Body):
    """A unit of surge."""

    name = Text(max_length=253)
    mark = Text(max_length=64, help_text="As it was listed, so that no other surge of that name is deleted.")


class DeleteSurgeBody(Body):
    """Which units of surge."""

    units = serializers.ListField(child=UnitBody(), allow_empty=False, max_length=MOST_PODS)


class SurgeView(APIView):
    """The surge of a workload."""

    @extend_schema(
        operation_id="surge_list",
        summary="The surge",
        tags=["workloads"],
        parameters=CONDITIONAL,
        responses={
            200: page_of(
                shape_of(SurgeItem),
                "SurgePage",
                findings=shape_of(Finding)(many=True, help_text="Why nothing can be told: its manifest is unreadable."),
            ),
            **NOT_MODIFIED,
        },
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List what stands beyond the wanted numbers, on one page.

        That is whole replicas of the set, replicas of scaling groups, and pods of cliques; what is on its way out is
        left out.
        """
        no_parameters(request)
        look = look_at(Place(cluster, namespace, name))
        units = () if look.workload is None else find_surge(look.workload, look.seen.observed)
        found = {"count": len(units), "next": None, "previous": None, "results": [_item(unit) for unit in units]}
        return answer_version(request, {**found, "findings": look.findings}, look.version)


def _item(unit: SurgeUnit) -> SurgeItem:
    pods = tuple(SurgePod(pod.name, pod.uid, pod.node, pod.available) for pod in unit.pods)
    return SurgeItem(unit.name, unit.mark, unit.component, pods)


class DeleteSurgeView(DeletionView):
    """Deletion of surge."""

    commands = (Command.DELETE_ANY_PODS,)

    @describe_command(DeleteSurgeBody, DeletedPodsAnswer, operation_id="surge_delete", summary="Delete surge")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Delete units of surge by force, so that their room is free; disruption budgets are not asked.

        While an original is outdated, surge is created anew, perhaps on a better node. What is within the wanted
        numbers is never touched.
        """
        place, body = Place(cluster, namespace, name), self.read(DeleteSurgeBody)
        chosen = frozenset(NamedUnit(unit["name"], unit["mark"]) for unit in body["units"])
        return self.deletion(lambda caller, terms: surge_delete(caller, place, chosen, **terms))


urlpatterns = [
    path(f"{WORKLOAD}surge/", SurgeView.as_view(), name="api-workload-surge"),
    path(f"{WORKLOAD}surge/delete/", DeleteSurgeView.as_view(), name="workload-surge-delete"),
]
