"""The page of a workload: pod grid, current activity, capacity, timeline, revisions and commands.

The page consists of parts, each with a template and a function that returns its context. `part_fragment` answers one
part, so open pages refresh by parts; a part is the same for every viewer. What depends on the viewer (buttons) is
outside the parts and rendered once. A page reads the snapshot of the workload once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import NotFound
from rollouts.accounts.permissions import Refusal, find_refusal
from rollouts.live.fragments import Fragment, FragmentSource
from rollouts.selectors.activity import render_title, snapshot_activity
from rollouts.selectors.audit import audit_list, place_filters
from rollouts.selectors.paging import Window
from rollouts.selectors.pod_grid import build_grid, build_node_grids
from rollouts.selectors.revisions import revision_list
from rollouts.selectors.rollouts import rollout_detail, workload_timeline
from rollouts.selectors.strategy_detail import StrategyDetail, StrategyLevel, snapshot_strategy
from rollouts.selectors.tree import PodNode, WorkloadTree, snapshot_tree, walk_pods
from rollouts.selectors.workload_detail import WorkloadDetail, workload_detail
from rollouts.selectors.workload_snapshot import WorkloadSnapshot, read_snapshot
from rollouts.web.capacity_chart import make_rollout_chart
from rollouts.web.page_layout import fragment_view, viewer_required
from rollouts.web.query_params import parse_page_number
from rollouts.web.revisions import make_revision_rows
from rollouts.web.timeline_entries import group_entries

GROUP_BY_NODE: Final = "node"


class WorkloadContext:
    """The data of a workload for one response, read once and only when needed."""

    def __init__(self, place: WorkloadRef, by: str = "") -> None:
        self.ref = place
        self.group_by = GROUP_BY_NODE if by == GROUP_BY_NODE else ""  # empty: by replica

    @cached_property
    def snapshot(self) -> WorkloadSnapshot:
        """The snapshot of the workload."""
        return read_snapshot(self.ref)

    @cached_property
    def tree(self) -> WorkloadTree:
        """The tree of its replicas, groups, cliques and pods."""
        return snapshot_tree(self.ref, self.snapshot)

    @cached_property
    def strategy(self) -> StrategyDetail:
        """Its effective strategy."""
        return snapshot_strategy(self.ref, self.snapshot)

    @cached_property
    def detail(self) -> WorkloadDetail:
        """The workload and its state."""
        return workload_detail(self.ref)


def _head_context(scene: WorkloadContext) -> dict[str, Any]:
    return {"workload": scene.detail, "title": render_title(scene.detail)}


def _activity_context(scene: WorkloadContext) -> dict[str, Any]:
    return {"now": snapshot_activity(scene.ref, scene.snapshot, scene.detail, scene.tree, scene.strategy)}


def _pod_grid_context(scene: WorkloadContext) -> dict[str, Any]:
    return {
        "pod_grid": build_grid(scene.tree, scene.snapshot.workload),
        "nodes": build_node_grids(scene.tree) if scene.group_by == GROUP_BY_NODE else (),
        "by": scene.group_by,
        "tree": scene.tree,
        "budgets": {level.component: _render_budget(level) for level in scene.strategy.levels},
    }


def _render_budget(level: StrategyLevel) -> str:
    if level.resolved_max_unavailable is None:
        return ""
    if (level.resolved_max_unavailable, level.resolved_max_surge) == (1, 0):
        return "one at a time"
    return f"maxUnavailable {level.resolved_max_unavailable}, maxSurge {level.resolved_max_surge}"


def _capacity_context(scene: WorkloadContext) -> dict[str, Any]:
    newest = scene.detail.rollout
    rollout = None if newest is None else rollout_detail(scene.ref, newest.id)
    return {"rollout": rollout, "chart": None if rollout is None else make_rollout_chart(rollout, timezone.now())}


def _timeline_context(scene: WorkloadContext) -> dict[str, Any]:
    page = workload_timeline(scene.ref, Window(size=_ENTRIES_READ))
    return {"timeline": page, "steps": group_entries(page.items)[:_ENTRIES_SHOWN]}


def _revisions_context(scene: WorkloadContext) -> dict[str, Any]:
    return {"revisions": make_revision_rows(revision_list(scene.ref))}


def _audit_context(scene: WorkloadContext) -> dict[str, Any]:
    return {"audit": audit_list(place_filters(scene.ref), Window(size=_AUDIT_ENTRIES_SHOWN))}


_ENTRIES_READ: Final = 60
_ENTRIES_SHOWN: Final = 10
_AUDIT_ENTRIES_SHOWN: Final = 5
# In the order in which open pages receive them: the pod grid first, because users look at it.
_PARTS: Final[Mapping[str, Callable[[WorkloadContext], dict[str, Any]]]] = {
    "pod-grid": _pod_grid_context,
    "head": _head_context,
    "now": _activity_context,
    "capacity": _capacity_context,
    "timeline": _timeline_context,
    "revisions": _revisions_context,
    "audit": _audit_context,
}


@require_safe
@viewer_required
def page(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Show a workload; `?pod=` adds the details of a pod, `?by=node` groups the pods by node."""
    scene = WorkloadContext(WorkloadRef(cluster, namespace, name), request.GET.get("by", ""))
    context: dict[str, Any] = {"place": scene.ref, "buttons": _list_buttons(request, scene.ref)}
    for read in dict.fromkeys(_PARTS.values()):
        context |= read(scene)
    context["pod"] = _find_pod(scene.tree, request.GET.get("pod", ""))
    return render(request, "workload/page.html", context)


