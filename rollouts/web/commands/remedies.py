"""Remedies: what would help a workload that waits, each a page that says what it will do, and one button.

Before it: the card that says what is waited for, whose buttons lead to `steer-remedy` with the code of the engine and
the component that waits. After it: the same services as by every other door. What is offered helps
(`engine.plan.remedies`); by the time that somebody comes here it may be over, which is then said instead.

Each form lists what it is about, with a box for each; ticked are those of the component that waits, or else all. The
value of a box says all that will be done: which objects are meant, by uid, or which numbers are written. So a form that
is sent twice does the same once.
"""

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import ValidationFailed
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.budget import DEFAULT_MAX_SURGE, DEFAULT_MAX_UNAVAILABLE, resolve_max_unavailable
from rollouts.engine.model.observed import Pod
from rollouts.engine.model.workload import BudgetSpec
from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.rollout.levels import is_part_of_component, list_levels
from rollouts.selectors.activity import REMEDY_LABELS
from rollouts.selectors.revisions import find_previous
from rollouts.selectors.strategy_detail import PartSource, StrategyLevel
from rollouts.selectors.timestamps import to_datetime
from rollouts.selectors.tree import ReplicaNode
from rollouts.selectors.workload_snapshot import find_workload
from rollouts.services import workloads
from rollouts.services.audit import Caller
from rollouts.services.changes import DeletePods, ForgetPods, Simulable, WorkloadChange
from rollouts.services.deletion import PodRef, PodsDeleted
from rollouts.services.edit import EditResult
from rollouts.services.pods import pods_delete_stuck
from rollouts.services.surge import SurgeUnit, SurgeUnitRef, find_surge, plan_surge_deletion, surge_delete
from rollouts.services.workload_client import invalid_command
from rollouts.web.commands.budget_text import UNIT_NAMES
from rollouts.web.commands.forms import EditForm, FormContext, SimulatedForm, url_kwargs, workload_url
from rollouts.web.commands.pod_deletion import PodDeletionForm, parse_pairs
from rollouts.web.page_layout import viewer_required
from rollouts.web.text import age

SELECTED_FIELD: Final = "chosen"
"""The boxes of a form."""
COMPONENT_PARAM: Final = "component"
"""Of the address: who waits, by the name that it has in the cluster."""


@dataclass(frozen=True, slots=True)
class RemedyRow:
    """One thing that a remedy can be applied to."""

    value: str  # of the box
    label: str
    detail: str  # what would be done
    component: str  # that it belongs to, by the name in the cluster or in the template
    override: PartSource | None = None  # sets what would be changed, so a change would mean nothing
    is_preselected: bool = True  # ticked at first, if it is of whoever waits


