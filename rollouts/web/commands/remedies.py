"""Remedies for a workload that waits: each a page that shows what the remedy does, with one button.

Before it: the card with the waits, whose buttons lead to `command-remedy` with the code of the remedy and the component
that waits. After it: the same services as for every other form. Every remedy that the card offers helps
(`engine.plan.remedies`); the wait may be over when the user opens the page, and then the page says so.

Each form lists what the remedy can be applied to, with a box for each; those of the component that waits are ticked, or
all if it has none. The value of a box has everything that the command does: the uids of objects, or the numbers to
write. So a form that is sent twice is executed once.
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

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import ValidationFailed
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.budget import DEFAULT_MAX_SURGE, DEFAULT_MAX_UNAVAILABLE
from rollouts.engine.model.observed import Pod
from rollouts.engine.model.workload import BudgetSpec
from rollouts.engine.plan.messages import REMEDY_LABELS
from rollouts.engine.plan.remedies import Remedy, with_one_more_unavailable, without_surge
from rollouts.engine.rollout.levels import is_part_of_component, list_levels
from rollouts.engine.tree.surge import SurgeUnit, find_surge
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
from rollouts.services.surge import SurgeUnitRef, plan_surge_deletion, surge_delete
from rollouts.services.workload_client import invalid_command
from rollouts.web.commands.budget_text import UNIT_NAMES
from rollouts.web.commands.forms import EditForm, FormContext, SimulatedForm, url_kwargs, workload_url
from rollouts.web.commands.pod_deletion import PodDeletionForm, parse_pairs
from rollouts.web.page_layout import viewer_required
from rollouts.web.text import age

SELECTED_FIELD: Final = "chosen"
"""The boxes of a form."""
COMPONENT_PARAM: Final = "component"
"""In the URL: the component that waits, by its name in the cluster."""


@dataclass(frozen=True, slots=True)
class RemedyRow:
    """One thing that a remedy can be applied to."""

    value: str  # of the box
    label: str
    detail: str  # what the command does
    component: str  # its component, by the name in the cluster or in the template
    override: PartSource | None = None  # sets the same field, so a change of the manifest has no effect
    is_preselected: bool = True  # ticked at first, if its component waits


class RemedyForm(SimulatedForm):
    """The base class of remedies: rows with boxes."""

    template: ClassVar[str] = "commands/remedy.html"
    remedy: ClassVar[Remedy]
    intro: ClassVar[str]  # what the remedy does, and what it costs
    nothing_to_do_text: ClassVar[str]  # shown when it can be applied to nothing

    @abstractmethod
    def list_rows(self, context: FormContext) -> Sequence[RemedyRow]:
        """Return what the remedy can be applied to."""

    def field_context(self, context: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show the rows; those of the component that waits are ticked at first."""
        rows = self.list_rows(context)
        chosen = _preselected_values(context, rows) if given is None else frozenset(given.getlist(SELECTED_FIELD))
        return {
            "rows": [(row, row.value in chosen) for row in rows],
            "intro": self.intro,
            "fields": [SELECTED_FIELD],
            **self.blocked_context(
                "" if any(row.override is None for row in rows) else self._nothing_to_do_sentence(rows)
            ),
        }

    def find_field(self, context: FormContext, finding: Finding) -> str:
        """Return the boxes for findings about them; a path in the manifest has no field."""
        return SELECTED_FIELD if finding.field == SELECTED_FIELD else ""

    def _nothing_to_do_sentence(self, rows: Sequence[RemedyRow]) -> str:
        """Return why there is nothing to do."""
        return "Overrides set these fields: end the overrides instead." if rows else self.nothing_to_do_text

    def parse_selected_rows(self, context: FormContext, given: QueryDict) -> list[RemedyRow]:
        """Return the ticked rows that still exist; raises ValidationFailed when there are none."""
        asked = frozenset(given.getlist(SELECTED_FIELD))
        rows = [row for row in self.list_rows(context) if row.value in asked and row.override is None]
        if not rows:
            raise _nothing_selected(given)
        return rows


def _nothing_selected(given: QueryDict) -> ValidationFailed:
    sentence = "none of them exists any more" if given.getlist(SELECTED_FIELD) else "tick at least one"
    return invalid_command([Finding(SELECTED_FIELD, FindingCode.FIELD_MISSING, sentence)])


def _preselected_values(context: FormContext, rows: Sequence[RemedyRow]) -> frozenset[str]:
    free = [row for row in rows if row.override is None]
    waiting = context.query_params.get(COMPONENT_PARAM, "")
    own = [row for row in free if waiting and is_part_of_component(context.ref.name, waiting, row.component)]
    return frozenset(row.value for row in own or free if row.is_preselected)


