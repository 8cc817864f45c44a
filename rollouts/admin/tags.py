"""Template tags of the admin site: the same rendering as in its tables."""

from typing import Any

from django import template
from django.db.models import Model

from rollouts.admin import rendering
from rollouts.admin.override_check import CheckTable, make_table
from rollouts.admin.override_form import OverrideForm
from rollouts.admin.override_text import render_settings, render_target
from rollouts.models import AuditEntry, Cluster, StrategyOverride

register = template.Library()

register.simple_tag(rendering.show_time, name="moment")


@register.simple_tag
def row_link(row: Model, text: object = None) -> str:
    """Link to the page of a row."""
    if text is None and isinstance(row, StrategyOverride):
        text = render_target(row)
    return rendering.show_link(row, text)


@register.simple_tag
def override_sets(row: StrategyOverride) -> str:
    """Return what an override sets."""
    return render_settings(row)


@register.simple_tag
def cluster_state(row: Cluster) -> str:
    """Show the state of a cluster."""
    return show_cluster_state(row)


@register.simple_tag
def place(row: Any) -> str:
    """Return the workload, namespace or cluster of a row."""
    return "/".join(part for part in (row.cluster, row.namespace, row.name) if part) or rendering.NOTHING


@register.simple_tag
def audit_result(row: AuditEntry) -> str:
    """Show the result of a command."""
    return show_result(row)


def show_cluster_state(row: Cluster) -> str:
    """Show the state of a cluster."""
    if row.trouble_code:
        return rendering.show_pill(row.trouble_code, "warn")
    return rendering.show_pill("mirrored", "good") if row.complete else rendering.show_pill("being listed", "info")


def show_result(row: AuditEntry) -> str:
    """Show the result of a command."""
    kinds = {AuditEntry.Result.DONE: "good", AuditEntry.Result.BEGUN: "info"}
    return rendering.show_pill(row.result, kinds.get(AuditEntry.Result(row.result), "warn"))


@register.filter
def check_table(form: OverrideForm) -> CheckTable | None:
    """Return the check of a submitted form as a table."""
    return make_table(form.check_result) if form.check_result else None


@register.simple_tag
def override_document(value: Any, other: Any) -> str:
    """Show the values of an override in an audit entry that differ from the other side of the change."""
    differs = {name: part for name, part in (value or {}).items() if name != "id" and part != (other or {}).get(name)}
    return rendering.show_document({name: part for name, part in differs.items() if part not in ("", {}, None)})
