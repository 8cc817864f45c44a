"""The page of a workload: its picture, what it is doing now, capacity over time, timeline, revisions, manifest.

The page is put together from parts. Each part is a template and a function that reads for it; `part` answers one of
them alone, so that a page that is open is refreshed by parts, and each of them is the same for everybody. What depends
on who looks (buttons) stands outside of the parts and is rendered once. A page looks at the workload once, whatever is
on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, Final, ParamSpec

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe

from rollouts.access import Refusal, find_refusal, may_see
from rollouts.commands import Command, Place
from rollouts.refusals import NotThere
from rollouts.selectors.details import WorkloadDetail, workload_detail
from rollouts.selectors.now import now_in
from rollouts.selectors.picture import draw
from rollouts.selectors.places import Look, look_at
from rollouts.selectors.tree import PodNode, WorkloadTree, pods_of, tree_in

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


class Scene:
    """A workload as one answer shows it, looked at once and only as far as is asked for."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @cached_property
    def look(self) -> Look:
        """Everything there is of it."""
        return look_at(self.place)

    @cached_property
    def tree(self) -> WorkloadTree:
        """Everything in its place."""
        return tree_in(self.place, self.look)

    @cached_property
    def detail(self) -> WorkloadDetail:
        """What it is, and how it stands."""
        return workload_detail(self.place)


def _head(scene: Scene) -> dict[str, Any]:
    return {"workload": scene.detail, "now": now_in(scene.place, scene.look, scene.detail, scene.tree)}


def _picture(scene: Scene) -> dict[str, Any]:
    return {"picture": draw(scene.tree, scene.look.workload), "tree": scene.tree}


_PARTS: Final[Mapping[str, Callable[[Scene], dict[str, Any]]]] = {
    "head": _head,
    "picture": _picture,
    "now": _head,
}


def _seeing(view: View[P]) -> View[P]:
    """Let in who may see, and answer with a page where there is nothing."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not may_see(request.user):
            raise PermissionDenied
        try:
            return view(request, *args, **kwargs)
        except NotThere as error:
            return render(request, "workload/not_there.html", {"sentence": str(error)}, status=404)

    return guarded


@require_safe
@gzip_page
@_seeing
def page(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Show a workload; `?pod=` shows one of its pods in full."""
    scene = Scene(Place(cluster, namespace, name))
    context: dict[str, Any] = {"place": scene.place, "buttons": _buttons(request, scene.place)}
    for read in dict.fromkeys(_PARTS.values()):
        context |= read(scene)
    context["pod"] = _find_pod(scene.tree, request.GET.get("pod", ""))
    return render(request, "workload/page.html", context)


@require_safe
@gzip_page
@_seeing
def part(request: HttpRequest, cluster: str, namespace: str, name: str, part: str) -> HttpResponse:
    """Answer one part of the page."""
    read = _PARTS.get(part)
    if read is None:
        raise Http404
    scene = Scene(Place(cluster, namespace, name))
    return render(request, f"workload/_{part}.html", {"place": scene.place, **read(scene)})


@require_safe
@_seeing
def pod(request: HttpRequest, cluster: str, namespace: str, name: str, pod: str) -> HttpResponse:
    """Answer what there is to know of one pod."""
    scene = Scene(Place(cluster, namespace, name))
    found = _find_pod(scene.tree, pod)
    if found is None:
        raise NotThere(f"There is no pod {pod} any more.")
    return render(request, "workload/_pod.html", {"place": scene.place, "pod": found})


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
    ("Change image", "workload-images", Command.SET_IMAGES),
    ("Strategy and surge", "workload-strategy", Command.EDIT_STRATEGY),
    ("Scale", "workload-scale", Command.SCALE_WORKLOAD),
    ("Restart", "workload-restart", Command.RESTART_WORKLOAD),
    ("Delete pods", "workload-pods", Command.DELETE_OUTDATED_PODS),
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
