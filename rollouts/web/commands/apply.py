"""Apply a manifest: of a workload that is there, as it is with what may be secret hidden; and of a new one.

The text is read by `rollouts.manifests.strict_yaml`, as the API reads it, and goes to `services.apply`: the cluster
itself tries it while somebody types, and what it or the rules find is told with the line that it is about. Hidden
values come back from what the cluster has.

A new workload has no address yet: its form hangs beside the list, and the manifest says what it is called and where.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import CommandRefused, InvalidState, ValidationFailed, VersionConflict
from rollouts.accounts.permissions import Refusal, RefusalReason
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.manifests.strict_yaml import MAX_BODY_BYTES, UnreadableDocument, find_lines, parse_yaml
from rollouts.runtime.connections import configured_cluster_names
from rollouts.selectors.manifests import manifest_detail
from rollouts.services.audit import Caller
from rollouts.services.changes import Apply, WorkloadChange
from rollouts.services.edit import EDITABLE_METADATA, EditResult
from rollouts.services.simulation_report import Simulated
from rollouts.services.workload_client import invalid_command
from rollouts.web.commands.forms import EditForm, FormContext
from rollouts.web.manifests import render_yaml
from rollouts.web.page_layout import viewer_required

_MANIFEST_FIELD: Final = "manifest"
_FORCE_FIELD: Final = "force"
_METADATA_FIELDS: Final = ("name", "namespace", *EDITABLE_METADATA)
_DEFAULT_NAMESPACE: Final = "default"
# What a new workload is begun with: the least that can be accepted.
_STARTER_MANIFEST: Final = """\
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata:
  name: my-workload
spec:
  replicas: 1
  template:
    cliques:
    - name: worker
      spec:
        roleName: worker
        replicas: 1
        podSpec:
          containers:
          - name: main
            image: example/main:v1
