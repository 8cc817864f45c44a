"""Pods as cells, and replicas as tiles of them, as HTML.

`rollouts.templatetags.pod_cells` registers these functions as template filters. Templates of their own would take ten
times as long, and a grid has a thousand cells. A cell links to its pod; in a form that selects pods (`PodSelection`),
it is a checkbox.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

from django.utils.safestring import SafeString, mark_safe

from rollouts.selectors.pod_grid import Cell, GroupCells, NodeGrid, ReplicaGrid


@dataclass(frozen=True, slots=True)
class SelectablePod:
    """A pod that the form can select."""

    uid: str
    name: str
    components: tuple[str, ...]  # its clique, and its scaling group if any


@dataclass(frozen=True, slots=True)
class PodSelection:
    """The pods of a grid that can be selected, and those that are."""

    pods: Mapping[str, SelectablePod]  # by name
    selected: frozenset[str] = frozenset()  # uids
    group_by: str = ""  # the view of the grid, which links keep

    def render_cell(self, cell: Cell) -> str:
        """Render a cell as a checkbox, or as an image if it cannot be selected."""
        pick, label = self.pods.get(cell.pod), escape(cell.label)
        if pick is None:
            return f'<i class="cell {cell.css_classes}" role="img" aria-label="{label}"></i>'
        checked = " checked" if pick.uid in self.selected else ""
        return (
            f'<label class="cell {cell.css_classes}"><input type="checkbox" id="pick-{escape(pick.uid)}" name="pod" '
            f'value="{escape(pick.name)}/{escape(pick.uid)}" data-components="{escape(" ".join(pick.components))}" '
            f'aria-label="{label}"{checked}></label>'
        )

    def count_selectable(self, cells: Iterable[Cell]) -> int:
        """Return how many of the cells can be selected."""
        return sum(cell.pod in self.pods for cell in cells)

    def render_select_link(self, cells: Iterable[Cell], what: str, text: str = "", **where: object) -> str:
        """Render a link that selects cells: by its URL, or by a script that looks in their `data-tile`."""
        number = self.count_selectable(cells)
        if not number:
            return escape(text)
        query = escape(urlencode({**({"by": self.group_by} if self.group_by else {}), **where}))
        label = escape(f"Select all {number} of {what}" if number > 1 else f"Select the only pod of {what}")
        text = escape(text) or f"all {number}"
        return f'<a class="select-all" href="?{query}" data-select-all aria-label="{label}">{text}</a>'


def render_cells(found: Iterable[Cell], picks: PodSelection | None = None) -> SafeString:
    """Render cells, each a link to its pod or a checkbox, and empty cells for missing pods."""
    return mark_safe(_render_cells(found, picks))  # noqa: S308 (what comes from outside is escaped)


def render_nodes(nodes: Iterable[NodeGrid], picks: PodSelection | None = None) -> SafeString:
    """Render nodes with the cells of their pods."""
    return mark_safe("\n".join(_render_node(node, picks) for node in nodes))  # noqa: S308 (what comes from outside is escaped)


def render_tiles(replicas: Iterable[ReplicaGrid], picks: PodSelection | None = None) -> SafeString:
    """Render replicas as tiles: a number and cells."""
    return mark_safe("\n".join(_render_tile(replica, picks) for replica in replicas))  # noqa: S308 (what comes from outside is escaped)


def list_cells(replica: ReplicaGrid) -> list[Cell]:
    """Return all cells of a replica."""
    grouped = (cell for part in replica.groups for box in part.boxes for cell in box.cells)
    return [*(cell for part in replica.cliques for cell in part.cells), *grouped]


def render_select_replica(replica: ReplicaGrid, picks: PodSelection) -> SafeString:
    """Render a link that selects all pods of a replica."""
    link = picks.render_select_link(list_cells(replica), f"replica {replica.index}", replica=replica.index)
    return mark_safe(link)  # noqa: S308 (what comes from outside is escaped)


def _render_cells(found: Iterable[Cell], picks: PodSelection | None, by: str = "") -> str:
    cells = "".join(picks.render_cell(cell) if picks else _render_cell(cell, by) for cell in found)
    return f'<div class="cells">{cells}</div>'


def _render_cell(cell: Cell, by: str) -> str:
    """Render a cell that links to its pod; `by` keeps the view of the grid."""
    label = escape(cell.label)
    if not cell.pod:
        return f'<i class="cell {cell.css_classes}" role="img" aria-label="{label}"></i>'
    name = escape(cell.pod)
    address = f"?by={by}&amp;pod={name}" if by else f"?pod={name}"
    return f'<a id="pod-{name}" class="cell {cell.css_classes}" href="{address}" aria-label="{label}"></a>'


def _render_node(node: NodeGrid, picks: PodSelection | None) -> str:
    name = escape(node.name) or "no node yet"
    outdated = f", {node.outdated} outdated" if node.outdated else ""
    link = picks.render_select_link(node.cells, node.name, node=node.name) if picks and node.name else ""
    return (
        f'<section data-tile id="node-{escape(node.name)}" class="replica" aria-label="{name}"><h3>{name} '
        f'<span class="muted">{node.ready} of {len(node.cells)} pods ready{outdated}</span>{link}</h3>'
        f"{_render_cells(node.cells, picks, by='node')}</section>"
    )


def _render_tile(replica: ReplicaGrid, picks: PodSelection | None) -> str:
    marks = f"{' updating' if replica.is_updating else ''}{' surge' if replica.is_surge else ''}"
    label = f"Replica {replica.index}, {'surge, ' if replica.is_surge else ''}{replica.state}"
    parts = [_render_cells(part.cells, picks) for part in replica.cliques] + [
        _render_group_replicas(part, picks) for part in replica.groups
    ]
    number = f'<b aria-hidden="true">{replica.index}</b>'
    if picks and picks.count_selectable(list_cells(replica)):
        what = f"replica {replica.index}"
        number = (
            f"<b>{picks.render_select_link(list_cells(replica), what, str(replica.index), replica=replica.index)}</b>"
        )
    return (
        f'<div data-tile id="replica-{replica.index}" class="tile{marks}" role="group" aria-label="{label}">'
        f"{number}{''.join(parts)}</div>"
    )


def _render_group_replicas(part: GroupCells, picks: PodSelection | None) -> str:
    return "".join(
        f'<div class="group-replica{" surge" if box.is_surge else ""}{" terminating" if box.is_leaving else ""}" '
        'role="group" '
        f'aria-label="{escape(part.name)} {box.label}">{_render_cells(box.cells, picks)}</div>'
        for box in part.boxes
    )
