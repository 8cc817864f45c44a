"""Plans how the controller takes over the objects of Grove's own operator: by labels, finalizers and hashes only.

`services.takeover` lists the objects of a workload before it, and applies the patches in the order of the plan after
it. No pod is replaced, and no pass uses this module.

Grove's objects differ from ours:

    hashes       Grove computes another template hash. A PodClique that wants the current template gets our hash, and so
                 do its pods with the hash that it wants: they are current and stay.
    gangs        Grove's PodGangs have no label for their replica of the set. Their names tell it.
    finalizers   Grove's finalizers stay on its objects, and no controller is left to remove them. The takeover does.

The invariants: pods are patched before their PodClique, and the set is patched last. Until the finalizer of the set is
removed, no controller acts on the set. A takeover that was cut short can be repeated: pods are matched with their
PodClique again, and objects that are ours already need no patch.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rollouts.engine.model import names
from rollouts.engine.model.actions import Kind
from rollouts.engine.model.hashing import compute_template_hash
from rollouts.engine.model.observed import TERMINAL_PHASES
from rollouts.engine.model.workload import Workload
from rollouts.engine.tree.layout import Layout, PodCliquePosition, make_layout

Manifest = dict[str, Any]

GROVE_FINALIZERS: Final = frozenset(
    {
        "grove.io/podcliqueset.grove.io",
        "grove.io/podclique.grove.io",
        "grove.io/podcliquescalinggroup.grove.io",
    }
)
# The time, on everything that a takeover changes. It makes us the last writer of an object that needs no other change.
TAKEN_OVER_AT: Final = "grove-ui.io/taken-over-at"


# Pods before their PodCliques: by the label of its PodClique a pod is known to be current.
_ORDER: Final = (Kind.POD, Kind.CLIQUE, Kind.GROUP, Kind.GANG, Kind.SERVICE)


@dataclass(frozen=True, slots=True)
class WorkloadObjects:
    """The objects that carry a workload's label, as the API has them."""

    groups: Sequence[Manifest] = ()
    cliques: Sequence[Manifest] = ()
    gangs: Sequence[Manifest] = ()
    services: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()


@dataclass(frozen=True, slots=True)
class Adoption:
    """The change of one object."""

    kind: Kind
    name: str
    uid: str
    resource_version: str
    patch: Mapping[str, Any]  # a merge patch of its metadata, without the preconditions
    before: Mapping[str, Any]  # the changed fields before the patch
    after: Mapping[str, Any]  # the changed fields after it


@dataclass(frozen=True, slots=True)
class SkippedObject:
    """An object that carries the workload's label and is not taken over."""

    kind: Kind
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """How a workload is taken over, in this order: its objects, its status, the set."""

    adoptions: tuple[Adoption, ...]
    status: Mapping[str, Any] | None  # of the set; None: no change
    set_adoption: Adoption | None  # None: no change
    skipped: tuple[SkippedObject, ...]
    pods: int  # how many pods keep running
    outdated: tuple[str, ...]  # pods of another template, which an update replaces afterwards


@dataclass(slots=True)
class _AdoptionPlanBuilder:
    """A plan in the making."""

    at: str
    is_foreign: Callable[[Manifest], bool]
    adoptions: list[Adoption] = field(default_factory=list)
    skipped: list[SkippedObject] = field(default_factory=list)
    pods: int = 0
    outdated: list[str] = field(default_factory=list)


