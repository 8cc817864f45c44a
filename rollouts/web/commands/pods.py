"""Delete pods: outdated pods under OnDelete, and any pods by force.

The form is the pod grid of the workload with a box in each cell that may be deleted. The URL may choose pods in advance
(`?replica=`, `?component=`, `?node=`, `?all=`, `?rest=` of an earlier command). The service says which pods may be
deleted. The form carries the uid of each pod, so a pod that has taken its name since is safe, and the grid keeps
updating while the user chooses (`pod-selection.js` keeps what is chosen).
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
_MAX_DIGITS = 10  # of a number in a URL


@dataclass(frozen=True, slots=True)
class ReplacedPods:
    """The chosen pods of a clique, and the template of the pods that replace them."""

    clique: str
    pods: int
    old_hashes: tuple[str, ...]  # template hashes
    new_hash: str


class OutdatedPodsForm(PodDeletionForm):
    """Outdated pods, which are evicted within disruption budgets."""

    name, title, submit_label, command = (
        "pods",
        "Delete outdated pods",
        "Delete the selected pods",
        Command.DELETE_OUTDATED_PODS,
    )
    template, preview_template = "commands/pods.html", "commands/_pods_preview.html"
    force: ClassVar[bool] = False

    def field_context(self, context: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show all pods; ticked are the pods of the submitted form, or those that the URL chooses."""
        layout = _layout_of(context)
        candidates = self._list_candidates(context, layout)
        asked = _parse_uids(given) if given is not None else _preselected_uids(context, layout, candidates, self.force)
        chosen = [pod for pod in candidates if pod.uid in asked]
        return {
            **self._pod_grid_context(context, layout, candidates, frozenset(pod.uid for pod in chosen)),
            "force": self.force,
            "chosen": len(chosen),
            "dropped_count": len(asked) - len(chosen) if given is not None else 0,
            "dropped_reasons": "gone or terminating" if self.force else "gone, terminating or up to date",
            "replacements": _list_replacements(layout, chosen),
            "most": MAX_PODS,
            "fields": ["pods"],
            **self.blocked_context("" if candidates else self._no_pods_sentence(context)),
        }

    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> Simulable:
        """Return the deletion of the chosen pods."""
        uids = _parse_uids(given)
        if not uids:
            raise _no_pods_selected()
        return DeletePods(self.command, partial(make_pod_deletes, uids=uids))

    def delete_pods(
        self, caller: Caller, request: HttpRequest, context: FormContext, about: Mapping[str, Any], expected: str
    ) -> PodsDeleted:
        """Delete the chosen pods."""
        chosen = [PodRef(name, uid) for name, uid in parse_pairs(request.POST, _POD_FIELD)]
        if not chosen:
            raise _no_pods_selected()
        return pods_delete(caller, context.ref, chosen, force=self.force, expected=expected)

    def urlpatterns(self, below: str) -> list[URLPattern]:
        """Return the URLs of the page, its preview and its pod grid."""
        return [
            *super().urlpatterns(below),
            path(
                f"{below}{self.name}/pod-grid/",
                fragment_view(self._pod_grid_fragment),
                name=f"command-{self.name}-pod-grid",
            ),
        ]

    def _no_pods_sentence(self, context: FormContext) -> str:
        """Return why there is nothing to delete."""
        workload = context.snapshot.workload
        if workload is None:
            return "The manifest is not valid, so Grove UI cannot tell which clique each pod belongs to."
        nothing = "There are no pods." if self.force else "No pod is outdated: all pods run the current template."
        return ("" if self.force else find_obstacle(workload)) or nothing

    def _pod_grid_fragment(self, given: QueryDict, cluster: str, namespace: str, name: str) -> Fragment:
        """Return the fragment with the pod grid; the browser keeps what is chosen."""
        place = WorkloadRef(cluster, namespace, name)

        def render_pod_grid() -> str:
            context = FormContext(place, given)  # each rendering reads the mirror again
            layout = _layout_of(context)
            values = self._pod_grid_context(context, layout, self._list_candidates(context, layout), frozenset())
            return render_to_string("commands/_pod_selection.html", {"place": place, "force": self.force, **values})

        return Fragment(("pods", self.name, place, given.get("by", "")), render_pod_grid)

    def _list_candidates(self, context: FormContext, layout: Layout | None) -> list[Pod]:
        workload = context.snapshot.workload
        if layout is None or workload is None or (not self.force and find_obstacle(workload)):
            return []
        return choose_candidates(layout, context.snapshot.mirrored.observed.pods, Selection(), force=self.force)

    def _pod_grid_context(
        self, context: FormContext, layout: Layout | None, candidates: Iterable[Pod], chosen: frozenset[str]
    ) -> dict[str, Any]:
        picks = {
            pod.name: SelectablePod(pod.uid, pod.name, _components_of(layout, pod)) for pod in candidates if layout
        }
        counts = Counter(name for pick in picks.values() for name in pick.components)
        address = reverse(f"command-{self.name}-pod-grid", kwargs=url_kwargs(context.ref))
        return {
            "pod_grid": build_grid(context.tree, context.snapshot.workload),
            "nodes": build_node_grids(context.tree) if context.group_by else (),
            "picks": PodSelection(picks, chosen, context.group_by),
            "components": [(name, counts[name]) for name in _component_names(layout) if counts[name]],
            "by": context.group_by,
            "page_url": reverse(f"command-{self.name}", kwargs=url_kwargs(context.ref)),
            "pod_grid_url": f"{address}?by={context.group_by}" if context.group_by else address,
        }


