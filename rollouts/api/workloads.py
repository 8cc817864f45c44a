"""/workloads/: the list, what there is to see of one workload, and the command that deletes it."""

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.api.commands import CommandView, describe_command, render_place
from rollouts.api.idempotency import answer_once
from rollouts.api.paths import WORKLOAD
from rollouts.api.query_params import QueryParams, reject_parameters, render_page
from rollouts.api.rendering import cacheable_response, json_response, versioned_response
from rollouts.api.response_serializers import (
    ManifestSerializer,
    counts_by_state_field,
    page_serializer,
    response_serializer,
)
from rollouts.api.schema import CONDITIONAL, NOT_MODIFIED, PAGING, query_parameter
from rollouts.api.serializers import DeletedWorkloadAnswer
from rollouts.engine.model.workload import Strategy
from rollouts.selectors.diagnosis import Diagnosis, diagnosis_detail
from rollouts.selectors.manifests import manifest_detail
from rollouts.selectors.tree import WorkloadTree, workload_tree
from rollouts.selectors.workload_detail import WorkloadDetail, workload_detail
from rollouts.selectors.workload_state import State
from rollouts.selectors.workloads import ORDERINGS, WorkloadFilters, WorkloadSummary, workload_list
from rollouts.services.audit import Source, caller_of, reader_for
from rollouts.services.workload_deletion import WorkloadDeleted, workload_delete

_PARAMETERS = [
    query_parameter("cluster", "Only of these clusters.", many=True),
    query_parameter("namespace", "Only in these namespaces.", many=True),
    query_parameter("name", "Only those with these names.", many=True),
    query_parameter("strategy", "Only those with one of these strategies in force.", many=True, among=Strategy),
    query_parameter("state", "Only those in one of these states.", many=True, among=State),
    query_parameter(
        "label",
        "Only those with this label, as `key=value`; repeated: with all of them.",
        many=True,
        pattern=r'^[^=\\"\u0000]+=[^\\"\u0000]*$',
    ),
    query_parameter(
        "search",
        "Words, each of which is in the name, the namespace or the name of the cluster, or begins the name of one of"
        " its pods or the hash of one of its templates.",
    ),
    query_parameter(
        "ordering",
        f"By what, with commas between, each with a minus before it to go down: {', '.join(ORDERINGS)}. Ties are"
        " ordered by namespace, name and cluster.",
        pattern=f"^(-?({'|'.join(ORDERINGS)})(,-?({'|'.join(ORDERINGS)}))*)?$",
    ),
    *PAGING,
]


class WorkloadsView(APIView):
    """All workloads."""

    @extend_schema(
        operation_id="workloads_list",
        summary="The workloads",
        tags=["workloads"],
        parameters=_PARAMETERS,
        responses=page_serializer(response_serializer(WorkloadSummary), "WorkloadPage", totals=counts_by_state_field()),
    )
    def get(self, request: Request) -> HttpResponse:
        """List workloads of all clusters and namespaces.

        `totals` has how many there are in each state among those that the other filters leave, whatever state was
        asked for.
        """
        query = QueryParams(request)
        filters = WorkloadFilters(
            clusters=query.texts("cluster"),
            namespaces=query.texts("namespace"),
            names=query.texts("name"),
            strategies=query.text_choices("strategy", [str(one) for one in Strategy]),
            states=query.choices("state", State),
            labels=query.pairs("label"),
            search=query.text("search"),
            ordering=query.ordering(ORDERINGS),
        )
        window = query.window()
        query.raise_if_invalid()
        found = workload_list(filters, window)
        return cacheable_response({**render_page(request, found.page), "totals": found.totals})


class WorkloadView(CommandView):
    """One workload."""

    commands = (Command.DELETE_WORKLOAD,)

    @extend_schema(
        operation_id="workloads_detail",
        summary="One workload",
        tags=["workloads"],
        parameters=CONDITIONAL,
        responses={200: response_serializer(WorkloadDetail), **NOT_MODIFIED},
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Tell what a workload is made of, how it stands and how far its update is.

        Its ETag can be sent as If-Match with any command to it.
        """
        reject_parameters(request)
        detail = workload_detail(WorkloadRef(cluster, namespace, name))
        return versioned_response(request, detail, detail.version)

    @describe_command(None, DeletedWorkloadAnswer, operation_id="workload_delete", summary="Delete a workload")
    def delete(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Delete a workload with everything that belongs to it: pods, gangs, services.

        The pods end at once, whatever budgets say. With `dry_run` the answer tells what would go. The manifest stays in
        the audit, with what may be secret hidden.
        """
        place, (caller, terms) = WorkloadRef(cluster, namespace, name), self.read_preconditions()
        return answer_once(request, lambda _: _deleted_response(request, workload_delete(caller, place, **terms)))


def _deleted_response(request: Request, deleted: WorkloadDeleted) -> HttpResponse:
    return json_response(
        {
            "workload": render_place(deleted.place),
            "version": deleted.version,
            "pods": deleted.extent.pods,
            "gangs": deleted.extent.gangs,
            "resources": dict(deleted.extent.resources),
            "was_leaving": deleted.was_leaving,
            "dry_run": deleted.is_dry_run,
            "request_id": getattr(request, "request_id", ""),
        }
    )


class TreeView(APIView):
    """One workload as a tree."""

    @extend_schema(
        operation_id="workloads_tree",
        summary="Replicas, scaling groups, cliques and pods",
        tags=["workloads"],
        responses=response_serializer(WorkloadTree),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Tell everything there is of a workload, in its place.

        Replicas of the set hold cliques and scaling groups; those hold replicas, cliques and, at the leaves, pods: each
        with its template hash and revision, whether it is outdated, available, surge or leaving, and its node.
        """
        reject_parameters(request)
        return cacheable_response(workload_tree(WorkloadRef(cluster, namespace, name)))


class ManifestView(APIView):
    """The manifest of one workload."""

    @extend_schema(
        operation_id="workloads_manifest",
        summary="The manifest",
        tags=["workloads"],
        parameters=CONDITIONAL,
        responses={200: ManifestSerializer, **NOT_MODIFIED},
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Return the PodCliqueSet as the cluster has it, with what may be secret hidden.

        It can be applied as it is: what is hidden is put back from the workload. Commands, arguments and values of
        environment variables are hidden from accounts that may not apply a manifest there.
        """
        reject_parameters(request)
        place = WorkloadRef(cluster, namespace, name)
        found = manifest_detail(place, reader_for(caller_of(request, Source.API), place))
        return versioned_response(request, found.manifest, found.version)


class DiagnosisView(APIView):
    """Why one workload is not moving."""

    @extend_schema(
        operation_id="workloads_diagnosis",
        summary="Why it is not moving",
        tags=["workloads"],
        responses=response_serializer(Diagnosis),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Tell what a workload waits for now, each with a code, a sentence and what would help."""
        reject_parameters(request)
        return cacheable_response(diagnosis_detail(WorkloadRef(cluster, namespace, name)))


urlpatterns = [
    path("workloads/", WorkloadsView.as_view(), name="api-workloads"),
    path(WORKLOAD, WorkloadView.as_view(), name="api-workload"),
    path(f"{WORKLOAD}tree/", TreeView.as_view(), name="api-workload-tree"),
    path(f"{WORKLOAD}manifest/", ManifestView.as_view(), name="api-workload-manifest"),
    path(f"{WORKLOAD}diagnosis/", DiagnosisView.as_view(), name="api-workload-diagnosis"),
]
