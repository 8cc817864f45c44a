"""What is observed, put in its place: the replicas of a set, their cliques and scaling groups, and the pods of each.

Comes first in a plan; everything after it looks things up here instead of searching. Each object is in the tree once,
or it is a stranger: something that carries our labels and fits nowhere (an unknown clique, a name that contradicts the
labels, a second pod with one index). Strangers are reported and never touched.

A pod may outlive its PodClique by a while. It is then still in the tree, by the name of that PodClique, so that nobody
builds anew where an old pod still runs.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from rollouts.engine import names
from rollouts.engine.observed import Clique, Gang, Group, Observed, Pod, Service
from rollouts.engine.views import (
    ENDED,
    CliqueView,
    GroupReplica,
    GroupView,
    Replica,
    Tree,
    view_group,
    view_group_replica,
    view_replica,
)
from rollouts.engine.workload import CliqueTemplate, GroupTemplate, Workload

Stranger = tuple[str, str]
"""The name of an object, and why it fits nowhere."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a PodClique belongs; `group` is empty for one in no scaling group."""

    replica: int
    group: str
    group_replica: int
    clique: str


class _Found:
    """What was found of one replica, while the tree is being built."""

    __slots__ = ("cliques", "gangs", "groups", "members", "service")

    def __init__(self) -> None:
        self.service: Service | None = None
        self.gangs: dict[str, Gang] = {}
        self.groups: dict[str, Group] = {}
        self.cliques: dict[str, str] = {}  # names by template
        self.members: dict[str, dict[int, dict[str, str]]] = {}  # by group, replica, template


class Shape:
    """The cliques and groups of a workload, looked up by name; which views are built from."""

    def __init__(self, workload: Workload, hashes: Mapping[str, str], generation_hash: str = "") -> None:
        """Take the current template hash of each clique, and the hash over all of them."""
        self.workload = workload
        self.hashes = hashes
        self.generation_hash = generation_hash
        self.cliques = {clique.name: clique for clique in workload.cliques}
        self.groups = {group.name: group for group in workload.groups}
        self.group_of = {name: group.name for group in workload.groups for name in group.clique_names}
        self.standalone = tuple(clique for clique in workload.cliques if clique.name not in self.group_of)

    @cached_property
    def _clique_pattern(self) -> re.Pattern[str]:
        alone = "|".join(re.escape(clique.name) for clique in self.standalone) or "(?!)"
        members = "|".join(
            f"{re.escape(group)}-(?:0|[1-9][0-9]*)-{re.escape(clique)}" for clique, group in self.group_of.items()
        )
        return re.compile(f"{re.escape(self.workload.name)}-(0|[1-9][0-9]*)-(?:({alone})|({members or '(?!)'}))")

    def place(self, name: str) -> _Place | None:
        """Return where a PodClique of this name belongs, or None if it is none of this workload's."""
        match = self._clique_pattern.fullmatch(name)
        if match is None:
            return None
        if match[2] is not None:
            return _Place(int(match[1]), "", -1, match[2])
        for clique, group in self.group_of.items():
            inner = re.fullmatch(f"{re.escape(group)}-([0-9]+)-{re.escape(clique)}", match[3])
            if inner is not None:
                return _Place(int(match[1]), group, int(inner[1]), clique)
        return None

    def group_replica(
        self, group: str, template: GroupTemplate, index: int, found: Mapping[str, CliqueView]
    ) -> GroupReplica:
        """Return a replica of a group (by its full name) with the cliques that were found of it."""
        views = (
            found.get(clique)
            or self.clique_view(names.group_clique_name(group, index, clique), self.cliques[clique], None, ())
            for clique in template.clique_names
        )
        return view_group_replica(f"{group}-{index}", index, tuple(views))

    def replica(self, index: int) -> Replica:
        """Return a replica of the set of which nothing exists."""
        return _build_replica(self, index, _Found(), {}, {})

    def clique_view(
        self, name: str, template: CliqueTemplate, clique: Clique | None, pods: Iterable[Pod]
    ) -> CliqueView:
        """Return a clique with its pods counted."""
        current = self.hashes[template.name]
        pods = live = tuple(pods)
        available = scheduled = gated = outdated = 0
        for pod in pods:
            if pod.leaving or pod.phase in ENDED:
                live = ()
                continue
            available += pod.ready
            scheduled += pod.node != ""
            gated += pod.gated
            outdated += pod.template_hash != current
        if pods and not live:
            live = tuple([pod for pod in pods if not pod.leaving and pod.phase not in ENDED])
        wanted = template.replicas if clique is None else clique.replicas
        needed = min(template.min_available, wanted)
        is_live = clique is not None and not clique.leaving
        is_updating = clique is not None and self.is_updating(clique)
        is_available = is_live and available >= needed
        is_complete = (
            clique is not None
            and is_live
            and len(live) == available == wanted
            and not outdated
            and clique.template_hash == current
            and not (is_updating and wanted > 0 and live[-1].index >= wanted)
        )
        # By position, in the order of the fields: by name it takes more than twice as long.
        # fmt: off
        return CliqueView(
            name, template, current, clique, is_live, wanted, needed,
            pods, live, available, scheduled, gated, outdated,
            is_updating, is_available, is_complete,
        )
        # fmt: on

    def is_updating(self, component: Clique | Group) -> bool:
        """Whether the update of a component to the current templates has begun and not ended."""
        progress = component.status.get("updateProgress")
        if not progress or progress.get("updateEndedAt"):
            return False
        return bool(progress.get("podCliqueSetGenerationHash") == self.generation_hash)


