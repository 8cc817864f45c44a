"""The pod grid of a workload: its replicas, in them cliques and scaling groups, in them pods as cells.

Before it: the tree (`selectors.tree`), which says what is outdated, available or surge. This module says how that
looks: a CSS class for the age of the template of a pod, one for its state, an empty cell for a missing pod, and a label
for screen readers. After it: pages, which only draw it. The invariant: every pod of the tree is one cell, and every
wanted pod that does not exist is one empty cell, so that nothing moves while pods are replaced.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from rollouts.engine.model.observed import TERMINAL_PHASES
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import GroupTemplate, Workload
from rollouts.models import Revision
from rollouts.selectors.template_age import TemplateAge
from rollouts.selectors.tree import (
    CliqueNode,
    GroupNode,
    GroupReplicaNode,
    PodNode,
    ReplicaNode,
    WorkloadTree,
    walk_cliques,
)

_Component = TypeVar("_Component", CliqueNode, GroupNode)

# With more replicas than this each is a small tile without headings.
MAX_DETAILED_REPLICAS: Final = 12
# How many cells fit into a tile.
_TILE_WIDTHS: Final[Mapping[str, int]] = {"narrow": 3, "middle": 9}
# In the name of a clique that leads its group.
_LEADER: Final = "leader"


class PodState(StrEnum):
    """The state of a pod."""

    READY = "ready"
    STARTING = "starting"  # on a node, not Ready yet
    FAILING = "failing"  # on a node, with a problem, or ended
    PENDING = "pending"  # no node yet
    GATED = "gated"  # it waits until its gang is complete
    TERMINATING = "terminating"


class ReplicaState(StrEnum):
    """The state of a replica in an update."""

    COMPLETE = "up to date"
    ROLLING = "rolling"
    OUTDATED = "outdated"
    STARTING = "starting"
    DOWN = "not available"
    TERMINATING = "terminating"
    ABSENT = "not created"


@value
class Cell:
    """A pod, or the empty cell of a missing one."""

    pod: str  # its name; empty: the pod is missing
    label: str  # for screen readers
    css_classes: str  # age, state, surge, leader; or missing


@value
class CliqueCells:
    """The pods of a clique outside scaling groups."""

    name: str
    wanted: int
    available: int
    is_available: bool
    cells: tuple[Cell, ...]

    @property
    def availability(self) -> str:
        """How many of its pods are available."""
        return _render_available(self.available, self.wanted)


@value
class GroupReplicaCells:
    """A replica of a scaling group, with the pods of all its cliques."""

    index: int
    is_surge: bool
    is_leaving: bool
    is_available: bool
    is_outdated: bool
    cells: tuple[Cell, ...]

    @property
    def label(self) -> str:
        """Its description, for screen readers."""
        words = [
            f"replica {self.index}",
            *(["surge"] if self.is_surge else []),
            *(["terminating"] if self.is_leaving else []),
        ]
        words.append("available" if self.is_available else "not available")
        return ", ".join([*words, *(["outdated"] if self.is_outdated else [])])


@value
class GroupCells:
    """A scaling group."""

    name: str
    wanted: int
    available: int  # of its replicas
    is_available: bool
    boxes: tuple[GroupReplicaCells, ...]

    @property
    def availability(self) -> str:
        """How many of its replicas are available."""
        return _render_available(self.available, self.wanted)


@value
class ReplicaGrid:
    """A replica of the set."""

    index: int
    state: ReplicaState
    is_surge: bool
    is_updating: bool
    wanted: int  # pods
    available: int
    outdated: int
    cliques: tuple[CliqueCells, ...]
    groups: tuple[GroupCells, ...]

    @property
    def cell_count(self) -> int:
        """How many cells it has."""
        boxes = (len(box.cells) for part in self.groups for box in part.boxes)
        return sum(len(part.cells) for part in self.cliques) + sum(boxes)

    @property
    def sentence(self) -> str:
        """The state of its pods."""
        if self.state is ReplicaState.ABSENT:
            return "its pods are deleted or not created yet"
        pods = f"{self.available} of {self.wanted} pods available"
        if self.available > self.wanted:  # some are surge
            pods = f"{self.available} pods available, {self.wanted} desired"
        return f"{pods}, {self.outdated} outdated" if self.outdated else pods


@dataclass(frozen=True, slots=True)
class NodeGrid:
    """The pods of a workload on a node."""

    name: str  # empty: no node yet
    ready: int
    outdated: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class PodGrid:
    """The pod grid of a workload."""

    wanted: int  # replicas of the set
    available: int
    updated: int  # available, with all pods of the current template
    pods: int
    outdated: int
    surge: int
    leaving: int
    is_dense: bool
    replicas: tuple[ReplicaGrid, ...]
    strangers: tuple[tuple[str, str], ...]  # names of objects without a position, each with the reason

    @property
    def tile(self) -> str:
        """The width of a tile: narrow, middle or wide."""
        most = max((replica.cell_count for replica in self.replicas), default=0)
        return next((name for name, places in _TILE_WIDTHS.items() if most <= places), "wide")


def _render_available(available: int, wanted: int) -> str:
    # With surge more are available than wanted, and "5 of 4" would be no number of them.
    return f"{available} available, {wanted} desired" if available > wanted else f"{available} of {wanted}"


def build_grid(tree: WorkloadTree, workload: Workload | None) -> PodGrid:
    """Return the pod grid of a tree; `workload` is None when the manifest cannot be parsed."""
    replicas = tuple(_GridBuilder(workload, _previous_revision(tree)).replicas(tree)) if workload is not None else ()
    originals = [replica for replica in tree.replicas if not replica.surge]
    return PodGrid(
        wanted=tree.wanted,
        available=sum(replica.available for replica in originals),
        updated=sum(replica.available and not replica.outdated for replica in originals),
        pods=tree.pods.total - tree.pods.leaving,
        outdated=tree.pods.outdated,
        surge=tree.pods.surge,
        leaving=tree.pods.leaving,
        is_dense=len(replicas) > MAX_DETAILED_REPLICAS,
        replicas=replicas,
        strangers=tuple((stranger.name, stranger.why) for stranger in tree.strangers),
    )


def build_node_grids(tree: WorkloadTree) -> tuple[NodeGrid, ...]:
    """Return the pods of a tree by node, those without a node first."""
    drawing = _GridBuilder(None, _previous_revision(tree))
    cells: dict[str, list[tuple[PodNode, Cell]]] = {}
    for where, clique in walk_cliques(tree):
        for pod in clique.pods:
            cells.setdefault(pod.node, []).append((pod, drawing.cell(clique, pod, where)))
    return tuple(
        NodeGrid(
            name,
            sum(pod.available for pod, _ in cells[name]),
            sum(pod.outdated and not pod.leaving for pod, _ in cells[name]),
            tuple(cell for _, cell in cells[name]),
        )
        for name in sorted(cells)
    )


def _previous_revision(tree: WorkloadTree) -> int | None:
    """Return the newest revision other than the current one."""
    rows = Revision.objects.filter(cluster=tree.cluster, workload_uid=tree.uid).exclude(
        generation_hash=tree.generation_hash
    )
    return rows.order_by("-number").values_list("number", flat=True).first()


class _GridBuilder:
    """Builds the pod grid of one workload."""

    def __init__(self, workload: Workload | None, previous: int | None) -> None:
        self._previous = previous
        cliques = () if workload is None else workload.cliques
        self._sizes: Mapping[str, int] = {clique.name: clique.replicas for clique in cliques}
        groups = () if workload is None else workload.groups
        self._groups: Mapping[str, GroupTemplate] = {group.name: group for group in groups}

    def replicas(self, tree: WorkloadTree) -> Iterator[ReplicaGrid]:
        """Yield the replicas, with empty cells for each wanted replica that does not exist."""
        found = {replica.index: replica for replica in tree.replicas}
        for index in sorted({*found, *range(tree.wanted)}):
            replica = found.get(index)
            yield self._absent(index) if replica is None else self._replica(replica)

    def _absent(self, index: int) -> ReplicaGrid:
        members = {name for group in self._groups.values() for name in group.clique_names}
        pods = sum(size for name, size in self._sizes.items() if name not in members)
        pods += sum(group.replicas * self._size_of(group.name) for group in self._groups.values())
        return ReplicaGrid(index, ReplicaState.ABSENT, False, False, pods, 0, 0, (), ())

    def _size_of(self, group: str) -> int:
        return sum(self._sizes.get(name, 0) for name in self._groups[group].clique_names)

    def _replica(self, node: ReplicaNode) -> ReplicaGrid:
        cliques = tuple(map(self._clique, node.cliques))
        groups = tuple(map(self._group, node.groups))
        nodes = [*node.cliques, *(one for group in node.groups for part in group.replicas for one in part.cliques)]
        wanted = sum(one.wanted for one in node.cliques)
        wanted += sum(group.wanted * self._size_of(group.template) for group in node.groups)
        return ReplicaGrid(
            index=node.index,
            state=_compute_replica_state(node, nodes),
            is_surge=node.surge,
            is_updating=node.updating and not node.complete,
            wanted=wanted,
            available=sum(one.available_pods for one in nodes),
            outdated=sum(one.outdated_pods for one in nodes),
            cliques=cliques,
            groups=groups,
        )

    def _clique(self, node: CliqueNode) -> CliqueCells:
        cells = tuple(self._cells(node))
        return CliqueCells(node.template, node.wanted, node.available_pods, node.available, cells)

    def _group(self, node: GroupNode) -> GroupCells:
        found = {part.index: part for part in node.replicas}
        boxes = tuple(
            self._box(found[index]) if index in found else self._empty_box(node.template, index)
            for index in sorted({*found, *range(node.wanted)})
        )
        available = sum(part.available for part in node.replicas)
        return GroupCells(node.template, node.wanted, available, node.available, boxes)

    def _box(self, node: GroupReplicaNode) -> GroupReplicaCells:
        cells = tuple(cell for clique in node.cliques for cell in self._cells(clique))
        return GroupReplicaCells(node.index, node.surge, node.leaving, node.available, node.outdated, cells)

    def _empty_box(self, group: str, index: int) -> GroupReplicaCells:
        names = self._groups[group].clique_names
        cells = tuple(_empty_cell(name, place) for name in names for place in range(self._sizes.get(name, 0)))
        return GroupReplicaCells(index, False, False, False, False, cells)

    def _cells(self, node: CliqueNode) -> Iterator[Cell]:
        """Return the pods by index, terminating pods before their successors."""
        taken = {pod.index for pod in node.pods if not pod.leaving}
        # A terminating pod stands for its index until its successor exists: an empty cell beside it would show two.
        held = taken | {pod.index for pod in node.pods}
        cells = [(pod.index, not pod.leaving, self.cell(node, pod)) for pod in node.pods]
        cells += [(index, True, _empty_cell(node.template, index)) for index in range(node.wanted) if index not in held]
        for _, _, cell in sorted(cells, key=_cell_order):
            yield cell

    def cell(self, node: CliqueNode, pod: PodNode, where: str = "") -> Cell:
        """Return the cell of a pod; `where` is its position, unless the cells around it show it."""
        age, doing = self._age(pod), _compute_pod_state(pod)
        marks = [str(age), str(doing)]
        if pod.surge:
            marks.append("surge")
        if _LEADER in node.template:
            marks.append("leader")
        template = f"{age} template {pod.template_hash}" if pod.template_hash else "unknown template"
        words = [
            f"{where}{node.template} {pod.index}",
            *(["surge"] if pod.surge else []),
            template,
            _render_pod_state(pod, doing),
        ]
        return Cell(pod.name, ", ".join(words), " ".join(marks))

    def _age(self, pod: PodNode) -> TemplateAge:
        if not pod.outdated:
            return TemplateAge.CURRENT
        is_previous = pod.revision is not None and pod.revision == self._previous
        return TemplateAge.PREVIOUS if is_previous else TemplateAge.OLDER


def _cell_order(entry: tuple[int, bool, Cell]) -> tuple[int, bool, str]:
    index, is_staying, cell = entry
    return index, is_staying, cell.pod


def _empty_cell(clique: str, index: int) -> Cell:
    return Cell("", f"{clique} {index}, missing", "missing leader" if _LEADER in clique else "missing")


def _compute_pod_state(pod: PodNode) -> PodState:
    if pod.leaving:
        return PodState.TERMINATING
    if pod.gated:
        return PodState.GATED
    if pod.available:
        return PodState.READY
    if pod.phase in TERMINAL_PHASES:
        return PodState.FAILING
    if not pod.node:
        return PodState.PENDING
    return PodState.FAILING if pod.restarts or (pod.reason and pod.reason not in _STILL_STARTING) else PodState.STARTING


_STILL_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing", "ContainersNotReady"})


def _render_pod_state(pod: PodNode, doing: PodState) -> str:
    reason = f" ({pod.reason})" if pod.reason and doing is not PodState.READY else ""
    return f"{doing}{reason} on {pod.node}" if pod.node else f"{doing}{reason}"


def _compute_replica_state(node: ReplicaNode, cliques: Iterable[CliqueNode]) -> ReplicaState:
    if node.complete:
        return ReplicaState.COMPLETE
    if node.updating:
        return ReplicaState.ROLLING
    pods = [pod for clique in cliques for pod in clique.pods]
    if pods and all(pod.leaving for pod in pods):
        return ReplicaState.TERMINATING
    if not node.available:
        return ReplicaState.DOWN if node.outdated else ReplicaState.STARTING
    return ReplicaState.OUTDATED if node.outdated else ReplicaState.STARTING


# ---- progress of components


@dataclass(frozen=True, slots=True)
class ComponentProgress:
    """The progress of a component, over all replicas of the set."""

    name: str  # empty: the replicas of the set
    unit: str  # pods or replicas
    wanted: int
    updated: int  # of the current template and available
    outdated: int
    surge: int


def compute_progress(tree: WorkloadTree) -> tuple[ComponentProgress, ...]:
    """Return the progress of the set and of each component."""
    originals = [replica for replica in tree.replicas if not replica.surge]
    set_meter = _make_progress("", "replicas", tree.wanted, tree.replicas)
    return set_meter, *_clique_progress(originals), *_group_progress(originals)


def _clique_progress(replicas: Iterable[ReplicaNode]) -> Iterator[ComponentProgress]:
    for name, cliques in _by_template(clique for replica in replicas for clique in replica.cliques).items():
        pods = [pod for clique in cliques for pod in clique.pods if not pod.leaving]
        yield _make_progress(name, "pods", sum(clique.wanted for clique in cliques), pods)


def _group_progress(replicas: Iterable[ReplicaNode]) -> Iterator[ComponentProgress]:
    for name, groups in _by_template(group for replica in replicas for group in replica.groups).items():
        parts = [part for group in groups for part in group.replicas if not part.leaving]
        yield _make_progress(name, "replicas", sum(group.wanted for group in groups), parts)


def _by_template(components: Iterable[_Component]) -> dict[str, list[_Component]]:
    found: dict[str, list[_Component]] = {}
    for one in components:
        found.setdefault(one.template, []).append(one)
    return found


def _make_progress(
    name: str, what: str, wanted: int, units: Sequence[PodNode | GroupReplicaNode | ReplicaNode]
) -> ComponentProgress:
    originals = [unit for unit in units if not unit.surge]
    updated = sum(unit.available and not unit.outdated for unit in originals)
    outdated = sum(unit.outdated for unit in originals)
    return ComponentProgress(name, what, wanted, updated, outdated, len(units) - len(originals))
