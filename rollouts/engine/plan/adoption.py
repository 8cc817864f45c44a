"""What makes the objects of Grove's own operator ours: labels, finalizers and hashes, and no pod replaced.

Before it: `services.takeover`, which lists the objects of a workload as they are now. After it: the same service, which
sends the patches in the order of the plan. Nothing else of a pass looks at this.

What stands between Grove's objects and ours:

    hashes       Grove's template hash is another function. A PodClique that wants the current template, and its pods
                 that are labelled as the PodClique wants, get our hash: they are current, and stay.
    gangs        Grove's PodGangs do not say which replica of the set they belong to. Their names do.
    finalizers   Grove's own stay on its objects, and nobody is left to remove them. They go.

The invariants: pods come before their PodClique and the set comes last. Until its finalizer goes nobody acts on the
set, and a takeover that was cut off half-way is finished by another one: what is labelled as its PodClique wants is
found again, and what is ours already needs nothing.
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
# On everything that a takeover changes: when. It makes us the last who wrote the object, whatever else was changed.
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
    before: Mapping[str, Any]  # what the patch changes, as it is
    after: Mapping[str, Any]  # and as it will be


@dataclass(frozen=True, slots=True)
class SkippedObject:
    """An object that carries the workload's label and is not taken over."""

    kind: Kind
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """How a workload is taken over, in the order in which it is done: its parts, its status, the set."""

    adoptions: tuple[Adoption, ...]
    status: Mapping[str, Any] | None  # of the set; None: as it is
    set_adoption: Adoption | None  # None: it needs no change
    skipped: tuple[SkippedObject, ...]
    pods: int  # that stay as they are
    outdated: tuple[str, ...]  # pods of another template: an update replaces them afterwards, whoever does it


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
    """Return how to take a workload over; `is_foreign` says whether somebody else wrote an object last."""
    layout = make_layout(workload)
    builder = _AdoptionPlanBuilder(at, is_foreign)
    # What nothing controls was left behind by a set of this name: once it is taken over, a pass adopts it.
    owners = {"", workload.uid}
    owners.update([_uid(group) for group in parts.groups if _controller(group) in owners])
    pods = _group_by_owner(parts.pods)
    for clique in parts.cliques:
        own_pods = pods.pop(_uid(clique), [])
        place = layout.find_position(clique["metadata"]["name"])
        if place is None or _controller(clique) not in owners:
            reason = "its name fits nowhere in the workload" if place is None else "another object controls it"
            _skip(builder, Kind.CLIQUE, [clique], reason)
            _skip(builder, Kind.POD, own_pods, f"PodClique {clique['metadata']['name']} is left alone")
        else:
            is_current = _wants_current(layout, manifest, clique, place.clique)
            _adopt_clique(builder, layout, place, clique, own_pods, is_current=is_current)
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
    place: PodCliquePosition,
    clique: Manifest,
    pods: Sequence[Manifest],
    *,
    is_current: bool,
) -> None:
    labels = {names.REPLICA_INDEX: str(place.replica)}
    if place.group:
        group = names.group_name(layout.workload.name, place.replica, place.group)
        labels |= {names.GROUP: group, names.GROUP_REPLICA_INDEX: str(place.group_replica)}
    ours = layout.hashes[place.clique]
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
    """Return whether the pods of a PodClique are to be of the current template.

    They are where a set of Grove's has come to rest; halfway through an update of Grove's only those whose PodClique
    has the current template already. A set with our hash is ours: there every PodClique is judged by itself.
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
    """Return the labels that say where a gang or a service belongs, by its name; None: nowhere."""
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
            _skip(builder, kind, [obj], "its name fits nowhere in the workload")
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
    """Return the change that gives an object these labels and takes Grove's finalizers off; None: nothing to change."""
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
    """Return the uid of the controller among an object's owners; empty: nobody controls it."""
    owners: Iterator[Manifest] = (owner for owner in obj["metadata"].get("ownerReferences") or ())
    return next((str(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def _labels(obj: Manifest) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _uid(obj: Manifest) -> str:
    return str(obj["metadata"]["uid"])


def _is_being_deleted(obj: Manifest) -> bool:
    return obj["metadata"].get("deletionTimestamp") is not None
