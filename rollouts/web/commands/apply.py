"""Apply a manifest: that of an existing workload, with secrets masked, or that of a new one.

`rollouts.manifests.strict_yaml` parses the text, as for the API, and `services.apply` applies it. While the user types,
the cluster tries the manifest as a dry run, and each error comes with its line. Masked values are restored from the
cluster.

A new workload has no page yet: its form has a URL of its own, and the manifest has its name and namespace.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import CommandRefused, InvalidState, ValidationFailed, VersionConflict
from rollouts.accounts.permissions import Refusal, RefusalReason, grants_of
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
# The smallest manifest that is valid.
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
    """The form has the manifest as text, and whether to take over fields of other managers."""

    name, title, submit_label, command = "apply", "Edit the manifest", "Apply the manifest", Command.APPLY_WORKLOAD
    unchanged_text = "Change the manifest to see what it would do."
    preview_delay = "800ms"  # each preview sends a request to the cluster

    def field_context(self, context: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show the manifest from the cluster, with secrets masked."""
        return {
            "text": _render_manifest(manifest_detail(context.ref, context.reader).manifest)
            if given is None
            else _manifest_text(given),
            "is_forced": given is not None and _FORCE_FIELD in given,
            "fields": [_MANIFEST_FIELD],
        }

    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> Apply:
        """Return the manifest to apply."""
        return Apply(_parse_manifest(_manifest_text(given)), force=_FORCE_FIELD in given)

    def find_field(self, context: FormContext, finding: Finding) -> str:
        """Show errors of the whole text below it."""
        return _MANIFEST_FIELD if finding.field in ("", _MANIFEST_FIELD) else ""

    def success_message(self, changed: EditResult) -> str:
        """Return how many fields changed."""
        if changed.is_new:
            return f"Created {changed.place.name}."
        return f"Applied: {len(changed.changes)} field{'s' * (len(changed.changes) != 1)} changed."

    def execute(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Apply the manifest and redirect to the workload; errors name their lines."""
        try:
            return super().execute(request, context, about)
        except CommandRefused as refusal:
            raise _add_line_numbers(refusal, _manifest_text(request.POST)) from refusal

    def _simulate_form(
        self, caller: Caller, context: FormContext, given: QueryDict, about: Mapping[str, Any]
    ) -> Simulated:
        """Apply as a dry run, which also finds fields of other managers, and then simulate the change."""
        try:
            change = self.parse_change(context, given, **about)
            self._execute_once(caller, context, change, expected=None, dry_run=True)
        except CommandRefused as refusal:
            raise _add_line_numbers(refusal, _manifest_text(given)) from refusal
        return self._simulate(caller, context, given, change)


class _NewWorkloadContext(FormContext):
    """A workload that does not exist yet; its manifest names it, so it is parsed first."""

    def __init__(self, place: WorkloadRef, asked: QueryDict, document: Any) -> None:
        super().__init__(place, asked)
        self._document = document

    def parse_manifest(self) -> Any:
        """Return the manifest; raises the error of the text."""
        if isinstance(self._document, CommandRefused):
            raise self._document
        return self._document


class NewWorkloadForm(ApplyForm):
    """The form for a new workload; an existing one is not changed."""

    name, title, submit_label = "new", "New workload", "Create the workload"
    has_assumptions = False  # no pod runs yet about which to assume anything

    def field_context(self, context: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show a manifest to start from, and the clusters."""
        return {
            "text": _STARTER_MANIFEST if given is None else _manifest_text(given),
            "clusters": configured_cluster_names(),
            "namespace": _DEFAULT_NAMESPACE if given is None else given.get("namespace", ""),
            "fields": [_MANIFEST_FIELD],
        }

    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> Apply:
        """Return the manifest to create; it must have a name."""
        manifest = (
            context.parse_manifest()
            if isinstance(context, _NewWorkloadContext)
            else _parse_manifest(_manifest_text(given))
        )
        if not context.ref.name:
            raise invalid_command(
                [Finding(_MANIFEST_FIELD, FindingCode.FIELD_MISSING, "metadata.name is missing; add it")]
            )
        return Apply(manifest, must_be_new=True)

    def urlpatterns(self, below: str) -> list[URLPattern]:
        """Return the URLs of the page and its preview, which are not below a workload."""
        return [
            path("workloads/new/", self._make_view(self._form_view, ["GET", "HEAD", "POST"]), name="command-new"),
            path("workloads/new/preview/", self._make_view(self._preview_view, ["POST"]), name="command-new-preview"),
        ]

    def _make_view(self, answer: Callable[..., HttpResponse], methods: Sequence[str]) -> Callable[..., HttpResponse]:
        @never_cache
        @require_http_methods([*methods])
        @viewer_required
        def view(request: HttpRequest, /) -> HttpResponse:
            return answer(request, self._make_context(request), {})

        return view

    def _make_context(self, request: HttpRequest) -> FormContext:
        """Parse the manifest for the name of the workload, unless the user may create none at all."""
        given = request.POST
        place = _parse_workload_ref(given, None)
        if request.method != "POST" or self._find_refusal(request, place) is not None:
            return FormContext(place, request.GET)
        document = _parse_manifest_or_error(_manifest_text(given))
        return _NewWorkloadContext(_parse_workload_ref(given, document), request.GET, document)

    def _execute_once(
        self,
        caller: Caller,
        context: FormContext,
        change: WorkloadChange,
        *,
        expected: str | None,
        dry_run: bool = False,
    ) -> EditResult:
        try:  # a workload that does not exist has no version to expect
            return super()._execute_once(caller, context, change, expected=None, dry_run=dry_run)
        except VersionConflict as error:
            raise InvalidState(f"{error.sentence} Open it to edit its manifest.") from error

    def _current_version(self, context: FormContext) -> str:
        return ""

    def _find_refusal(self, request: HttpRequest, place: WorkloadRef) -> Refusal | None:
        """Return why the user may create no workload anywhere; only the manifest names the namespace."""
        refusal = super()._find_refusal(request, place)
        is_elsewhere = refusal is not None and refusal.reason is RefusalReason.GRANT_MISSING and grants_of(request.user)
        return None if is_elsewhere else refusal

    def _urls(self, context: FormContext, about: Mapping[str, Any]) -> dict[str, str]:
        return {
            "form_url": reverse("command-new"),
            "preview_url": reverse("command-new-preview"),
            "back_url": reverse("home"),
        }


# ---- the text


def _render_manifest(manifest: Mapping[str, Any]) -> str:
    """Return the fields of a manifest that people write, as YAML."""
    metadata = manifest.get("metadata") or {}
    written = {name: metadata[name] for name in _METADATA_FIELDS if metadata.get(name)}
    return render_yaml({**{name: manifest[name] for name in manifest if name != "status"}, "metadata": written})


def _manifest_text(given: QueryDict) -> str:
    return given.get(_MANIFEST_FIELD, "").replace("\r\n", "\n")


def _parse_manifest(text: str) -> Any:
    """Parse a text; raises ValidationFailed."""
    body = text.encode(errors="replace")
    if len(body) > MAX_BODY_BYTES:
        sentence = f"the manifest is larger than {MAX_BODY_BYTES // 1024} KiB"
        raise invalid_command([Finding(_MANIFEST_FIELD, FindingCode.OUT_OF_RANGE, sentence)])
    if not text.strip():
        raise invalid_command([Finding(_MANIFEST_FIELD, FindingCode.FIELD_MISSING, "the manifest is empty")])
    try:
        return parse_yaml(body)
    except UnreadableDocument as error:
        sentence = error.reason if error.is_value else f"this is not valid YAML: {error.reason}"
        raise invalid_command([Finding(error.field or _MANIFEST_FIELD, FindingCode.WRONG_TYPE, sentence)]) from error


def _parse_manifest_or_error(text: str) -> Any:
    """Return the manifest, or the error."""
    try:
        return _parse_manifest(text)
    except CommandRefused as refusal:
        return refusal


def _add_line_numbers(refusal: CommandRefused, text: str) -> CommandRefused:
    """Return an error whose findings name their lines of the text."""
    if not isinstance(refusal, ValidationFailed | InvalidState):
        return refusal
    lines = find_lines(text, {finding.field for finding in refusal.findings} - {"", _MANIFEST_FIELD})
    findings = [
        Finding(one.field, one.code, f"line {lines[one.field]}: {one.message}") if one.field in lines else one
        for one in refusal.findings
    ]
    return type(refusal)(refusal.sentence, findings)


def _parse_workload_ref(given: QueryDict, document: Any) -> WorkloadRef:
    """Return the cluster, namespace and name from the manifest, or else from the form."""
    names = configured_cluster_names()
    cluster = given.get("cluster") or (names[0] if names else "")
    metadata = document.get("metadata") if isinstance(document, dict) else None
    written = metadata if isinstance(metadata, dict) else {}
    namespace = written.get("namespace") or given.get("namespace", "").strip() or _DEFAULT_NAMESPACE
    return WorkloadRef(cluster, str(namespace), str(written.get("name") or ""))
