"""Delete pods: under OnDelete the outdated ones, each chosen by somebody; by force any of them.

The form is the picture of the workload with a box to tick in each cell that may be deleted; addresses choose some of
them to begin with (`?replica=`, `?component=`, `?node=`, `?all=`, `?rest=` of an earlier command). Which pods may be
deleted is what the service says. The uid of each pod travels with the form, so that a pod that has taken its name
meanwhile is safe, and the picture goes on living while somebody chooses (`pod-selection.js` keeps what is chosen).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from django.http import HttpRequest, QueryDict
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import ValidationFailed
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.model.observed import Pod
from rollouts.engine.tree.layout import Layout, make_layout
from rollouts.live.fragments import Fragment
from rollouts.selectors.pod_deletions import list_remaining_uids
from rollouts.selectors.pod_grid import build_grid, build_node_grids
from rollouts.services.audit import Caller
from rollouts.services.changes import DeletePods, Simulable
from rollouts.services.deletion import PodRef, PodsDeleted
from rollouts.services.pods import MAX_PODS, Selection, choose_candidates, find_obstacle, pods_delete
from rollouts.services.workload_client import invalid_command
from rollouts.web.commands.forms import FormContext, url_kwargs
from rollouts.web.commands.pod_deletion import PodDeletionForm, make_pod_deletes, parse_pairs
from rollouts.web.page_layout import fragment_view
from rollouts.web.pod_cells import PodSelection, SelectablePod

_POD_FIELD = "pod"  # the boxes of the form
_MAX_DIGITS = 10  # digits of a number in an address


@dataclass(frozen=True, slots=True)
class ReplacedPods:
    """What chosen pods of a clique come back as."""

    clique: str
    pods: int
    old_hashes: tuple[str, ...]  # template hashes
    new_hash: str


class OutdatedPodsForm(PodDeletionForm):
    """Outdated pods, evicted so that disruption budgets are honoured."""

    name, title, submit_label, command = (
        "pods",
        "Delete outdated pods",
        "Delete the selected pods",
        Command.DELETE_OUTDATED_PODS,
    )
    template, preview_template = "commands/pods.html", "commands/_pods_preview.html"
    force: ClassVar[bool] = False

    def field_context(self, scene: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show all pods; chosen are those that were, or those that the address names."""
        shape = _layout_of(scene)
        candidates = self._list_candidates(scene, shape)
        asked = _parse_uids(given) if given is not None else _preselected_uids(scene, shape, candidates, self.force)
        chosen = [pod for pod in candidates if pod.uid in asked]
        return {
            **self._pod_grid_context(scene, shape, candidates, frozenset(pod.uid for pod in chosen)),
            "force": self.force,
            "chosen": len(chosen),
            "vanished": len(asked) - len(chosen) if given is not None else 0,
            "returns": _list_replacements(shape, chosen),
            "most": MAX_PODS,
            "fields": ["pods"],
            **self.blocked_context("" if candidates else self._no_pods_sentence(scene)),
        }

    def parse_change(self, scene: FormContext, given: QueryDict, **about: Any) -> Simulable:
        """Return the deletion of the chosen pods."""
        uids = _parse_uids(given)
        if not uids:
            raise _no_pods_selected()
        return DeletePods(self.command, partial(make_pod_deletes, uids=uids))

    def delete_pods(
        self, caller: Caller, request: HttpRequest, scene: FormContext, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Delete the chosen pods."""
        chosen = [PodRef(name, uid) for name, uid in parse_pairs(request.POST, _POD_FIELD)]
        if not chosen:
            raise _no_pods_selected()
        return pods_delete(caller, scene.ref, chosen, force=self.force, expected=expected)

    def urlpatterns(self, below: str) -> list[URLPattern]:
        """Return where the page hangs, its trial, and the picture in it."""
        return [
            *super().urlpatterns(below),
            path(
                f"{below}{self.name}/picture/",
                fragment_view(self._pod_grid_fragment),
                name=f"steer-{self.name}-picture",
            ),
        ]

    def _no_pods_sentence(self, scene: FormContext) -> str:
        """Say why there is nothing to delete."""
        workload = scene.snapshot.workload
        if workload is None:
            return "Its manifest cannot be read, so nothing has a place in it."
        nothing = "There are no pods." if self.force else "No pod is outdated: all are of the current template."
        return ("" if self.force else find_obstacle(workload)) or nothing

    def _pod_grid_fragment(self, given: QueryDict, cluster: str, namespace: str, name: str) -> Fragment:
        """Return the picture alone; what is chosen of it is known to whoever looks at it."""
        place = WorkloadRef(cluster, namespace, name)

        def render_picture() -> str:
            scene = FormContext(place, given)  # each rendering looks anew
            shape = _layout_of(scene)
            context = self._pod_grid_context(scene, shape, self._list_candidates(scene, shape), frozenset())
            return render_to_string("commands/_pod_selection.html", {"place": place, "force": self.force, **context})

        return Fragment(("pods", self.name, place, given.get("by", "")), render_picture)

    def _list_candidates(self, scene: FormContext, shape: Layout | None) -> list[Pod]:
        workload = scene.snapshot.workload
        if shape is None or workload is None or (not self.force and find_obstacle(workload)):
            return []
        return choose_candidates(shape, scene.snapshot.mirrored.observed.pods, Selection(), force=self.force)

    def _pod_grid_context(
        self, scene: FormContext, shape: Layout | None, candidates: Iterable[Pod], chosen: frozenset[str]
    ) -> dict[str, Any]:
        picks = {pod.name: SelectablePod(pod.uid, pod.name, _components_of(shape, pod)) for pod in candidates if shape}
        counts = Counter(name for pick in picks.values() for name in pick.components)
        address = reverse(f"steer-{self.name}-picture", kwargs=url_kwargs(scene.ref))
        return {
            "picture": build_grid(scene.tree, scene.snapshot.workload),
            "nodes": build_node_grids(scene.tree) if scene.group_by else (),
            "picks": PodSelection(picks, chosen, scene.group_by),
            "components": [(name, counts[name]) for name in _component_names(shape) if counts[name]],
            "by": scene.group_by,
            "page_url": reverse(f"steer-{self.name}", kwargs=url_kwargs(scene.ref)),
            "picture_url": f"{address}?by={scene.group_by}" if scene.group_by else address,
        }


class AnyPodsForm(OutdatedPodsForm):
    """Any pods, whatever their template, strategy and disruption budgets say."""

    name, title, submit_label, command = "any-pods", "Delete pods by force", "Delete by force", Command.DELETE_ANY_PODS
    force = True

    def confirmation_text(self, scene: FormContext, given: QueryDict, **about: Any) -> str:
        """Have it said once more what is passed over."""
        number = len(_parse_uids(given))
        if not number:
            return ""
        these = "1 pod goes" if number == 1 else f"{number} pods go"
        return f"{these} whatever disruption budgets say, of whichever template."


# ---- which pods


def _layout_of(scene: FormContext) -> Layout | None:
    return None if scene.snapshot.workload is None else make_layout(scene.snapshot.workload)


def _component_names(shape: Layout | None) -> list[str]:
    """Return the components that pods are chosen by, scaling groups before their cliques."""
    return [] if shape is None else [*dict.fromkeys([*shape.groups, *shape.cliques])]


def _components_of(shape: Layout, pod: Pod) -> tuple[str, ...]:
    position = shape.find_position(pod.clique)
    return () if position is None else tuple(filter(None, (position.group, position.clique)))


def _parse_uids(given: QueryDict) -> frozenset[str]:
    return frozenset(uid for _, uid in parse_pairs(given, _POD_FIELD))


def _preselected_uids(
    scene: FormContext, shape: Layout | None, candidates: Iterable[Pod], force: bool
) -> frozenset[str]:
    """Return the pods that an address chooses."""
    given = scene.query_params
    if shape is None or not given:
        return frozenset()
    if rest := _parse_number(given.get("rest", "")):
        return list_remaining_uids(scene.ref, rest)
    selection = Selection(_parse_number(given.get("replica", "")), given.get("component", ""), given.get("node", ""))
    if selection == Selection() and "all" not in given:
        return frozenset()
    return frozenset(pod.uid for pod in choose_candidates(shape, candidates, selection, force=force))


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _list_replacements(shape: Layout | None, chosen: Iterable[Pod]) -> list[ReplacedPods]:
    """Return by clique what the chosen pods come back as."""
    found: dict[str, list[Pod]] = {}
    for pod in chosen:
        position = None if shape is None else shape.find_position(pod.clique)
        if position is not None:
            found.setdefault(position.clique, []).append(pod)
    hashes = {} if shape is None else shape.hashes
    return [
        ReplacedPods(name, len(pods), tuple(dict.fromkeys(pod.template_hash for pod in pods)), hashes[name])
        for name, pods in found.items()
    ]


def _no_pods_selected() -> ValidationFailed:
    return invalid_command([Finding("pods", FindingCode.FIELD_MISSING, "select at least one pod")])
