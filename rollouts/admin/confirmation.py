"""Pages that ask before something is done that cannot be undone; what is done is done by a form, never by a link."""

from dataclasses import dataclass

from django.http import HttpRequest
from django.template.response import TemplateResponse

from rollouts.admin.model_admin import BaseAdmin


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What is asked."""

    title: str
    text: str  # what will happen
    verb: str  # of the button
    back: str  # where those go who do not


def confirmation_page(table: BaseAdmin, request: HttpRequest, question: Confirmation) -> TemplateResponse:
    """Show the page that asks."""
    context = {**table.admin_site.each_context(request), "opts": table.opts, "title": question.title}
    return TemplateResponse(request, "admin/confirm.html", {**context, "question": question})
