"""What happened to a workload: its rollouts with their timelines, the revisions of its template, and Events."""

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.accounts.commands import Place
from rollouts.api.paths import WORKLOAD
from rollouts.api.query_params import Query, no_parameters, render_page
from rollouts.api.rendering import answer
from rollouts.api.response_serializers import page_of, shape_of
from rollouts.api.schema import PAGING, parameter
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
from rollouts.services.audit import Via, caller_of, reader_for

_OUTCOMES = (UNDER_WAY, *Rollout.Outcome.values)
_LARGEST_NUMBER = 999_999_999
_TIMELINE = page_of(shape_of(TimelineEntry), "TimelinePage")


class RolloutsView(APIView):
    """The rollouts of a workload."""

    @extend_schema(
        operation_id="rollouts_list",
        summary="The rollouts of a workload",
        tags=["history"],
        parameters=[parameter("outcome", "Only those that ended so.", many=True, among=_OUTCOMES), *PAGING],
        responses=page_of(shape_of(RolloutSummary), "RolloutPage"),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List rollouts, the newest first; also those of a workload that is gone."""
        query = Query(request)
        outcomes, window = query.words("outcome", _OUTCOMES), query.window()
        query.done()
        return answer(render_page(request, workload_rollouts(Place(cluster, namespace, name), outcomes, window)))


class RolloutView(APIView):
    """One rollout."""

    @extend_schema(
        operation_id="rollouts_detail", summary="One rollout", tags=["history"], responses=shape_of(RolloutDetail)
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, rollout: int) -> HttpResponse:
        """Tell how a rollout went, with the counts of pods over time."""
        no_parameters(request)
        return answer(rollout_detail(Place(cluster, namespace, name), rollout))


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
        query = Query(request)
        window = query.window()
        query.done()
        return answer(render_page(request, workload_timeline(Place(cluster, namespace, name), window)))


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
        query = Query(request)
        window = query.window()
        query.done()
        return answer(render_page(request, rollout_timeline(Place(cluster, namespace, name), rollout, window)))


class RevisionsView(APIView):
    """The revisions of a workload."""

    @extend_schema(
        operation_id="revisions_list",
        summary="The revisions of a workload",
        tags=["history"],
        responses=page_of(shape_of(RevisionSummary), "RevisionPage"),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List the templates that a workload had, the newest first; the last ones are kept, on one page."""
        no_parameters(request)
        found = revision_list(Place(cluster, namespace, name))
        return answer({"count": len(found), "next": None, "previous": None, "results": found})


class RevisionView(APIView):
    """One revision."""

    @extend_schema(
        operation_id="revisions_detail", summary="One revision", tags=["history"], responses=shape_of(RevisionDetail)
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, revision: int) -> HttpResponse:
        """Return a template that a workload had, with what may be secret hidden.

        Commands, arguments and values of environment variables are hidden from accounts that may not apply a manifest
        there.
        """
        no_parameters(request)
        place = Place(cluster, namespace, name)
        return answer(revision_detail(place, revision, reader_for(caller_of(request, Via.API), place)))


class DiffView(APIView):
    """What a revision changed."""

    @extend_schema(
        operation_id="revisions_diff",
        summary="What differs between two revisions",
        tags=["history"],
        parameters=[
            parameter(
                "against",
                "The number of the revision to start from. Left out: for the newest revision the one before it, for"
                " all others the newest, which shows what rolling back would change.",
                number=_LARGEST_NUMBER,
            )
        ],
        responses=shape_of(RevisionDiff),
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str, revision: int) -> HttpResponse:
        """Tell what differs from another revision to this one: whose pods are replaced, and a diff of both templates.

        What may be secret is hidden; that it changed is still seen by accounts that may apply a manifest there. For
        others, `is_hidden` says that all of what differs is hidden.
        """
        query = Query(request)
        against = query.number("against", 0, most=_LARGEST_NUMBER)
        query.done()
        place = Place(cluster, namespace, name)
        reader = reader_for(caller_of(request, Via.API), place)
        return answer(revision_diff(place, against or None, revision, reader))


class EventsView(APIView):
    """Kubernetes Events about a workload."""

    @extend_schema(
        operation_id="events_list",
        summary="Kubernetes Events about a workload",
        tags=["history"],
        parameters=PAGING,
        responses=page_of(
            shape_of(EventItem),
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
        query = Query(request)
        window = query.window()
        query.done()
        found = event_list(Place(cluster, namespace, name), window.span.stop)
        page = Page(found.items[window.span], found.count, window)
        return answer({**render_page(request, page), "is_partial": found.is_partial, "problem": found.problem})


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
