"""The layout of a workload: its cliques and scaling groups by name, its hashes, and the position of each object.

Computed once for a workload. `tree_builder` makes the views of observed objects with it, and later steps the views of
objects that do not exist yet. The invariant: a layout depends on the workload alone, never on what is observed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from rollouts.engine.manifest.references import MAX_PODS
from rollouts.engine.model import names
from rollouts.engine.model.hashing import compute_generation_hash, compute_template_hash
from rollouts.engine.model.observed import TERMINAL_PHASES, Clique, Gang, Group, Pod, Service
from rollouts.engine.model.template_keys import compute_group_keys, compute_scaling_keys
from rollouts.engine.model.workload import CliqueTemplate, GroupTemplate, Strategy, Workload
from rollouts.engine.tree.availability import (
    CliqueView,
    GroupReplicaView,
    GroupView,
    ReplicaView,
    compute_min_available,
    is_complete,
    make_group_replica_view,
    make_group_view,
    make_replica_view,
)


@dataclass(frozen=True, slots=True)
class PodCliquePosition:
    """Where a PodClique belongs; `group` is empty for one in no scaling group."""

    replica: int
    group: str
    group_replica: int
    clique: str


@dataclass(slots=True)
class ObjectIndex:
    """The observed objects that belong to a workload, by name; views are made from them."""

    indices: set[int] = field(default_factory=set)  # replicas of the set of which anything exists
    services: dict[int, Service] = field(default_factory=dict)  # by replica of the set
    base_gangs: dict[int, Gang] = field(default_factory=dict)  # by replica of the set
    scaled_gangs: dict[int, dict[str, Gang]] = field(default_factory=dict)  # by replica of the set
    groups: dict[str, Group] = field(default_factory=dict)
    group_replicas: dict[str, set[int]] = field(default_factory=dict)  # replicas of each scaling group
    cliques: dict[str, Clique] = field(default_factory=dict)
    pods: dict[str, list[Pod]] = field(default_factory=dict)  # by the name of their PodClique, in order of their index


EMPTY_INDEX: Final = ObjectIndex()
_NO_GANGS: Final[Mapping[str, Gang]] = {}


class _NamePrefixes(dict[int, str]):
    """The prefix of all names in a replica of the set, `my-0` for replica 0; each is rendered once."""

    def __init__(self, workload: str) -> None:
        super().__init__()
        self._workload = workload

    def __missing__(self, replica: int) -> str:
        prefix = self[replica] = names.service_name(self._workload, replica)
        return prefix


def make_layout(workload: Workload) -> "Layout":
    """Return the layout of a workload, with its templates hashed."""
    hashes = {clique.name: compute_template_hash(clique, workload.priority_class) for clique in workload.cliques}
    return Layout(workload, hashes, compute_generation_hash(workload))


def _find_scheduler(workload: Workload) -> str:
    """Return the scheduler of the pods: all cliques of a set name the same one, or none."""
    named = (clique.pod_spec.get("schedulerName") for clique in workload.cliques)
    return next((name for name in named if name), "default-scheduler")


class Layout:
    """The cliques and groups of a workload by name, from which views are made."""

    def __init__(self, workload: Workload, hashes: Mapping[str, str], generation_hash: str = "") -> None:
        """Take the current template hash of each clique, and the hash over all of them."""
        self.workload = workload
        self.hashes = hashes
        self.generation_hash = generation_hash
        self.cliques = {clique.name: clique for clique in workload.cliques}
        self.groups = {group.name: group for group in workload.groups}
        self.group_of = {name: group.name for group in workload.groups for name in group.clique_names}
        self.standalone = tuple(clique for clique in workload.cliques if clique.name not in self.group_of)
        self.prefixes = _NamePrefixes(workload.name)
        # Read many times in a pass; in Python 3.11 looking up a member of an enumeration is slow.
        self.replaces_whole = workload.strategy is Strategy.REPLICA_RECREATE
        self.is_on_delete = workload.strategy is Strategy.ON_DELETE
        self.scheduler = _find_scheduler(workload)  # the label of its PodGangs
        # What a PodClique and a scaling group record of their template besides numbers and template hash.
        self.scaling_keys = {clique.name: compute_scaling_keys(clique) for clique in workload.cliques}
        self.group_keys = {group.name: compute_group_keys(group) for group in workload.groups}

    @cached_property
    def _clique_pattern(self) -> re.Pattern[str]:
        alone = "|".join(re.escape(clique.name) for clique in self.standalone) or "(?!)"
        members = "|".join(
            f"{re.escape(group)}-(?:0|[1-9][0-9]*)-{re.escape(clique)}" for clique, group in self.group_of.items()
        )
        return re.compile(f"{re.escape(self.workload.name)}-(0|[1-9][0-9]*)-(?:({alone})|({members or '(?!)'}))")

    def find_position(self, name: str) -> PodCliquePosition | None:
        """Return where a PodClique of this name belongs; None if no PodClique of this workload has such a name."""
        match = self._clique_pattern.fullmatch(name)
        if match is None:
            return None
        if match[2] is not None:
            return PodCliquePosition(int(match[1]), "", -1, match[2])
        for clique, group in self.group_of.items():
            inner = re.fullmatch(f"{re.escape(group)}-([0-9]+)-{re.escape(clique)}", match[3])
            if inner is not None:
                return PodCliquePosition(int(match[1]), group, int(inner[1]), clique)
        return None

    def list_clique_names(self, index: int) -> list[str]:
        """Return the names of the PodCliques in no scaling group of a replica of the set."""
        return [f"{self.prefixes[index]}-{template.name}" for template in self.standalone]

    # Views of observed objects, and of objects that do not exist yet.

    def make_replica_view(self, index: int, found: ObjectIndex = EMPTY_INDEX) -> ReplicaView:
        """Return a replica of the set."""
        prefix = self.prefixes[index]
        cliques = []
        for template in self.standalone:
            name = f"{prefix}-{template.name}"
            cliques.append(self.make_clique_view(name, template, found.cliques.get(name), found.pods.get(name, ())))
        groups = self._make_group_views(prefix, found) if self.groups else ()
        scaled_gangs = found.scaled_gangs.get(index, _NO_GANGS)
        # fmt: off
        return make_replica_view(
            prefix, index, found.services.get(index), tuple(cliques), groups, found.base_gangs.get(index), scaled_gangs,
        )
        # fmt: on

    def _make_group_views(self, prefix: str, found: ObjectIndex) -> tuple[GroupView, ...]:
        return tuple(
            [self._make_group_view(f"{prefix}-{template.name}", template, found) for template in self.workload.groups]
        )

    def _make_group_view(self, name: str, template: GroupTemplate, found: ObjectIndex) -> GroupView:
        indices = sorted(found.group_replicas.get(name, ()))
        replicas = {index: self.make_group_replica_view(name, template, index, found) for index in indices}
        group = found.groups.get(name)
        is_updating = group is not None and self.is_updating(group)
        return make_group_view(name, template, group, replicas, is_updating=is_updating)

    def make_group_replica_view(
        self, group: str, template: GroupTemplate, index: int, found: ObjectIndex = EMPTY_INDEX
    ) -> GroupReplicaView:
        """Return a replica of a group (by its full name) with all its cliques, whether they exist or not."""
        part = f"{group}-{index}"
        views = []
        for clique in template.clique_names:
            name = f"{part}-{clique}"
            pods = found.pods.get(name, ())
            views.append(self.make_clique_view(name, self.cliques[clique], found.cliques.get(name), pods))
        return make_group_replica_view(part, index, tuple(views))

    def make_clique_view(
        self, name: str, template: CliqueTemplate, clique: Clique | None, pods: Sequence[Pod]
    ) -> CliqueView:
        """Return a clique with its pods counted."""
        current = self.hashes[template.name]
        live = pods
        available = scheduled = gated = outdated = 0
        for pod in pods:
            # The same as `Pod.is_live`, without a call for each of thousands of pods.
            if pod.leaving or pod.phase in TERMINAL_PHASES:
                live = ()
                continue
            if pod.ready:
                available += 1
            if pod.node:
                scheduled += 1
            if pod.gated:
                gated += 1
            if pod.template_hash != current:
                outdated += 1
        if pods and not live:
            live = [pod for pod in pods if not pod.leaving and pod.phase not in TERMINAL_PHASES]
        wanted, is_live, is_updating = template.replicas, False, False
        if clique is not None:
            # A scale by mistake must not create more pods than a cluster can hold.
            wanted = clique.replicas if clique.replicas < MAX_PODS else MAX_PODS
            is_live, is_updating = not clique.leaving, self.is_updating(clique)
        needed = compute_min_available(template, clique)
        is_available = is_live and available >= needed
        highest = -1
        if (
            live
            and live[-1].index >= wanted
            and clique is not None
            and self._is_rolled_pod_by_pod(clique, current, is_updating)
        ):
            highest = live[-1].index
        is_done = (
            clique is not None
            and is_live
            and clique.template_hash == current
            and is_complete(len(live), available, outdated, wanted, highest)
        )
        # Positional: keywords take more than twice as long.
        # fmt: off
        return CliqueView(
            name, template, current, clique, is_live, wanted, needed,
            pods, live, available, scheduled, gated, outdated,
            is_updating, is_available, is_done,
        )
        # fmt: on

    def _is_rolled_pod_by_pod(self, clique: Clique, current: str, is_updating: bool) -> bool:
        """Whether the pods of a clique are updated one by one, so that its surge must still be deleted.

        They are if the update of the clique is open, or if the clique was last complete with another template: the
        status write that opened its update may have been lost. While no update of the set is under way, nothing closes
        a gap in the indices, and `status` reports the clique as complete. A replica that is replaced whole has no surge
        inside, and OnDelete rolls nothing.
        """
        if self.replaces_whole or self.is_on_delete:
            return False
        return is_updating or clique.status.get("currentPodTemplateHash") not in (None, current)

    def is_updating(self, component: Clique | Group) -> bool:
        """Whether the update of a component to the current templates has begun and not ended."""
        progress = component.status.get("updateProgress")
        if not progress or progress.get("updateEndedAt"):
            return False
        return bool(progress.get("podCliqueSetGenerationHash") == self.generation_hash)
