"""Remedies: what would help a workload that waits, each a page that says what it will do, and one button.

Before it: the card that says what is waited for, whose buttons lead to `steer-remedy` with the code of the engine and
the component that waits. After it: the same services as by every other door. What is offered helps (`engine.plan.remedies`);
by the time that somebody comes here it may be over, which is then said instead.

Each form lists what it is about, with a box for each; ticked are those of the component that waits, or else all. The
value of a box says all that will be done: which objects are meant, by uid, or which numbers are written. So a form that
is sent twice does the same once.
"""

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import Invalid
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.findings import Code, Finding
from rollouts.engine.manifest.parsing import Unreadable, parse_workload
from rollouts.engine.model.budget import DEFAULT_MAX_SURGE, DEFAULT_MAX_UNAVAILABLE, resolve_max_unavailable
from rollouts.engine.model.observed import Observed, Pod
from rollouts.engine.model.workload import BudgetSpec, Workload
from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.rollout.levels import is_part_of, list_levels
from rollouts.selectors.activity import REMEDIES
from rollouts.selectors.revisions import find_former
from rollouts.selectors.strategy_detail import PartSource, StrategyLevel
from rollouts.selectors.timestamps import moment
from rollouts.selectors.tree import ReplicaNode
from rollouts.selectors.workload_snapshot import find_workload
from rollouts.services.audit import Caller
from rollouts.services.edit import Changed
from rollouts.services.pods import NamedPod, PodsDeleted, pods_let_go
from rollouts.services.simulation import Proposal
from rollouts.services.surge import NamedUnit, SurgeUnit, delete_units, find_surge, surge_delete
from rollouts.services.workload_client import refuse
from rollouts.services.workloads import workload_edit_strategy, workload_scale
from rollouts.web.commands.budget_text import UNITS
from rollouts.web.commands.forms import Desk, Draft, Form, Sitting, address_of, kwargs_of
from rollouts.web.commands.pod_deletion import Deletion, read_pairs
from rollouts.web.page_layout import for_readers
from rollouts.web.text import age

CHOSEN: Final = "chosen"
"""The boxes of a form."""
COMPONENT: Final = "component"
"""Of the address: who waits, by the name that it has in the cluster."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that a remedy can be applied to."""

    value: str  # of the box
    label: str
    detail: str  # what would be done
    component: str  # that it belongs to, by the name in the cluster or in the template
    override: PartSource | None = None  # sets what would be changed, so a change would mean nothing
    is_urgent: bool = True  # ticked at first, if it is of whoever waits


