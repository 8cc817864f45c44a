"""/audit/: who commanded what, when, by which door, and what came of it.

The page is rendered whole; the list in it is a part that is brought again when a command is put on record.
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
from rollouts.accounts.commands import Command
from rollouts.live.fragments import Fragment
from rollouts.models import AuditEntry
from rollouts.selectors.audit import AuditFilters, audit_list
from rollouts.selectors.paging import Window
from rollouts.web.page_layout import for_fragment, for_readers
from rollouts.web.query_params import read_day, read_number, read_text, read_word

Context: TypeAlias = dict[str, Any]

_RESULTS: Final = tuple(AuditEntry.Result.values)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which commands are to be seen."""

    filters: AuditFilters
    page: int

    @property
    def words(self) -> dict[str, str]:
        """The filters as fields of a form have them: days, both of which are meant whole."""
        until = self.filters.until and self.filters.until - _DAY
        given = {**asdict(self.filters), "until": until}
        return {
            name: f"{value:%Y-%m-%d}" if isinstance(value, datetime) else value or "" for name, value in given.items()
        }

    @property
    def query(self) -> str:
        """What an address ends with to mean this."""
        given = {**self.words, "page": self.page if self.page > 1 else ""}
        return f"?{urlencode({name: value for name, value in given.items() if value})}".rstrip("?")

    def address(self, page: int) -> str:
        """Return the address of another page of the same."""
        return f"{reverse('page-audit')}{replace(self, page=page).query}"

    @property
    def is_narrowed(self) -> bool:
        """Whether some commands may be left out."""
        return self.filters != AuditFilters()


@require_safe
@for_readers
def page(request: HttpRequest) -> HttpResponse:
    """Show what was commanded, the latest first."""
    choice = _parse(request.GET)
    context = {
        **_describe(choice),
        "chosen": choice.words,
        "commands": list(Command),
        "results": _RESULTS,
        "refusal": permissions.find_refusal(request.user, Command.EXPORT_AUDIT),
        "export": _export_address(choice.filters),
    }
    return render(request, "audit/page.html", context)


@for_fragment
def live(given: QueryDict) -> Fragment:
    """Return the list alone."""
    choice = _parse(given)
    return Fragment(("audit", choice), lambda: render_to_string("audit/_list.html", _describe(choice)))


def _describe(choice: Choice) -> Context:
    found = audit_list(choice.filters, Window(choice.page))
    return {
        "choice": choice,
        "entries": found.items,
        "count": found.count,
        "previous": choice.address(choice.page - 1) if choice.page > 1 else "",
        "next": choice.address(choice.page + 1) if found.has_next else "",
    }


def _parse(given: QueryDict) -> Choice:
    until = read_day(given, "until")
    filters = AuditFilters(
        actor=read_text(given, "actor"),
        command=read_word(given, "command", Command),
        result=read_word(given, "result", _RESULTS),
        cluster=read_text(given, "cluster"),
        namespace=read_text(given, "namespace"),
        name=read_text(given, "name"),
        since=read_day(given, "since"),
        until=until and until + _DAY,
    )
    return Choice(filters, read_number(given, "page"))


def _export_address(filters: AuditFilters) -> str:
    given = QueryDict(mutable=True)
    for name, value in asdict(filters).items():
        if value:
            given[name] = value if isinstance(value, str) else value.isoformat()
    return f"{reverse('audit-export')}?{given.urlencode()}" if given else reverse("audit-export")