"""


class ApplyForm(EditForm):
    """The form has the manifest as a text, and whether fields of others are taken over."""

    name, title, submit_label, command = "apply", "Edit the manifest", "Apply the manifest", Command.APPLY_WORKLOAD
    unchanged_text = "Change the manifest to see what it would do."
    preview_delay = "800ms"  # each trial asks the cluster

    def field_context(self, scene: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show the manifest as the cluster has it, with what may be secret hidden."""
        return {
            "text": _render_manifest(manifest_detail(scene.ref, scene.reader).manifest)
            if given is None
            else _manifest_text(given),
            "is_forced": given is not None and _FORCE_FIELD in given,
            "fields": [_MANIFEST_FIELD],
        }

    def parse_change(self, scene: FormContext, given: QueryDict, **about: Any) -> Apply:
        """Return the manifest to apply."""
        return Apply(_parse_manifest(_manifest_text(given)), force=_FORCE_FIELD in given)

    def find_field(self, scene: FormContext, finding: Finding) -> str:
        """What is wrong with the text as a whole is said below it."""
        return _MANIFEST_FIELD if finding.field in ("", _MANIFEST_FIELD) else ""

    def success_message(self, changed: EditResult) -> str:
        """Say what was made of it."""
        if changed.is_new:
            return f"{changed.place.name} has been created."
        return f"Applied: {len(changed.changes)} field{'s' * (len(changed.changes) != 1)} changed."

    def execute(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Apply it and go to the workload; what is in the way is told with its lines."""
        try:
            return super().execute(request, scene, about)
        except CommandRefused as refusal:
            raise _add_line_numbers(refusal, _manifest_text(request.POST)) from refusal

    def _simulate_form(
        self, caller: Caller, scene: FormContext, given: QueryDict, about: Mapping[str, Any]
    ) -> Simulated:
        """Have the cluster try it, which also tells what others hold, and then see what it would do."""
        try:
            change = self.parse_change(scene, given, **about)
            self._execute_once(caller, scene, change, expected=None, dry_run=True)
        except CommandRefused as refusal:
            raise _add_line_numbers(refusal, _manifest_text(given)) from refusal
        return self._simulate(caller, scene, given, change)


class _NewWorkloadContext(FormContext):
    """A workload that is not there yet: its manifest says where it is to go, so it has been read before all else."""

    def __init__(self, place: WorkloadRef, asked: QueryDict, document: Any) -> None:
        super().__init__(place, asked)
        self._document = document

    def parse_manifest(self) -> Any:
        """Return the manifest; raises what is wrong with the text."""
        if isinstance(self._document, CommandRefused):
            raise self._document
        return self._document


class NewWorkloadForm(ApplyForm):
    """The same for a workload that is not there yet; what there is already is not touched."""

    name, title, submit_label = "new", "New workload", "Create the workload"
    has_assumptions = False  # nothing runs yet that could be supposed to behave otherwise

    def field_context(self, scene: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show something to begin with, and the clusters to choose from."""
        return {
            "text": _STARTER_MANIFEST if given is None else _manifest_text(given),
            "clusters": configured_cluster_names(),
            "namespace": _DEFAULT_NAMESPACE if given is None else given.get("namespace", ""),
            "fields": [_MANIFEST_FIELD],
        }

    def parse_change(self, scene: FormContext, given: QueryDict, **about: Any) -> Apply:
        """Return the manifest to create; it must have a name."""
        manifest = (
            scene.parse_manifest() if isinstance(scene, _NewWorkloadContext) else _parse_manifest(_manifest_text(given))
        )
        if not scene.ref.name:
            raise invalid_command(
                [Finding(_MANIFEST_FIELD, FindingCode.FIELD_MISSING, "metadata.name is missing; add it")]
            )
        return Apply(manifest, must_be_new=True)

    def urlpatterns(self, below: str) -> list[URLPattern]:
        """Return where the page and its trial hang: there is no workload to hang them below."""
        return [
            path("workloads/new/", self._make_view(self._form_view, ["GET", "HEAD", "POST"]), name="steer-new"),
            path("workloads/new/trial/", self._make_view(self._preview_view, ["POST"]), name="steer-new-trial"),
        ]

    def _make_view(self, answer: Callable[..., HttpResponse], methods: Sequence[str]) -> Callable[..., HttpResponse]:
        @never_cache
        @require_http_methods([*methods])
        @viewer_required
        def view(request: HttpRequest, /) -> HttpResponse:
            return answer(request, self._make_context(request), {})

        return view

    def _make_context(self, request: HttpRequest) -> FormContext:
        """Read where the workload is to go; of those who may create nothing at all, nothing is read."""
        given = request.POST
        place = _parse_workload_ref(given, None)
        if request.method != "POST" or self._find_refusal(request, place) is not None:
            return FormContext(place, request.GET)
        document = _parse_manifest_or_error(_manifest_text(given))
        return _NewWorkloadContext(_parse_workload_ref(given, document), request.GET, document)

    def _execute_once(
        self, caller: Caller, scene: FormContext, change: WorkloadChange, *, expected: str | None, dry_run: bool = False
    ) -> EditResult:
        try:  # a workload that does not exist has no version to expect
            return super()._execute_once(caller, scene, change, expected=None, dry_run=dry_run)
        except VersionConflict as error:
            raise InvalidState(f"{error.sentence} Open it to edit its manifest.") from error

    def _current_version(self, scene: FormContext) -> str:
        return ""

    def _find_refusal(self, request: HttpRequest, place: WorkloadRef) -> Refusal | None:
        """Return why somebody may create nothing at all; whether they may where they say is told once they say it."""
        refusal = super()._find_refusal(request, place)
        return None if refusal is None or refusal.reason is RefusalReason.GRANT_MISSING else refusal

    def _urls(self, scene: FormContext, about: Mapping[str, Any]) -> dict[str, str]:
        return {"desk_url": reverse("steer-new"), "trial_url": reverse("steer-new-trial"), "back_url": reverse("home")}


# ---- the text


def _render_manifest(manifest: Mapping[str, Any]) -> str:
    """Return what people write of a manifest."""
    metadata = manifest.get("metadata") or {}
    written = {name: metadata[name] for name in _METADATA_FIELDS if metadata.get(name)}
    return render_yaml({**{name: manifest[name] for name in manifest if name != "status"}, "metadata": written})


def _manifest_text(given: QueryDict) -> str:
    return given.get(_MANIFEST_FIELD, "").replace("\r\n", "\n")


def _parse_manifest(text: str) -> Any:
    """Read a text; raises what is wrong with it."""
    body = text.encode(errors="replace")
    if len(body) > MAX_BODY_BYTES:
        sentence = f"the manifest is larger than {MAX_BODY_BYTES // 1024} KiB"
        raise invalid_command([Finding(_MANIFEST_FIELD, FindingCode.OUT_OF_RANGE, sentence)])
    if not text.strip():
        raise invalid_command([Finding(_MANIFEST_FIELD, FindingCode.FIELD_MISSING, "there is no manifest here yet")])
    try:
        return parse_yaml(body)
    except UnreadableDocument as error:
        sentence = error.reason if error.is_value else f"this cannot be read: {error.reason}"
        raise invalid_command([Finding(error.field or _MANIFEST_FIELD, FindingCode.WRONG_TYPE, sentence)]) from error


def _parse_manifest_or_error(text: str) -> Any:
    """Return the same, or what is wrong with it."""
    try:
        return _parse_manifest(text)
    except CommandRefused as refusal:
        return refusal


def _add_line_numbers(refusal: CommandRefused, text: str) -> CommandRefused:
    """Return a refusal whose findings say which line of the text they are about."""
    if not isinstance(refusal, ValidationFailed | InvalidState):
        return refusal
    lines = find_lines(text, {finding.field for finding in refusal.findings} - {"", _MANIFEST_FIELD})
    findings = [
        Finding(one.field, one.code, f"line {lines[one.field]}: {one.message}") if one.field in lines else one
        for one in refusal.findings
    ]
    return type(refusal)(refusal.sentence, findings)


def _parse_workload_ref(given: QueryDict, document: Any) -> WorkloadRef:
    """Return where a manifest wants to go, as far as it says so; else as the form says."""
    names = configured_cluster_names()
    cluster = given.get("cluster") or (names[0] if names else "")
    metadata = document.get("metadata") if isinstance(document, dict) else None
    written = metadata if isinstance(metadata, dict) else {}
    namespace = written.get("namespace") or given.get("namespace", "").strip() or _DEFAULT_NAMESPACE
    return WorkloadRef(cluster, str(namespace), str(written.get("name") or ""))