class AnyPodsForm(OutdatedPodsForm):
    """Any pods, of any template, without regard to strategy and disruption budgets."""

    name, title, submit_label, command = "any-pods", "Delete pods by force", "Delete by force", Command.DELETE_ANY_PODS
    force = True

    def confirmation_text(self, context: FormContext, given: QueryDict, **about: Any) -> str:
        """Ask for a confirmation that disruption budgets are ignored."""
        number = len(_parse_uids(given))
        if not number:
            return ""
        pods = "1 pod" if number == 1 else f"{number} pods"
        return f"This deletes {pods}, outdated or not, and ignores disruption budgets."


# ---- which pods


def _layout_of(context: FormContext) -> Layout | None:
    return None if context.snapshot.workload is None else make_layout(context.snapshot.workload)


def _component_names(layout: Layout | None) -> list[str]:
    """Return the components by which pods can be chosen, scaling groups before their cliques."""
    return [] if layout is None else [*dict.fromkeys([*layout.groups, *layout.cliques])]


def _components_of(layout: Layout | None, pod: Pod) -> tuple[str, ...]:
    position = layout.find_position(pod.clique) if layout else None
    return () if position is None else tuple(filter(None, (position.group, position.clique)))


def _parse_uids(given: QueryDict) -> frozenset[str]:
    return frozenset(uid for _, uid in parse_pairs(given, _POD_FIELD))


def _preselected_uids(
    context: FormContext, layout: Layout | None, candidates: Iterable[Pod], force: bool
) -> frozenset[str]:
    """Return the pods that the URL chooses."""
    given = context.query_params
    if layout is None or not given:
        return frozenset()
    if rest := _parse_number(given.get("rest", "")):
        return list_remaining_uids(context.ref, rest)
    selection = Selection(_parse_number(given.get("replica", "")), given.get("component", ""), given.get("node", ""))
    if selection == Selection() and "all" not in given:
        return frozenset()
    return frozenset(pod.uid for pod in choose_candidates(layout, candidates, selection, force=force))


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _list_replacements(layout: Layout | None, chosen: Iterable[Pod]) -> list[ReplacedPods]:
    """Return by clique which template replaces the chosen pods."""
    found: dict[str, list[Pod]] = {}
    for pod in chosen:
        position = None if layout is None else layout.find_position(pod.clique)
        if position is not None:
            found.setdefault(position.clique, []).append(pod)
    hashes = {} if layout is None else layout.hashes
    return [
        ReplacedPods(name, len(pods), tuple(dict.fromkeys(pod.template_hash for pod in pods)), hashes[name])
        for name, pods in found.items()
    ]


def _no_pods_selected() -> ValidationFailed:
    return invalid_command([Finding("pods", FindingCode.FIELD_MISSING, "select at least one pod")])
