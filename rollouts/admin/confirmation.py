"""Confirmation pages for actions that cannot be undone. A form performs the action, never a link."""

from dataclasses import dataclass

from django.http import HttpRequest
from django.template.response import TemplateResponse

from rollouts.admin.model_admin import BaseAdmin


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The content of a confirmation page."""

    title: str
    text: str  # what will happen
    verb: str  # of the button
    back: str  # URL of the link that cancels


def confirmation_page(table: BaseAdmin, request: HttpRequest, question: Confirmation) -> TemplateResponse:
    """Render a confirmation page."""
    context = {**table.admin_site.each_context(request), "opts": table.opts, "title": question.title}
    return TemplateResponse(request, "admin/confirm.html", {**context, "question": question})
