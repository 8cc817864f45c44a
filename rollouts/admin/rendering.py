"""Rendering of times, states, links and documents for the tables and pages of the admin site.

Every module of this package uses it. The invariant: `format_html` escapes all values from clusters and users.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import yaml
from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from rollouts.models import AuditEntry, Cluster

NOTHING = "–"


def show_time(at: datetime | float | None) -> str | SafeString:
    """Show a time as its distance from now, with the exact time as a tooltip."""
    if at is None:
        return NOTHING
    moment = datetime.fromtimestamp(at, UTC) if isinstance(at, float | int) else at
    now = datetime.now(UTC)
    words = _render_distance((moment - now).total_seconds())
    exact = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', exact.isoformat(), f"{exact:%Y-%m-%d %H:%M:%S} UTC", words
    )


def _render_distance(seconds: float) -> str:
    """Return a distance in time, rounded for people.

    >>> _render_distance(-40), _render_distance(-7000), _render_distance(3 * 86400 + 5)
    ('40 s ago', '1 h 56 min ago', 'in 3 d 0 h')
    """
    distance = int(abs(seconds))
    days, hours, minutes = distance // 86400, distance // 3600, distance // 60
    if days:
        words = f"{days} d {hours % 24} h"
    elif hours:
        words = f"{hours} h {minutes % 60} min"
    else:
        words = f"{minutes} min" if minutes else f"{distance} s"
    return f"in {words}" if seconds > 0 else f"{words} ago"


def show_pill(text: str, kind: str = "plain") -> str | SafeString:
    """Show a state: `good`, `warn`, `info` or `plain`."""
    return format_html('<span class="grove-badge {}">{}</span>', kind, text) if text else NOTHING


def show_cluster_state(row: Cluster) -> str | SafeString:
    """Show the state of the mirror of a cluster."""
    if row.trouble_code:
        return show_pill(row.trouble_code, "warn")
    return show_pill("mirrored", "good") if row.complete else show_pill("being listed", "info")


def show_result(row: AuditEntry) -> str | SafeString:
    """Show the result of a command."""
    kinds = {AuditEntry.Result.DONE: "good", AuditEntry.Result.BEGUN: "info"}
    return show_pill(row.result, kinds.get(AuditEntry.Result(row.result), "warn"))


def show_ref(row: Any) -> str:
    """Name the workload, namespace or cluster that a row is about."""
    return "/".join(part for part in (row.cluster, row.namespace, row.name) if part) or NOTHING


def show_mono(text: object) -> str | SafeString:
    """Show a hash, a key or another technical text."""
    return format_html('<span class="grove-mono">{}</span>', text) if text not in (None, "") else NOTHING


def show_link(row: Model | None, text: object = None) -> str | SafeString:
    """Link to the page of a row."""
    if row is None:
        return NOTHING
    meta = row._meta  # noqa: SLF001 (public in all but name)
    url = reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])
    return format_html('<a class="grove-link" href="{}">{}</a>', url, row if text is None else text)


def show_list_link(model: type[Model], text: str, **filters: Any) -> SafeString:
    """Link to a filtered list."""
    meta = model._meta  # noqa: SLF001
    url = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
    return format_html('<a class="grove-link" href="{}?{}">{}</a>', url, urlencode(filters), text)


def show_document(value: Any) -> str | SafeString:
    """Show JSON as YAML."""
    if value in (None, {}, [], ""):
        return NOTHING
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    return format_html('<pre class="grove-document" tabindex="0">{}</pre>', text)


def show_labels(labels: Mapping[str, Any] | None) -> str | SafeString:
    """Show labels like a label selector."""
    return show_mono(", ".join(f"{name}={value}" for name, value in (labels or {}).items()))
