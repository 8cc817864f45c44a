"""The objects of a namespace at one time, as any client can read them from the API.

The witness returns a scene for now and for each version of the past. This module converts raw objects into the values
that the engine's tests count with (`tests.engine.simulated.View`), which use the rules of `docs/semantics.md` and
nothing of the planner, the mirror or the database: the tests check only what the cluster shows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from rollouts.cluster import Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODCLIQUESETS, PODGANGS, PODS, SERVICES
from rollouts.engine.manifest.parsing import parse_workload
from rollouts.engine.model import names
from rollouts.engine.model.observed import Clique, Observed, Pod
from rollouts.engine.model.workload import Workload
from rollouts.engine.simulation import objects as objects_module
from tests.engine.chance import Count, counts
from tests.engine.simulated import View

WATCHED = (PODCLIQUESETS, PODCLIQUESCALINGGROUPS, PODCLIQUES, PODS, PODGANGS, SERVICES)
Tables = Mapping[Resource, Mapping[str, Obj]]


@dataclass(frozen=True, slots=True)
class Unit:
    """A pod, a replica of a scaling group or a replica of the set that exists and does not terminate."""

    index: int
    identity: frozenset[str]  # uids of what it consists of
    outdated: bool
    available: bool
    surge: bool

    def __str__(self) -> str:
        return f"{self.index}{'s' if self.surge else ''}"


@dataclass(frozen=True, slots=True)
class Scene:
    """The objects of a namespace at one time."""

    tables: Tables

    def all(self, resource: Resource, workload: str = "") -> list[Obj]:
        """Return the objects of a kind, of one workload or of all."""
        found = self.tables.get(resource, {}).values()
        return [obj for obj in found if not workload or _labels(obj).get(names.PART_OF) == workload]

    def get(self, resource: Resource, name: str) -> Obj:
        """Return one object, which must exist."""
        return self.tables[resource][name]

    def has(self, resource: Resource, name: str) -> bool:
        """Return whether an object exists."""
        return name in self.tables.get(resource, {})

    # --- the set ---------------------------------------------------------------------------------------------

    def workload(self, name: str) -> Workload:
        """Return the set as the engine reads it."""
        obj = self.get(PODCLIQUESETS, name)
        return _parse(obj["metadata"]["uid"], obj["metadata"]["generation"], _Kept(obj))

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of the set."""
        return dict(self.get(PODCLIQUESETS, name).get("status") or {})

    def progress(self, name: str) -> dict[str, Any]:
        """Return the update progress of the set."""
        return self.status(name).get("updateProgress") or {}

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """Return a condition of the set, or an empty one."""
        return next((one for one in self.status(name).get("conditions") or () if one["type"] == kind), {})

    # --- its parts -------------------------------------------------------------------------------------------

    def pods(self, workload: str, clique: str = "") -> list[Obj]:
        """Return the pods that do not terminate, of the set or of its PodCliques with this template name."""
        return [
            pod
            for pod in self.all(PODS, workload)
            if not is_leaving(pod) and (not clique or template_of(_labels(pod)[names.CLIQUE], pod) == clique)
        ]

    def ready(self, workload: str, clique: str = "") -> list[Obj]:
        """Return the pods that are available."""
        return [pod for pod in self.pods(workload, clique) if is_ready(pod)]

    def observed(self, name: str) -> Observed:
        """Return the observed objects of the set as the engine reads them."""
        return Observed(
            status=self.status(name),
            cliques=tuple(map(_clique, self.all(PODCLIQUES, name))),
            groups=tuple(
                replace(objects_module.parse_group(obj, *_identity(obj)), leaving=is_leaving(obj))
                for obj in self.all(PODCLIQUESCALINGGROUPS, name)
            ),
            pods=tuple(map(_pod, self.all(PODS, name))),
        )

    def counts(self, name: str) -> dict[str, Count]:
        """Return how many units of each component are wanted, exist and are available."""
        return _under_own_name(name, counts(self.workload(name), self.observed(name)))

    def view(self, name: str) -> View:
        """Return the set by level."""
        return View(self.workload(name), self.observed(name))

    # --- units -----------------------------------------------------------------------------------------------

    def pod_units(self, name: str, clique: str) -> list[Unit]:
        """Return the pods of a PodClique, by its full name."""
        view = self.view(name)
        if clique not in view.cliques:
            return []
        found = view.cliques[clique]
        current = view.hashes[found.template]
        return [
            Unit(
                pod.index,
                frozenset({pod.uid}),
                pod.template_hash != current,
                pod.available,
                pod.index >= found.replicas,
            )
            for pod in view.pods[clique]
        ]

    def group_units(self, name: str, group: str) -> list[Unit]:
        """Return the replicas of a scaling group, by its full name."""
        view = self.view(name)
        if group not in view.groups:
            return []
        seen = view.groups[group]
        template = next(one for one in view.workload.groups if one.name == seen.template)
        parts = _by(lambda clique: clique.group_replica, (one for one in view.cliques.values() if one.group == group))
        return [
            Unit(
                unit.index,
                frozenset(one.uid for one in parts[unit.index]),
                unit.outdated,
                unit.available,
                unit.index >= seen.replicas,
            )
            for unit in view.group_units(group, template)
        ]

    def set_units(self, name: str) -> list[Unit]:
        """Return the replicas of the set that have any object."""
        view = self.view(name)
        parts = _by(lambda clique: clique.replica, view.cliques.values())
        found = []
        for unit in view.set_units():
            cliques = parts[unit.index]
            identity = {one.uid for one in cliques if one.group}
            identity |= {pod.uid for one in cliques for pod in view.pods[one.name]}
            if identity:
                surge = unit.index >= view.workload.replicas
                found.append(Unit(unit.index, frozenset(identity), unit.outdated, unit.available, surge))
        return found

    # --- the end ---------------------------------------------------------------------------------------------

    def is_complete(self, name: str) -> bool:
        """Return whether the set has exactly what it wants, all available, and its status says so."""
        obj = self.get(PODCLIQUESETS, name)
        status = obj.get("status") or {}
        progress = status.get("updateProgress")
        return (
            status.get("observedGeneration") == obj["metadata"]["generation"]
            and (progress is None or bool(progress.get("updateEndedAt")))
            and status.get("availableReplicas", 0) == obj["spec"].get("replicas", 0)
            # A replica counts as available with its minimum; that it is complete the controller must have reported.
            and any(one["type"] == "Progressing" and one["status"] == "False" for one in status.get("conditions") or ())
            and not self.why_not_settled(name)
        )

    def is_updated(self, name: str) -> bool:
        """Return whether the set is complete and every pod of it has the current template."""
        replicas = self.get(PODCLIQUESETS, name)["spec"].get("replicas", 0)
        return (
            self.is_complete(name)
            and not self.outdated(name)
            and not self.surge(name)
            and self.status(name).get("updatedReplicas", 0) == replicas
        )

    def outdated(self, name: str) -> list[str]:
        """Return the names of the pods that have another template than the current one."""
        view = self.view(name)
        return [
            pod.name
            for clique in view.cliques.values()
            for pod in view.pods[clique.name]
            if pod.template_hash != view.hashes[clique.template]
        ]

    def why_not_settled(self, name: str) -> str:
        """Return what is missing, surplus or changing in the set; empty when it is settled."""
        view = self.view(name)
        wanted = list(range(view.workload.replicas))
        if sorted(unit.index for unit in self.set_units(name)) != wanted:
            return f"replicas {view.set_text()}, wanted {wanted}"
        for component, count in self.counts(name).items():
            if not count.live == count.wanted == count.available:
                return f"{component}: {count.live} live, {count.available} available, {count.wanted} wanted"
        moving = [pod["metadata"]["name"] for pod in self.all(PODS, name) if is_leaving(pod) or is_gated(pod)]
        return f"on their way: {moving}" if moving else ""

    def surge(self, name: str) -> list[str]:
        """Return the pods and group replicas beyond the wanted indices: surge, or not yet scaled in."""
        view = self.view(name)
        pods = [
            pod.name
            for clique in view.cliques.values()
            for pod in view.pods[clique.name]
            if not clique.group and pod.index >= clique.replicas
        ]
        parts = [
            clique.name
            for clique in view.cliques.values()
            if clique.group and clique.group_replica >= view.groups[clique.group].replicas
        ]
        return pods + parts


