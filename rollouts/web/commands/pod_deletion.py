"""The base class of forms that delete pods, and the page that follows the deleted pods until all are replaced.

Before it: `pods` and `remedies`, whose forms choose the pods. After it: the services, which write what happened to each
pod into the audit log; the page reads it there, by the id of the entry. A form names each pod with its uid, or a unit
with a mark, so an object that has taken a name since is safe: a form that is sent twice deletes once.
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
from rollouts.engine.model.actions import BY_HAND, Delete, Kind
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Workload
from rollouts.live.fragments import Fragment
from rollouts.selectors.pod_deletions import pod_deletions_detail
from rollouts.services.audit import Caller, Source, caller_of
from rollouts.services.deletion import PodsDeleted
from rollouts.services.pods import MAX_PODS
from rollouts.web.commands.forms import VERSION_FIELD, FormContext, SimulatedForm, url_kwargs
from rollouts.web.page_layout import fragment_view, viewer_required
from rollouts.web.workload import WorkloadContext

_DELETED_PODS_URL = "command-pods-done"
_DELETED_PODS_LIVE_URL = "command-pods-live"


class PodDeletionForm(SimulatedForm):
    """A form whose command deletes pods."""

    preview_template: ClassVar[str] = "commands/_pod_deletion_preview.html"

    @abstractmethod
    def delete_pods(
        self, caller: Caller, request: HttpRequest, context: FormContext, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Execute the command; raises CommandRefused."""

    def execute(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Delete the pods and redirect to the page that follows them."""
        version = request.POST.get(VERSION_FIELD, "")
        deleted = self.delete_pods(caller_of(request, Source.PAGE), request, context, about, f'"{version}"')
        return HttpResponseRedirect(
            reverse(_DELETED_PODS_URL, kwargs={**url_kwargs(context.ref), "record": deleted.record})
        )


def parse_pairs(given: QueryDict, field: str) -> list[tuple[str, str]]:
    """Return the names of the ticked boxes, each with its uid or mark."""
    pairs = (value.partition("/") for value in given.getlist(field))
    return [(name, uid) for name, _, uid in pairs if name and uid]


def make_pod_deletes(_: Workload, observed: Observed, uids: Collection[str]) -> tuple[Delete, ...]:
    """Return the deletion of pods, for a simulation."""
    return tuple(
        Delete(Kind.POD, pod.name, pod.uid, BY_HAND) for pod in observed.pods if pod.uid in uids and not pod.leaving
    )


# ---- deleted pods


def deletion_urlpatterns(below: str) -> list[URLPattern]:
    """Return the URLs of the page that follows deleted pods."""
    return [
        path(f"{below}pods/<number:record>/", deleted_pods, name=_DELETED_PODS_URL),
        path(f"{below}pods/<number:record>/live/", deleted_pods_fragment, name=_DELETED_PODS_LIVE_URL),
    ]


@require_safe
@never_cache
@viewer_required
def deleted_pods(request: HttpRequest, cluster: str, namespace: str, name: str, record: int) -> HttpResponse:
    """Show what happened to deleted pods, and which pods replace them."""
    return render(
        request, "commands/deleted_pods.html", _deleted_pods_context(WorkloadRef(cluster, namespace, name), record)
    )


@fragment_view
def deleted_pods_fragment(given: QueryDict, cluster: str, namespace: str, name: str, record: int) -> Fragment:
    """Return the fragment with the pods."""
    ref = WorkloadRef(cluster, namespace, name)
    return Fragment(
        ("pod-deletion", ref, record),
        lambda: render_to_string("commands/_deleted_pods.html", _deleted_pods_context(ref, record)),
    )


def _deleted_pods_context(ref: WorkloadRef, record: int) -> dict[str, Any]:
    deletion = pod_deletions_detail(ref, record, WorkloadContext(ref).tree)
    form = "command-any-pods" if deletion.is_by_force else "command-pods"
    return {
        "place": ref,
        "deletion": deletion,
        "most": MAX_PODS,
        "others_url": reverse(form, kwargs=url_kwargs(ref)),  # to choose further pods in the same way
    }