def arrange(shape: Shape, observed: Observed) -> Tree:
    """Return the tree of what is observed, and who fits nowhere."""
    strangers: list[Stranger] = []
    found: defaultdict[int, _Found] = defaultdict(_Found)
    _place_shells(shape, observed, found, strangers)
    cliques = _place_cliques(shape, observed.cliques, found, strangers)
    pods = _place_pods(shape, observed.pods, cliques, found, strangers)
    replicas = {index: _build_replica(shape, index, found[index], cliques, pods) for index in sorted(found)}
    return Tree(replicas, tuple(sorted(strangers)))


def _place_shells(shape: Shape, observed: Observed, found: defaultdict[int, _Found], strangers: list[Stranger]) -> None:
    """Place what stands around the pods: services, scaling groups, gangs."""
    workload = shape.workload.name
    for service in observed.services:
        if service.replica < 0 or service.name != names.service_name(workload, service.replica):
            strangers.append((service.name, _not_called("Service", service.replica)))
        else:
            found[service.replica].service = service
    for group in observed.groups:
        if group.template not in shape.groups:
            strangers.append((group.name, f"the set has no scaling group {group.template!r}"))
        elif group.replica < 0 or group.name != names.group_name(workload, group.replica, group.template):
            strangers.append((group.name, _not_called("PodCliqueScalingGroup", group.replica)))
        else:
            found[group.replica].groups[group.template] = group
    for gang in observed.gangs:
        if gang.replica < 0 or not _is_gang_name(shape, gang):
            strangers.append((gang.name, _not_called("PodGang", gang.replica)))
        else:
            found[gang.replica].gangs[gang.name] = gang


def _is_gang_name(shape: Shape, gang: Gang) -> bool:
    base = names.base_gang_name(shape.workload.name, gang.replica)
    if gang.name == base:
        return True
    group, _, number = gang.name.removeprefix(f"{base}-").rpartition("-")
    return gang.name.startswith(f"{base}-") and group in shape.groups and number.isdecimal()


def _not_called(kind: str, replica: int) -> str:
    return f"no {kind} of replica {replica} has this name"


def _place_cliques(
    shape: Shape, cliques: Iterable[Clique], found: defaultdict[int, _Found], strangers: list[Stranger]
) -> dict[str, Clique]:
    placed: dict[str, Clique] = {}
    for clique in cliques:
        complaint = _complaint(shape, clique)
        if complaint:
            strangers.append((clique.name, complaint))
            continue
        placed[clique.name] = clique
        here = found[clique.replica]
        if not clique.group:
            here.cliques[clique.template] = clique.name
            continue
        replicas = here.members.setdefault(shape.group_of[clique.template], {})
        replicas.setdefault(clique.group_replica, {})[clique.template] = clique.name
    return placed


