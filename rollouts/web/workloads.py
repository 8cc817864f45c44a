"""/: all workloads, by what presses most; what is chosen stands in the address.

The page is rendered whole, for readers without scripts too; the list in it is a fragment that is fetched again when a
workload changes or while somebody types into the search. Rows keep their places then: static/live.js sees to it.
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
from rollouts.selectors.overview import kubeconfig_path
from rollouts.selectors.paging import Window
from rollouts.selectors.workload_rows import workload_lines
from rollouts.selectors.workload_snapshot import configured_names, visible_clusters
from rollouts.selectors.workload_state import STATES, State
from rollouts.selectors.workloads import ORDERINGS, WorkloadFilters, WorkloadPage, workload_list
from rollouts.web.page_layout import for_fragment, for_readers
from rollouts.web.query_params import read_number, read_text, read_word, render_query
from rollouts.web.text import state_words

Context: TypeAlias = dict[str, Any]

_PRESSING_FIRST: Final = "state"
_CARDS: Final = "cards"


@dataclass(frozen=True, slots=True)
class Choice:
    """What somebody chose to see; the defaults are what the bare address shows."""

    search: str = ""
    state: str = ""
    cluster: str = ""
    namespace: str = ""
    strategy: str = ""
    ordering: str = _PRESSING_FIRST
    view: str = ""
    page: int = 1

    def address(self, **changes: Any) -> str:
        """Return the address of this choice with some of it changed, beginning with the first page again."""
        return f"{reverse('home')}{replace(self, **{'page': 1, **changes}).query}"

    @property
    def query(self) -> str:
        """What an address ends with to mean this."""
        return render_query(self, _BARE)

    @property
    def is_narrowed(self) -> bool:
        """Whether some workloads may be left out."""
        return any((self.search, self.state, self.cluster, self.namespace, self.strategy))

    def filters(self) -> WorkloadFilters:
        """Return the same as the selector asks for it."""
        return WorkloadFilters(
            clusters=(self.cluster,) if self.cluster else (),
            namespaces=(self.namespace,) if self.namespace else (),
            strategies=(self.strategy,) if self.strategy else (),
            states=(State(self.state),) if self.state else (),
            search=self.search,
            ordering=(self.ordering,),
        )


_BARE: Final = Choice()


def parse_choice(given: QueryDict) -> Choice:
    """Read an address."""
    ordering = given.get("ordering", "")
    return Choice(
        search=read_text(given, "search"),
        state=read_word(given, "state", STATES),
        cluster=read_text(given, "cluster"),
        namespace=read_text(given, "namespace"),
        strategy=read_word(given, "strategy", Strategy),
        ordering=ordering if ordering.removeprefix("-") in ORDERINGS else _PRESSING_FIRST,
        view=read_word(given, "view", [_CARDS]),
        page=read_number(given, "page"),
    )


@require_safe
@for_readers
def page(request: HttpRequest) -> HttpResponse:
    """Show the list with what it can be narrowed by."""
    choice = parse_choice(request.GET)
    return render(request, "workloads/page.html", {**_describe(choice), **_describe_filters()})


@for_fragment
def live(given: QueryDict) -> Fragment:
    """Return the list alone."""
    choice = parse_choice(given)
    # For htmx, which fetches it while somebody types: the address then says what is shown.
    headers = {"HX-Replace-Url": choice.address(page=choice.page)}
    return Fragment(
        ("workloads", choice), lambda: render_to_string("workloads/_list.html", _describe(choice)), headers=headers
    )


def _describe(choice: Choice) -> Context:
    found = workload_list(choice.filters(), Window(choice.page))
    return {
        "choice": choice,
        "lines": workload_lines(found.page.items),
        "count": found.page.count,
        "total": sum(found.totals.values()),
        "clusters": len(configured_names()),
        "chips": list(_chips(choice, found)),
        "headings": list(_headings(choice)),
        "previous": choice.address(page=choice.page - 1) if choice.page > 1 else "",
        "next": choice.address(page=choice.page + 1) if found.page.has_next else "",
        "again": choice.address(page=choice.page),
        "other_view": choice.address(view="" if choice.view else _CARDS),
        "kubeconfig": kubeconfig_path(),
    }


def _chips(choice: Choice, found: WorkloadPage) -> Iterator[Context]:
    for state in STATES:
        is_chosen = choice.state == state
        yield {
            "name": state_words(state).lower(),
            "count": found.totals[state],
            "href": choice.address(state="" if is_chosen else str(state)),
            "is_chosen": is_chosen,
            "is_pressing": state is State.NEEDS_ATTENTION and found.totals[state] > 0,
        }


# Words of the heading and what it orders by, the way round that a first click asks for.
_HEADINGS: Final = (
    ("Workload", "name"),
    ("Strategy", ""),
    ("Updated · available of desired pods", "updated"),
    ("Templates", ""),
    ("Now", "state"),
    ("Since", "-started"),
)


def _headings(choice: Choice) -> Iterator[Context]:
    for name, ordering in _HEADINGS:
        key = ordering.removeprefix("-")
        is_chosen = bool(key) and choice.ordering.removeprefix("-") == key
        turned = key if choice.ordering.startswith("-") else f"-{key}"
        yield {
            "name": name,
            "href": choice.address(ordering=turned if is_chosen else ordering) if key else "",
            "sort": ("descending" if choice.ordering.startswith("-") else "ascending") if is_chosen else "",
        }


def _describe_filters() -> Context:
    clusters = visible_clusters()
    rows = Workload.objects.filter(cluster__in=[row.pk for row in clusters.values()])
    return {
        "all_clusters": list(clusters),
        "all_namespaces": list(rows.order_by("namespace").values_list("namespace", flat=True).distinct()),
        "all_strategies": [str(strategy) for strategy in Strategy],
    }
