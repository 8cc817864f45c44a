"""/audit/: who commanded what, when, by which door, and what came of it."""

from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from rollouts import access
from rollouts.commands import Command
from rollouts.models import AuditEntry
from rollouts.selectors.audit import AuditFilters, audit_list
from rollouts.selectors.paging import Window
from rollouts.web.addresses import read_day, read_number, read_text, read_word, render_query
from rollouts.web.shell import for_readers

Context: TypeAlias = dict[str, Any]

_RESULTS: Final = tuple(AuditEntry.Result.values)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which commands are to be seen."""

    actor: str = ""
    command: str = ""
    result: str = ""
    cluster: str = ""
    namespace: str = ""
    name: str = ""
    since: str = ""  # a day, from its beginning
    until: str = ""  # a day, to its end
    page: int = 1

    def address(self, **changes: Any) -> str:
        """Return the address of this choice with some of it changed."""
        return f"{reverse('page-audit')}{render_query(replace(self, **{'page': 1, **changes}), Choice())}"

    @property
    def is_narrowed(self) -> bool:
        """Whether some commands may be left out."""
        return replace(self, page=1) != Choice()


@require_safe
@for_readers
def page(request: HttpRequest) -> HttpResponse:
    """Show what was commanded, the latest first."""
    choice = _parse(request.GET)
    filters = _filters(request.GET, choice)
    found = audit_list(filters, Window(choice.page))
    context = {
        "choice": choice,
        "entries": found.items,
        "count": found.count,
        "commands": list(Command),
        "results": _RESULTS,
        "previous": choice.address(page=choice.page - 1) if choice.page > 1 else "",
        "next": choice.address(page=choice.page + 1) if found.has_next else "",
        "refusal": access.find_refusal(request.user, Command.EXPORT_AUDIT),
        "export": _export_address(filters),
    }
    return render(request, "audit/page.html", context)


def _parse(given: QueryDict) -> Choice:
    return Choice(
        actor=read_text(given, "actor"),
        command=read_word(given, "command", Command),
        result=read_word(given, "result", _RESULTS),
        cluster=read_text(given, "cluster"),
        namespace=read_text(given, "namespace"),
        name=read_text(given, "name"),
        since=given.get("since", "") if read_day(given, "since") else "",
        until=given.get("until", "") if read_day(given, "until") else "",
        page=read_number(given, "page"),
    )


def _filters(given: QueryDict, choice: Choice) -> AuditFilters:
    until = read_day(given, "until")
    return AuditFilters(
        actor=choice.actor,
        command=choice.command,
        result=choice.result,
        cluster=choice.cluster,
        namespace=choice.namespace,
        name=choice.name,
        since=read_day(given, "since"),
        until=until + timedelta(days=1) if until else None,
    )


def _export_address(filters: AuditFilters) -> str:
    given = QueryDict(mutable=True)
    for name, value in asdict(filters).items():
        if value:
            given[name] = value if isinstance(value, str) else value.isoformat()
    return f"{reverse('audit-export')}?{given.urlencode()}" if given else reverse("audit-export")
