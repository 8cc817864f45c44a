"""What happened to a workload: its rollouts with their timelines, the revisions of its template, and Events."""

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
        summary="The rollouts of a workload",
        tags=["history"],
        parameters=[query_parameter("outcome", "Only those that ended so.", many=True, among=_OUTCOMES), *PAGING],
        responses=page_serializer(response_serializer(RolloutSummary), "RolloutPage"),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List rollouts, the newest first; also those of a workload that is gone."""
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
        summary="One rollout",
        tags=["history"],
        responses=response_serializer(RolloutDetail),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, rollout: int) -> HttpResponse:
        """Tell how a rollout went, with the counts of pods over time."""
        reject_parameters(request)
        return cacheable_response(rollout_detail(WorkloadRef(cluster, namespace, name), rollout))


class WorkloadTimelineView(APIView):
    """What happened to a workload."""

    @extend_schema(
        operation_id="workloads_timeline",
        summary="The timeline of a workload",
        tags=["history"],
        parameters=PAGING,
        responses=_TIMELINE,
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List what happened in all rollouts of a workload, the newest first."""
        query = QueryParams(request)
        window = query.window()
        query.raise_if_invalid()
        return cacheable_response(
            render_page(request, workload_timeline(WorkloadRef(cluster, namespace, name), window))
        )


class TimelineView(APIView):
    """What happened in one rollout."""

    @extend_schema(
        operation_id="rollouts_timeline",
        summary="The timeline of a rollout",
        tags=["history"],
        parameters=PAGING,
        responses=_TIMELINE,
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, rollout: int) -> HttpResponse:
        """List what happened in a rollout, in its order."""
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
        summary="The revisions of a workload",
        tags=["history"],
        responses=page_serializer(response_serializer(RevisionSummary), "RevisionPage"),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List the templates that a workload had, the newest first; the last ones are kept, on one page."""
        reject_parameters(request)
        found = revision_list(WorkloadRef(cluster, namespace, name))
        return cacheable_response({"count": len(found), "next": None, "previous": None, "results": found})


class RevisionView(APIView):
    """One revision."""

    @extend_schema(
        operation_id="revisions_detail",
        summary="One revision",
        tags=["history"],
        responses=response_serializer(RevisionDetail),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, revision: int) -> HttpResponse:
        """Return a template that a workload had, with what may be secret hidden.

        Commands, arguments and values of environment variables are hidden from accounts that may not apply a manifest
        there.
        """
        reject_parameters(request)
        place = WorkloadRef(cluster, namespace, name)
        return cacheable_response(revision_detail(place, revision, reader_for(caller_of(request, Source.API), place)))


class DiffView(APIView):
    """What a revision changed."""

    @extend_schema(
        operation_id="revisions_diff",
        summary="What differs between two revisions",
        tags=["history"],
        parameters=[
            query_parameter(
                "against",
                "The number of the revision to start from. Left out: for the newest revision the one before it, for"
                " all others the newest, which shows what rolling back would change.",
                number=_MAX_NUMBER,
            )
        ],
        responses=response_serializer(RevisionDiff),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, revision: int) -> HttpResponse:
        """Tell what differs from another revision to this one: whose pods are replaced, and a diff of both templates.

        What may be secret is hidden; that it changed is still seen by accounts that may apply a manifest there. For
        others, `is_hidden` says that all of what differs is hidden.
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
        summary="Kubernetes Events about a workload",
        tags=["history"],
        parameters=PAGING,
        responses=page_serializer(
            response_serializer(EventItem),
            "EventPage",
            is_partial=serializers.BooleanField(help_text="The namespace has more Events than were looked at."),
            problem=serializers.CharField(
                allow_blank=True, help_text="Why there are none, if the cluster cannot be asked; otherwise empty."
            ),
        ),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List what the cluster tells of a workload and of everything it consists of, the newest first.

        Read from the cluster at that moment, which forgets them after an hour or so. What may be secret is hidden.
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
