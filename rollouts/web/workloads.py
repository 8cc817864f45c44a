"""/: all workloads, the most urgent first; filters are in the URL.

The page is rendered whole, for readers without scripts too; the list in it is a fragment that the page fetches again
when a workload changes or while the reader types into the search. `static/live-updates.js` keeps the rows in their
places then.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_safe

from rollouts.engine.model.workload import Strategy
from rollouts.live.fragments import Fragment
from rollouts.models import Workload
from rollouts.runtime.connections import configured_cluster_names
from rollouts.selectors.overview import kubeconfig_path
from rollouts.selectors.paging import Window
from rollouts.selectors.workload_rows import workload_rows
from rollouts.selectors.workload_snapshot import visible_clusters
from rollouts.selectors.workload_state import STATES, State
from rollouts.selectors.workloads import ORDERINGS, WorkloadFilters, WorkloadPage, workload_list
from rollouts.web.page_layout import fragment_view, viewer_required
from rollouts.web.query_params import parse_choice, parse_page_number, parse_text, render_query
from rollouts.web.text import state_label

Context: TypeAlias = dict[str, Any]

_DEFAULT_ORDERING: Final = "state"
_CARD_VIEW: Final = "cards"


@dataclass(frozen=True, slots=True)
class WorkloadQuery:
    """The filters, ordering and view of the list; the defaults are those of the URL without parameters."""

    search: str = ""
    state: str = ""
    cluster: str = ""
    namespace: str = ""
    strategy: str = ""
    ordering: str = _DEFAULT_ORDERING
    view: str = ""
    page: int = 1

    def page_url(self, **changes: Any) -> str:
        """Return the URL of this choice with some values changed, on the first page."""
        return f"{reverse('home')}{replace(self, **{'page': 1, **changes}).query_string}"

    @property
    def query_string(self) -> str:
        """The query string of this choice."""
        return render_query(self, _DEFAULT_QUERY)

    @property
    def is_filtered(self) -> bool:
        """Whether a filter is set."""
        return any((self.search, self.state, self.cluster, self.namespace, self.strategy))

    def filters(self) -> WorkloadFilters:
        """Return the filters for the selector."""
        return WorkloadFilters(
            clusters=(self.cluster,) if self.cluster else (),
            namespaces=(self.namespace,) if self.namespace else (),
            strategies=(self.strategy,) if self.strategy else (),
            states=(State(self.state),) if self.state else (),
            search=self.search,
            ordering=(self.ordering,),
        )


_DEFAULT_QUERY: Final = WorkloadQuery()


def parse_query(given: QueryDict) -> WorkloadQuery:
    """Parse the query parameters."""
    ordering = given.get("ordering", "")
    return WorkloadQuery(
        search=parse_text(given, "search"),
        state=parse_choice(given, "state", STATES),
        cluster=parse_text(given, "cluster"),
        namespace=parse_text(given, "namespace"),
        strategy=parse_choice(given, "strategy", Strategy),
        ordering=ordering if ordering.removeprefix("-") in ORDERINGS else _DEFAULT_ORDERING,
        view=parse_choice(given, "view", [_CARD_VIEW]),
        page=parse_page_number(given, "page"),
    )


@require_safe
@viewer_required
def page(request: HttpRequest) -> HttpResponse:
    """Show the list with its filters."""
    choice = parse_query(request.GET)
    return render(request, "workloads/page.html", {**_list_context(choice), **_filter_context()})


@fragment_view
def list_fragment(given: QueryDict) -> Fragment:
    """Return the list as a fragment."""
    choice = parse_query(given)
    # htmx fetches the list while the user types, and puts the filters into the address bar.
    headers = {"HX-Replace-Url": choice.page_url(page=choice.page)}
    return Fragment(
        ("workloads", choice), lambda: render_to_string("workloads/_list.html", _list_context(choice)), headers=headers
    )


def _list_context(choice: WorkloadQuery) -> Context:
    found = workload_list(choice.filters(), Window(choice.page))
    return {
        "choice": choice,
        "lines": workload_rows(found.page.items),
        "count": found.page.count,
        "total": sum(found.totals.values()),
        "clusters": len(configured_cluster_names()),
        "chips": list(_state_chips(choice, found)),
        "headings": list(_headings(choice)),
        "previous": choice.page_url(page=choice.page - 1) if choice.page > 1 else "",
        "next": choice.page_url(page=choice.page + 1) if found.page.has_next else "",
        "again": choice.page_url(page=choice.page),
        "other_view": choice.page_url(view="" if choice.view else _CARD_VIEW),
        "kubeconfig": kubeconfig_path(),
    }


def _state_chips(choice: WorkloadQuery, found: WorkloadPage) -> Iterator[Context]:
    for state in STATES:
        is_chosen = choice.state == state
        yield {
            "name": state_label(state).lower(),
            "count": found.totals[state],
            "href": choice.page_url(state="" if is_chosen else str(state)),
            "is_chosen": is_chosen,
            "is_pressing": state is State.NEEDS_ATTENTION and found.totals[state] > 0,
        }


# Heading, and the ordering that the first click sets.
_HEADINGS: Final = (
    ("Workload", "name"),
    ("Strategy", ""),
    ("Updated · available of desired pods", "updated"),
    ("Templates", ""),
    ("Now", "state"),
    ("Since", "-started"),
)


def _headings(choice: WorkloadQuery) -> Iterator[Context]:
    for name, ordering in _HEADINGS:
        key = ordering.removeprefix("-")
        is_chosen = bool(key) and choice.ordering.removeprefix("-") == key
        turned = key if choice.ordering.startswith("-") else f"-{key}"
        yield {
            "name": name,
            "href": choice.page_url(ordering=turned if is_chosen else ordering) if key else "",
            "sort": ("descending" if choice.ordering.startswith("-") else "ascending") if is_chosen else "",
        }


def _filter_context() -> Context:
    clusters = visible_clusters()
    rows = Workload.objects.filter(cluster__in=[row.pk for row in clusters.values()])
    return {
        "all_clusters": list(clusters),
        "all_namespaces": list(rows.order_by("namespace").values_list("namespace", flat=True).distinct()),
        "all_strategies": [str(strategy) for strategy in Strategy],
    }