class Choice(Form):
    """What the forms of all remedies have in common: rows to tick."""

    template: ClassVar[str] = "steering/remedy.html"
    remedy: ClassVar[Remedy]
    lead: ClassVar[str]  # what it does, and what it costs
    over: ClassVar[str]  # what is said when there is nothing that it could be applied to

    @abstractmethod
    def list_rows(self, scene: Sitting) -> Sequence[Row]:
        """Return what there is that it could be applied to."""

    def fill_in(self, scene: Sitting, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show the rows; those of the component that waits are chosen at first."""
        rows = self.list_rows(scene)
        chosen = _preselect(scene, rows) if given is None else frozenset(given.getlist(CHOSEN))
        return {
            "rows": [(row, row.value in chosen) for row in rows],
            "lead": self.lead,
            "fields": [CHOSEN],
            **self.bar("" if any(row.override is None for row in rows) else self._say_over(rows)),
        }

    def find_field(self, scene: Sitting, finding: Finding) -> str:
        """Return the boxes for what is said of them; a path into the manifest has no field here."""
        return CHOSEN if finding.field == CHOSEN else ""

    def _say_over(self, rows: Sequence[Row]) -> str:
        """Say why there is nothing to do here."""
        return "Everything that it is about is set by overrides: end those instead." if rows else self.over

    def read_rows(self, scene: Sitting, given: QueryDict) -> list[Row]:
        """Return the rows that were ticked and are still there; raises when there are none."""
        asked = frozenset(given.getlist(CHOSEN))
        rows = [row for row in self.list_rows(scene) if row.value in asked and row.override is None]
        if not rows:
            raise _nothing_left(given)
        return rows


def _nothing_left(given: QueryDict) -> Invalid:
    sentence = "none of them is there any more" if given.getlist(CHOSEN) else "tick at least one"
    return refuse([Finding(CHOSEN, Code.FIELD_MISSING, sentence)])


def _preselect(scene: Sitting, rows: Sequence[Row]) -> frozenset[str]:
    free = [row for row in rows if row.override is None]
    waiting = scene.asked.get(COMPONENT, "")
    own = [row for row in free if waiting and is_part_of(scene.place.name, waiting, row.component)]
    return frozenset(row.value for row in own or free if row.is_urgent)


# ---- the strategy


class _Budgets(Choice, Desk):
    """A change of budgets, at each level that is chosen."""

    command = Command.EDIT_STRATEGY

    @abstractmethod
    def rebudget(self, level: StrategyLevel, own: BudgetSpec) -> dict[str, int]:
        """Return the fields of a level that change, as they are to be; none: there is nothing to do.

        What is written has to go with what the workload says itself, `own`, whatever overrides make of it.
        """

    @abstractmethod
    def find_override(self, level: StrategyLevel) -> PartSource | None:
        """Return the override that sets what would be changed."""

    def list_rows(self, scene: Sitting) -> Sequence[Row]:
        """Return the levels that the strategy looks at and that can be changed so."""
        own = _own_budgets(scene)
        return [
            Row(
                value=_make_box(name, fields),
                label=level.component or "replicas of the set",
                detail=_say_budget(level, own[level.component], fields),
                component=name,
                override=self.find_override(level),
            )
            for name, level in _levels_by_name(scene).items()
            if (fields := self.rebudget(level, own[level.component]))
        ]

    def read(self, scene: Sitting, given: QueryDict, **about: Any) -> Draft:
        """Return the change of the strategy that is meant: the numbers that the form showed."""
        levels = _levels_by_name(scene)
        boxes = (_read_box(value) for value in given.getlist(CHOSEN))
        chosen = {
            levels[name].component: fields
            for name, fields in boxes
            if name in levels and fields and self.find_override(levels[name]) is None
        }
        if not chosen:
            raise _nothing_left(given)
        changes: dict[str, Any] = {**chosen.pop("", {}), "components": chosen}
        return Draft(
            partial(workload_edit_strategy, place=scene.place, changes=changes),
            Proposal(self.command, partial(edits.edit_strategy, changes=changes)),
        )


_NUMBER: Final = re.compile(r"(maxUnavailable|maxSurge)=([0-9]{1,10})")


def _make_box(name: str, fields: Mapping[str, int]) -> str:
    return " ".join([name, *(f"{field}={number}" for field, number in fields.items())])


def _read_box(value: str) -> tuple[str, dict[str, int]]:
    """Return which level is meant, and what is to be written there.

    >>> _read_box("decode maxSurge=0 maxUnavailable=1")
    ('decode', {'maxSurge': 0, 'maxUnavailable': 1})
    """
    name, *parts = value.split(" ")
    found = filter(None, map(_NUMBER.fullmatch, parts))
    return name, {one[1]: int(one[2]) for one in found}


def _levels_by_name(scene: Sitting) -> dict[str, StrategyLevel]:
    """Return the levels that the strategy looks at; of a clique and a group with one name an edit means the group."""
    used = (level for level in scene.strategy.levels if level.is_used)
    return {level.component or scene.place.name: level for level in used}


def _own_budgets(scene: Sitting) -> Mapping[str, BudgetSpec]:
    """Return what the workload says itself at each level, without overrides."""
    own = parse_workload(scene.look.seen.manifest)
    levels = () if isinstance(own, Unreadable) else list_levels(own)
    return defaultdict(BudgetSpec, {level.component: level.written or BudgetSpec() for level in levels})


def _say_budget(level: StrategyLevel, own: BudgetSpec, fields: Mapping[str, int]) -> str:
    written = {
        "maxUnavailable": DEFAULT_MAX_UNAVAILABLE if own.max_unavailable is None else own.max_unavailable,
        "maxSurge": DEFAULT_MAX_SURGE if own.max_surge is None else own.max_surge,
    }
    changes = ", ".join(f"{name} {written[name]} → {value}" for name, value in fields.items())
    return f"{changes} (of {level.replicas} {UNITS[level.kind]}s)"


class NoSurge(_Budgets):
    """maxSurge to 0, so that no room is needed beyond what is there."""

    name, title, send = "no-surge", "Set maxSurge to 0", "Set maxSurge to 0"
    remedy = Remedy.SET_MAX_SURGE_TO_ZERO
    lead = (
        "Surge that exists is removed, and none is created: outdated ones are deleted before their successors come, in "
        "the room that they free. Where none could be missing until now, one may be from now on."
    )
    over = "No level that the strategy looks at has surge: there is nothing to set to 0."

    def rebudget(self, level: StrategyLevel, own: BudgetSpec) -> dict[str, int]:
        """Take the surge away; both budgets cannot be 0."""
        if not level.resolved_max_surge:
            return {}
        can_move = resolve_max_unavailable(own.max_unavailable, level.replicas) > 0
        return {"maxSurge": 0} if can_move else {"maxSurge": 0, "maxUnavailable": 1}

    def find_override(self, level: StrategyLevel) -> PartSource | None:
        """Say which override sets the surge."""
        return level.max_surge.source if level.max_surge.source.kind == "override" else None

    def say_done(self, changed: Changed) -> str:
        """Say what happens now."""
        return "maxSurge is 0: surge goes, and its room is free for the rollout."


class MoreUnavailable(_Budgets):
    """maxUnavailable raised by one, so that the next one may go."""

    name, title, send = "more-unavailable", "Raise maxUnavailable", "Raise maxUnavailable"
    remedy = Remedy.RAISE_MAX_UNAVAILABLE
    lead = "One more may be missing at a time, so the rollout goes on with the next one. Capacity is less by as much."
    over = "Everything may be missing at once already: there is nothing to raise."

    def rebudget(self, level: StrategyLevel, own: BudgetSpec) -> dict[str, int]:
        """Let one more be missing, of those there are."""
        now = level.resolved_max_unavailable
        return {} if now is None or now >= level.replicas else {"maxUnavailable": now + 1}

    def find_override(self, level: StrategyLevel) -> PartSource | None:
        """Say which override sets how many may be missing."""
        return level.max_unavailable.source if level.max_unavailable.source.kind == "override" else None


class ScaleIn(Choice, Desk):
    """Fewer replicas of the set: those go that never found a node."""

    name, title, send, command = "scale-in", "Scale in", "Scale in", Command.SCALE_WORKLOAD
    remedy = Remedy.SCALE_IN
    lead = "The highest replicas go, for which there has never been room; the others no longer wait for them."
    over = "Every replica but the first has found room for some of its pods: scaling in would take what runs."

    def list_rows(self, scene: Sitting) -> Sequence[Row]:
        """Return the one number that leaves out all replicas without a node."""
        wanted, names = scene.tree.wanted, scene.tree.name
        fewest = _count_placed(scene.tree.replicas, wanted)
        if fewest == wanted:
            return ()
        gone = ", ".join(f"{names}-{index}" for index in range(fewest, wanted))
        return [Row(str(fewest), f"replicas {wanted} → {fewest}", f"{gone} without a node", scene.place.name)]

    def read(self, scene: Sitting, given: QueryDict, **about: Any) -> Draft:
        """Return the number that is meant."""
        replicas = int(self.read_rows(scene, given)[0].value)
        return Draft(
            partial(workload_scale, place=scene.place, replicas=replicas),
            Proposal(self.command, partial(edits.scale, replicas=replicas)),
        )


def _count_placed(replicas: Sequence[ReplicaNode], wanted: int) -> int:
    """Return how many replicas are left when the highest ones without any pod on a node go; the first one stays."""
    placed = {replica.index for replica in replicas if _is_placed(replica)}
    return next((index + 1 for index in reversed(range(1, wanted)) if index in placed), min(1, wanted))


def _is_placed(replica: ReplicaNode) -> bool:
    members = (clique for group in replica.groups for part in group.replicas for clique in part.cliques)
    return any(clique.scheduled_pods for clique in (*replica.cliques, *members))


# ---- pods


class DeleteSurge(Choice, Deletion):
    """The surge deleted, by force."""

    name, title, send, command = "delete-surge", "Delete the surge", "Delete the surge", Command.DELETE_ANY_PODS
    remedy = Remedy.DELETE_SURGE
    lead = (
        "Its pods go, and their room is free at once. While an original is outdated, surge is created anew, perhaps on "
        "a better node; otherwise it stays gone."
    )
    over = "There is no surge: it is gone, or it was taken over."

    def list_rows(self, scene: Sitting) -> Sequence[Row]:
        """Return the units of surge that there are."""
        look = scene.look
        units = () if look.workload is None else find_surge(look.workload, look.seen.observed)
        return [Row(f"{unit.name}/{unit.mark}", unit.name, _say_surge(unit), _surge_component(unit)) for unit in units]

    def propose(self, scene: Sitting, given: QueryDict, **about: Any) -> Proposal:
        """Return the world without the chosen surge."""
        return Proposal(
            self.command, edit=edits.keep, delete=partial(delete_units, chosen=self._read_units(scene, given))
        )

    def delete(
        self, caller: Caller, request: HttpRequest, scene: Sitting, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Delete the chosen surge."""
        return surge_delete(caller, scene.place, self._read_units(scene, request.POST), expected=expected)

    def _read_units(self, scene: Sitting, given: QueryDict) -> frozenset[NamedUnit]:
        self.read_rows(scene, given)
        return frozenset(NamedUnit(name, mark) for name, mark in read_pairs(given, CHOSEN))


def _say_surge(unit: SurgeUnit) -> str:
    ready = sum(pod.available for pod in unit.pods)
    nodes = [*dict.fromkeys(pod.node for pod in unit.pods if pod.node)]
    where = f" on {', '.join(nodes)}" if nodes else ", none on a node"
    return f"surge of {unit.component}: {len(unit.pods)} pod{'s' * (len(unit.pods) != 1)}, {ready} ready{where}"


def _surge_component(unit: SurgeUnit) -> str:
    """Return whose wait it is about: a unit is waited for itself, a surplus pod by its clique."""
    return unit.name if unit.holders else unit.component


class LetGo(Choice, Deletion):
    """Pods that do not go, ended without whoever runs them."""

    name, title, send = "let-go", "Delete pods by force that do not go", "Delete by force"
    command = Command.DELETE_ANY_PODS
    remedy = Remedy.FORCE_DELETE_PODS
    lead = (
        "These pods were deleted, and nobody says that they have ended: mostly their node is gone. The cluster forgets "
        "them at once, and their places are taken anew."
    )
    over = "No pod is on its way out: they are all gone."

    def list_rows(self, scene: Sitting) -> Sequence[Row]:
        """Return the pods that are leaving."""
        pods = (pod for pod in scene.look.seen.observed.pods if pod.leaving)
        return [
            Row(f"{pod.name}/{pod.uid}", pod.name, _say_leaving(pod), pod.clique, is_urgent=_is_overdue(pod))
            for pod in pods
        ]

    def ask(self, scene: Sitting, given: QueryDict, **about: Any) -> str:
        """Have it said what nobody here can know."""
        nodes = [*dict.fromkeys(pod.node for pod in _named(scene, given) if pod.node)]
        if not nodes:
            return ""
        return f"Nothing runs on {', '.join(nodes)} any more: otherwise the containers go on there, unseen."

    def propose(self, scene: Sitting, given: QueryDict, **about: Any) -> Proposal:
        """Return the world without the chosen pods."""
        uids = frozenset(pod.uid for pod in self._read_pods(scene, given))
        return Proposal(self.command, edit=edits.keep, observe=partial(_without, uids=uids))

    def delete(
        self, caller: Caller, request: HttpRequest, scene: Sitting, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Let go of the chosen pods."""
        return pods_let_go(caller, scene.place, self._read_pods(scene, request.POST), expected=expected)

    def _read_pods(self, scene: Sitting, given: QueryDict) -> list[NamedPod]:
        self.read_rows(scene, given)
        return [NamedPod(name, uid) for name, uid in read_pairs(given, CHOSEN)]


def _named(scene: Sitting, given: QueryDict) -> list[Pod]:
    uids = {uid for _, uid in read_pairs(given, CHOSEN)}
    return [pod for pod in scene.look.seen.observed.pods if pod.uid in uids]


def _is_overdue(pod: Pod) -> bool:
    return pod.gone_by is not None and moment(pod.gone_by) <= timezone.now()


def _say_leaving(pod: Pod) -> str:
    where = f"on {pod.node}" if pod.node else "on no node"
    if pod.gone_by is None or not _is_overdue(pod):
        return f"{where}, has time left to end by itself"
    return f"{where}, should have been gone {age(moment(pod.gone_by))} ago"


def _without(_: Workload, observed: Observed, uids: frozenset[str]) -> Observed:
    return replace(observed, pods=tuple(pod for pod in observed.pods if pod.uid not in uids))


# ---- where each of them is


REMEDY_FORMS: Final = (NoSurge(), MoreUnavailable(), ScaleIn(), DeleteSurge(), LetGo())
_FORMS: Final = {form.remedy: form for form in REMEDY_FORMS}


def remedy_urlpatterns(below: str) -> list[URLPattern]:
    """Return where the remedies hang by the codes that the engine gives them."""
    return [path(f"{below}remedy/<slug:code>/", remedy, name="steer-remedy")]


@require_safe
@for_readers
def remedy(request: HttpRequest, cluster: str, namespace: str, name: str, code: str) -> HttpResponse:
    """Lead to the page of a remedy, for the component that waits."""
    place = Place(cluster, namespace, name)
    if code not in REMEDIES:
        raise Http404
    return HttpResponseRedirect(_ADDRESSES.get(code, _form_address)(place, code, request.GET.get(COMPONENT, "")))


def _form_address(place: Place, code: str, component: str) -> str:
    form = _FORMS.get(Remedy(code))
    if form is None:  # to look at pods is on the page of the workload, at nodes on theirs
        return address_of(place) if code == Remedy.LOOK_AT_PODS else reverse("page-nodes")
    return _with_component(reverse(f"steer-{form.name}", kwargs=kwargs_of(place)), component)


def _pods_address(place: Place, code: str, component: str) -> str:
    return _with_component(reverse("steer-pods", kwargs=kwargs_of(place)), component)


def _roll_back_address(place: Place, code: str, component: str) -> str:
    """Return where one goes back to the former revision; the workload, where none is on record."""
    row = find_workload(place)
    former = find_former(place.cluster, row.uid, row.generation_hash)
    if former is None:
        return address_of(place)
    return reverse("steer-roll-back", kwargs={**kwargs_of(place), "number": former.number})


def _with_component(address: str, component: str) -> str:
    return f"{address}?{urlencode({COMPONENT: component})}" if component else address


_ADDRESSES: Final[Mapping[str, Callable[[Place, str, str], str]]] = {
    Remedy.DELETE_OUTDATED_PODS: _pods_address,
    Remedy.ROLL_BACK: _roll_back_address,
}
