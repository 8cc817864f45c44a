"""What the forms have in common that delete pods: done, each leads to a page that follows the pods until all are back.

Before it: `pod_strategy` and `remedies`, whose forms say which pods are meant and how they are deleted. After it: the
services, which tell what became of each pod and put it on record; by the number of that record the page finds it again,
however often it is opened. What a form names it names with a uid, or a mark of several, so that what has taken a name
meanwhile is safe: a form that is sent twice deletes once.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from rollouts.accounts.commands import WorkloadRef
from rollouts.engine.model.actions import Delete, Kind
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Workload
from rollouts.engine.simulation.simulate import BY_HAND
from rollouts.live.fragments import Fragment
from rollouts.selectors.pod_deletions import pod_deletions_detail
from rollouts.services.audit import Caller, Source, caller_of
from rollouts.services.deletion import PodsDeleted
from rollouts.services.pods import MAX_PODS
from rollouts.web.commands.forms import VERSION_FIELD, FormContext, SimulatedForm, url_kwargs
from rollouts.web.page_layout import fragment_view, viewer_required
from rollouts.web.workload import WorkloadContext

_DELETED_PODS_URL = "steer-pods-done"
_DELETED_PODS_LIVE_URL = "steer-pods-live"


class PodDeletionForm(SimulatedForm):
    """A form whose command deletes pods."""

    preview_template: ClassVar[str] = "commands/_pod_deletion_preview.html"

    @abstractmethod
    def delete_pods(
        self, caller: Caller, request: HttpRequest, scene: FormContext, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Give the command; raises what is in the way."""

    def execute(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Delete pods and go where they are followed."""
        version = request.POST.get(VERSION_FIELD, "")
        deleted = self.delete_pods(caller_of(request, Source.PAGE), request, scene, about, f'"{version}"')
        return HttpResponseRedirect(
            reverse(_DELETED_PODS_URL, kwargs={**url_kwargs(scene.ref), "record": deleted.record})
        )


def parse_pairs(given: QueryDict, field: str) -> list[tuple[str, str]]:
    """Return what the boxes of a form name: names, and by which uid or mark it is known."""
    pairs = (value.partition("/") for value in given.getlist(field))
    return [(name, uid) for name, _, uid in pairs if name and uid]


def make_pod_deletes(_: Workload, observed: Observed, uids: Collection[str]) -> tuple[Delete, ...]:
    """Return the deletion of pods, for a simulation."""
    return tuple(
        Delete(Kind.POD, pod.name, pod.uid, BY_HAND) for pod in observed.pods if pod.uid in uids and not pod.leaving
    )


# ---- what became of them


def deletion_urlpatterns(below: str) -> list[URLPattern]:
    """Return where pods are followed that were deleted."""
    return [
        path(f"{below}pods/<number:record>/", deleted_pods, name=_DELETED_PODS_URL),
        path(f"{below}pods/<number:record>/live/", deleted_pods_fragment, name=_DELETED_PODS_LIVE_URL),
    ]


@require_safe
@never_cache
@viewer_required
def deleted_pods(request: HttpRequest, cluster: str, namespace: str, name: str, record: int) -> HttpResponse:
    """Show what became of pods that somebody deleted, and who took their places."""
    return render(
        request, "commands/deleted_pods.html", _deleted_pods_context(WorkloadRef(cluster, namespace, name), record)
    )


@fragment_view
def deleted_pods_fragment(given: QueryDict, cluster: str, namespace: str, name: str, record: int) -> Fragment:
    """Return the pods alone."""
    place = WorkloadRef(cluster, namespace, name)
    return Fragment(
        ("departures", place, record),
        lambda: render_to_string("commands/_deleted_pods.html", _deleted_pods_context(place, record)),
    )


def _deleted_pods_context(place: WorkloadRef, record: int) -> dict[str, Any]:
    departures = pod_deletions_detail(place, record, WorkloadContext(place).tree)
    form = "steer-any-pods" if departures.is_by_force else "steer-pods"
    return {
        "place": place,
        "departures": departures,
        "most": MAX_PODS,
        "others_url": reverse(form, kwargs=url_kwargs(place)),  # where others are chosen in the same way
    }