def _complaint(shape: Shape, clique: Clique) -> str:
    """Return why a PodClique fits nowhere; empty if it does."""
    if clique.template not in shape.cliques:
        return f"the set has no clique {clique.template!r}"
    if clique.replica < 0:
        return "it does not say of which replica of the set it is"
    group = shape.group_of.get(clique.template)
    if group is None:
        if clique.group:
            return f"the clique {clique.template} is in no scaling group"
        expected = names.clique_name(shape.workload.name, clique.replica, clique.template)
    else:
        full = names.group_name(shape.workload.name, clique.replica, group)
        if clique.group != full or clique.group_replica < 0:
            return f"the clique {clique.template} of replica {clique.replica} belongs to replicas of {full}"
        expected = names.group_clique_name(full, clique.group_replica, clique.template)
    return "" if clique.name == expected else f"by its labels it should be called {expected}"


def _place_pods(
    shape: Shape,
    pods: Iterable[Pod],
    cliques: Mapping[str, Clique],
    found: defaultdict[int, _Found],
    strangers: list[Stranger],
) -> dict[str, list[Pod]]:
    """Collect the pods of each PodClique, by index; also of those that are gone."""
    by_clique: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.name.startswith(pod.clique):
            by_clique[pod.clique].append(pod)
        else:
            strangers.append((pod.name, f"no pod of {pod.clique} has this name"))
    for name in [name for name in by_clique if name not in cliques]:
        place = shape.place(name)
        if place is None:
            strangers.extend((pod.name, f"the set has no PodClique {name!r}") for pod in by_clique.pop(name))
        elif not place.group:
            found[place.replica].cliques[place.clique] = name
        else:
            replicas = found[place.replica].members.setdefault(place.group, {})
            replicas.setdefault(place.group_replica, {})[place.clique] = name
    for name, members in by_clique.items():
        if not _is_in_order(members):
            by_clique[name] = _without_doubles(members, strangers)
    return by_clique


def _is_in_order(pods: list[Pod]) -> bool:
    """Whether each pod has an index and none has that of another; as it is nearly always."""
    last = -1
    for pod in pods:
        if pod.index <= last:
            return False
        last = pod.index
    return True


def _without_doubles(pods: list[Pod], strangers: list[Stranger]) -> list[Pod]:
    """Return the pods by index, of two that have one index only the older."""
    pods.sort(key=lambda pod: (pod.index, pod.created, pod.name))
    kept = []
    last = -1
    for pod in pods:
        if pod.index < 0:
            strangers.append((pod.name, "it has no index"))
            continue
        if not pod.leaving and pod.phase not in ENDED:
            if pod.index == last:
                strangers.append((pod.name, f"another pod of {pod.clique} has the index {pod.index} too"))
                continue
            last = pod.index
        kept.append(pod)
    return kept


def _build_replica(
    shape: Shape, index: int, found: _Found, cliques: Mapping[str, Clique], pods: Mapping[str, list[Pod]]
) -> Replica:
    workload = shape.workload.name
    standalone = []
    for template in shape.standalone:
        name = found.cliques.get(template.name) or names.clique_name(workload, index, template.name)
        standalone.append(shape.clique_view(name, template, cliques.get(name), pods.get(name, ())))
    groups = tuple(
        [_build_group(shape, index, template, found, cliques=cliques, pods=pods) for template in shape.workload.groups]
    )
    name = names.service_name(workload, index)
    return view_replica(name, index, found.service, tuple(standalone), groups=groups, gangs=found.gangs)


def _build_group(
    shape: Shape,
    index: int,
    template: GroupTemplate,
    found: _Found,
    *,
    cliques: Mapping[str, Clique],
    pods: Mapping[str, list[Pod]],
) -> GroupView:
    name = names.group_name(shape.workload.name, index, template.name)
    replicas = {}
    for part, members in sorted(found.members.get(template.name, {}).items()):
        views = {
            clique: shape.clique_view(member, shape.cliques[clique], cliques.get(member), pods.get(member, ()))
            for clique, member in members.items()
        }
        replicas[part] = shape.group_replica(name, template, part, views)
    group = found.groups.get(template.name)
    is_updating = group is not None and shape.is_updating(group)
    return view_group(name, template, group, replicas, is_updating=is_updating)