# ---- the strategy


class _BudgetRemedyForm(RemedyForm, EditForm):
    """A change of the budgets of the chosen levels."""

    command = Command.EDIT_STRATEGY

    @abstractmethod
    def compute_budget_change(self, level: StrategyLevel, own: BudgetSpec) -> dict[str, int]:
        """Return the new values of the fields that change; empty: there is nothing to do.

        The values must fit `own`, the budget in the manifest, whatever overrides set.
        """

    @abstractmethod
    def find_override(self, level: StrategyLevel) -> PartSource | None:
        """Return the override that sets the same field."""

    def list_rows(self, context: FormContext) -> Sequence[RemedyRow]:
        """Return the levels whose budget the strategy uses and the remedy can change."""
        own = _manifest_budgets(context)
        return [
            RemedyRow(
                value=_render_row_value(name, fields),
                label=level.component or "replicas of the set",
                detail=_render_budget_change(level, own[level.component], fields),
                component=name,
                override=self.find_override(level),
            )
            for name, level in _levels_by_name(context).items()
            if (fields := self.compute_budget_change(level, own[level.component]))
        ]

    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the change of the strategy: the numbers that the form showed."""
        levels = _levels_by_name(context)
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
    """Return a level by name, and the fields to write.

    >>> _parse_row_value("decode maxSurge=0 maxUnavailable=1")
    ('decode', {'maxSurge': 0, 'maxUnavailable': 1})
    """
    name, *parts = value.split(" ")
    found = filter(None, map(_BUDGET_ASSIGNMENT.fullmatch, parts))
    return name, {one[1]: int(one[2]) for one in found}


def _levels_by_name(context: FormContext) -> dict[str, StrategyLevel]:
    """Return the levels whose budget the strategy uses, by name; for a shared name, that of the scaling group."""
    used = (level for level in context.strategy.levels if level.is_used)
    return {level.component or context.ref.name: level for level in used}


def _manifest_budgets(context: FormContext) -> Mapping[str, BudgetSpec]:
    """Return the budgets in the manifest by level, without overrides."""
    own = parse_workload(context.snapshot.mirrored.manifest)
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
    """Sets maxSurge to 0, so that the update needs no additional room."""

    name, title, submit_label = "no-surge", "Set maxSurge to 0", "Set maxSurge to 0"
    remedy = Remedy.SET_MAX_SURGE_TO_ZERO
    intro = (
        "The controller deletes existing surge and creates none: it deletes outdated pods before it creates their "
        "successors, which use the freed room. Where maxUnavailable is 0, it becomes 1."
    )
    nothing_to_do_text = "No level that the strategy uses has a maxSurge above 0."

    def compute_budget_change(self, level: StrategyLevel, own: BudgetSpec) -> dict[str, int]:
        """Set maxSurge to 0; both budgets cannot be 0."""
        if not level.resolved_max_surge:
            return {}
        changed = without_surge(replace(own, max_surge=level.resolved_max_surge), level.replicas)
        return {"maxSurge": 0, **({} if changed.max_unavailable == own.max_unavailable else {"maxUnavailable": 1})}

    def find_override(self, level: StrategyLevel) -> PartSource | None:
        """Return the override that sets maxSurge."""
        return level.max_surge.source if level.max_surge.source.kind == "override" else None

    def success_message(self, changed: EditResult) -> str:
        """Return that maxSurge is 0."""
        return "maxSurge is 0: surge is deleted, and the rollout can use its room."


class MoreUnavailableForm(_BudgetRemedyForm):
    """Raises maxUnavailable by one, so that the update can replace one more."""

    name, title, submit_label = "more-unavailable", "Raise maxUnavailable", "Raise maxUnavailable"
    remedy = Remedy.RAISE_MAX_UNAVAILABLE
    intro = (
        "One more pod or replica may be unavailable at a time, so the rollout continues. Capacity may drop by one more "
        "pod or replica."
    )
    nothing_to_do_text = "maxUnavailable is at its maximum everywhere: all may be unavailable at once."

    def compute_budget_change(self, level: StrategyLevel, own: BudgetSpec) -> dict[str, int]:
        """Raise maxUnavailable by one, at most to the number of replicas."""
        now = level.resolved_max_unavailable
        raised = None if now is None else with_one_more_unavailable(BudgetSpec(now), level.replicas).max_unavailable
        return {"maxUnavailable": raised} if isinstance(raised, int) and raised != now else {}

    def find_override(self, level: StrategyLevel) -> PartSource | None:
        """Return the override that sets maxUnavailable."""
        return level.max_unavailable.source if level.max_unavailable.source.kind == "override" else None


class ScaleInForm(RemedyForm, EditForm):
    """Removes the highest replicas of the set that have no pod on a node."""

    name, title, submit_label, command = "scale-in", "Scale in", "Scale in", Command.SCALE_WORKLOAD
    remedy = Remedy.SCALE_IN
    intro = (
        "The controller deletes the highest replicas, which have no pod on a node; the others no longer wait for them."
    )
    nothing_to_do_text = "Every replica but the first has pods on a node: scaling in would delete running pods."

    def list_rows(self, context: FormContext) -> Sequence[RemedyRow]:
        """Return the number of replicas without those that have no pod on a node."""
        wanted, names = context.tree.wanted, context.tree.name
        fewest = _count_scheduled(context.tree.replicas, wanted)
        if fewest == wanted:
            return ()
        gone = ", ".join(f"{names}-{index}" for index in range(fewest, wanted))
        return [RemedyRow(str(fewest), f"replicas {wanted} → {fewest}", f"{gone} without a node", context.ref.name)]

    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the new number of replicas."""
        replicas = int(self.parse_selected_rows(context, given)[0].value)
        return workloads.scale(replicas)