def units_of(scene: Scene, name: str, component: str) -> list[Unit]:
    """Return the units of a component: of the set by its own name, else of a PodClique or scaling group."""
    if component == name:
        return scene.set_units(name)
    return scene.group_units(name, component) or scene.pod_units(name, component)


def is_leaving(obj: Obj) -> bool:
    """Return whether an object is being deleted."""
    return "deletionTimestamp" in obj["metadata"]


def is_gated(pod: Obj) -> bool:
    """Return whether a pod has the scheduling gate of its gang."""
    return any(gate["name"] == names.SCHEDULING_GATE for gate in pod["spec"].get("schedulingGates") or ())


def is_ready(pod: Obj) -> bool:
    """Return whether the Ready condition holds."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def is_placed(pod: Obj) -> bool:
    """Return whether a pod has a node."""
    return bool(pod["spec"].get("nodeName"))


def uids(objects: Iterable[Obj]) -> set[str]:
    """Return the uids of objects."""
    return {obj["metadata"]["uid"] for obj in objects}


def template_of(clique: str, obj: Obj) -> str:
    """Return the name that a PodClique has in the template, from the labels of it or of one of its pods."""
    labels = _labels(obj)
    prefix = f"{labels[names.PART_OF]}-{labels[names.REPLICA_INDEX]}-"
    if names.GROUP in labels:
        prefix = f"{labels[names.GROUP]}-{labels[names.GROUP_REPLICA_INDEX]}-"
    return clique.removeprefix(prefix)


class _Kept:
    """A manifest as a cache key: uid and generation identify it."""

    def __init__(self, obj: Obj) -> None:
        self.obj = obj

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept)


@lru_cache(maxsize=64)
def _parse(uid: str, generation: int, kept: _Kept) -> Workload:
    parsed = parse_workload(kept.obj)
    assert isinstance(parsed, Workload), parsed
    return parsed


def _labels(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def _identity(obj: Obj) -> tuple[str, str, float]:
    metadata = obj["metadata"]
    created = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
    return metadata["uid"], metadata["resourceVersion"], created


def _clique(obj: Obj) -> Clique:
    read = objects_module.parse_clique(obj, *_identity(obj))
    return replace(read, leaving=is_leaving(obj), status=obj.get("status") or {})


def _pod(obj: Obj) -> Pod:
    uid, _, created = _identity(obj)
    return replace(
        objects_module.parse_pod(obj, uid, created),
        node=obj["spec"].get("nodeName") or "",
        phase=(obj.get("status") or {}).get("phase") or "",
        ready=is_ready(obj),
        leaving=is_leaving(obj),
    )


def _by(key: Callable[[Clique], int], cliques: Iterable[Clique]) -> dict[int, list[Clique]]:
    found: dict[int, list[Clique]] = {}
    for clique in cliques:
        found.setdefault(key(clique), []).append(clique)
    return found


def _under_own_name(name: str, found: dict[str, Count]) -> dict[str, Count]:
    """Rename the set to `w`, as the engine's tests call it."""
    return {name if key == "w" else key: count for key, count in found.items()}