def plan_adoption(
    workload: Workload, manifest: Manifest, parts: WorkloadObjects, at: str, is_foreign: Callable[[Manifest], bool]
) -> AdoptionPlan:
    """Return how to take a workload over; `is_foreign` says whether another writer wrote an object last."""
    layout = make_layout(workload)
    builder = _AdoptionPlanBuilder(at, is_foreign)
    # An object without a controller was left behind by a set of this name; after the takeover a pass adopts it.
    owners = {"", workload.uid}
    owners.update([_uid(group) for group in parts.groups if _controller(group) in owners])
    pods = _group_by_owner(parts.pods)
    for clique in parts.cliques:
        own_pods = pods.pop(_uid(clique), [])
        position = layout.find_position(clique["metadata"]["name"])
        if position is None or _controller(clique) not in owners:
            reason = "no object of the workload has this name" if position is None else "another object controls it"
            _skip(builder, Kind.CLIQUE, [clique], reason)
            _skip(builder, Kind.POD, own_pods, f"PodClique {clique['metadata']['name']} is skipped")
        else:
            is_current = _wants_current(layout, manifest, clique, position.clique)
            _adopt_clique(builder, layout, position, clique, own_pods, is_current=is_current)
    _skip(builder, Kind.POD, (pod for rest in pods.values() for pod in rest), "no PodClique of this workload owns it")
    _adopt_owned(builder, Kind.GROUP, parts.groups, workload.uid, lambda _: {})
    _adopt_owned(builder, Kind.GANG, parts.gangs, workload.uid, lambda gang: _compute_gang_labels(layout, gang))
    _adopt_owned(
        builder, Kind.SERVICE, parts.services, workload.uid, lambda service: _compute_gang_labels(layout, service)
    )
    status = manifest.get("status") or {}
    is_ours = bool(builder.outdated) or status.get("currentGenerationHash") == layout.generation_hash
    return AdoptionPlan(
        tuple(sorted(builder.adoptions, key=lambda one: _ORDER.index(one.kind))),
        None if is_ours else {**status, "currentGenerationHash": layout.generation_hash},
        _make_adoption(builder, Kind.SET, manifest, {}),
        tuple(builder.skipped),
        builder.pods,
        tuple(builder.outdated),
    )


def _adopt_clique(
    builder: _AdoptionPlanBuilder,
    layout: Layout,
    position: PodCliquePosition,
    clique: Manifest,
    pods: Sequence[Manifest],
    *,
    is_current: bool,
) -> None:
    labels = {names.REPLICA_INDEX: str(position.replica)}
    if position.group:
        group = names.group_name(layout.workload.name, position.replica, position.group)
        labels |= {names.GROUP: group, names.GROUP_REPLICA_INDEX: str(position.group_replica)}
    ours = layout.hashes[position.clique]
    known = (ours, _labels(clique).get(names.TEMPLATE_HASH))
    for pod in pods:
        _adopt_pod(builder, pod, ours, is_current=is_current and _labels(pod).get(names.TEMPLATE_HASH) in known)
    _add_adoption(builder, Kind.CLIQUE, clique, labels | ({names.TEMPLATE_HASH: ours} if is_current else {}))


def _adopt_pod(builder: _AdoptionPlanBuilder, pod: Manifest, template_hash: str, *, is_current: bool) -> None:
    if _is_being_deleted(pod) or (pod.get("status") or {}).get("phase") in TERMINAL_PHASES:
        return
    builder.pods += 1
    if is_current:
        adoption = _make_adoption(builder, Kind.POD, pod, {names.TEMPLATE_HASH: template_hash}, is_marked=False)
        builder.adoptions += [adoption] if adoption else []
    else:
        builder.outdated.append(pod["metadata"]["name"])


def _wants_current(layout: Layout, manifest: Manifest, clique: Manifest, template: str) -> bool:
    """Whether the pods of a PodClique should be of the current template.

    They should in a set of Grove's whose update has ended. During an update of Grove's, and in a set with our hash,
    only the pods of PodCliques that have the current template should.
    """
    if _labels(clique).get(names.TEMPLATE_HASH) == layout.hashes[template]:
        return True
    status = manifest.get("status") or {}
    progress = status.get("updateProgress") or {}
    is_theirs = status.get("currentGenerationHash") not in (None, layout.generation_hash)
    is_seen = status.get("observedGeneration") == manifest["metadata"].get("generation")
    if is_theirs and is_seen and (not progress or progress.get("updateEndedAt")):
        return True
    wanted = layout.cliques[template]
    theirs = replace(wanted, pod_spec=(clique.get("spec") or {}).get("podSpec") or {})
    priority_class = layout.workload.priority_class
    has_labels = wanted.labels.items() <= _labels(clique).items()
    return has_labels and compute_template_hash(theirs, priority_class) == layout.hashes[template]


