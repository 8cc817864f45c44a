"""The audit log by HTTP, with filters and pages, for all workloads or one, and its export as CSV."""

from datetime import UTC, datetime
from typing import Any, Final

from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.accounts.commands import AUDITED_COMMANDS, Command, WorkloadRef
from rollouts.api.paths import CLUSTER, WORKLOAD
from rollouts.api.permissions import IsSignedIn
from rollouts.api.problems import BadParameter, RequestFinding
from rollouts.api.query_params import QueryParams, reject_parameters, render_page
from rollouts.api.rendering import cacheable_response
from rollouts.api.response_serializers import page_serializer, response_serializer
from rollouts.api.schema import PAGING, query_parameter
from rollouts.models import AuditEntry
from rollouts.selectors.audit import AuditFilters, AuditItem, audit_csv, audit_list, audit_rows, place_filters
from rollouts.services.audit import Source, audited_command, caller_of
from rollouts.services.connection_test import ClusterTest, cluster_test

_COMMANDS: Final = tuple(command.value for command in AUDITED_COMMANDS)
_RESULTS: Final = tuple(AuditEntry.Result.values)


def _timestamp_parameter(name: str, words: str) -> OpenApiParameter:
    return OpenApiParameter(name, OpenApiTypes.DATETIME, OpenApiParameter.QUERY, description=words)


_FILTERS: Final = [
    query_parameter("actor", "Only commands of this account."),
    query_parameter("command", "Only this command.", among=_COMMANDS),
    query_parameter("result", "Only commands with this result.", among=_RESULTS),
    query_parameter("cluster", "Only commands about this cluster."),
    query_parameter("namespace", "Only commands about this namespace."),
    query_parameter("name", "Only commands about the workload or account of this name."),
    _timestamp_parameter("since", "Only commands at or after this time, such as 2026-01-31T12:00:00Z."),
    _timestamp_parameter("until", "Only commands before this time."),
]
_PAGE: Final = page_serializer(response_serializer(AuditItem), "AuditPage")


class AuditView(APIView):
    """The audit log."""

    @extend_schema(
        operation_id="audit_list",
        summary="List the audit log",
        tags=["audit"],
        parameters=[*_FILTERS, *PAGING],
        responses=_PAGE,
    )
    def get(self, request: Request) -> HttpResponse:
        """List commands, the latest first: account, time, address, command, values before and after, and result.

        The result Begun means that the process ended before it recorded the result: look at the workload.
        """
        query = QueryParams(request)
        filters, window = _read_filters(request, query), query.window()
        query.raise_if_invalid()
        return cacheable_response(render_page(request, audit_list(filters, window)))


class AuditExportView(APIView):
    """The audit log as a file. The service checks the permission, not the view, so that refusals are recorded."""

    permission_classes = (IsSignedIn,)

    @extend_schema(
        operation_id="audit_export",
        summary="Export the audit log as CSV",
        tags=["audit"],
        parameters=_FILTERS,
        responses={(200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Export all matching commands as CSV, the latest first."""
        query = QueryParams(request)
        filters = _read_filters(request, query)
        query.raise_if_invalid()
        with audited_command(caller_of(request, Source.API), Command.EXPORT_AUDIT) as audited:
            filtered = ", ".join(f"{name}={value}" for name, value in request.query_params.items())
            audited.done(detail=f"Filtered by {filtered}." if filtered else "All entries.")
        headers = {"Content-Disposition": 'attachment; filename="grove-audit.csv"', "Cache-Control": "no-store"}
        return StreamingHttpResponse(audit_csv(audit_rows(filters)), content_type="text/csv", headers=headers)


class WorkloadAuditView(APIView):
    """The audit log of a workload."""

    @extend_schema(
        operation_id="workloads_audit",
        summary="List the commands to a workload",
        tags=["audit"],
        parameters=PAGING,
        responses=_PAGE,
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List the commands to a workload, the latest first. The workload may be deleted."""
        query = QueryParams(request)
        window = query.window()
        query.raise_if_invalid()
        return cacheable_response(
            render_page(request, audit_list(place_filters(WorkloadRef(cluster, namespace, name)), window))
        )


class ClusterTestView(APIView):
    """The test of a connection."""

    @extend_schema(
        operation_id="cluster_test",
        summary="Test the connection to a cluster",
        tags=["clusters"],
        request=None,
        responses=response_serializer(ClusterTest),
    )
    def post(self, request: Request, cluster: str) -> HttpResponse:
        """Check the connection to a cluster and the permissions there; each line is one check with its result."""
        reject_parameters(request)
        found = cluster_test(caller_of(request, Source.API), cluster)
        return cacheable_response({"cluster": found.cluster, "ok": found.ok, "lines": found.lines})


urlpatterns = [
    path("audit/", AuditView.as_view(), name="audit"),
    path("audit/export/", AuditExportView.as_view(), name="audit-export"),
    path(f"{WORKLOAD}audit/", WorkloadAuditView.as_view(), name="workload-audit"),
    path(f"{CLUSTER}test/", ClusterTestView.as_view(), name="cluster-test"),
]


def _read_filters(request: Request, query: QueryParams) -> AuditFilters:
    texts: dict[str, Any] = {name: query.text(name) for name in ("actor", "cluster", "namespace", "name")}
    command, result = query.text_choices("command", _COMMANDS)[:1], query.text_choices("result", _RESULTS)[:1]
    since, until = _read_timestamp(request, query, "since"), _read_timestamp(request, query, "until")
    return AuditFilters(**texts, command="".join(command), result="".join(result), since=since, until=until)


def _read_timestamp(request: Request, query: QueryParams, name: str) -> datetime | None:
    text = query.text(name)
    if name not in request.query_params:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))
        moment.astimezone(UTC)  # databases store UTC; at the ends of the calendar the conversion overflows
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadParameter(RequestFinding(name, "WrongType", f"{name} must be a time such as 2026-01-31T12:00:00Z."))
    return moment
