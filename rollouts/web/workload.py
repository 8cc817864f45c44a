"""The page of a workload: its picture, what it is doing now, capacity over time, timeline, revisions, manifest.

The page is put together from parts. Each part is a template and a function that reads for it; `part` answers one of
them alone, so that a page that is open is refreshed by parts, and each of them is the same for everybody. What depends
on who looks (buttons) stands outside of the parts and is rendered once. A page looks at the workload once, whatever is
on it.
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

from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import NotThere
from rollouts.accounts.permissions import Refusal, find_refusal
from rollouts.live.fragments import Fragment, Source
from rollouts.selectors.activity import now_in, title_of
from rollouts.selectors.audit import audit_list, place_filters
from rollouts.selectors.paging import Window
from rollouts.selectors.pod_grid import draw, draw_nodes
from rollouts.selectors.revisions import revision_list
from rollouts.selectors.rollouts import rollout_detail, workload_timeline
from rollouts.selectors.strategy_detail import StrategyDetail, StrategyLevel, strategy_in
from rollouts.selectors.tree import PodNode, WorkloadTree, pods_of, tree_in
from rollouts.selectors.workload_detail import WorkloadDetail, workload_detail
from rollouts.selectors.workload_snapshot import Look, look_at
from rollouts.web.capacity_chart import draw_capacity
from rollouts.web.page_layout import for_fragment, for_readers
from rollouts.web.revisions import list_lines
from rollouts.web.timeline_entries import fold

BY_NODE: Final = "node"


class Scene:
    """A workload as one answer shows it, looked at once and only as far as is asked for."""

    def __init__(self, place: Place, by: str = "") -> None:
        self.place = place
        self.by = BY_NODE if by == BY_NODE else ""  # what the pods are shown by; else by replica

    @cached_property
    def look(self) -> Look:
        """Everything there is of it."""
        return look_at(self.place)

    @cached_property
    def tree(self) -> WorkloadTree:
        """Everything in its place."""
        return tree_in(self.place, self.look)

    @cached_property
    def strategy(self) -> StrategyDetail:
        """The strategy in force."""
        return strategy_in(self.place, self.look)

    @cached_property
    def detail(self) -> WorkloadDetail:
        """What it is, and how it stands."""
        return workload_detail(self.place)


def _head(scene: Scene) -> dict[str, Any]:
    return {"workload": scene.detail, "title": title_of(scene.detail)}


def _now(scene: Scene) -> dict[str, Any]:
    return {"now": now_in(scene.place, scene.look, scene.detail, scene.tree, scene.strategy)}


def _picture(scene: Scene) -> dict[str, Any]:
    return {
        "picture": draw(scene.tree, scene.look.workload),
        "nodes": draw_nodes(scene.tree) if scene.by == BY_NODE else (),
        "by": scene.by,
        "tree": scene.tree,
        "budgets": {level.component: _say_budget(level) for level in scene.strategy.levels},
    }


def _say_budget(level: StrategyLevel) -> str:
    if level.resolved_max_unavailable is None:
        return ""
    if (level.resolved_max_unavailable, level.resolved_max_surge) == (1, 0):
        return "one at a time"
    return f"unavailable {level.resolved_max_unavailable}, surge {level.resolved_max_surge}"


def _capacity(scene: Scene) -> dict[str, Any]:
    newest = scene.detail.rollout
    rollout = None if newest is None else rollout_detail(scene.place, newest.id)
    return {"rollout": rollout, "chart": None if rollout is None else draw_capacity(rollout, timezone.now())}


def _timeline(scene: Scene) -> dict[str, Any]:
    page = workload_timeline(scene.place, Window(size=_STEPS_READ))
    return {"timeline": page, "steps": fold(page.items)[:_STEPS_SHOWN]}


def _revisions(scene: Scene) -> dict[str, Any]:
    return {"revisions": list_lines(revision_list(scene.place))}


def _audit(scene: Scene) -> dict[str, Any]:
    return {"audit": audit_list(place_filters(scene.place), Window(size=_COMMANDS_SHOWN))}


_STEPS_READ: Final = 60
_STEPS_SHOWN: Final = 10
_COMMANDS_SHOWN: Final = 5
# In the order in which an open page is brought them: the picture first, as it is what people look at.
_PARTS: Final[Mapping[str, Callable[[Scene], dict[str, Any]]]] = {
    "picture": _picture,
    "head": _head,
    "now": _now,
    "capacity": _capacity,
    "timeline": _timeline,
    "revisions": _revisions,
    "audit": _audit,
}


@require_safe
@for_readers
def page(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Show a workload; `?pod=` shows one of its pods in full, `?by=node` its pods by the nodes that hold them."""
    scene = Scene(Place(cluster, namespace, name), request.GET.get("by", ""))
    context: dict[str, Any] = {"place": scene.place, "buttons": _buttons(request, scene.place)}
    for read in dict.fromkeys(_PARTS.values()):
        context |= read(scene)
    context["pod"] = _find_pod(scene.tree, request.GET.get("pod", ""))
    return render(request, "workload/page.html", context)


