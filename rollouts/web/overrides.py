"""/overrides/: which strategies are overridden, for whom, by whom, why and until when; made in the admin site."""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_safe

from rollouts.accounts import permissions
from rollouts.accounts.commands import Command
from rollouts.live.fragments import Fragment
from rollouts.selectors.overrides import OverrideFilters, override_list
from rollouts.selectors.paging import Window
from rollouts.web.page_layout import for_fragment, for_readers
from rollouts.web.query_params import read_number, read_text, read_word, render_query

Context: TypeAlias = dict[str, Any]

_ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which overrides are to be seen."""

    state: str = ""  # empty: those in force
    cluster: str = ""
    namespace: str = ""
    name: str = ""
    page: int = 1

    def address(self, **changes: Any) -> str:
        """Return the address of this choice with some of it changed."""
        return f"{reverse('page-overrides')}{replace(self, **{'page': 1, **changes}).query}"

    @property
    def query(self) -> str:
        """What an address ends with to mean this."""
        return render_query(self, Choice())


@require_safe
@for_readers
def page(request: HttpRequest) -> HttpResponse:
    """Show overrides, and where to make one."""
    refusal = permissions.find_refusal(request.user, Command.CREATE_OVERRIDE)
    # Somebody may lack the grant for all clusters and still have one for a namespace: the form asks again.
    is_barred = refusal is not None and refusal.reason is not permissions.Reason.GRANT_MISSING
    return render(
        request,
        "overrides/page.html",
        {**_describe(_parse(request.GET)), "refusal": refusal if is_barred else None},
    )


@for_fragment
def live(given: QueryDict) -> Fragment:
    """Return the list alone."""
    choice = _parse(given)
    return Fragment(("overrides", choice), lambda: render_to_string("overrides/_list.html", _describe(choice)))


def _parse(given: QueryDict) -> Choice:
    return Choice(
        read_word(given, "state", [_ENDED]),
        read_text(given, "cluster"),
        read_text(given, "namespace"),
        read_text(given, "name"),
        read_number(given, "page"),
    )


def _describe(choice: Choice) -> Context:
    filters = OverrideFilters(choice.cluster, choice.namespace, choice.name, active=choice.state != _ENDED)
    found = override_list(filters, Window(choice.page))
    return {
        "choice": choice,
        "overrides": found.items,
        "count": found.count,
        "in_force": choice.address(state=""),
        "ended": choice.address(state=_ENDED),
        "previous": choice.address(page=choice.page - 1) if choice.page > 1 else "",
        "next": choice.address(page=choice.page + 1) if found.has_next else "",
    }