class RemedyForm(SimulatedForm):
    """What the forms of all remedies have in common: rows to tick."""

    template: ClassVar[str] = "commands/remedy.html"
    remedy: ClassVar[Remedy]
    intro: ClassVar[str]  # what it does, and what it costs
    nothing_to_do_text: ClassVar[str]  # what is said when there is nothing that it could be applied to

    @abstractmethod
    def list_rows(self, scene: FormContext) -> Sequence[RemedyRow]:
        """Return what there is that it could be applied to."""

    def field_context(self, scene: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show the rows; those of the component that waits are chosen at first."""
        rows = self.list_rows(scene)
        chosen = _preselected_values(scene, rows) if given is None else frozenset(given.getlist(SELECTED_FIELD))
        return {
            "rows": [(row, row.value in chosen) for row in rows],
            "lead": self.intro,
            "fields": [SELECTED_FIELD],
            **self.blocked_context(
                "" if any(row.override is None for row in rows) else self._nothing_to_do_sentence(rows)
            ),
        }

    def find_field(self, scene: FormContext, finding: Finding) -> str:
        """Return the boxes for what is said of them; a path into the manifest has no field here."""
        return SELECTED_FIELD if finding.field == SELECTED_FIELD else ""

    def _nothing_to_do_sentence(self, rows: Sequence[RemedyRow]) -> str:
        """Say why there is nothing to do here."""
        return (
            "Everything that it is about is set by overrides: end those instead." if rows else self.nothing_to_do_text
        )

    def parse_selected_rows(self, scene: FormContext, given: QueryDict) -> list[RemedyRow]:
        """Return the rows that were ticked and are still there; raises when there are none."""
        asked = frozenset(given.getlist(SELECTED_FIELD))
        rows = [row for row in self.list_rows(scene) if row.value in asked and row.override is None]
        if not rows:
            raise _nothing_selected(given)
        return rows


def _nothing_selected(given: QueryDict) -> ValidationFailed:
    sentence = "none of them is there any more" if given.getlist(SELECTED_FIELD) else "tick at least one"
    return invalid_command([Finding(SELECTED_FIELD, FindingCode.FIELD_MISSING, sentence)])


def _preselected_values(scene: FormContext, rows: Sequence[RemedyRow]) -> frozenset[str]:
    free = [row for row in rows if row.override is None]
    waiting = scene.query_params.get(COMPONENT_PARAM, "")
    own = [row for row in free if waiting and is_part_of_component(scene.ref.name, waiting, row.component)]
    return frozenset(row.value for row in own or free if row.is_preselected)


# ---- the strategy


class _BudgetRemedyForm(RemedyForm, EditForm):
    """A change of budgets, at each level that is chosen."""

    command = Command.EDIT_STRATEGY

    @abstractmethod
    def compute_budget_change(self, level: StrategyLevel, own: BudgetSpec) -> dict[str, int]:
        """Return the fields of a level that change, as they are to be; none: there is nothing to do.

        What is written has to go with what the workload says itself, `own`, whatever overrides make of it.
        """

    @abstractmethod
    def find_override(self, level: StrategyLevel) -> PartSource | None:
        """Return the override that sets what would be changed."""

    def list_rows(self, scene: FormContext) -> Sequence[RemedyRow]:
        """Return the levels that the strategy looks at and that can be changed so."""
        own = _manifest_budgets(scene)
        return [
            RemedyRow(
                value=_render_row_value(name, fields),
                label=level.component or "replicas of the set",
                detail=_render_budget_change(level, own[level.component], fields),
                component=name,
                override=self.find_override(level),
            )
            for name, level in _levels_by_name(scene).items()
            if (fields := self.compute_budget_change(level, own[level.component]))
        ]

    def parse_change(self, scene: FormContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the change of the strategy that is meant: the numbers that the form showed."""
        levels = _levels_by_name(scene)
        boxes = (_parse_row_value(value) for value in given.getlist(SELECTED_FIELD))
        chosen = {
            levels[name].component: fields
            for name, fields in boxes
            if name in levels and fields and self.find_override(levels[name]) is None
        }
        if not chosen:
            raise _nothing_selected(given)
        changes: dict[str, Any] = {**chosen.pop("", {}), "components": chosen}
        return workloads.edit_strategy(changes)


_BUDGET_ASSIGNMENT: Final = re.compile(r"(maxUnavailable|maxSurge)=([0-9]{1,10})")


def _render_row_value(name: str, fields: Mapping[str, int]) -> str:
    return " ".join([name, *(f"{field}={number}" for field, number in fields.items())])


def _parse_row_value(value: str) -> tuple[str, dict[str, int]]:
    """Return which level is meant, and what is to be written there.

    >>> _parse_row_value("decode maxSurge=0 maxUnavailable=1")
    ('decode', {'maxSurge': 0, 'maxUnavailable': 1})
    """
    name, *parts = value.split(" ")
    found = filter(None, map(_BUDGET_ASSIGNMENT.fullmatch, parts))
    return name, {one[1]: int(one[2]) for one in found}


def _levels_by_name(scene: FormContext) -> dict[str, StrategyLevel]:
    """Return the levels that the strategy looks at; of a clique and a group with one name an edit means the group."""
    used = (level for level in scene.strategy.levels if level.is_used)
    return {level.component or scene.ref.name: level for level in used}


def _manifest_budgets(scene: FormContext) -> Mapping[str, BudgetSpec]:
    """Return what the workload says itself at each level, without overrides."""
    own = parse_workload(scene.snapshot.mirrored.manifest)
    levels = () if isinstance(own, ParseFailure) else list_levels(own)
    return defaultdict(BudgetSpec, {level.component: level.budget_spec or BudgetSpec() for level in levels})


def _render_budget_change(level: StrategyLevel, own: BudgetSpec, fields: Mapping[str, int]) -> str:
    written = {
        "maxUnavailable": DEFAULT_MAX_UNAVAILABLE if own.max_unavailable is None else own.max_unavailable,
        "maxSurge": DEFAULT_MAX_SURGE if own.max_surge is None else own.max_surge,
    }
    changes = ", ".join(f"{name} {written[name]} → {value}" for name, value in fields.items())
    return f"{changes} (of {level.replicas} {UNIT_NAMES[level.kind]}s)"


class NoSurgeForm(_BudgetRemedyForm):
    """maxSurge to 0, so that no room is needed beyond what is there."""

    name, title, submit_label = "no-surge", "Set maxSurge to 0", "Set maxSurge to 0"
    remedy = Remedy.SET_MAX_SURGE_TO_ZERO
    intro = (
        "Surge that exists is removed, and none is created: outdated ones are deleted before their successors come, in "
        "the room that they free. Where none could be missing until now, one may be from now on."
    )
    nothing_to_do_text = "No level that the strategy looks at has surge: there is nothing to set to 0."

    def compute_budget_change(self, level: StrategyLevel, own: BudgetSpec) -> dict[str, int]:
        """Take the surge away; both budgets cannot be 0."""
        if not level.resolved_max_surge:
            return {}
        can_move = resolve_max_unavailable(own.max_unavailable, level.replicas) > 0
        return {"maxSurge": 0} if can_move else {"maxSurge": 0, "maxUnavailable": 1}

    def find_override(self, level: StrategyLevel) -> PartSource | None:
        """Say which override sets the surge."""
        return level.max_surge.source if level.max_surge.source.kind == "override" else None

    def success_message(self, changed: EditResult) -> str:
        """Say what happens now."""
        return "maxSurge is 0: surge goes, and its room is free for the rollout."


class MoreUnavailableForm(_BudgetRemedyForm):
    """maxUnavailable raised by one, so that the next one may go."""

    name, title, submit_label = "more-unavailable", "Raise maxUnavailable", "Raise maxUnavailable"
    remedy = Remedy.RAISE_MAX_UNAVAILABLE
    intro = "One more may be missing at a time, so the rollout goes on with the next one. Capacity is less by as much."
    nothing_to_do_text = "Everything may be missing at once already: there is nothing to raise."

    def compute_budget_change(self, level: StrategyLevel, own: BudgetSpec) -> dict[str, int]:
        """Let one more be missing, of those there are."""
        now = level.resolved_max_unavailable
        return {} if now is None or now >= level.replicas else {"maxUnavailable": now + 1}

    def find_override(self, level: StrategyLevel) -> PartSource | None:
        """Say which override sets how many may be missing."""
        return level.max_unavailable.source if level.max_unavailable.source.kind == "override" else None


class ScaleInForm(RemedyForm, EditForm):
    """Fewer replicas of the set: those go that never found a node."""

    name, title, submit_label, command = "scale-in", "Scale in", "Scale in", Command.SCALE_WORKLOAD
    remedy = Remedy.SCALE_IN
    intro = "The highest replicas go, for which there has never been room; the others no longer wait for them."
    nothing_to_do_text = (
        "Every replica but the first has found room for some of its pods: scaling in would take what runs."
    )

    def list_rows(self, scene: FormContext) -> Sequence[RemedyRow]:
        """Return the one number that leaves out all replicas without a node."""
        wanted, names = scene.tree.wanted, scene.tree.name
        fewest = _count_scheduled(scene.tree.replicas, wanted)
        if fewest == wanted:
            return ()
        gone = ", ".join(f"{names}-{index}" for index in range(fewest, wanted))
        return [RemedyRow(str(fewest), f"replicas {wanted} → {fewest}", f"{gone} without a node", scene.ref.name)]

    def parse_change(self, scene: FormContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the number that is meant."""
        replicas = int(self.parse_selected_rows(scene, given)[0].value)
        return workloads.scale(replicas)


def _count_scheduled(replicas: Sequence[ReplicaNode], wanted: int) -> int:
    """Return how many replicas are left when the highest ones without any pod on a node go; the first one stays."""
    placed = {replica.index for replica in replicas if _has_scheduled_pods(replica)}
    return next((index + 1 for index in reversed(range(1, wanted)) if index in placed), min(1, wanted))


def _has_scheduled_pods(replica: ReplicaNode) -> bool:
    members = (clique for group in replica.groups for part in group.replicas for clique in part.cliques)
    return any(clique.scheduled_pods for clique in (*replica.cliques, *members))


# ---- pods


class DeleteSurgeForm(RemedyForm, PodDeletionForm):
    """The surge deleted, by force."""

    name, title, submit_label, command = "delete-surge", "Delete the surge", "Delete the surge", Command.DELETE_ANY_PODS
    remedy = Remedy.DELETE_SURGE
    intro = (
        "The pods are deleted, and their room is free at once. While an original is outdated, the controller creates "
        "surge again, perhaps on a better node; otherwise it does not come back."
    )
    nothing_to_do_text = "There is no surge: it is gone, or it was taken over."

    def list_rows(self, scene: FormContext) -> Sequence[RemedyRow]:
        """Return the units of surge that there are."""
        look = scene.snapshot
        units = () if look.workload is None else find_surge(look.workload, look.mirrored.observed)
        return [
            RemedyRow(f"{unit.name}/{unit.mark}", unit.name, _render_surge(unit), _waiting_component(unit))
            for unit in units
        ]

    def parse_change(self, scene: FormContext, given: QueryDict, **about: Any) -> Simulable:
        """Return the deletion of the chosen surge."""
        return DeletePods(self.command, partial(plan_surge_deletion, chosen=self._parse_units(scene, given)))

    def delete_pods(
        self, caller: Caller, request: HttpRequest, scene: FormContext, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Delete the chosen surge."""
        return surge_delete(caller, scene.ref, self._parse_units(scene, request.POST), expected=expected)

    def _parse_units(self, scene: FormContext, given: QueryDict) -> frozenset[SurgeUnitRef]:
        self.parse_selected_rows(scene, given)
        return frozenset(SurgeUnitRef(name, mark) for name, mark in parse_pairs(given, SELECTED_FIELD))


def _render_surge(unit: SurgeUnit) -> str:
    ready = sum(pod.available for pod in unit.pods)
    nodes = [*dict.fromkeys(pod.node for pod in unit.pods if pod.node)]
    where = f" on {', '.join(nodes)}" if nodes else ", none on a node"
    return f"surge of {unit.component}: {len(unit.pods)} pod{'s' * (len(unit.pods) != 1)}, {ready} ready{where}"


def _waiting_component(unit: SurgeUnit) -> str:
    """Return whose wait it is about: a unit is waited for itself, a surplus pod by its clique."""
    return unit.name if unit.owners else unit.component


class ForceDeletePodsForm(RemedyForm, PodDeletionForm):
    """Pods that do not go, ended without whoever runs them."""

    name, title, submit_label = "let-go", "Delete pods by force that do not go", "Delete by force"
    command = Command.DELETE_ANY_PODS
    remedy = Remedy.FORCE_DELETE_PODS
    intro = (
        "These pods were deleted, and nobody says that they have ended: mostly their node is gone. The cluster forgets "
        "them at once, and their places are taken anew."
    )
    nothing_to_do_text = "No pod is on its way out: they are all gone."

    def list_rows(self, scene: FormContext) -> Sequence[RemedyRow]:
        """Return the pods that are leaving."""
        pods = (pod for pod in scene.snapshot.mirrored.observed.pods if pod.leaving)
        return [
            RemedyRow(
                f"{pod.name}/{pod.uid}", pod.name, _render_terminating(pod), pod.clique, is_preselected=_is_overdue(pod)
            )
            for pod in pods
        ]

    def confirmation_text(self, scene: FormContext, given: QueryDict, **about: Any) -> str:
        """Have it said what nobody here can know."""
        nodes = [*dict.fromkeys(pod.node for pod in _selected_pods(scene, given) if pod.node)]
        if not nodes:
            return ""
        return f"Nothing runs on {', '.join(nodes)} any more: otherwise the containers go on there, unseen."

    def parse_change(self, scene: FormContext, given: QueryDict, **about: Any) -> Simulable:
        """Return the removal of the chosen pods."""
        return ForgetPods(frozenset(pod.uid for pod in self._parse_pods(scene, given)))

    def delete_pods(
        self, caller: Caller, request: HttpRequest, scene: FormContext, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Let go of the chosen pods."""
        return pods_delete_stuck(caller, scene.ref, self._parse_pods(scene, request.POST), expected=expected)

    def _parse_pods(self, scene: FormContext, given: QueryDict) -> list[PodRef]:
        self.parse_selected_rows(scene, given)
        return [PodRef(name, uid) for name, uid in parse_pairs(given, SELECTED_FIELD)]


def _selected_pods(scene: FormContext, given: QueryDict) -> list[Pod]:
    uids = {uid for _, uid in parse_pairs(given, SELECTED_FIELD)}
    return [pod for pod in scene.snapshot.mirrored.observed.pods if pod.uid in uids]


def _is_overdue(pod: Pod) -> bool:
    return pod.gone_by is not None and to_datetime(pod.gone_by) <= timezone.now()


def _render_terminating(pod: Pod) -> str:
    where = f"on {pod.node}" if pod.node else "on no node"
    if pod.gone_by is None or not _is_overdue(pod):
        return f"{where}, has time left to end by itself"
    return f"{where}, should have been gone {age(to_datetime(pod.gone_by))} ago"


# ---- where each of them is


REMEDY_FORMS: Final = (NoSurgeForm(), MoreUnavailableForm(), ScaleInForm(), DeleteSurgeForm(), ForceDeletePodsForm())
_FORM_BY_REMEDY: Final = {form.remedy: form for form in REMEDY_FORMS}


def remedy_urlpatterns(below: str) -> list[URLPattern]:
    """Return where the remedies hang by the codes that the engine gives them."""
    return [path(f"{below}remedy/<slug:code>/", redirect_to_remedy, name="steer-remedy")]


@require_safe
@viewer_required
def redirect_to_remedy(request: HttpRequest, cluster: str, namespace: str, name: str, code: str) -> HttpResponse:
    """Lead to the page of a remedy, for the component that waits."""
    place = WorkloadRef(cluster, namespace, name)
    if code not in REMEDY_LABELS:
        raise Http404
    return HttpResponseRedirect(_URLS.get(code, _form_url)(place, code, request.GET.get(COMPONENT_PARAM, "")))


def _form_url(place: WorkloadRef, code: str, component: str) -> str:
    form = _FORM_BY_REMEDY.get(Remedy(code))
    if form is None:  # to look at pods is on the page of the workload, at nodes on theirs
        return workload_url(place) if code == Remedy.LOOK_AT_PODS else reverse("page-nodes")
    return _add_component_param(reverse(f"steer-{form.name}", kwargs=url_kwargs(place)), component)


def _pods_url(place: WorkloadRef, code: str, component: str) -> str:
    return _add_component_param(reverse("steer-pods", kwargs=url_kwargs(place)), component)


def _roll_back_url(place: WorkloadRef, code: str, component: str) -> str:
    """Return where one goes back to the former revision; the workload, where none is on record."""
    row = find_workload(place)
    former = find_previous(place.cluster, row.uid, row.generation_hash)
    if former is None:
        return workload_url(place)
    return reverse("steer-roll-back", kwargs={**url_kwargs(place), "number": former.number})


def _add_component_param(address: str, component: str) -> str:
    return f"{address}?{urlencode({COMPONENT_PARAM: component})}" if component else address


_URLS: Final[Mapping[str, Callable[[WorkloadRef, str, str], str]]] = {
    Remedy.DELETE_OUTDATED_PODS: _pods_url,
    Remedy.ROLL_BACK: _roll_back_url,
}