def _compute_gang_labels(layout: Layout, obj: Manifest) -> dict[str, str] | None:
    """Return the labels for the position of a gang or a service, by its name; None if it has no position."""
    workload = layout.workload
    groups = "|".join(re.escape(group.name) for group in workload.groups) or "(?!)"
    index = "0|[1-9][0-9]*"
    found = re.fullmatch(f"{re.escape(workload.name)}-({index})(?:-(?:{groups})-(?:{index}))?", obj["metadata"]["name"])
    if found is None:
        return None
    base = names.base_gang_name(workload.name, int(found[1]))
    labels = {names.REPLICA_INDEX: found[1]}
    return labels if found[0] == base else {**labels, names.BASE_GANG: base}


def _adopt_owned(
    builder: _AdoptionPlanBuilder,
    kind: Kind,
    objects: Iterable[Manifest],
    owner: str,
    label: Callable[[Manifest], dict[str, str] | None],
) -> None:
    for obj in objects:
        labels = label(obj)
        if _controller(obj) not in {"", owner}:
            _skip(builder, kind, [obj], "another object controls it")
        elif labels is None:
            _skip(builder, kind, [obj], "no object of the workload has this name")
        else:
            _add_adoption(builder, kind, obj, labels)


def _add_adoption(builder: _AdoptionPlanBuilder, kind: Kind, obj: Manifest, labels: Mapping[str, str]) -> None:
    adoption = _make_adoption(builder, kind, obj, {} if _is_being_deleted(obj) else labels)
    if adoption is not None:
        builder.adoptions.append(adoption)


def _skip(builder: _AdoptionPlanBuilder, kind: Kind, objects: Iterable[Manifest], why: str) -> None:
    builder.skipped += [
        SkippedObject(kind, obj["metadata"]["name"], why) for obj in objects if not _is_being_deleted(obj)
    ]


def _make_adoption(
    builder: _AdoptionPlanBuilder, kind: Kind, obj: Manifest, labels: Mapping[str, str], *, is_marked: bool = True
) -> Adoption | None:
    """Return the patch that sets these labels and removes Grove's finalizers; None if nothing changes."""
    metadata = obj["metadata"]
    finalizers = list(metadata.get("finalizers") or ())
    kept = [one for one in finalizers if one not in GROVE_FINALIZERS]
    differing = {name: value for name, value in labels.items() if _labels(obj).get(name) != value}
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    if differing:
        before["labels"] = {name: _labels(obj)[name] for name in differing if name in _labels(obj)}
        after["labels"] = differing
    if kept != finalizers:
        before["finalizers"], after["finalizers"] = finalizers, kept
    if not after and not (is_marked and builder.is_foreign(obj)):
        return None
    if is_marked:
        former = (metadata.get("annotations") or {}).get(TAKEN_OVER_AT)
        before["annotations"] = {} if former is None else {TAKEN_OVER_AT: former}
        after["annotations"] = {TAKEN_OVER_AT: builder.at}
    identity = (metadata["name"], metadata["uid"], metadata["resourceVersion"])
    return Adoption(kind, *identity, patch={"metadata": after}, before={"metadata": before}, after={"metadata": after})


def _group_by_owner(pods: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for pod in pods:
        found.setdefault(_controller(pod), []).append(pod)
    return found


def _controller(obj: Manifest) -> str:
    """Return the uid of the controller of an object; empty if it has none."""
    owners: Iterator[Manifest] = (owner for owner in obj["metadata"].get("ownerReferences") or ())
    return next((str(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def _labels(obj: Manifest) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _uid(obj: Manifest) -> str:
    return str(obj["metadata"]["uid"])


def _is_being_deleted(obj: Manifest) -> bool:
    return obj["metadata"].get("deletionTimestamp") is not None
