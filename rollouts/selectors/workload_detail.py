"""One workload in full: its components, its conditions and the progress of its update."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

from rollouts.accounts.commands import WorkloadRef
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.manifest.validation import find_unsupported
from rollouts.engine.model.times import parse_time
from rollouts.engine.model.workload import Workload
from rollouts.manifests.masking import mask_manifest
from rollouts.selectors.revisions import RevisionNumbers, images_of
from rollouts.selectors.rollouts import RolloutSummary, newest_rollout
from rollouts.selectors.set_conditions import ConditionNote, list_conditions
from rollouts.selectors.timestamps import to_datetime_or_none
from rollouts.selectors.workload_snapshot import find_workload
from rollouts.selectors.workloads import WorkloadSummary, workload_summary


@dataclass(frozen=True, slots=True)
class Component:
    """A clique or a scaling group of the template."""

    name: str
    kind: Literal["clique", "group"]
    group: str  # the scaling group of a clique; empty: none
    replicas: int
    min_available: int
    role: str
    images: tuple[str, ...]
    cliques: tuple[str, ...]  # of a scaling group


@dataclass(frozen=True, slots=True)
class UpdatingReplica:
    """A replica of the set that is being updated."""

    index: int
    since: datetime | None


@dataclass(frozen=True, slots=True)
class UpdateProgress:
    """The progress of the update, from the status of the set."""

    started: datetime | None
    ended: datetime | None
    updated_cliques: int
    total_cliques: int
    updated_groups: int
    total_groups: int
    updating: tuple[UpdatingReplica, ...]


@dataclass(frozen=True, slots=True)
class WorkloadDetail(WorkloadSummary):
    """A workload in full."""

    generation: int
    observed_generation: int  # the last generation that the controller has reconciled
    annotations: Mapping[str, str]  # masked
    revision: int | None  # of its current template; None: not stored yet
    conditions: tuple[ConditionNote, ...]
    progress: UpdateProgress | None  # None: it was never updated
    components: tuple[Component, ...]
    rollout: RolloutSummary | None  # the newest
    findings: tuple[Finding, ...]  # why the manifest is not valid
    unsupported: tuple[Finding, ...]  # fields of its manifest that have no effect
    cluster_trouble: str  # why the data may be old; empty: no problem


def workload_detail(place: WorkloadRef) -> WorkloadDetail:
    """Return a workload in full; raises NotFound."""
    row = find_workload(place)
    summary = workload_summary(place)
    parsed = parse_workload(row.manifest)
    metadata, status = _mapping(row.manifest.get("metadata")), _mapping(row.manifest.get("status"))
    numbers = RevisionNumbers(place.cluster, row.uid)
    return WorkloadDetail(
        **{field.name: getattr(summary, field.name) for field in fields(WorkloadSummary)},
        generation=row.generation,
        observed_generation=row.observed_generation,
        annotations=mask_manifest({"annotations": _mapping(metadata.get("annotations"))})["annotations"],
        revision=numbers.of_generation(row.generation_hash),
        conditions=list_conditions(row.manifest),
        progress=_progress(status.get("updateProgress")),
        components=() if isinstance(parsed, ParseFailure) else tuple(_components(parsed)),
        rollout=newest_rollout(place, row.uid, numbers),
        findings=parsed.findings if isinstance(parsed, ParseFailure) else (),
        unsupported=find_unsupported(row.manifest),
        cluster_trouble=row.cluster.trouble,
    )


def _progress(progress: Any) -> UpdateProgress | None:
    if not isinstance(progress, dict):
        return None
    return UpdateProgress(
        started=_moment(progress.get("updateStartedAt")),
        ended=_moment(progress.get("updateEndedAt")),
        updated_cliques=_number(progress.get("updatedPodCliquesCount")),
        total_cliques=_number(progress.get("totalPodCliquesCount")),
        updated_groups=_number(progress.get("updatedPodCliqueScalingGroupsCount")),
        total_groups=_number(progress.get("totalPodCliqueScalingGroupsCount")),
        updating=tuple(
            UpdatingReplica(_number(entry.get("replicaIndex")), _moment(entry.get("updateStartedAt")))
            for entry in _mappings(progress.get("updatingReplicas"))
        ),
    )


def _components(workload: Workload) -> Iterator[Component]:
    group_of = {name: group.name for group in workload.groups for name in group.clique_names}
    for clique in workload.cliques:
        yield Component(
            name=clique.name,
            kind="clique",
            group=group_of.get(clique.name, ""),
            replicas=clique.replicas,
            min_available=clique.min_available,
            role=clique.role_name,
            images=images_of({"podSpec": clique.pod_spec}),
            cliques=(),
        )
    for group in workload.groups:
        yield Component(
            name=group.name,
            kind="group",
            group="",
            replicas=group.replicas,
            min_available=group.min_available,
            role="",
            images=(),
            cliques=group.clique_names,
        )


def _moment(text: Any) -> datetime | None:
    return to_datetime_or_none(parse_time(text))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
