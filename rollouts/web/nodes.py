"""/nodes/: the nodes of a cluster with their pods by workload and template."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_safe

from rollouts.live.fragments import Fragment
from rollouts.runtime.connections import configured_cluster_names
from rollouts.selectors.clusters import NodeDetail, node_list
from rollouts.selectors.paging import Window
from rollouts.selectors.pod_grid import Cell
from rollouts.selectors.template_age import TemplateAge, TemplateAges
from rollouts.selectors.workload_snapshot import find_cluster
from rollouts.web.page_layout import fragment_view, viewer_required
from rollouts.web.query_params import parse_page_number, parse_text, render_query

Context: TypeAlias = dict[str, Any]

# The resources that the page shows, with their labels.
_RESOURCE_LABELS: Final = (("nvidia.com/gpu", "GPU"), ("cpu", "CPU"), ("memory", "memory"), ("pods", "pods"))

_MAX_CELLS: Final = 110  # the default limit of a kubelet


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """The nodes to show."""

    cluster: str = ""  # empty: the first one of the settings
    search: str = ""
    page: int = 1

    def page_url(self, **changes: Any) -> str:
        """Return the URL of this choice with some values changed."""
        return f"{reverse('page-nodes')}{replace(self, **{'page': 1, **changes}).query_string}"

    @property
    def query_string(self) -> str:
        """The query string of this choice."""
        return render_query(self, NodeQuery())


@dataclass(frozen=True, slots=True)
class TemplatePods:
    """Pods of one workload and one template on a node."""

    template_hash: str
    age: TemplateAge
    pods: int
    ready: int

    @property
    def cells(self) -> list[Cell]:
        """The cells to draw, ready pods first."""
        drawn = min(self.pods, _MAX_CELLS)
        return [Cell("", "", f"{self.age} {'ready' if index < self.ready else 'starting'}") for index in range(drawn)]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A row of the list."""

    node: NodeDetail
    pods: int
    resources: Sequence[tuple[str, str]]
    pods_by_workload: Sequence[tuple[str, str, Sequence[TemplatePods]]]  # namespace, name, its pods on this node


@require_safe
@viewer_required
def page(request: HttpRequest) -> HttpResponse:
    """Show the nodes of a cluster."""
    choice = _parse_query(request.GET)
    return render(request, "nodes/page.html", {**_list_context(choice), "all_clusters": configured_cluster_names()})


@fragment_view
def list_fragment(given: QueryDict) -> Fragment:
    """Return the list as a fragment."""
    choice = _parse_query(given)
    return Fragment(("nodes", choice), lambda: render_to_string("nodes/_list.html", _list_context(choice)))


def _parse_query(given: QueryDict) -> NodeQuery:
    return NodeQuery(parse_text(given, "cluster"), parse_text(given, "search"), parse_page_number(given, "page"))


def _list_context(choice: NodeQuery) -> Context:
    cluster = choice.cluster or next(iter(configured_cluster_names()), "")
    found = node_list(cluster, choice.search, Window(choice.page))
    named = {(one.namespace, one.workload) for node in found.items for one in node.pods}
    ages = TemplateAges(find_cluster(cluster), named)
    running = _hashes_by_workload(found.items)
    return {
        "choice": choice,
        "cluster": cluster,
        "lines": [_make_row(node, ages, running) for node in found.items],
        "count": found.count,
        "previous": choice.page_url(page=choice.page - 1) if choice.page > 1 else "",
        "next": choice.page_url(page=choice.page + 1) if found.has_next else "",
    }


def _hashes_by_workload(nodes: Sequence[NodeDetail]) -> Mapping[tuple[str, str], set[str]]:
    running: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for node in nodes:
        for one in node.pods:
            running[one.namespace, one.workload].add(one.template_hash)
    return running


def _make_row(node: NodeDetail, ages: TemplateAges, running: Mapping[tuple[str, str], set[str]]) -> NodeRow:
    return NodeRow(
        node,
        sum(one.pods for one in node.pods),
        [(words, str(node.allocatable[name])) for name, words in _RESOURCE_LABELS if name in node.allocatable],
        list(_group_by_workload(node, ages, running)),
    )


def _group_by_workload(
    node: NodeDetail, ages: TemplateAges, running: Mapping[tuple[str, str], set[str]]
) -> Iterator[tuple[str, str, Sequence[TemplatePods]]]:
    for (namespace, workload), pods in groupby(node.pods, key=lambda one: (one.namespace, one.workload)):
        pods_by_template = [
            TemplatePods(
                one.template_hash,
                ages.of(namespace, workload, one.template_hash, running[namespace, workload]),
                one.pods,
                one.ready,
            )
            for one in pods
        ]
        yield namespace, workload, pods_by_template
