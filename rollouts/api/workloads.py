"""/workloads/: the list, the views of one workload, and the command that deletes it."""

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.api.commands import CommandView, describe_command, render_ref
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
    query_parameter("cluster", "Only workloads in these clusters.", many=True),
    query_parameter("namespace", "Only workloads in these namespaces.", many=True),
    query_parameter("name", "Only workloads with these names.", many=True),
    query_parameter("strategy", "Only workloads with these effective strategies.", many=True, among=Strategy),
    query_parameter("state", "Only workloads in these states.", many=True, among=State),
    query_parameter(
        "label",
        "Only workloads with this label, as `key=value`; repeated: with all of them.",
        many=True,
        pattern=r'^[^=\\"\u0000]+=[^\\"\u0000]*$',
    ),
    query_parameter(
        "search",
        "Words; a workload matches if each word is part of its name, namespace or cluster name, or is the beginning of"
        " the name of a pod or of a template hash.",
    ),
    query_parameter(
        "ordering",
        f"Fields, separated by commas, with a minus for descending order: {', '.join(ORDERINGS)}. Equal workloads are"
        " ordered by namespace, name and cluster.",
        pattern=f"^(-?({'|'.join(ORDERINGS)})(,-?({'|'.join(ORDERINGS)}))*)?$",
    ),
    *PAGING,
]


class WorkloadsView(APIView):
    """All workloads."""

    @extend_schema(
        operation_id="workloads_list",
        summary="List workloads",
        tags=["workloads"],
        parameters=_PARAMETERS,
        responses=page_serializer(response_serializer(WorkloadSummary), "WorkloadPage", totals=counts_by_state_field()),
    )
    def get(self, request: Request) -> HttpResponse:
        """List the workloads of all clusters and namespaces.

        `totals` counts the workloads in each state; it applies all filters but `state`.
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
        summary="Get a workload",
        tags=["workloads"],
        parameters=CONDITIONAL,
        responses={200: response_serializer(WorkloadDetail), **NOT_MODIFIED},
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Return a workload with its components, conditions and update progress.

        Send its ETag as If-Match with any command to the workload.
        """
        reject_parameters(request)
        detail = workload_detail(WorkloadRef(cluster, namespace, name))
        return versioned_response(request, detail, detail.version)

    @describe_command(None, DeletedWorkloadAnswer, operation_id="workload_delete", summary="Delete a workload")
    def delete(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Delete a workload with all its objects: pods, gangs, services.

        The pods are deleted at once, whatever the budgets. With `dry_run` the answer counts what would be deleted. The
        audit keeps the manifest; values that may be secret are hidden.
        """
        place, (caller, terms) = WorkloadRef(cluster, namespace, name), self.read_preconditions()
        return answer_once(request, lambda _: _deleted_response(request, workload_delete(caller, place, **terms)))


def _deleted_response(request: Request, deleted: WorkloadDeleted) -> HttpResponse:
    return json_response(
        {
            "workload": render_ref(deleted.place),
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
    """The tree of a workload."""

    @extend_schema(
        operation_id="workloads_tree",
        summary="Get replicas, scaling groups, cliques and pods",
        tags=["workloads"],
        responses=response_serializer(WorkloadTree),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Return all objects of a workload as a tree.

        Replicas of the set contain cliques and scaling groups; scaling groups contain replicas with cliques; cliques
        contain pods. Each pod has its template hash, its revision and its node, and says whether it is outdated,
        available, surge or terminating (`leaving`).
        """
        reject_parameters(request)
        return cacheable_response(workload_tree(WorkloadRef(cluster, namespace, name)))


class ManifestView(APIView):
    """The manifest of one workload."""

    @extend_schema(
        operation_id="workloads_manifest",
        summary="Get the manifest",
        tags=["workloads"],
        parameters=CONDITIONAL,
        responses={200: ManifestSerializer, **NOT_MODIFIED},
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Return the PodCliqueSet from the cluster; values that may be secret are hidden.

        You can apply it unchanged: Grove UI restores hidden values from the workload. Commands, arguments and values of
        environment variables are hidden from accounts that may not apply manifests in the namespace.
        """
        reject_parameters(request)
        place = WorkloadRef(cluster, namespace, name)
        found = manifest_detail(place, reader_for(caller_of(request, Source.API), place))
        return versioned_response(request, found.manifest, found.version)


class DiagnosisView(APIView):
    """The diagnosis of a workload."""

    @extend_schema(
        operation_id="workloads_diagnosis",
        summary="Get the reasons why a workload waits",
        tags=["workloads"],
        responses=response_serializer(Diagnosis),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Return what a workload waits for now, each wait with a code, a sentence and remedies."""
        reject_parameters(request)
        return cacheable_response(diagnosis_detail(WorkloadRef(cluster, namespace, name)))


urlpatterns = [
    path("workloads/", WorkloadsView.as_view(), name="api-workloads"),
    path(WORKLOAD, WorkloadView.as_view(), name="api-workload"),
    path(f"{WORKLOAD}tree/", TreeView.as_view(), name="api-workload-tree"),
    path(f"{WORKLOAD}manifest/", ManifestView.as_view(), name="api-workload-manifest"),
    path(f"{WORKLOAD}diagnosis/", DiagnosisView.as_view(), name="api-workload-diagnosis"),
]
