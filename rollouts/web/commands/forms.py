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
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, Final, Protocol

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import ClusterAway, CommandRefused, Invalid, NotAllowed, NotThere, RaceLost
from rollouts.accounts.permissions import Refusal, find_refusal
from rollouts.engine.manifest.findings import Finding
from rollouts.live.fragments import Fragment
from rollouts.manifests.masking import ANYBODY, Reader
from rollouts.selectors.forecast import Belief
from rollouts.services.audit import Caller, Result, Via, caller_of, reader_for, record, require
from rollouts.services.edit import Changed
from rollouts.services.simulation import Proposal, workload_simulate
from rollouts.services.simulation_report import Simulated
from rollouts.web.commands.manifest_diff import render_changes
from rollouts.web.commands.simulation_summary import make_preview
from rollouts.web.page_layout import for_fragment, for_readers
from rollouts.web.workload import Scene

VERSION: Final = "version"
"""The field of each form that names what it was filled in from."""
TRY: Final = "try"
"""The button that tries a form where no script does so while somebody types."""
AGREED: Final = "agreed"
"""The box to tick for what nobody should do by mistake. Its value is the very sentence that was agreed to."""

NEVER_READY: Final = "never_ready"
ALL_READY: Final = "all_ready"
IS_FULL: Final = "full"
IS_UNLIMITED: Final = "unlimited"
SECONDS_TO_READY: Final = "seconds_to_ready"
"""The fields that say how the cluster is supposed to behave; they are no part of the command."""

_LONGEST_VERSION: Final = 100
_MOST_SECONDS: Final = 86_400


class CarryOut(Protocol):
    """A service, with everything filled in that a form says."""

    def __call__(self, caller: Caller, *, expected: str | None, dry_run: bool) -> Changed:
        """Carry the command out."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A form as it was read: the command that it gives, and the same as something to consider."""

    carry_out: CarryOut
    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of trying a form without carrying it out: what it would do, or why it is refused."""

    simulated: Simulated | None = None
    refusal: CommandRefused | None = None
    # The form was sent and refused: that is said above the form, where no later trial takes its place.
    was_sent: bool = False


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why there is nothing to send, whoever asks; shown in place of why somebody may not."""

    sentence: str
    is_over: bool = True  # all is well, so it is said calmly


class Sitting(Scene):
    """A workload as a form shows it to a reader, and what the address of the form asks for."""

    def __init__(self, place: Place, asked: QueryDict, reader: Reader = ANYBODY) -> None:
        super().__init__(place, asked.get("by", ""))
        self.asked = asked
        self.reader = reader


