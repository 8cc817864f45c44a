"""/audit/: who ran which command, when, from where, and with what result.

The server renders the page whole; the list is a fragment that open pages receive again after each command.
"""

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_safe

from rollouts.accounts import permissions
from rollouts.accounts.commands import AUDITED_COMMANDS, Command
from rollouts.live.fragments import Fragment
from rollouts.models import AuditEntry
from rollouts.selectors.audit import AuditFilters, audit_list
from rollouts.selectors.paging import Window
from rollouts.web.page_layout import fragment_view, viewer_required
from rollouts.web.query_params import parse_choice, parse_day, parse_page_number, parse_text

Context: TypeAlias = dict[str, Any]

_RESULTS: Final = tuple(AuditEntry.Result.values)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """The commands to show."""

    filters: AuditFilters
    page: int

    @property
    def form_values(self) -> dict[str, str]:
        """The filters as form fields; both days are inclusive."""
        until = self.filters.until and self.filters.until - _DAY
        given = {**asdict(self.filters), "until": until}
        return {
            name: f"{value:%Y-%m-%d}" if isinstance(value, datetime) else value or "" for name, value in given.items()
        }

    @property
    def query_string(self) -> str:
        """The query string of this choice."""
        given = {**self.form_values, "page": self.page if self.page > 1 else ""}
        return f"?{urlencode({name: value for name, value in given.items() if value})}".rstrip("?")

    def page_url(self, page: int) -> str:
        """Return the URL of another page of this choice."""
        return f"{reverse('page-audit')}{replace(self, page=page).query_string}"

    @property
    def is_filtered(self) -> bool:
        """Whether a filter is set."""
        return self.filters != AuditFilters()


@require_safe
@viewer_required
def page(request: HttpRequest) -> HttpResponse:
    """Show the commands, newest first."""
    choice = _parse_query(request.GET)
    context = {
        **_list_context(choice),
        "chosen": choice.form_values,
        "commands": AUDITED_COMMANDS,
        "results": _RESULTS,
        "refusal": permissions.find_refusal(request.user, Command.EXPORT_AUDIT),
        "export": _export_url(choice.filters),
    }
    return render(request, "audit/page.html", context)


@fragment_view
def list_fragment(given: QueryDict) -> Fragment:
    """Return the list as a fragment."""
    choice = _parse_query(given)
    return Fragment(("audit", choice), lambda: render_to_string("audit/_list.html", _list_context(choice)))


def _list_context(choice: AuditQuery) -> Context:
    found = audit_list(choice.filters, Window(choice.page))
    return {
        "choice": choice,
        "entries": found.items,
        "count": found.count,
        "previous": choice.page_url(choice.page - 1) if choice.page > 1 else "",
        "next": choice.page_url(choice.page + 1) if found.has_next else "",
    }


def _parse_query(given: QueryDict) -> AuditQuery:
    until = parse_day(given, "until")
    filters = AuditFilters(
        actor=parse_text(given, "actor"),
        command=parse_choice(given, "command", AUDITED_COMMANDS),
        result=parse_choice(given, "result", _RESULTS),
        cluster=parse_text(given, "cluster"),
        namespace=parse_text(given, "namespace"),
        name=parse_text(given, "name"),
        since=parse_day(given, "since"),
        until=until and until + _DAY,
    )
    return AuditQuery(filters, parse_page_number(given, "page"))


def _export_url(filters: AuditFilters) -> str:
    given = QueryDict(mutable=True)
    for name, value in asdict(filters).items():
        if value:
            given[name] = value if isinstance(value, str) else value.isoformat()
    return f"{reverse('audit-export')}?{given.urlencode()}" if given else reverse("audit-export")
