"""`{% load grove_admin %}`: the tags of the admin site; `rollouts.admin.rendering` does the rendering.

Imports nothing that imports `unfold.admin`: that module renders a widget while it is imported, and Django then loads
all template tags.
"""

from typing import Any

from django import template
from django.db.models import Model

from rollouts.admin import rendering
from rollouts.admin.override_check import CheckTable, make_table
from rollouts.admin.override_text import render_settings, render_target
from rollouts.models import StrategyOverride
from rollouts.services.override_preview import OverrideCheck

register = template.Library()

register.simple_tag(rendering.show_time, name="moment")
register.simple_tag(rendering.show_ref, name="ref")
register.simple_tag(rendering.show_cluster_state, name="cluster_state")
register.simple_tag(rendering.show_result, name="audit_result")
register.simple_tag(render_settings, name="override_sets")


@register.simple_tag
def row_link(row: Model, text: object = None) -> str:
    """Link to the page of a row."""
    if text is None and isinstance(row, StrategyOverride):
        text = render_target(row)
    return rendering.show_link(row, text)


@register.filter
def check_table(check: OverrideCheck | None) -> CheckTable | None:
    """Return the result of the check of a submitted form as a table."""
    return make_table(check) if check else None


@register.simple_tag
def override_document(value: Any, other: Any) -> str:
    """Show the fields of an override that differ from the other version of it."""
    differs = {name: part for name, part in (value or {}).items() if name != "id" and part != (other or {}).get(name)}
    return rendering.show_document({name: part for name, part in differs.items() if part not in ("", {}, None)})
