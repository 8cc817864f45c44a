"""The base classes of all forms that execute a command: show the form, preview it while the user types, execute it.

Before it: a module for each form (`restart`, `strategy`, …), with its fields and how they are parsed. After it:
`services.changes.execute`, which makes the change, and `services.simulation`, which previews it.

A form carries the version of the workload that it was filled in from, so that nobody overwrites a change that they have
not seen: after a conflict the user gets the form back as they filled it in, with the fields that others have changed,
and may send it again. The invariants: a refused form changes nothing and keeps everything that was typed; a form that
is sent twice is executed once; and a user without the permission sees why before they begin, and nothing of a form
that they send is parsed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import (
    ClusterUnavailable,
    CommandRefused,
    NotFound,
    PermissionDenied,
    ValidationFailed,
    VersionConflict,
)
from rollouts.accounts.permissions import Refusal, find_refusal
from rollouts.engine.manifest.findings import Finding
from rollouts.live.fragments import Fragment
from rollouts.manifests.masking import PUBLIC_READER, Reader
from rollouts.selectors.forecast import Assumptions
from rollouts.services.audit import Caller, Result, Source, caller_of, reader_for, record, require
from rollouts.services.changes import Apply, Simulable, WorkloadChange, execute
from rollouts.services.edit import EditResult
from rollouts.services.simulation import workload_simulate
from rollouts.services.simulation_report import Simulated
from rollouts.web.commands.manifest_diff import render_manifest_diff
from rollouts.web.commands.simulation_summary import summarize_simulation
from rollouts.web.page_layout import fragment_view, viewer_required
from rollouts.web.workload import WorkloadContext

VERSION_FIELD: Final = "version"
"""The field of each form with the version that it was filled in from."""
PREVIEW_BUTTON: Final = "try"
"""The button that previews a form in a browser without scripts."""
CONFIRMED_FIELD: Final = "agreed"
"""The box that confirms a command. Its value is the sentence that the user confirmed."""

NEVER_READY_FIELD: Final = "never_ready"
ALL_READY_FIELD: Final = "all_ready"
FULL_FIELD: Final = "full"
UNLIMITED_FIELD: Final = "unlimited"
SECONDS_TO_READY_FIELD: Final = "seconds_to_ready"
SECONDS_TO_GO_FIELD: Final = "seconds_to_go"
"""The fields with assumptions about the cluster; they are not part of the command."""

_MAX_VERSION_LENGTH: Final = 100
_MAX_ASSUMED_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Preview:
    """What a form would do, or why it is refused."""

    simulation: Simulated | None = None
    error: CommandRefused | None = None
    # The form was submitted and refused: the page shows that above the form, where no later preview replaces it.
    was_submitted: bool = False


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """Why there is nothing to do; shown in place of a refusal."""

    sentence: str
    is_nothing_to_do: bool = True  # not an error, so the page shows it as information


class FormContext(WorkloadContext):
    """The workload of a form, who reads it, and the query of the URL."""

    def __init__(self, place: WorkloadRef, asked: QueryDict, reader: Reader = PUBLIC_READER) -> None:
        super().__init__(place, asked.get("by", ""))
        self.query_params = asked
        self.reader = reader


class CommandForm(ABC):
    """A page with a form, for one command."""

    name: ClassVar[str]  # in the URL below the workload's, and of its template
    title: ClassVar[str]
    submit_label: ClassVar[str] = "Save to the cluster"  # the text of the button
    submit_style: ClassVar[str] = "primary"  # the style of the button; danger: the command cannot be undone
    command: ClassVar[Command]
    path_suffix: ClassVar[str] = ""  # of the URL: further arguments, as a Django path
    template: ClassVar[str] = ""  # of the page; empty: it has the name of the form
    preview_template: ClassVar[str] = "commands/_preview.html"  # the template of the preview
    has_assumptions: ClassVar[bool] = True  # whether the preview takes assumptions about the cluster
    shows_manifest_diff: ClassVar[bool] = False  # whether the preview shows a diff of the manifest
    unchanged_text: ClassVar[str] = ""  # shown in place of a preview that changes nothing; empty: the preview is shown
    preview_delay: ClassVar[str] = "300ms"  # how long after the last key the form is previewed
    previews_input: ClassVar[bool] = True  # whether the form is previewed while the user types; else only when it opens
    oob_template: ClassVar[str] = ""  # the template of parts of the form that a preview updates, out of band

    @abstractmethod
    def field_context(self, context: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Return the template context of the fields: as they are at first, or as the user has filled them in."""

    @abstractmethod
    def execute(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Execute the command and redirect; raises CommandRefused."""

    @abstractmethod
    def _compute_preview(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> Preview:
        """Return what the form would do as it is filled in, or why it is refused."""

    def find_field(self, context: FormContext, finding: Finding) -> str:
        """Return the field of the form that a finding is about; empty: no single one."""
        return finding.field

    def confirmation_text(self, context: FormContext, given: QueryDict, **about: Any) -> str:
        """Return the sentence that the user has to confirm; empty: none."""
        return ""

    def blocked_context(self, sentence: str) -> dict[str, Any]:
        """Return what `field_context` adds where there is nothing to do; empty for an empty sentence."""
        return {"blocked": NothingToDo(sentence)} if sentence else {}

    # ---- views

    def urlpatterns(self, below: str) -> list[URLPattern]:
        """Return the URLs of the page and its preview, below the URL of a workload."""
        address = f"{below}{self.name}/{self.path_suffix}"
        return [
            path(address, self._make_view(self._form_view, ["GET", "HEAD", "POST"]), name=f"command-{self.name}"),
            path(
                f"{address}preview/", self._make_view(self._preview_view, ["POST"]), name=f"command-{self.name}-preview"
            ),
            path(
                f"{address}version-check/",
                fragment_view(self._version_check_fragment),
                name=f"command-{self.name}-version-check",
            ),
        ]

    def _make_view(self, answer: Callable[..., HttpResponse], methods: Sequence[str]) -> Callable[..., HttpResponse]:
        @never_cache
        @require_http_methods([*methods])
        @viewer_required
        def view(request: HttpRequest, /, cluster: str, namespace: str, name: str, **path_args: Any) -> HttpResponse:
            place = WorkloadRef(cluster, namespace, name)
            reader = reader_for(caller_of(request, Source.PAGE), place)
            return answer(request, FormContext(place, request.GET, reader), path_args)

        return view

    def _version_check_fragment(
        self, given: QueryDict, /, cluster: str, namespace: str, name: str, **about: Any
    ) -> Fragment:
        """Return whether the workload still has the version that the form was filled in from."""
        place, version = WorkloadRef(cluster, namespace, name), given.get(VERSION_FIELD, "")[:_MAX_VERSION_LENGTH]

        def render_version_check() -> str:
            context = FormContext(place, given)  # each rendering reads the mirror again
            values = {"place": place, "version": version, "now": context.snapshot.version, **self._urls(context, about)}
            return render_to_string("commands/_version_check.html", values)

        return Fragment(("version-check", self.name, place, *about.values(), version), render_version_check)

    def _form_view(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        if request.method != "POST":
            return self._render_page(request, context, about, Preview())
        if PREVIEW_BUTTON in request.POST:
            return self._render_page(request, context, about, self._compute_preview(request, context, about))
        return self._submit(request, context, about)

    def _submit(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Execute the command, or show the form again with the error."""
        try:
            _require_permission(caller_of(request, Source.PAGE), self.command, context.ref)
            _require_confirmation(self.confirmation_text(context, request.POST, **about), request.POST)
            return self.execute(request, context, about)
        except CommandRefused as refusal:
            return self._render_page(request, context, about, Preview(error=refusal, was_submitted=True))

    def _preview_view(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Answer with the preview of the form, and its errors."""
        values = self._context(request, context, about, self._compute_preview(request, context, about))
        return render(request, self.preview_template, {**values, "is_update": True})

    def _render_page(
        self, request: HttpRequest, context: FormContext, about: Mapping[str, Any], preview: Preview
    ) -> HttpResponse:
        values = self._context(request, context, about, preview)
        status = HTTPStatus.OK if preview.error is None else _http_status(preview.error)
        return render(request, self.template or f"commands/{self.name}.html", values, status=status)

    def _context(
        self, request: HttpRequest, context: FormContext, about: Mapping[str, Any], preview: Preview
    ) -> dict[str, Any]:
        place, given = context.ref, request.POST if request.method == "POST" else None
        is_conflict = isinstance(preview.error, VersionConflict)
        by_field, others = self._sort_findings(context, preview.error)
        # After a conflict the user has seen what others changed, and may send the form again.
        now = self._current_version(context)
        version = now if given is None or is_conflict else given.get(VERSION_FIELD, "")
        refusal = self._find_refusal(request, place)
        asks = "" if given is None or refusal else self.confirmation_text(context, given, **about)
        return {
            "place": place,
            "form": self,
            "title": self.title,
            "submit_label": self.submit_label,
            "confirmation": asks,
            "is_confirmed": given is not None and given.get(CONFIRMED_FIELD) == asks,
            "blocked": refusal,
            "version": version,
            "now": now,
            "preview": preview,
            "is_conflict": is_conflict,
            "is_cluster_unavailable": isinstance(preview.error, ClusterUnavailable),
            "field_errors": by_field,
            "findings": others,
            **self._preview_context(context, preview),
            **self._assumptions_context(context, given),
            **self._urls(context, about),
            **self.field_context(context, given, **about),
        }

    def _preview_context(self, context: FormContext, preview: Preview) -> dict[str, Any]:
        report = preview.simulation
        if report is None:
            return {"simulation": None, "difference": []}
        manifest = context.snapshot.mirrored.manifest if report.version else {}
        return {
            "simulation": summarize_simulation(report),
            "difference": render_manifest_diff(report.changed, manifest, context.reader),
        }

    def _assumptions_context(self, context: FormContext, given: QueryDict | None) -> dict[str, Any]:
        """Return the template context of the assumptions."""
        workload = context.snapshot.workload if self.has_assumptions else None
        return {
            "assumption_cliques": [] if workload is None else [clique.name for clique in workload.cliques],
            "never_ready": [] if given is None else given.getlist(NEVER_READY_FIELD),
            "all_ready": given is not None and bool(given.get(ALL_READY_FIELD)),
            "is_full": given is not None and bool(given.get(FULL_FIELD)),
            "is_unlimited": given is not None and bool(given.get(UNLIMITED_FIELD)),
            "seconds_to_ready": "" if given is None else given.get(SECONDS_TO_READY_FIELD, ""),
            "seconds_to_go": "" if given is None else given.get(SECONDS_TO_GO_FIELD, ""),
        }

    def _current_version(self, context: FormContext) -> str:
        """Return the present version of the workload."""
        return context.snapshot.version

    def _find_refusal(self, request: HttpRequest, place: WorkloadRef) -> Refusal | None:
        """Return why the user may not send the form."""
        return find_refusal(request.user, self.command, place.cluster, place.namespace)

    def _urls(self, context: FormContext, about: Mapping[str, Any]) -> dict[str, str]:
        kwargs = {**url_kwargs(context.ref), **about}
        names = {"form_url": "", "preview_url": "-preview", "version_check_url": "-version-check"}
        found = {name: reverse(f"command-{self.name}{end}", kwargs=kwargs) for name, end in names.items()}
        return {**found, "back_url": workload_url(context.ref)}

    def _sort_findings(
        self, context: FormContext, refusal: CommandRefused | None
    ) -> tuple[dict[str, str], list[Finding]]:
        """Return the messages by field of the form, and the findings about no field."""
        by_field: dict[str, str] = {}
        others: list[Finding] = []
        for finding in refusal.findings if refusal else ():
            field = self.find_field(context, finding)
            if field and field not in by_field:
                by_field[field] = finding.message
            else:
                others.append(finding)
        return by_field, others


class SimulatedForm(CommandForm):
    """A form whose preview is a simulation."""

    @abstractmethod
    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> Simulable:
        """Return the change that the form describes; raises ValidationFailed with a finding for each wrong field."""

    def parse_assumptions(self, given: QueryDict) -> Assumptions:
        """Return how the simulated cluster behaves."""
        return Assumptions(
            seconds_to_ready=_parse_seconds(given.get(SECONDS_TO_READY_FIELD, ""), "until a new pod is Ready"),
            seconds_to_terminate=_parse_seconds(given.get(SECONDS_TO_GO_FIELD, ""), "until a deleted pod is gone"),
            never_ready=tuple(given.getlist(NEVER_READY_FIELD)),
            all_ready=bool(given.get(ALL_READY_FIELD)),
            is_full=bool(given.get(FULL_FIELD)),
            is_unlimited=bool(given.get(UNLIMITED_FIELD)),
        )

    def _compute_preview(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> Preview:
        caller = caller_of(request, Source.PAGE)
        try:
            require(caller, self.command, context.ref)  # before anything of the form is read
            return Preview(self._simulate_form(caller, context, request.POST, about))
        except CommandRefused as refusal:
            return Preview(error=refusal)

    def _simulate_form(
        self, caller: Caller, context: FormContext, given: QueryDict, about: Mapping[str, Any]
    ) -> Simulated:
        """Return what the form would do; raises CommandRefused."""
        return self._simulate(caller, context, given, self.parse_change(context, given, **about))

    def _simulate(self, caller: Caller, context: FormContext, given: QueryDict, change: Simulable) -> Simulated:
        # The preview is of the workload as it is now, whichever version the form was filled in from.
        return workload_simulate(caller, context.ref, change, self.parse_assumptions(given))


class EditForm(SimulatedForm):
    """A form whose command changes the workload; afterwards the browser goes back to the page of the workload."""

    shows_manifest_diff = True

    @abstractmethod
    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the change that the form describes; raises ValidationFailed with a finding for each wrong field."""

    def success_message(self, changed: EditResult) -> str:
        """Return the message after the command."""
        return f"{self.title}: {len(changed.changes)} field{'s' * (len(changed.changes) != 1)} changed."

    def execute(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Make the change and redirect to the workload."""
        change = self.parse_change(context, request.POST, **about)
        expected = f'"{request.POST.get(VERSION_FIELD, "")}"'
        changed = self._execute_once(caller_of(request, Source.PAGE), context, change, expected=expected)
        said = self.success_message(changed) if changed.changes else "Nothing to change."
        messages.success(request, said)
        for warning in changed.warnings:
            messages.warning(request, warning.message)
        return HttpResponseRedirect(workload_url(context.ref))

    def _execute_once(
        self,
        caller: Caller,
        context: FormContext,
        change: WorkloadChange,
        *,
        expected: str | None,
        dry_run: bool = False,
    ) -> EditResult:
        try:
            return execute(caller, context.ref, change, expected=expected, dry_run=dry_run)
        except VersionConflict:
            # A form that is sent twice conflicts with its own first change: then nothing is left to change.
            again = replace(change, must_be_new=False) if isinstance(change, Apply) else change
            tried = execute(caller, context.ref, again, dry_run=True)
            if tried.changes:
                raise
            return tried


_HTTP_STATUSES: Final = {
    PermissionDenied: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    ValidationFailed: HTTPStatus.UNPROCESSABLE_ENTITY,
    ClusterUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


def _parse_seconds(text: str, until: str) -> float | None:
    """Return an assumed time; None: as measured."""
    if not text.strip():
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MAX_ASSUMED_SECONDS:
        raise ValidationFailed(
            f"The seconds {until} must be a number from 0 to {_MAX_ASSUMED_SECONDS}, or empty for the measured time."
        )
    return seconds


def _require_permission(caller: Caller, command: Command, place: WorkloadRef) -> None:
    """Raise PermissionDenied, and record it, before anything of the form is parsed."""
    try:
        require(caller, command, place)
    except PermissionDenied as refusal:
        record(caller, command, place, Result.REFUSED, detail=refusal.sentence)
        raise


def _require_confirmation(asks: str, given: QueryDict) -> None:
    """Raise ValidationFailed unless the user has confirmed the present sentence."""
    if asks and given.get(CONFIRMED_FIELD) != asks:
        raise ValidationFailed("Nothing was changed. Tick the box to confirm the command.")


def _http_status(refusal: CommandRefused) -> HTTPStatus:
    return _HTTP_STATUSES.get(type(refusal), HTTPStatus.CONFLICT)


def url_kwargs(place: WorkloadRef) -> dict[str, str]:
    """Return the arguments of the URL of a workload."""
    return {"cluster": place.cluster, "namespace": place.namespace, "name": place.name}


def workload_url(place: WorkloadRef) -> str:
    """Return the URL of a workload."""
    return reverse("workload", kwargs=url_kwargs(place))
