"""Apply a manifest: of a workload that is there, as it is with what may be secret hidden; and of a new one.

The text is read by `rollouts.manifests.strict_yaml`, as the API reads it, and goes to `services.apply`: the cluster itself tries
it while somebody types, and what it or the rules find is told with the line that it is about. Hidden values come back
from what the cluster has.

A new workload has no address yet: its form hangs beside the list, and the manifest says what it is called and where.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import CommandRefused, Contradiction, Invalid, RaceLost
from rollouts.accounts.permissions import Reason, Refusal
from rollouts.engine.manifest.findings import Code, Finding
from rollouts.manifests.strict_yaml import MOST_BYTES, UnreadableDocument, find_lines, parse_yaml
from rollouts.selectors.manifests import manifest_detail
from rollouts.selectors.workload_snapshot import configured_names
from rollouts.services.apply import workload_apply
from rollouts.services.audit import Caller
from rollouts.services.edit import METADATA, Changed
from rollouts.services.simulation import Proposal
from rollouts.services.simulation_report import Simulated
from rollouts.services.workload_client import refuse
from rollouts.web.commands.forms import Desk, Draft, Sitting
from rollouts.web.manifests import render_yaml
from rollouts.web.page_layout import for_readers

_TEXT: Final = "manifest"
_FORCE: Final = "force"
_OF_METADATA: Final = ("name", "namespace", *METADATA)
_NAMESPACE: Final = "default"
# What a new workload is begun with: the least that can be accepted.
_STARTER: Final = """\
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