class Form(ABC):
    """A page with a form, for one command; what is done with what the command answers is left open."""

    name: ClassVar[str]  # of the address below the workload's, and of its template
    title: ClassVar[str]
    send: ClassVar[str] = "Save to the cluster"  # what the button says
    tone: ClassVar[str] = "primary"  # how the button looks; danger: what it does cannot be undone
    command: ClassVar[Command]
    more: ClassVar[str] = ""  # of the address: what the form is about, as Django's paths write it
    template: ClassVar[str] = ""  # of the page; left out, it is called like the form
    trial_template: ClassVar[str] = "steering/_trial.html"  # the template of what stands beside it
    supposes: ClassVar[bool] = True  # whether it can be tried under other beliefs about the cluster
    has_manifest: ClassVar[bool] = False  # whether what it changes is a manifest
    idle: ClassVar[str] = ""  # what is said while nothing is changed; empty: what is simulated then
    pause: ClassVar[str] = "300ms"  # in typing, after which the form is tried
    updates: ClassVar[str] = ""  # the template of what else a trial brings up to date: parts of the form, out of band

    @abstractmethod
    def fill_in(self, scene: Sitting, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Return what the template shows the form by: as it stands at first, or as somebody has filled it in."""

    @abstractmethod
    def propose(self, scene: Sitting, given: QueryDict, **about: Any) -> Proposal:
        """Return what a form means as something to consider; raises Invalid, a finding for each field."""

    @abstractmethod
    def carry_out(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> HttpResponse:
        """Carry the command out and answer where it leads; raises what is in the way."""

    def find_field(self, scene: Sitting, finding: Finding) -> str:
        """Return the field of the form that a finding is about; empty: none of them alone."""
        return finding.field

    def ask(self, scene: Sitting, given: QueryDict, **about: Any) -> str:
        """Return what somebody has to agree to before the command is carried out; empty: nothing."""
        return ""

    def bar(self, sentence: str) -> dict[str, Any]:
        """Return what `fill_in` adds where there is nothing to command, whoever asks; an empty sentence: there is."""
        return {"barred": Obstacle(sentence)} if sentence else {}

    def believe(self, given: QueryDict) -> Belief:
        """Return how the cluster behaves when the form is tried."""
        return Belief(
            seconds_to_ready=_read_seconds(given.get(SECONDS_TO_READY, "")),
            never_ready=tuple(given.getlist(NEVER_READY)),
            all_ready=bool(given.get(ALL_READY)),
            is_full=bool(given.get(IS_FULL)),
            is_unlimited=bool(given.get(IS_UNLIMITED)),
        )

    # ---- views

    def urlpatterns(self, below: str) -> list[URLPattern]:
        """Return where the page and its trial hang, below the address of a workload."""
        address = f"{below}{self.name}/{self.more}"
        return [
            path(address, self._make_view(self._page, ["GET", "HEAD", "POST"]), name=f"steer-{self.name}"),
            path(f"{address}trial/", self._make_view(self._trial, ["POST"]), name=f"steer-{self.name}-trial"),
            path(f"{address}standing/", for_fragment(self._find_standing), name=f"steer-{self.name}-standing"),
        ]

    def _make_view(self, answer: Callable[..., HttpResponse], methods: Sequence[str]) -> Callable[..., HttpResponse]:
        @never_cache
        @require_http_methods([*methods])
        @for_readers
        def view(request: HttpRequest, /, cluster: str, namespace: str, name: str, **about: Any) -> HttpResponse:
            place = Place(cluster, namespace, name)
            reader = reader_for(caller_of(request, Via.PAGE), place)
            return answer(request, Sitting(place, request.GET, reader), about)

        return view

    def _find_standing(self, given: QueryDict, /, cluster: str, namespace: str, name: str, **about: Any) -> Fragment:
        """Return whether the workload is still as the form was filled in from."""
        place, version = Place(cluster, namespace, name), given.get(VERSION, "")[:_LONGEST_VERSION]

        def render_standing() -> str:
            scene = Sitting(place, given)  # each rendering looks anew
            context = {"place": place, "version": version, "now": scene.look.version, **self._addresses(scene, about)}
            return render_to_string("steering/_standing.html", context)

        return Fragment(("standing", self.name, place, *about.values(), version), render_standing)

    def _page(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> HttpResponse:
        if request.method != "POST":
            return self._show(request, scene, about, Trial())
        if TRY in request.POST:
            return self._show(request, scene, about, self._try(request, scene, about))
        return self._send(request, scene, about)

    def _send(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> HttpResponse:
        """Carry the command out; or show the form again with what is in the way."""
        try:
            _require_permission(caller_of(request, Via.PAGE), self.command, scene.place)
            _require_agreement(self.ask(scene, request.POST, **about), request.POST)
            return self.carry_out(request, scene, about)
        except CommandRefused as refusal:
            return self._show(request, scene, about, Trial(refusal=refusal, was_sent=True))

    def _trial(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> HttpResponse:
        """Answer what the form as it is now would do, and what is wrong with it."""
        context = self._context(request, scene, about, self._try(request, scene, about))
        return render(request, self.trial_template, {**context, "is_update": True})

    def _try(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> Trial:
        caller = caller_of(request, Via.PAGE)
        try:
            require(caller, self.command, scene.place)  # before anything of the form is read
            return Trial(self._consider(caller, scene, request.POST, about))
        except CommandRefused as refusal:
            return Trial(refusal=refusal)

    def _consider(self, caller: Caller, scene: Sitting, given: QueryDict, about: Mapping[str, Any]) -> Simulated:
        """Return what a form would do; raises what is in the way."""
        return self._simulate(caller, scene, given, self.propose(scene, given, **about))

    def _simulate(self, caller: Caller, scene: Sitting, given: QueryDict, proposal: Proposal) -> Simulated:
        # Whatever the form was filled in from: what it would do to the workload as it is now is what counts.
        return workload_simulate(caller, scene.place, proposal, self.believe(given))

    def _show(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any], trial: Trial) -> HttpResponse:
        context = self._context(request, scene, about, trial)
        status = HTTPStatus.OK if trial.refusal is None else _status_of(trial.refusal)
        return render(request, self.template or f"steering/{self.name}.html", context, status=status)

    def _context(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any], trial: Trial) -> dict[str, Any]:
        place, given = scene.place, request.POST if request.method == "POST" else None
        is_race = isinstance(trial.refusal, RaceLost)
        by_field, others = self._sort(scene, trial.refusal)
        # Whoever lost a race has been told what they had not seen, and may send the form again.
        now = self._find_version(scene)
        version = now if given is None or is_race else given.get(VERSION, "")
        barred = self._find_barrier(request, place)
        asks = "" if given is None or barred else self.ask(scene, given, **about)
        return {
            "place": place,
            "desk": self,
            "title": self.title,
            "send": self.send,
            "asks": asks,
            "is_agreed": given is not None and given.get(AGREED) == asks,
            "barred": barred,
            "version": version,
            "now": now,
            "trial": trial,
            "is_race": is_race,
            "is_away": isinstance(trial.refusal, ClusterAway),
            "wrong": by_field,
            "findings": others,
            **self._show_trial(scene, trial),
            **self._suppose(scene, given),
            **self._addresses(scene, about),
            **self.fill_in(scene, given, **about),
        }

    def _show_trial(self, scene: Sitting, trial: Trial) -> dict[str, Any]:
        told = trial.simulated
        if told is None:
            return {"preview": None, "difference": []}
        manifest = scene.look.seen.manifest if told.version else {}
        return {"preview": make_preview(told), "difference": render_changes(told.changed, manifest, scene.reader)}

    def _suppose(self, scene: Sitting, given: QueryDict | None) -> dict[str, Any]:
        """Return how the cluster is supposed to behave, and what may be supposed."""
        workload = scene.look.workload if self.supposes else None
        return {
            "cliques": [] if workload is None else [clique.name for clique in workload.cliques],
            "never_ready": [] if given is None else given.getlist(NEVER_READY),
            "all_ready": given is not None and bool(given.get(ALL_READY)),
            "is_full": given is not None and bool(given.get(IS_FULL)),
            "is_unlimited": given is not None and bool(given.get(IS_UNLIMITED)),
            "seconds_to_ready": "" if given is None else given.get(SECONDS_TO_READY, ""),
        }

    def _find_version(self, scene: Sitting) -> str:
        """Return which version of the workload there is now."""
        return scene.look.version

    def _find_barrier(self, request: HttpRequest, place: Place) -> Refusal | None:
        """Return why whoever looks may not send the form."""
        return find_refusal(request.user, self.command, place.cluster, place.namespace)

    def _addresses(self, scene: Sitting, about: Mapping[str, Any]) -> dict[str, str]:
        kwargs = {**kwargs_of(scene.place), **about}
        names = {"desk_url": "", "trial_url": "-trial", "standing_url": "-standing"}
        found = {name: reverse(f"steer-{self.name}{end}", kwargs=kwargs) for name, end in names.items()}
        return {**found, "back_url": address_of(scene.place)}

    def _sort(self, scene: Sitting, refusal: CommandRefused | None) -> tuple[dict[str, str], list[Finding]]:
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


class Desk(Form):
    """A form whose command changes the manifest of the workload; done, it leads back to the workload."""

    has_manifest = True

    @abstractmethod
    def read(self, scene: Sitting, given: QueryDict, **about: Any) -> Draft:
        """Return what a form means; raises Invalid with a finding for each field that cannot be read."""

    def say_done(self, changed: Changed) -> str:
        """Return what is said once the command has been carried out."""
        return f"{self.title}: {len(changed.changes)} field{'s' * (len(changed.changes) != 1)} changed."

    def propose(self, scene: Sitting, given: QueryDict, **about: Any) -> Proposal:
        """Return the same as something to consider."""
        return self.read(scene, given, **about).proposal

    def carry_out(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> HttpResponse:
        """Carry the command out and go back to the workload."""
        draft = self.read(scene, request.POST, **about)
        changed = self._change(draft, caller_of(request, Via.PAGE), request.POST.get(VERSION, ""))
        said = self.say_done(changed) if changed.changes else "It was so already; nothing has been changed."
        messages.success(request, said)
        for warning in changed.warnings:
            messages.warning(request, warning.message)
        return HttpResponseRedirect(address_of(scene.place))

    def _change(self, draft: Draft, caller: Caller, version: str) -> Changed:
        try:
            return draft.carry_out(caller, expected=f'"{version}"', dry_run=False)
        except RaceLost:
            # Sent twice, by whoever was in a hurry: the first one is the change that the second one lost against.
            tried = draft.carry_out(caller, expected=None, dry_run=True)
            if tried.changes:
                raise
            return tried


_STATUSES: Final = {
    NotAllowed: HTTPStatus.FORBIDDEN,
    NotThere: HTTPStatus.NOT_FOUND,
    Invalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    ClusterAway: HTTPStatus.SERVICE_UNAVAILABLE,
}


def _read_seconds(text: str) -> float | None:
    """Return how long pods are supposed to take to become Ready; None: as measured."""
    if not text.strip():
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MOST_SECONDS:
        raise Invalid(f"Seconds to Ready must be a number from 0 to {_MOST_SECONDS}; empty means as measured.")
    return seconds


def _require_permission(caller: Caller, command: Command, place: Place) -> None:
    """Raise unless somebody may, before anything of their form is read; that they tried is on record."""
    try:
        require(caller, command, place)
    except NotAllowed as refusal:
        record(caller, command, place, Result.REFUSED, detail=refusal.sentence)
        raise


def _require_agreement(asks: str, given: QueryDict) -> None:
    """Raise unless somebody has agreed to what is asked, as it stands now."""
    if asks and given.get(AGREED) != asks:
        raise Invalid("Nothing has been done. Tick the box if this is what you mean.")


def _status_of(refusal: CommandRefused) -> HTTPStatus:
    return _STATUSES.get(type(refusal), HTTPStatus.CONFLICT)


def kwargs_of(place: Place) -> dict[str, str]:
    """Return a place as addresses name it."""
    return {"cluster": place.cluster, "namespace": place.namespace, "name": place.name}


def address_of(place: Place) -> str:
    """Return where the page of a workload hangs."""
    return reverse("workload", kwargs=kwargs_of(place))
