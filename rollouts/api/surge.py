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

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.api.commands import describe_command
from rollouts.api.paths import WORKLOAD
from rollouts.api.pods import DeletedPodsAnswer, PodDeletionView
from rollouts.api.query_params import reject_parameters
from rollouts.api.rendering import versioned_response
from rollouts.api.response_serializers import page_serializer, response_serializer
from rollouts.api.schema import CONDITIONAL, NOT_MODIFIED
from rollouts.api.serializers import StrictCharField, StrictSerializer
from rollouts.engine.manifest.findings import Finding
from rollouts.selectors.workload_snapshot import read_snapshot
from rollouts.services.pods import MAX_PODS
from rollouts.services.surge import SurgeUnit, SurgeUnitRef, find_surge, surge_delete


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


class UnitBody(StrictSerializer):
    """A unit of surge."""

    name = StrictCharField(max_length=253)
    mark = StrictCharField(max_length=64, help_text="As it was listed, so that no other surge of that name is deleted.")


class DeleteSurgeBody(StrictSerializer):
    """Which units of surge."""

    units = serializers.ListField(child=UnitBody(), allow_empty=False, max_length=MAX_PODS)


class SurgeView(APIView):
    """The surge of a workload."""

    @extend_schema(
        operation_id="surge_list",
        summary="The surge",
        tags=["workloads"],
        parameters=CONDITIONAL,
        responses={
            200: page_serializer(
                response_serializer(SurgeItem),
                "SurgePage",
                findings=response_serializer(Finding)(
                    many=True, help_text="Why nothing can be told: its manifest is unreadable."
                ),
            ),
            **NOT_MODIFIED,
        },
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List what stands beyond the wanted numbers, on one page.

        That is whole replicas of the set, replicas of scaling groups, and pods of cliques; what is on its way out is
        left out.
        """
        reject_parameters(request)
        snapshot = read_snapshot(WorkloadRef(cluster, namespace, name))
        units = () if snapshot.workload is None else find_surge(snapshot.workload, snapshot.mirrored.observed)
        found = {"count": len(units), "next": None, "previous": None, "results": [_render_unit(unit) for unit in units]}
        return versioned_response(request, {**found, "findings": snapshot.findings}, snapshot.version)


def _render_unit(unit: SurgeUnit) -> SurgeItem:
    pods = tuple(SurgePod(pod.name, pod.uid, pod.node, pod.available) for pod in unit.pods)
    return SurgeItem(unit.name, unit.mark, unit.component, pods)


class DeleteSurgeView(PodDeletionView):
    """Deletion of surge."""

    commands = (Command.DELETE_ANY_PODS,)

    @describe_command(DeleteSurgeBody, DeletedPodsAnswer, operation_id="surge_delete", summary="Delete surge")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Delete units of surge by force, so that their room is free; disruption budgets are not asked.

        While an original is outdated, surge is created anew, perhaps on a better node. What is within the wanted
        numbers is never touched.
        """
        place, body = WorkloadRef(cluster, namespace, name), self.read_body(DeleteSurgeBody)
        chosen = frozenset(SurgeUnitRef(unit["name"], unit["mark"]) for unit in body["units"])
        return self.run_deletion(lambda caller, terms: surge_delete(caller, place, chosen, **terms))


urlpatterns = [
    path(f"{WORKLOAD}surge/", SurgeView.as_view(), name="api-workload-surge"),
    path(f"{WORKLOAD}surge/delete/", DeleteSurgeView.as_view(), name="workload-surge-delete"),
]
