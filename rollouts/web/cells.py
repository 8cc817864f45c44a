"""Pods as cells, and replicas as tiles of them, in HTML: the filters that templates load as `cells`.

In templates of their own they take ten times as long, and a picture has a thousand of them.
"""

from collections.abc import Iterable
from html import escape

from django import template
from django.utils.safestring import SafeString, mark_safe

from rollouts.selectors.picture import Cell, GroupPart, NodePicture, ReplicaPicture

register = template.Library()


@register.filter
def cells(found: Iterable[Cell]) -> SafeString:
    """Write cells, each a link to its pod in full, and the empty places between them."""
    return mark_safe(_cells(found))  # noqa: S308 (what comes from outside is escaped)


@register.filter
def node_rows(nodes: Iterable[NodePicture]) -> SafeString:
    """Write nodes, each with the cells of the pods that it holds."""
    return mark_safe("\n".join(map(_node, nodes)))  # noqa: S308 (what comes from outside is escaped)


@register.filter
def tiles(replicas: Iterable[ReplicaPicture]) -> SafeString:
    """Write replicas as small as they can be: a number, and cells."""
    return mark_safe("\n".join(map(_tile, replicas)))  # noqa: S308 (what comes from outside is escaped)


def _cells(found: Iterable[Cell]) -> str:
    return f'<div class="cells">{"".join(map(_cell, found))}</div>'


def _cell(cell: Cell) -> str:
    label = escape(cell.label)
    if not cell.pod:
        return f'<i class="cell {cell.marks}" role="img" aria-label="{label}"></i>'
    name = escape(cell.pod)
    return f'<a id="pod-{name}" class="cell {cell.marks}" href="?pod={name}" aria-label="{label}"></a>'


def _node(node: NodePicture) -> str:
    name = escape(node.name) or "no node yet"
    outdated = f", {node.outdated} outdated" if node.outdated else ""
    return (
        f'<section id="node-{escape(node.name)}" class="replica" aria-label="{name}"><h3>{name} '
        f'<span class="muted">{node.ready} of {len(node.cells)} pods ready{outdated}</span></h3>{_cells(node.cells)}'
        "</section>"
    )


def _tile(replica: ReplicaPicture) -> str:
    marks = f"{' now' if replica.is_updating else ''}{' surge' if replica.is_surge else ''}"
    label = f"Replica {replica.index}, {'surge, ' if replica.is_surge else ''}{replica.standing}"
    parts = [_cells(part.cells) for part in replica.cliques] + [_boxes(part) for part in replica.groups]
    return (
        f'<div id="replica-{replica.index}" class="tile{marks}" role="group" aria-label="{label}">'
        f'<b aria-hidden="true">{replica.index}</b>{"".join(parts)}</div>'
    )


def _boxes(part: GroupPart) -> str:
    return "".join(
        f'<div class="box{" surge" if box.is_surge else ""}{" leaving" if box.is_leaving else ""}" role="group" '
        f'aria-label="{escape(part.name)} {box.label}">{_cells(box.cells)}</div>'
        for box in part.boxes
    )