@for_fragment
def part(given: QueryDict, cluster: str, namespace: str, name: str, part: str) -> Fragment:
    """Return one part of the page."""
    read = _PARTS.get(part)
    if read is None:
        raise Http404
    place, by = Place(cluster, namespace, name), given.get("by", "")

    def render_part(scene: Scene) -> str:
        return render_to_string(f"workload/_{part}.html", {"place": place, **read(scene)})

    key = ("workload", place, by == BY_NODE)
    return Fragment((*key, part), render_part, Source(key, lambda: Scene(place, by)), rank=[*_PARTS].index(part))


@require_safe
@for_readers
def pod(request: HttpRequest, cluster: str, namespace: str, name: str, pod: str) -> HttpResponse:
    """Answer what there is to know of one pod."""
    scene = Scene(Place(cluster, namespace, name))
    found = _find_pod(scene.tree, pod)
    if found is None:
        raise NotThere(f"There is no pod {pod} any more.")
    return render(request, "workload/_pod.html", {"place": scene.place, "pod": found})


@require_safe
@for_readers
def timeline(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Show everything that happened in the rollouts of a workload, by pages."""
    place = Place(cluster, namespace, name)
    given = request.GET.get("page", "")
    window = Window(int(given) if given.isascii() and given.isdigit() and 0 < int(given) < _LAST_PAGE else 1)
    page = workload_timeline(place, window)
    context = {"place": place, "timeline": page, "steps": fold(page.items), "number": window.number}
    return render(request, "workload/timeline.html", context)


_LAST_PAGE: Final = 100_000


def _find_pod(tree: WorkloadTree, name: str) -> PodNode | None:
    return next((pod for pod in pods_of(tree) if pod.name == name), None) if name else None


# ---- buttons


@dataclass(frozen=True, slots=True)
class Button:
    """A way to command something; shown to everybody, and with the reason to who may not."""

    label: str
    url: str
    refusal: Refusal | None


_BUTTONS: Final = (
    ("Change image", "steer-images", Command.SET_IMAGES),
    ("Strategy and surge", "steer-strategy", Command.EDIT_STRATEGY),
    ("Scale", "steer-scale", Command.SCALE_WORKLOAD),
    ("Restart", "steer-restart", Command.RESTART_WORKLOAD),
    ("Delete pods", "steer-pods", Command.DELETE_OUTDATED_PODS),
    ("Delete", "steer-delete", Command.DELETE_WORKLOAD),
)


def _buttons(request: HttpRequest, place: Place) -> list[Button]:
    return [
        Button(label, url, find_refusal(request.user, command, place.cluster, place.namespace))
        for label, name, command in _BUTTONS
        if (url := _url(name, place))
    ]


def _url(name: str, place: Place, **more: str) -> str:
    """Return where something hangs; empty where there is no such page."""
    try:
        return reverse(
            name, kwargs={"cluster": place.cluster, "namespace": place.namespace, "name": place.name, **more}
        )
    except NoReverseMatch:
        return ""
