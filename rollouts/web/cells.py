"""Pods as cells in HTML: the filter that templates load as `cells`.

In a template of its own each cell takes ten times as long, and a picture has a thousand of them.
"""

from collections.abc import Iterable
from html import escape

from django import template
from django.utils.safestring import SafeString, mark_safe

from rollouts.selectors.picture import Cell

register = template.Library()


@register.filter
def cells(found: Iterable[Cell]) -> SafeString:
    """Write cells, each a link to its pod in full, and the empty places between them.

    >>> print(cells([Cell("web-x7k2p", "web 0, <ready>", "current ready")]))
    <a id="pod-web-x7k2p" class="cell current ready" href="?pod=web-x7k2p" aria-label="web 0, &lt;ready&gt;"></a>
    """
    return mark_safe("".join(map(_cell, found)))  # noqa: S308 (names, and what is escaped below)


def _cell(cell: Cell) -> str:
    label = escape(cell.label)
    if not cell.pod:
        return f'<i class="cell {cell.marks}" role="img" aria-label="{label}"></i>'
    name = escape(cell.pod)
    return f'<a id="pod-{name}" class="cell {cell.marks}" href="?pod={name}" aria-label="{label}"></a>'
