"""The surge of a workload by HTTP: the list of extra units, and their deletion.

`engine.tree.surge` decides what is surge, on the same snapshot of the workload that the other views use. The answer has
a mark for each unit that identifies its objects. The client sends the mark back with the name, so a later surge unit of
the same name is never deleted.
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
from rollouts.engine.tree.surge import SurgeUnit, find_surge
from rollouts.selectors.workload_snapshot import read_snapshot
from rollouts.services.pods import MAX_PODS
from rollouts.services.surge import SurgeUnitRef, surge_delete


@dataclass(frozen=True, slots=True)
class SurgePod:
    """A pod of a surge unit."""

    name: str
    uid: str
    node: str  # empty until it is scheduled
    available: bool


@dataclass(frozen=True, slots=True)
class SurgeItem:
    """A unit beyond the desired number, which is deleted as a whole."""

    name: str  # of a replica of the set or of a scaling group, or of a pod
    mark: str  # distinguishes it from a later unit of the same name
    component: str  # the set, scaling group or PodClique that has this surge
    pods: tuple[SurgePod, ...]


class UnitBody(StrictSerializer):
    """A unit of surge."""

    name = StrictCharField(max_length=253)
    mark = StrictCharField(
        max_length=64, help_text="The mark from the list; a later unit of the same name is not deleted."
    )


class DeleteSurgeBody(StrictSerializer):
    """The surge units to delete."""

    units = serializers.ListField(child=UnitBody(), allow_empty=False, max_length=MAX_PODS)


class SurgeView(APIView):
    """The surge of a workload."""

    @extend_schema(
        operation_id="surge_list",
        summary="List the surge",
        tags=["workloads"],
        parameters=CONDITIONAL,
        responses={
            200: page_serializer(
                response_serializer(SurgeItem),
                "SurgePage",
                findings=response_serializer(Finding)(
                    many=True, help_text="Why Grove UI cannot read the manifest; the list is empty then."
                ),
            ),
            **NOT_MODIFIED,
        },
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List the units beyond the desired numbers, on one page.

        A unit is a replica of the set, a replica of a scaling group, or a pod of a clique. Terminating units are left
        out.
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
        """Delete surge units by force to free their room, ignoring disruption budgets.

        While an original is outdated, the controller creates the surge again, perhaps on another node. Units within the
        desired numbers are never deleted.
        """
        place, body = WorkloadRef(cluster, namespace, name), self.read_body(DeleteSurgeBody)
        chosen = frozenset(SurgeUnitRef(unit["name"], unit["mark"]) for unit in body["units"])
        return self.run_deletion(lambda caller, terms: surge_delete(caller, place, chosen, **terms))


urlpatterns = [
    path(f"{WORKLOAD}surge/", SurgeView.as_view(), name="api-workload-surge"),
    path(f"{WORKLOAD}surge/delete/", DeleteSurgeView.as_view(), name="workload-surge-delete"),
]
