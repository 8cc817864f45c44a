"""What every page that commands has in common: show the form, try it while somebody types, carry it out.

Before it: a module for each form (`restart`, `strategy`, …), which says how the form is filled in and what it means.
After it: the service that carries the command out, and `services.simulation`, which says beforehand what it would do.

A form carries the version of the workload that it was filled in from, so that nobody overwrites what they have not
seen: whoever was too slow gets their form back as they filled it in, with what has been changed meanwhile, and may
look and send it once more. The invariants: what is refused changes nothing and loses nothing that was typed; a form
that is sent twice is carried out once; and whoever may not command is told why before they begin, and has nothing read
that they send all the same.
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
"""The field of each form that names what it was filled in from."""
PREVIEW_BUTTON: Final = "try"
"""The button that tries a form where no script does so while somebody types."""
CONFIRMED_FIELD: Final = "agreed"
"""The box to tick for what nobody should do by mistake. Its value is the very sentence that was agreed to."""

NEVER_READY_FIELD: Final = "never_ready"
ALL_READY_FIELD: Final = "all_ready"
FULL_FIELD: Final = "full"
UNLIMITED_FIELD: Final = "unlimited"
SECONDS_TO_READY_FIELD: Final = "seconds_to_ready"
"""The fields that say how the cluster is supposed to behave; they are no part of the command."""

_MAX_VERSION_LENGTH: Final = 100
_MAX_SECONDS_TO_READY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Preview:
    """What came of trying a form without carrying it out: what it would do, or why it is refused."""

    simulation: Simulated | None = None
    error: CommandRefused | None = None
    # The form was sent and refused: that is said above the form, where no later trial takes its place.
    was_submitted: bool = False


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """Why there is nothing to send, whoever asks; shown in place of why somebody may not."""

    sentence: str
    is_nothing_to_do: bool = True  # all is well, so it is said calmly


class FormContext(WorkloadContext):
    """A workload as a form shows it to a reader, and what the address of the form asks for."""

    def __init__(self, place: WorkloadRef, asked: QueryDict, reader: Reader = PUBLIC_READER) -> None:
        super().__init__(place, asked.get("by", ""))
        self.query_params = asked
        self.reader = reader


class CommandForm(ABC):
    """A page with a form, for one command; what is done with what the command answers is left open."""

    name: ClassVar[str]  # of the address below the workload's, and of its template
    title: ClassVar[str]
    submit_label: ClassVar[str] = "Save to the cluster"  # what the button says
    submit_style: ClassVar[str] = "primary"  # how the button looks; danger: what it does cannot be undone
    command: ClassVar[Command]
    path_suffix: ClassVar[str] = ""  # of the address: what the form is about, as Django's paths write it
    template: ClassVar[str] = ""  # of the page; left out, it is called like the form
    preview_template: ClassVar[str] = "commands/_preview.html"  # the template of what stands beside it
    has_assumptions: ClassVar[bool] = True  # whether it can be tried under other beliefs about the cluster
    shows_manifest_diff: ClassVar[bool] = False  # whether what it changes is a manifest
    unchanged_text: ClassVar[str] = ""  # what is said while nothing is changed; empty: what is simulated then
    preview_delay: ClassVar[str] = "300ms"  # in typing, after which the form is tried
    oob_template: ClassVar[str] = (
        ""  # the template of what else a trial brings up to date: parts of the form, out of band
    )

    @abstractmethod
    def field_context(self, scene: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Return what the template shows the form by: as it stands at first, or as somebody has filled it in."""

    @abstractmethod
    def execute(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Execute the command and redirect; raises CommandRefused."""

    @abstractmethod
    def _compute_preview(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> Preview:
        """Return what the form would do as it is filled in, or why it is refused."""

    def find_field(self, scene: FormContext, finding: Finding) -> str:
        """Return the field of the form that a finding is about; empty: none of them alone."""
        return finding.field

    def confirmation_text(self, scene: FormContext, given: QueryDict, **about: Any) -> str:
        """Return what somebody has to agree to before the command is carried out; empty: nothing."""
        return ""

    def blocked_context(self, sentence: str) -> dict[str, Any]:
        """Return what `fill_in` adds where there is nothing to command, whoever asks; an empty sentence: there is."""
        return {"barred": NothingToDo(sentence)} if sentence else {}

    # ---- views

    def urlpatterns(self, below: str) -> list[URLPattern]:
        """Return where the page and its trial hang, below the address of a workload."""
        address = f"{below}{self.name}/{self.path_suffix}"
        return [
            path(address, self._make_view(self._form_view, ["GET", "HEAD", "POST"]), name=f"steer-{self.name}"),
            path(f"{address}trial/", self._make_view(self._preview_view, ["POST"]), name=f"steer-{self.name}-trial"),
            path(
                f"{address}standing/", fragment_view(self._version_check_fragment), name=f"steer-{self.name}-standing"
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
        """Return whether the workload is still as the form was filled in from."""
        place, version = WorkloadRef(cluster, namespace, name), given.get(VERSION_FIELD, "")[:_MAX_VERSION_LENGTH]

        def render_standing() -> str:
            scene = FormContext(place, given)  # each rendering looks anew
            context = {"place": place, "version": version, "now": scene.snapshot.version, **self._urls(scene, about)}
            return render_to_string("commands/_version_check.html", context)

        return Fragment(("standing", self.name, place, *about.values(), version), render_standing)

    def _form_view(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        if request.method != "POST":
            return self._render_page(request, scene, about, Preview())
        if PREVIEW_BUTTON in request.POST:
            return self._render_page(request, scene, about, self._compute_preview(request, scene, about))
        return self._submit(request, scene, about)

    def _submit(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Carry the command out; or show the form again with what is in the way."""
        try:
            _require_permission(caller_of(request, Source.PAGE), self.command, scene.ref)
            _require_confirmation(self.confirmation_text(scene, request.POST, **about), request.POST)
            return self.execute(request, scene, about)
        except CommandRefused as refusal:
            return self._render_page(request, scene, about, Preview(error=refusal, was_submitted=True))

    def _preview_view(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Answer what the form as it is now would do, and what is wrong with it."""
        context = self._context(request, scene, about, self._compute_preview(request, scene, about))
        return render(request, self.preview_template, {**context, "is_update": True})

    def _render_page(
        self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any], trial: Preview
    ) -> HttpResponse:
        context = self._context(request, scene, about, trial)
        status = HTTPStatus.OK if trial.error is None else _http_status(trial.error)
        return render(request, self.template or f"commands/{self.name}.html", context, status=status)

    def _context(
        self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any], trial: Preview
    ) -> dict[str, Any]:
        place, given = scene.ref, request.POST if request.method == "POST" else None
        is_race = isinstance(trial.error, VersionConflict)
        by_field, others = self._sort_findings(scene, trial.error)
        # Whoever lost a race has been told what they had not seen, and may send the form again.
        now = self._current_version(scene)
        version = now if given is None or is_race else given.get(VERSION_FIELD, "")
        barred = self._find_refusal(request, place)
        asks = "" if given is None or barred else self.confirmation_text(scene, given, **about)
        return {
            "place": place,
            "desk": self,
            "title": self.title,
            "send": self.submit_label,
            "asks": asks,
            "is_agreed": given is not None and given.get(CONFIRMED_FIELD) == asks,
            "barred": barred,
            "version": version,
            "now": now,
            "trial": trial,
            "is_race": is_race,
            "is_away": isinstance(trial.error, ClusterUnavailable),
            "wrong": by_field,
            "findings": others,
            **self._preview_context(scene, trial),
            **self._assumptions_context(scene, given),
            **self._urls(scene, about),
            **self.field_context(scene, given, **about),
        }

    def _preview_context(self, scene: FormContext, trial: Preview) -> dict[str, Any]:
        report = trial.simulation
        if report is None:
            return {"preview": None, "difference": []}
        manifest = scene.snapshot.mirrored.manifest if report.version else {}
        return {
            "preview": summarize_simulation(report),
            "difference": render_manifest_diff(report.changed, manifest, scene.reader),
        }

    def _assumptions_context(self, scene: FormContext, given: QueryDict | None) -> dict[str, Any]:
        """Return how the cluster is supposed to behave, and what may be supposed."""
        workload = scene.snapshot.workload if self.has_assumptions else None
        return {
            "cliques": [] if workload is None else [clique.name for clique in workload.cliques],
            "never_ready": [] if given is None else given.getlist(NEVER_READY_FIELD),
            "all_ready": given is not None and bool(given.get(ALL_READY_FIELD)),
            "is_full": given is not None and bool(given.get(FULL_FIELD)),
            "is_unlimited": given is not None and bool(given.get(UNLIMITED_FIELD)),
            "seconds_to_ready": "" if given is None else given.get(SECONDS_TO_READY_FIELD, ""),
        }

    def _current_version(self, scene: FormContext) -> str:
        """Return which version of the workload there is now."""
        return scene.snapshot.version

    def _find_refusal(self, request: HttpRequest, place: WorkloadRef) -> Refusal | None:
        """Return why whoever looks may not send the form."""
        return find_refusal(request.user, self.command, place.cluster, place.namespace)

    def _urls(self, scene: FormContext, about: Mapping[str, Any]) -> dict[str, str]:
        kwargs = {**url_kwargs(scene.ref), **about}
        names = {"desk_url": "", "trial_url": "-trial", "standing_url": "-standing"}
        found = {name: reverse(f"steer-{self.name}{end}", kwargs=kwargs) for name, end in names.items()}
        return {**found, "back_url": workload_url(scene.ref)}

    def _sort_findings(
        self, scene: FormContext, refusal: CommandRefused | None
    ) -> tuple[dict[str, str], list[Finding]]:
        """Return the sentences by field of the form, and the findings that are about none of them."""
        by_field: dict[str, str] = {}
        others: list[Finding] = []
        for finding in refusal.findings if refusal else ():
            field = self.find_field(scene, finding)
            if field and field not in by_field:
                by_field[field] = finding.message
            else:
                others.append(finding)
        return by_field, others


class SimulatedForm(CommandForm):
    """A form whose preview is a simulation."""

    @abstractmethod
    def parse_change(self, scene: FormContext, given: QueryDict, **about: Any) -> Simulable:
        """Return the change that the form describes; raises ValidationFailed with a finding for each wrong field."""

    def parse_assumptions(self, given: QueryDict) -> Assumptions:
        """Return how the simulated cluster behaves."""
        return Assumptions(
            seconds_to_ready=_parse_seconds(given.get(SECONDS_TO_READY_FIELD, "")),
            never_ready=tuple(given.getlist(NEVER_READY_FIELD)),
            all_ready=bool(given.get(ALL_READY_FIELD)),
            is_full=bool(given.get(FULL_FIELD)),
            is_unlimited=bool(given.get(UNLIMITED_FIELD)),
        )

    def _compute_preview(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> Preview:
        caller = caller_of(request, Source.PAGE)
        try:
            require(caller, self.command, scene.ref)  # before anything of the form is read
            return Preview(self._simulate_form(caller, scene, request.POST, about))
        except CommandRefused as refusal:
            return Preview(error=refusal)

    def _simulate_form(
        self, caller: Caller, scene: FormContext, given: QueryDict, about: Mapping[str, Any]
    ) -> Simulated:
        """Return what the form would do; raises CommandRefused."""
        return self._simulate(caller, scene, given, self.parse_change(scene, given, **about))

    def _simulate(self, caller: Caller, scene: FormContext, given: QueryDict, change: Simulable) -> Simulated:
        # The preview is of the workload as it is now, whichever version the form was filled in from.
        return workload_simulate(caller, scene.ref, change, self.parse_assumptions(given))


class EditForm(SimulatedForm):
    """A form whose command changes the workload; afterwards the browser goes back to the page of the workload."""

    shows_manifest_diff = True

    @abstractmethod
    def parse_change(self, scene: FormContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the change that the form describes; raises ValidationFailed with a finding for each wrong field."""

    def success_message(self, changed: EditResult) -> str:
        """Return what is said once the command has been carried out."""
        return f"{self.title}: {len(changed.changes)} field{'s' * (len(changed.changes) != 1)} changed."

    def execute(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Make the change and redirect to the workload."""
        change = self.parse_change(scene, request.POST, **about)
        expected = f'"{request.POST.get(VERSION_FIELD, "")}"'
        changed = self._execute_once(caller_of(request, Source.PAGE), scene, change, expected=expected)
        said = self.success_message(changed) if changed.changes else "It was so already; nothing has been changed."
        messages.success(request, said)
        for warning in changed.warnings:
            messages.warning(request, warning.message)
        return HttpResponseRedirect(workload_url(scene.ref))

    def _execute_once(
        self, caller: Caller, scene: FormContext, change: WorkloadChange, *, expected: str | None, dry_run: bool = False
    ) -> EditResult:
        try:
            return execute(caller, scene.ref, change, expected=expected, dry_run=dry_run)
        except VersionConflict:
            # A form that is sent twice conflicts with its own first change: then nothing is left to change.
            again = replace(change, must_be_new=False) if isinstance(change, Apply) else change
            tried = execute(caller, scene.ref, again, dry_run=True)
            if tried.changes:
                raise
            return tried


_HTTP_STATUSES: Final = {
    PermissionDenied: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    ValidationFailed: HTTPStatus.UNPROCESSABLE_ENTITY,
    ClusterUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


def _parse_seconds(text: str) -> float | None:
    """Return how long pods are supposed to take to become Ready; None: as measured."""
    if not text.strip():
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MAX_SECONDS_TO_READY:
        raise ValidationFailed(
            f"Seconds to Ready must be a number from 0 to {_MAX_SECONDS_TO_READY}; empty means as measured."
        )
    return seconds


def _require_permission(caller: Caller, command: Command, place: WorkloadRef) -> None:
    """Raise unless somebody may, before anything of their form is read; that they tried is on record."""
    try:
        require(caller, command, place)
    except PermissionDenied as refusal:
        record(caller, command, place, Result.REFUSED, detail=refusal.sentence)
        raise


def _require_confirmation(asks: str, given: QueryDict) -> None:
    """Raise unless somebody has agreed to what is asked, as it stands now."""
    if asks and given.get(CONFIRMED_FIELD) != asks:
        raise ValidationFailed("Nothing has been done. Tick the box if this is what you mean.")


def _http_status(refusal: CommandRefused) -> HTTPStatus:
    return _HTTP_STATUSES.get(type(refusal), HTTPStatus.CONFLICT)


def url_kwargs(place: WorkloadRef) -> dict[str, str]:
    """Return a place as addresses name it."""
    return {"cluster": place.cluster, "namespace": place.namespace, "name": place.name}


def workload_url(place: WorkloadRef) -> str:
    """Return where the page of a workload hangs."""
    return reverse("workload", kwargs=url_kwargs(place))
