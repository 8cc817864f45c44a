"""The history of a workload: rollouts with their timelines, revisions of its template, and Kubernetes Events."""

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.accounts.commands import WorkloadRef
from rollouts.api.paths import WORKLOAD
from rollouts.api.query_params import QueryParams, reject_parameters, render_page
from rollouts.api.rendering import cacheable_response
from rollouts.api.response_serializers import page_serializer, response_serializer
from rollouts.api.schema import PAGING, query_parameter
from rollouts.models import Rollout
from rollouts.selectors.events import EventItem, event_list
from rollouts.selectors.paging import Page
from rollouts.selectors.revisions import (
    RevisionDetail,
    RevisionDiff,
    RevisionSummary,
    revision_detail,
    revision_diff,
    revision_list,
)
from rollouts.selectors.rollouts import (
    UNDER_WAY,
    RolloutDetail,
    RolloutSummary,
    TimelineEntry,
    rollout_detail,
    rollout_timeline,
    workload_rollouts,
    workload_timeline,
)
from rollouts.services.audit import Source, caller_of, reader_for

_OUTCOMES = (UNDER_WAY, *Rollout.Outcome.values)
_MAX_NUMBER = 999_999_999
_TIMELINE = page_serializer(response_serializer(TimelineEntry), "TimelinePage")


