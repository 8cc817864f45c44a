"""Take over: manage all workloads of a cluster that Grove's own operator managed, after that operator has been removed.

The preview is the dry run of the command, workload by workload. The form carries the versions that the dry run has
shown, so without a dry run nothing is taken over, a workload that has changed since is refused, and one that is new is
left for the next dry run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import CommandRefused, ValidationFailed
from rollouts.selectors.clusters import count_grove_workloads
from rollouts.selectors.workload_snapshot import find_cluster
from rollouts.services.audit import Source, caller_of
from rollouts.services.takeover import ClusterTakeoverResult, WorkloadTakeover, cluster_take_over
from rollouts.web.commands.forms import CommandForm, FormContext, Preview
from rollouts.web.page_layout import viewer_required
from rollouts.web.text import plural

_SEEN_FIELD: Final = "seen"  # the workloads of the dry run with their versions
_PROBLEMS_SHOWN: Final = 10  # after the command; the next dry run shows all


@dataclass(frozen=True, slots=True)
class TakeOverClusterDryRun(Preview):
    """What the command would change, or why it is refused."""

    report: ClusterTakeoverResult | None = None


class TakeOverClusterForm(CommandForm):
    """The form has only the box that confirms that Grove's operator is gone."""

    name, title, submit_label = "take-over-cluster", "Take over all workloads", "Take over from Grove"
    command = Command.TAKE_OVER_WORKLOAD
    preview_template: ClassVar[str] = "commands/_take_over_cluster_dry_run.html"
    has_assumptions = False
    previews_input = False

    def field_context(self, context: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show why nothing can be taken over, if that is known without a dry run."""
        row = find_cluster(context.ref.cluster)
        sentence = "" if count_grove_workloads(row) or not row.complete else _NOTHING_TO_DO.format(row.name)
        return {"other_operator": row.other_operator, **self.blocked_context(sentence)}

    def confirmation_text(self, context: FormContext, given: QueryDict, **about: Any) -> str:
        """Ask for a fact that only the user can know, about the workloads that the dry run has shown."""
        return _confirmation_text(context, len(_parse_seen(context.ref.cluster, given)))

    def execute(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Take over the workloads of the dry run; lead to the next dry run if any are left."""
        cluster = context.ref.cluster
        seen = _parse_seen(cluster, request.POST)
        if not seen:
            raise ValidationFailed(
                "Nothing was changed. Wait for a dry run that shows what can be taken over, and confirm it."
            )
        report = cluster_take_over(caller_of(request, Source.PAGE), cluster, expected=seen)
        _add_messages(request, report)
        is_complete = not report.left and not any(one.problem for one in report.outcomes)
        return HttpResponseRedirect(reverse("page-clusters") if is_complete else _form_url(cluster))

    def _compute_preview(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> Preview:
        try:
            caller = caller_of(request, Source.PAGE)
            return TakeOverClusterDryRun(report=cluster_take_over(caller, context.ref.cluster, dry_run=True))
        except CommandRefused as refusal:
            return Preview(error=refusal)

    def _preview_context(self, context: FormContext, preview: Preview) -> dict[str, Any]:
        report = preview.report if isinstance(preview, TakeOverClusterDryRun) else None
        if report is None:
            return {"report": None, "confirmation": ""}
        ready = [one for one in report.outcomes if not one.problem]
        return {
            "report": report,
            "ready": ready,
            "total": len(report.outcomes) + report.left,
            "objects": sum(one.objects for one in ready),
            "pods": sum(one.pods for one in ready),
            "seen_field": _SEEN_FIELD,
            "seen": " ".join(_render_seen(one) for one in ready),
            "confirmation": _confirmation_text(context, len(ready)),
            "is_confirmed": False,  # of this dry run
        }

    # ---- views: the page is below a cluster

    def urlpatterns(self, below: str) -> list[URLPattern]:
        """Return the URLs of the page and its preview, below the URL of a cluster."""
        address = f"{below}take-over/"
        return [
            path(address, self._make_view(self._form_view, ["GET", "HEAD", "POST"]), name=f"command-{self.name}"),
            path(
                f"{address}preview/", self._make_view(self._preview_view, ["POST"]), name=f"command-{self.name}-preview"
            ),
        ]

    def _make_view(self, answer: Callable[..., HttpResponse], methods: Sequence[str]) -> Callable[..., HttpResponse]:
        @never_cache
        @require_http_methods([*methods])
        @viewer_required
        def view(request: HttpRequest, /, cluster: str) -> HttpResponse:
            return answer(request, FormContext(WorkloadRef(cluster), request.GET), {})

        return view

    def _current_version(self, context: FormContext) -> str:
        return ""  # each workload has its own

    def _urls(self, context: FormContext, about: Mapping[str, Any]) -> dict[str, str]:
        cluster = context.ref.cluster
        return {
            "form_url": _form_url(cluster),
            "preview_url": reverse(f"command-{self.name}-preview", kwargs={"cluster": cluster}),
            "back_url": reverse("page-clusters"),
        }


_NOTHING_TO_DO: Final = "Grove's own operator manages no workload in {}, so there is nothing to take over."


def _form_url(cluster: str) -> str:
    return reverse(f"command-{TakeOverClusterForm.name}", kwargs={"cluster": cluster})


def _confirmation_text(context: FormContext, workloads: int) -> str:
    if not workloads:
        return ""
    return (
        f"Grove's own operator no longer runs in the cluster {context.ref.cluster} and will not be started again. "
        f"From now on Grove UI creates, updates and deletes the pods of {plural(workloads, 'workload')}."
    )


def _render_seen(one: WorkloadTakeover) -> str:
    return f"{one.place.namespace}/{one.place.name}={one.version}"


def _parse_seen(cluster: str, given: QueryDict) -> dict[WorkloadRef, str]:
    """Return the versions of the workloads that the dry run has shown."""
    found = {}
    for text in given.get(_SEEN_FIELD, "").split():
        key, _, version = text.partition("=")
        namespace, _, name = key.partition("/")
        found[WorkloadRef(cluster, namespace, name)] = version
    return found


def _add_messages(request: HttpRequest, report: ClusterTakeoverResult) -> None:
    """Say what was taken over, and what was not and why."""
    taken = [one for one in report.outcomes if not one.problem]
    problems = [one for one in report.outcomes if one.problem]
    if taken:
        pods = sum(one.pods for one in taken)
        messages.success(
            request, f"Grove UI manages {plural(len(taken), 'more workload')} now. None of {pods} pods is replaced."
        )
    elif not problems:
        messages.success(request, "Nothing to change.")
    for one in problems[:_PROBLEMS_SHOWN]:
        messages.warning(request, f"{one.place.namespace}/{one.place.name} was not taken over: {one.problem}")
    if len(problems) > _PROBLEMS_SHOWN:
        messages.warning(request, f"{len(problems) - _PROBLEMS_SHOWN} more workloads were not taken over.")
    if report.left:
        left = plural(report.left, "workload")
        messages.warning(request, f"Left for the next dry run: {left} of Grove's own operator.")