@fragment_view
def part_fragment(given: QueryDict, cluster: str, namespace: str, name: str, part: str) -> Fragment:
    """Return one part of the page."""
    read = _PARTS.get(part)
    if read is None:
        raise Http404
    place, by = WorkloadRef(cluster, namespace, name), given.get("by", "")

    def render_part(scene: WorkloadContext) -> str:
        return render_to_string(f"workload/_{part.replace('-', '_')}.html", {"place": place, **read(scene)})

    key = ("workload", place, by == GROUP_BY_NODE)
    return Fragment(
        (*key, part),
        render_part,
        FragmentSource(key, lambda: WorkloadContext(place, by)),
        priority=[*_PARTS].index(part),
    )


@require_safe
@viewer_required
def pod(request: HttpRequest, cluster: str, namespace: str, name: str, pod: str) -> HttpResponse:
    """Return the details of one pod."""
    scene = WorkloadContext(WorkloadRef(cluster, namespace, name))
    found = _find_pod(scene.tree, pod)
    if found is None:
        raise NotFound(f"The pod {pod} no longer exists.")
    return render(request, "workload/_pod.html", {"place": scene.ref, "pod": found})


@require_safe
@viewer_required
def timeline(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Show the whole timeline of a workload, in pages."""
    place = WorkloadRef(cluster, namespace, name)
    window = Window(parse_page_number(request.GET, "page"))
    page = workload_timeline(place, window)
    context = {"place": place, "timeline": page, "steps": group_entries(page.items), "number": window.number}
    return render(request, "workload/timeline.html", context)


def _find_pod(tree: WorkloadTree, name: str) -> PodNode | None:
    return next((pod for pod in walk_pods(tree) if pod.name == name), None) if name else None


# ---- buttons


@dataclass(frozen=True, slots=True)
class CommandButton:
    """A link to a command form, shown to every viewer; with a refusal it is disabled."""

    label: str
    url: str
    refusal: Refusal | None


_COMMAND_BUTTONS: Final = (
    ("Change image", "command-images", Command.SET_IMAGES),
    ("Strategy and surge", "command-strategy", Command.EDIT_STRATEGY),
    ("Scale", "command-scale", Command.SCALE_WORKLOAD),
    ("Restart", "command-restart", Command.RESTART_WORKLOAD),
    ("Delete pods", "command-pods", Command.DELETE_OUTDATED_PODS),
    ("Delete", "command-delete", Command.DELETE_WORKLOAD),
)


def _list_buttons(request: HttpRequest, place: WorkloadRef) -> list[CommandButton]:
    return [
        CommandButton(label, url, find_refusal(request.user, command, place.cluster, place.namespace))
        for label, name, command in _COMMAND_BUTTONS
        if (url := _command_url(name, place))
    ]


def _command_url(name: str, place: WorkloadRef, **more: str) -> str:
    """Return the URL of a form; empty without such a page."""
    try:
        return reverse(
            name, kwargs={"cluster": place.cluster, "namespace": place.namespace, "name": place.name, **more}
        )
    except NoReverseMatch:
        return ""
