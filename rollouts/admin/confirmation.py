"""Pages that ask before something is done that cannot be undone; what is done is done by a form, never by a link."""

from dataclasses import dataclass

from django.http import HttpRequest
from django.template.response import TemplateResponse

from rollouts.admin.model_admin import Table


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    title: str
    text: str  # what will happen
    verb: str  # of the button
    back: str  # where those go who do not


def confirm(table: Table, request: HttpRequest, question: Question) -> TemplateResponse:
    """Show the page that asks."""
    context = {**table.admin_site.each_context(request), "opts": table.opts, "title": question.title}
    return TemplateResponse(request, "admin/confirm.html", {**context, "question": question})