class Apply(Desk):
    """The form has the manifest as a text, and whether fields of others are taken over."""

    name, title, send, command = "apply", "Edit the manifest", "Apply the manifest", Command.APPLY_WORKLOAD
    idle = "Change the manifest to see what it would do."
    pause = "800ms"  # each trial asks the cluster

    def fill_in(self, scene: Sitting, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show the manifest as the cluster has it, with what may be secret hidden."""
        return {
            "text": _render(manifest_detail(scene.place, scene.reader).manifest) if given is None else _text_of(given),
            "is_forced": given is not None and _FORCE in given,
            "fields": [_TEXT],
        }

    def read(self, scene: Sitting, given: QueryDict, **about: Any) -> Draft:
        """Return the manifest that is to be applied."""
        manifest = scene.read() if isinstance(scene, _Beginning) else _read(_text_of(given))
        return Draft(
            partial(workload_apply, place=scene.place, manifest=manifest, force=_FORCE in given),
            Proposal(self.command, manifest=manifest),
        )

    def find_field(self, scene: Sitting, finding: Finding) -> str:
        """What is wrong with the text as a whole is said below it."""
        return _TEXT if finding.field in ("", _TEXT) else ""

    def say_done(self, changed: Changed) -> str:
        """Say what was made of it."""
        if changed.is_new:
            return f"{changed.place.name} has been created."
        return f"Applied: {len(changed.changes)} field{'s' * (len(changed.changes) != 1)} changed."

    def carry_out(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> HttpResponse:
        """Apply it and go to the workload; what is in the way is told with its lines."""
        try:
            return super().carry_out(request, scene, about)
        except CommandRefused as refusal:
            raise _with_lines(refusal, _text_of(request.POST)) from refusal

    def _consider(self, caller: Caller, scene: Sitting, given: QueryDict, about: Mapping[str, Any]) -> Simulated:
        """Have the cluster try it, which also tells what others hold, and then see what it would do."""
        try:
            draft = self.read(scene, given, **about)
            draft.carry_out(caller, expected=None, dry_run=True)
        except CommandRefused as refusal:
            raise _with_lines(refusal, _text_of(given)) from refusal
        return self._simulate(caller, scene, given, draft.proposal)


class _Beginning(Sitting):
    """A workload that is not there yet: its manifest says where it is to go, so it has been read before all else."""

    def __init__(self, place: Place, asked: QueryDict, document: Any) -> None:
        super().__init__(place, asked)
        self._document = document

    def read(self) -> Any:
        """Return the manifest; raises what is wrong with the text."""
        if isinstance(self._document, CommandRefused):
            raise self._document
        return self._document


class NewWorkload(Apply):
    """The same for a workload that is not there yet; what there is already is not touched."""

    name, title, send = "new", "New workload", "Create the workload"
    supposes = False  # nothing runs yet that could be supposed to behave otherwise

    def fill_in(self, scene: Sitting, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show something to begin with, and the clusters to choose from."""
        return {
            "text": _STARTER if given is None else _text_of(given),
            "clusters": configured_names(),
            "namespace": _NAMESPACE if given is None else given.get("namespace", ""),
            "fields": [_TEXT],
        }

    def read(self, scene: Sitting, given: QueryDict, **about: Any) -> Draft:
        """Return the manifest that is to be created; it must say its name."""
        draft = super().read(scene, given, **about)
        if not scene.place.name:
            raise refuse([Finding(_TEXT, Code.FIELD_MISSING, "metadata.name is missing; add it")])
        return Draft(partial(_create, place=scene.place, manifest=draft.proposal.manifest), draft.proposal)

    def urlpatterns(self, below: str) -> list[URLPattern]:
        """Return where the page and its trial hang: there is no workload to hang them below."""
        return [
            path("workloads/new/", self._make_view(self._page, ["GET", "HEAD", "POST"]), name="steer-new"),
            path("workloads/new/trial/", self._make_view(self._trial, ["POST"]), name="steer-new-trial"),
        ]

    def _make_view(self, answer: Callable[..., HttpResponse], methods: Sequence[str]) -> Callable[..., HttpResponse]:
        @never_cache
        @require_http_methods([*methods])
        @for_readers
        def view(request: HttpRequest, /) -> HttpResponse:
            return answer(request, self._begin(request), {})

        return view

    def _begin(self, request: HttpRequest) -> Sitting:
        """Read where the workload is to go; of those who may create nothing at all, nothing is read."""
        given = request.POST
        place = _place_in(given, None)
        if request.method != "POST" or self._find_barrier(request, place) is not None:
            return Sitting(place, request.GET)
        document = _read_or_refusal(_text_of(given))
        return _Beginning(_place_in(given, document), request.GET, document)

    def _find_version(self, scene: Sitting) -> str:
        return ""

    def _find_barrier(self, request: HttpRequest, place: Place) -> Refusal | None:
        """Return why somebody may create nothing at all; whether they may where they say is told once they say it."""
        refusal = super()._find_barrier(request, place)
        return None if refusal is None or refusal.reason is Reason.GRANT_MISSING else refusal

    def _addresses(self, scene: Sitting, about: Mapping[str, Any]) -> dict[str, str]:
        return {"desk_url": reverse("steer-new"), "trial_url": reverse("steer-new-trial"), "back_url": reverse("home")}


def _create(caller: Caller, *, place: Place, manifest: Any, expected: str | None, dry_run: bool) -> Changed:
    """Create a workload that is not there yet."""
    try:
        return workload_apply(caller, place, manifest, must_be_new=True, dry_run=dry_run)
    except RaceLost as error:
        # Sent twice, it is there because the first one created it.
        tried = workload_apply(caller, place, manifest, dry_run=True)
        if tried.changes:
            raise Contradiction(f"{error.sentence} Open it to edit its manifest.") from error
        return tried


# ---- the text


def _render(manifest: Mapping[str, Any]) -> str:
    """Return what people write of a manifest."""
    metadata = manifest.get("metadata") or {}
    written = {name: metadata[name] for name in _OF_METADATA if metadata.get(name)}
    return render_yaml({**{name: manifest[name] for name in manifest if name != "status"}, "metadata": written})


def _text_of(given: QueryDict) -> str:
    return given.get(_TEXT, "").replace("\r\n", "\n")


def _read(text: str) -> Any:
    """Read a text; raises what is wrong with it."""
    body = text.encode(errors="replace")
    if len(body) > MOST_BYTES:
        sentence = f"the manifest is larger than {MOST_BYTES // 1024} KiB"
        raise refuse([Finding(_TEXT, Code.OUT_OF_RANGE, sentence)])
    if not text.strip():
        raise refuse([Finding(_TEXT, Code.FIELD_MISSING, "there is no manifest here yet")])
    try:
        return parse_yaml(body)
    except UnreadableDocument as error:
        sentence = error.why if error.is_value else f"this cannot be read: {error.why}"
        raise refuse([Finding(error.field or _TEXT, Code.WRONG_TYPE, sentence)]) from error


def _read_or_refusal(text: str) -> Any:
    """Return the same, or what is wrong with it."""
    try:
        return _read(text)
    except CommandRefused as refusal:
        return refusal


def _with_lines(refusal: CommandRefused, text: str) -> CommandRefused:
    """Return a refusal whose findings say which line of the text they are about."""
    if not isinstance(refusal, Invalid | Contradiction):
        return refusal
    lines = find_lines(text, {finding.field for finding in refusal.findings} - {"", _TEXT})
    findings = [
        Finding(one.field, one.code, f"line {lines[one.field]}: {one.message}") if one.field in lines else one
        for one in refusal.findings
    ]
    return type(refusal)(refusal.sentence, findings)


def _place_in(given: QueryDict, document: Any) -> Place:
    """Return where a manifest wants to go, as far as it says so; else as the form says."""
    names = configured_names()
    cluster = given.get("cluster") or (names[0] if names else "")
    metadata = document.get("metadata") if isinstance(document, dict) else None
    written = metadata if isinstance(metadata, dict) else {}
    namespace = written.get("namespace") or given.get("namespace", "").strip() or _NAMESPACE
    return Place(cluster, str(namespace), str(written.get("name") or ""))
