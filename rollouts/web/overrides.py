"""/overrides/: the strategy overrides with their target, author, reason and end; the admin site edits them."""

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
from rollouts.web.page_layout import fragment_view, viewer_required
from rollouts.web.query_params import parse_choice, parse_page_number, parse_text, render_query

Context: TypeAlias = dict[str, Any]

_ENDED = "ended"


@dataclass(frozen=True, slots=True)
class OverrideQuery:
    """The overrides to show."""

    state: str = ""  # empty: those in force
    cluster: str = ""
    namespace: str = ""
    name: str = ""
    page: int = 1

    def page_url(self, **changes: Any) -> str:
        """Return the URL of this choice with some values changed."""
        return f"{reverse('page-overrides')}{replace(self, **{'page': 1, **changes}).query_string}"

    @property
    def query_string(self) -> str:
        """The query string of this choice."""
        return render_query(self, OverrideQuery())


@require_safe
@viewer_required
def page(request: HttpRequest) -> HttpResponse:
    """Show the overrides and a link to create one."""
    refusal = permissions.find_refusal(request.user, Command.CREATE_OVERRIDE)
    # An account without a grant for all clusters may still have one for a namespace: the form checks again.
    is_barred = refusal is not None and refusal.reason is not permissions.RefusalReason.GRANT_MISSING
    return render(
        request,
        "overrides/page.html",
        {**_list_context(_parse_query(request.GET)), "refusal": refusal if is_barred else None},
    )


@fragment_view
def list_fragment(given: QueryDict) -> Fragment:
    """Return the list as a fragment."""
    choice = _parse_query(given)
    return Fragment(("overrides", choice), lambda: render_to_string("overrides/_list.html", _list_context(choice)))


def _parse_query(given: QueryDict) -> OverrideQuery:
    return OverrideQuery(
        parse_choice(given, "state", [_ENDED]),
        parse_text(given, "cluster"),
        parse_text(given, "namespace"),
        parse_text(given, "name"),
        parse_page_number(given, "page"),
    )


def _list_context(choice: OverrideQuery) -> Context:
    filters = OverrideFilters(choice.cluster, choice.namespace, choice.name, active=choice.state != _ENDED)
    found = override_list(filters, Window(choice.page))
    return {
        "choice": choice,
        "overrides": found.items,
        "count": found.count,
        "in_force": choice.page_url(state=""),
        "ended": choice.page_url(state=_ENDED),
        "previous": choice.page_url(page=choice.page - 1) if choice.page > 1 else "",
        "next": choice.page_url(page=choice.page + 1) if found.has_next else "",
    }
