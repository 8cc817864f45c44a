"""Delete pods: under OnDelete the outdated ones, each chosen by somebody; by force any of them.

The form is the picture of the workload with a box to tick in each cell that may be deleted; addresses choose some of
them to begin with (`?replica=`, `?component=`, `?node=`, `?all=`, `?rest=` of an earlier command). Which pods may be
deleted is what the service says. The uid of each pod travels with the form, so that a pod that has taken its name
meanwhile is safe, and the picture goes on living while somebody chooses (`static/pods.js` keeps what is chosen).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from django.http import HttpRequest, QueryDict
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse

from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import Invalid
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.findings import Code, Finding
from rollouts.engine.model.observed import Pod
from rollouts.engine.tree.layout import Shape, make_shape
from rollouts.live.fragments import Fragment
from rollouts.selectors.pod_deletions import rest_of
from rollouts.selectors.pod_grid import draw, draw_nodes
from rollouts.services.audit import Caller
from rollouts.services.pods import (
    MOST_PODS,
    NamedPod,
    PodsDeleted,
    Selection,
    find_obstacle,
    list_candidates,
    pods_delete,
)
from rollouts.services.simulation import Proposal
from rollouts.services.workload_client import refuse
from rollouts.web.commands.forms import Sitting, kwargs_of
from rollouts.web.commands.pod_deletion import Deletion, delete_pods, read_pairs
from rollouts.web.page_layout import for_fragment
from rollouts.web.pod_cells import Pick, Picks

_FIELD = "pod"  # the boxes of the form
_LONGEST = 10  # digits of a number in an address


@dataclass(frozen=True, slots=True)
class Return:
    """What chosen pods of a clique come back as."""

    clique: str
    pods: int
    before: tuple[str, ...]  # template hashes
    after: str


class Pods(Deletion):
    """Outdated pods, evicted so that disruption budgets are honoured."""

    name, title, send, command = (
        "pods",
        "Delete outdated pods",
        "Delete the selected pods",
        Command.DELETE_OUTDATED_PODS,
    )
    template, trial_template = "steering/pods.html", "steering/_pods_trial.html"
    force: ClassVar[bool] = False

    def fill_in(self, scene: Sitting, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show all pods; chosen are those that were, or those that the address names."""
        shape = _shape_of(scene)
        candidates = self._candidates(scene, shape)
        asked = _read_uids(given) if given is not None else _preselect(scene, shape, candidates, self.force)
        chosen = [pod for pod in candidates if pod.uid in asked]
        return {
            **self._picture(scene, shape, candidates, frozenset(pod.uid for pod in chosen)),
            "force": self.force,
            "chosen": len(chosen),
            "vanished": len(asked) - len(chosen) if given is not None else 0,
            "returns": _say_returns(shape, chosen),
            "most": MOST_PODS,
            "fields": ["pods"],
            **self.bar("" if candidates else self._say_nothing(scene)),
        }

    def propose(self, scene: Sitting, given: QueryDict, **about: Any) -> Proposal:
        """Return the world without the chosen pods."""
        uids = _read_uids(given)
        if not uids:
            raise _nothing_chosen()
        return Proposal(self.command, edit=edits.keep, delete=partial(delete_pods, uids=uids))

    def delete(
        self, caller: Caller, request: HttpRequest, scene: Sitting, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Delete the chosen pods."""
        chosen = [NamedPod(name, uid) for name, uid in read_pairs(request.POST, _FIELD)]
        if not chosen:
            raise _nothing_chosen()
        return pods_delete(caller, scene.place, chosen, force=self.force, expected=expected)

    def urlpatterns(self, below: str) -> list[URLPattern]:
        """Return where the page hangs, its trial, and the picture in it."""
        return [
            *super().urlpatterns(below),
            path(f"{below}{self.name}/picture/", for_fragment(self._find_picture), name=f"steer-{self.name}-picture"),
        ]

    def _say_nothing(self, scene: Sitting) -> str:
        """Say why there is nothing to delete."""
        workload = scene.look.workload
        if workload is None:
            return "Its manifest cannot be read, so nothing has a place in it."
        nothing = "There are no pods." if self.force else "No pod is outdated: all are of the current template."
        return ("" if self.force else find_obstacle(workload)) or nothing

    def _find_picture(self, given: QueryDict, cluster: str, namespace: str, name: str) -> Fragment:
        """Return the picture alone; what is chosen of it is known to whoever looks at it."""
        place = Place(cluster, namespace, name)

        def render_picture() -> str:
            scene = Sitting(place, given)  # each rendering looks anew
            shape = _shape_of(scene)
            context = self._picture(scene, shape, self._candidates(scene, shape), frozenset())
            return render_to_string("steering/_pods.html", {"place": place, "force": self.force, **context})

        return Fragment(("pods", self.name, place, given.get("by", "")), render_picture)

    def _candidates(self, scene: Sitting, shape: Shape | None) -> list[Pod]:
        workload = scene.look.workload
        if shape is None or workload is None or (not self.force and find_obstacle(workload)):
            return []
        return list_candidates(shape, scene.look.seen.observed.pods, Selection(), force=self.force)

    def _picture(
        self, scene: Sitting, shape: Shape | None, candidates: Iterable[Pod], chosen: frozenset[str]
    ) -> dict[str, Any]:
        picks = {pod.name: Pick(pod.uid, pod.name, _components(shape, pod)) for pod in candidates if shape}
        counts = Counter(name for pick in picks.values() for name in pick.components)
        address = reverse(f"steer-{self.name}-picture", kwargs=kwargs_of(scene.place))
        return {
            "picture": draw(scene.tree, scene.look.workload),
            "nodes": draw_nodes(scene.tree) if scene.by else (),
            "picks": Picks(picks, chosen, scene.by),
            "components": [(name, counts[name]) for name in _names(shape) if counts[name]],
            "by": scene.by,
            "page_url": reverse(f"steer-{self.name}", kwargs=kwargs_of(scene.place)),
            "picture_url": f"{address}?by={scene.by}" if scene.by else address,
        }


class AnyPods(Pods):
    """Any pods, whatever their template, strategy and disruption budgets say."""

    name, title, send, command = "any-pods", "Delete pods by force", "Delete by force", Command.DELETE_ANY_PODS
    force = True

    def ask(self, scene: Sitting, given: QueryDict, **about: Any) -> str:
        """Have it said once more what is passed over."""
        number = len(_read_uids(given))
        if not number:
            return ""
        these = "1 pod goes" if number == 1 else f"{number} pods go"
        return f"{these} whatever disruption budgets say, of whichever template."


# ---- which pods


def _shape_of(scene: Sitting) -> Shape | None:
    return None if scene.look.workload is None else make_shape(scene.look.workload)


def _names(shape: Shape | None) -> list[str]:
    """Return the components that pods are chosen by, scaling groups before their cliques."""
    return [] if shape is None else [*dict.fromkeys([*shape.groups, *shape.cliques])]


def _components(shape: Shape, pod: Pod) -> tuple[str, ...]:
    spot = shape.place(pod.clique)
    return () if spot is None else tuple(filter(None, (spot.group, spot.clique)))


def _read_uids(given: QueryDict) -> frozenset[str]:
    return frozenset(uid for _, uid in read_pairs(given, _FIELD))


def _preselect(scene: Sitting, shape: Shape | None, candidates: Iterable[Pod], force: bool) -> frozenset[str]:
    """Return the pods that an address chooses."""
    given = scene.asked
    if shape is None or not given:
        return frozenset()
    if rest := _number(given.get("rest", "")):
        return rest_of(scene.place, rest)
    selection = Selection(_number(given.get("replica", "")), given.get("component", ""), given.get("node", ""))
    if selection == Selection() and "all" not in given:
        return frozenset()
    return frozenset(pod.uid for pod in list_candidates(shape, candidates, selection, force=force))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST else None


def _say_returns(shape: Shape | None, chosen: Iterable[Pod]) -> list[Return]:
    """Return by clique what the chosen pods come back as."""
    found: dict[str, list[Pod]] = {}
    for pod in chosen:
        spot = None if shape is None else shape.place(pod.clique)
        if spot is not None:
            found.setdefault(spot.clique, []).append(pod)
    hashes = {} if shape is None else shape.hashes
    return [
        Return(name, len(pods), tuple(dict.fromkeys(pod.template_hash for pod in pods)), hashes[name])
        for name, pods in found.items()
    ]


def _nothing_chosen() -> Invalid:
    return refuse([Finding("pods", Code.FIELD_MISSING, "select at least one pod")])