class RolloutsView(APIView):
    """The rollouts of a workload."""

    @extend_schema(
        operation_id="rollouts_list",
        summary="List the rollouts of a workload",
        tags=["history"],
        parameters=[
            query_parameter("outcome", "Only rollouts with this outcome.", many=True, among=_OUTCOMES),
            *PAGING,
        ],
        responses=page_serializer(response_serializer(RolloutSummary), "RolloutPage"),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List rollouts, the newest first. The workload may be deleted."""
        query = QueryParams(request)
        outcomes, window = query.text_choices("outcome", _OUTCOMES), query.window()
        query.raise_if_invalid()
        return cacheable_response(
            render_page(request, workload_rollouts(WorkloadRef(cluster, namespace, name), outcomes, window))
        )


class RolloutView(APIView):
    """One rollout."""

    @extend_schema(
        operation_id="rollouts_detail",
        summary="Get a rollout",
        tags=["history"],
        responses=response_serializer(RolloutDetail),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, rollout: int) -> HttpResponse:
        """Return a rollout with the pod counts over time."""
        reject_parameters(request)
        return cacheable_response(rollout_detail(WorkloadRef(cluster, namespace, name), rollout))


class WorkloadTimelineView(APIView):
    """The timeline of a workload."""

    @extend_schema(
        operation_id="workloads_timeline",
        summary="Get the timeline of a workload",
        tags=["history"],
        parameters=PAGING,
        responses=_TIMELINE,
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List the events of all rollouts of a workload, the newest first."""
        query = QueryParams(request)
        window = query.window()
        query.raise_if_invalid()
        return cacheable_response(
            render_page(request, workload_timeline(WorkloadRef(cluster, namespace, name), window))
        )


class TimelineView(APIView):
    """The timeline of a rollout."""

    @extend_schema(
        operation_id="rollouts_timeline",
        summary="Get the timeline of a rollout",
        tags=["history"],
        parameters=PAGING,
        responses=_TIMELINE,
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, rollout: int) -> HttpResponse:
        """List the events of a rollout in chronological order."""
        query = QueryParams(request)
        window = query.window()
        query.raise_if_invalid()
        return cacheable_response(
            render_page(request, rollout_timeline(WorkloadRef(cluster, namespace, name), rollout, window))
        )


class RevisionsView(APIView):
    """The revisions of a workload."""

    @extend_schema(
        operation_id="revisions_list",
        summary="List the revisions of a workload",
        tags=["history"],
        responses=page_serializer(response_serializer(RevisionSummary), "RevisionPage"),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List the recorded revisions of a workload, the newest first, on one page."""
        reject_parameters(request)
        found = revision_list(WorkloadRef(cluster, namespace, name))
        return cacheable_response({"count": len(found), "next": None, "previous": None, "results": found})


class RevisionView(APIView):
    """One revision."""

    @extend_schema(
        operation_id="revisions_detail",
        summary="Get a revision",
        tags=["history"],
        responses=response_serializer(RevisionDetail),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, revision: int) -> HttpResponse:
        """Return the template of a revision; values that may be secret are hidden.

        Commands, arguments and values of environment variables are hidden from accounts that may not apply manifests in
        the namespace.
        """
        reject_parameters(request)
        place = WorkloadRef(cluster, namespace, name)
        return cacheable_response(revision_detail(place, revision, reader_for(caller_of(request, Source.API), place)))


class DiffView(APIView):
    """The difference between two revisions."""

    @extend_schema(
        operation_id="revisions_diff",
        summary="Compare two revisions",
        tags=["history"],
        parameters=[
            query_parameter(
                "against",
                "The revision to compare with. Default: for the newest revision its predecessor; for any other"
                " revision the newest, which shows what a rollback would change.",
                number=_MAX_NUMBER,
            )
        ],
        responses=response_serializer(RevisionDiff),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, revision: int) -> HttpResponse:
        """Compare another revision with this one: the cliques whose pods are replaced, and a diff of both templates.

        Values that may be secret are hidden; accounts that may apply manifests in the namespace still see that such a
        value changed. For other accounts, `is_hidden` says that every difference is hidden.
        """
        query = QueryParams(request)
        against = query.number("against", 0, most=_MAX_NUMBER)
        query.raise_if_invalid()
        place = WorkloadRef(cluster, namespace, name)
        reader = reader_for(caller_of(request, Source.API), place)
        return cacheable_response(revision_diff(place, against or None, revision, reader))


class EventsView(APIView):
    """Kubernetes Events about a workload."""

    @extend_schema(
        operation_id="events_list",
        summary="List the Kubernetes Events of a workload",
        tags=["history"],
        parameters=PAGING,
        responses=page_serializer(
            response_serializer(EventItem),
            "EventPage",
            is_partial=serializers.BooleanField(help_text="The namespace has more Events than Grove UI read."),
            problem=serializers.CharField(
                allow_blank=True, help_text="Why the Events could not be read from the cluster. Empty: they were."
            ),
        ),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List the Kubernetes Events of a workload and its objects, the newest first.

        Each request reads them from the cluster, which usually keeps Events for one hour. Values that may be secret are
        hidden.
        """
        query = QueryParams(request)
        window = query.window()
        query.raise_if_invalid()
        found = event_list(WorkloadRef(cluster, namespace, name), window.span.stop)
        page = Page(found.items[window.span], found.count, window)
        return cacheable_response(
            {**render_page(request, page), "is_partial": found.is_partial, "problem": found.problem}
        )


urlpatterns = [
    path(f"{WORKLOAD}rollouts/", RolloutsView.as_view(), name="api-rollouts"),
    path(f"{WORKLOAD}rollouts/<number:rollout>/", RolloutView.as_view(), name="api-rollout"),
    path(f"{WORKLOAD}rollouts/<number:rollout>/timeline/", TimelineView.as_view(), name="api-timeline"),
    path(f"{WORKLOAD}timeline/", WorkloadTimelineView.as_view(), name="api-workload-timeline"),
    path(f"{WORKLOAD}events/", EventsView.as_view(), name="api-events"),
    path(f"{WORKLOAD}revisions/", RevisionsView.as_view(), name="api-revisions"),
    path(f"{WORKLOAD}revisions/<number:revision>/", RevisionView.as_view(), name="api-revision"),
    path(f"{WORKLOAD}revisions/<number:revision>/diff/", DiffView.as_view(), name="api-revision-diff"),
]