def _count_scheduled(replicas: Sequence[ReplicaNode], wanted: int) -> int:
    """Return how many replicas are left without the highest ones that have no pod on a node; at least one."""
    placed = {replica.index for replica in replicas if _has_scheduled_pods(replica)}
    return next((index + 1 for index in reversed(range(1, wanted)) if index in placed), min(1, wanted))


def _has_scheduled_pods(replica: ReplicaNode) -> bool:
    members = (clique for group in replica.groups for part in group.replicas for clique in part.cliques)
    return any(clique.scheduled_pods for clique in (*replica.cliques, *members))


# ---- pods


class DeleteSurgeForm(RemedyForm, PodDeletionForm):
    """Deletes surge by force."""

    name, title, submit_label, command = "delete-surge", "Delete the surge", "Delete the surge", Command.DELETE_ANY_PODS
    remedy = Remedy.DELETE_SURGE
    intro = (
        "The pods are deleted, and their room is free at once. While an original is outdated, the controller creates "
        "surge again, perhaps on a better node; otherwise it does not come back."
    )
    nothing_to_do_text = "The workload has no surge."

    def list_rows(self, context: FormContext) -> Sequence[RemedyRow]:
        """Return the units of surge."""
        snapshot = context.snapshot
        units = () if snapshot.workload is None else find_surge(snapshot.workload, snapshot.mirrored.observed)
        return [
            RemedyRow(f"{unit.name}/{unit.mark}", unit.name, _render_surge(unit), unit.waiting_component)
            for unit in units
        ]

    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> Simulable:
        """Return the deletion of the chosen surge."""
        return DeletePods(self.command, partial(plan_surge_deletion, chosen=self._parse_units(context, given)))

    def delete_pods(
        self, caller: Caller, request: HttpRequest, context: FormContext, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Delete the chosen surge."""
        return surge_delete(caller, context.ref, self._parse_units(context, request.POST), expected=expected)

    def _parse_units(self, context: FormContext, given: QueryDict) -> frozenset[SurgeUnitRef]:
        self.parse_selected_rows(context, given)
        return frozenset(SurgeUnitRef(name, mark) for name, mark in parse_pairs(given, SELECTED_FIELD))


def _render_surge(unit: SurgeUnit) -> str:
    ready = sum(pod.available for pod in unit.pods)
    nodes = [*dict.fromkeys(pod.node for pod in unit.pods if pod.node)]
    where = f" on {', '.join(nodes)}" if nodes else ", none on a node"
    return f"surge of {unit.component}: {len(unit.pods)} pod{'s' * (len(unit.pods) != 1)}, {ready} ready{where}"


class ForceDeletePodsForm(RemedyForm, PodDeletionForm):
    """Removes terminating pods whose kubelet no longer reports."""

    name, title, submit_label = "let-go", "Delete stuck terminating pods by force", "Delete by force"
    command = Command.DELETE_ANY_PODS
    remedy = Remedy.FORCE_DELETE_PODS
    intro = (
        "These pods are terminating, but no kubelet reports that they have ended: usually their node is gone. The "
        "API server removes them immediately, and the controller replaces them."
    )
    nothing_to_do_text = "No pod is terminating."

    def list_rows(self, context: FormContext) -> Sequence[RemedyRow]:
        """Return the terminating pods."""
        pods = (pod for pod in context.snapshot.mirrored.observed.pods if pod.leaving)
        return [
            RemedyRow(
                f"{pod.name}/{pod.uid}", pod.name, _render_terminating(pod), pod.clique, is_preselected=_is_overdue(pod)
            )
            for pod in pods
        ]

    def confirmation_text(self, context: FormContext, given: QueryDict, **about: Any) -> str:
        """Ask for a fact that only the user can know."""
        nodes = [*dict.fromkeys(pod.node for pod in _selected_pods(context, given) if pod.node)]
        if not nodes:
            return ""
        return (
            f"I have checked that nothing runs on {', '.join(nodes)} any more. If containers still run there, they "
            "continue unnoticed."
        )

    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> Simulable:
        """Return the removal of the chosen pods."""
        return ForgetPods(frozenset(pod.uid for pod in self._parse_pods(context, given)))

    def delete_pods(
        self, caller: Caller, request: HttpRequest, context: FormContext, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Remove the chosen pods."""
        return pods_delete_stuck(caller, context.ref, self._parse_pods(context, request.POST), expected=expected)

    def _parse_pods(self, context: FormContext, given: QueryDict) -> list[PodRef]:
        self.parse_selected_rows(context, given)
        return [PodRef(name, uid) for name, uid in parse_pairs(given, SELECTED_FIELD)]


def _selected_pods(context: FormContext, given: QueryDict) -> list[Pod]:
    uids = {uid for _, uid in parse_pairs(given, SELECTED_FIELD)}
    return [pod for pod in context.snapshot.mirrored.observed.pods if pod.uid in uids]


def _is_overdue(pod: Pod) -> bool:
    return pod.gone_by is not None and to_datetime(pod.gone_by) <= timezone.now()


def _render_terminating(pod: Pod) -> str:
    where = f"on {pod.node}" if pod.node else "on no node"
    if pod.gone_by is None or not _is_overdue(pod):
        return f"{where}, still within its grace period"
    return f"{where}, its grace period ended {age(to_datetime(pod.gone_by))} ago"


# ---- URLs


REMEDY_FORMS: Final = (NoSurgeForm(), MoreUnavailableForm(), ScaleInForm(), DeleteSurgeForm(), ForceDeletePodsForm())
_FORM_BY_REMEDY: Final = {form.remedy: form for form in REMEDY_FORMS}


def remedy_urlpatterns(below: str) -> list[URLPattern]:
    """Return the URL that leads to a remedy by its code."""
    return [path(f"{below}remedy/<slug:code>/", redirect_to_remedy, name="command-remedy")]


@require_safe
@viewer_required
def redirect_to_remedy(request: HttpRequest, cluster: str, namespace: str, name: str, code: str) -> HttpResponse:
    """Redirect to the page of a remedy, for the component that waits."""
    place = WorkloadRef(cluster, namespace, name)
    if code not in REMEDY_LABELS:
        raise Http404
    return HttpResponseRedirect(_URLS.get(code, _form_url)(place, code, request.GET.get(COMPONENT_PARAM, "")))


def _form_url(place: WorkloadRef, code: str, component: str) -> str:
    form = _FORM_BY_REMEDY.get(Remedy(code))
    if form is None:  # the page of the workload shows its pods, the page of nodes the nodes
        return workload_url(place) if code == Remedy.LOOK_AT_PODS else reverse("page-nodes")
    return _add_component_param(reverse(f"command-{form.name}", kwargs=url_kwargs(place)), component)


def _pods_url(place: WorkloadRef, code: str, component: str) -> str:
    return _add_component_param(reverse("command-pods", kwargs=url_kwargs(place)), component)


def _roll_back_url(place: WorkloadRef, code: str, component: str) -> str:
    """Return the URL of the rollback to the previous revision; without one, that of the workload."""
    row = find_workload(place)
    former = find_previous(place.cluster, row.uid, row.generation_hash)
    if former is None:
        return workload_url(place)
    return reverse("command-roll-back", kwargs={**url_kwargs(place), "number": former.number})


def _add_component_param(address: str, component: str) -> str:
    return f"{address}?{urlencode({COMPONENT_PARAM: component})}" if component else address


_URLS: Final[Mapping[str, Callable[[WorkloadRef, str, str], str]]] = {
    Remedy.DELETE_OUTDATED_PODS: _pods_url,
    Remedy.ROLL_BACK: _roll_back_url,
}
