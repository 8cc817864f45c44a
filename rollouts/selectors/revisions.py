"""Revisions: the templates that a workload has had, their images, and the diff of two of them.

A pod carries the hash of its template; this module finds its revision. Templates are masked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import yaml
from django.db.models import Exists, OuterRef

from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import NotFound
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.hashing import compute_template_hash
from rollouts.manifests.masking import Reader, mask_manifest, mask_text
from rollouts.models import Revision, Rollout
from rollouts.selectors.template_diff import render_diff
from rollouts.selectors.workload_snapshot import find_workload

# Of a diff; a longer one is cut.
MAX_DIFF_LINES: Final = 2000


@dataclass(frozen=True, slots=True)
class CliqueOfRevision:
    """The images of a clique in a revision."""

    name: str
    template_hash: str
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RevisionSummary:
    """A revision in a list."""

    number: int
    generation_hash: str
    created: datetime
    is_current: bool  # the workload has this template now
    cliques: tuple[CliqueOfRevision, ...]


@dataclass(frozen=True, slots=True)
class RevisionDetail(RevisionSummary):
    """A revision with its template."""

    template: Any  # spec.template, masked


@dataclass(frozen=True, slots=True)
class RevisionDiff:
    """The diff of two revisions."""

    before: int
    after: int
    changed_cliques: tuple[str, ...]  # cliques whose pods an update replaces
    text: str  # a unified diff of the templates as YAML, masked; each hunk names its cliques
    is_cut: bool  # whether it was cut
    is_hidden: bool  # every difference is masked for this reader


def revision_list(place: WorkloadRef) -> list[RevisionSummary]:
    """Return the revisions of a workload, the newest first; their number is limited."""
    row = find_workload(place)
    rows = Revision.objects.filter(cluster=place.cluster, workload_uid=row.uid).order_by("-number")
    return [_summary(one, row.generation_hash) for one in rows]


def revision_detail(place: WorkloadRef, number: int, reader: Reader) -> RevisionDetail:
    """Return one revision, masked for a reader; raises NotFound."""
    row = find_workload(place)
    (found,) = _find(place, row.uid, [number])
    summary = _summary(found, row.generation_hash)
    return RevisionDetail(
        summary.number,
        summary.generation_hash,
        summary.created,
        summary.is_current,
        summary.cliques,
        mask_manifest(found.template, reader),
    )


def revision_diff(place: WorkloadRef, before: int | None, after: int, reader: Reader) -> RevisionDiff:
    """Return the diff of two revisions, masked for a reader; raises NotFound.

    Without a first revision, it is compared with the newest other one: what a rollback would change, or for the newest
    revision, what it has changed.
    """
    row = find_workload(place)
    if before is None:
        others = Revision.objects.filter(cluster=place.cluster, workload_uid=row.uid).exclude(number=after)
        before = others.order_by("-number").values_list("number", flat=True).first() or after
    one, other = _find(place, row.uid, [before, after])
    old_hashes, new_hashes = _hashes_of(one), _hashes_of(other)
    names = {**old_hashes, **new_hashes}
    changed = [name for name in names if old_hashes.get(name) != new_hashes.get(name)]
    old, new = (_render(revision.template, reader).splitlines() for revision in (one, other))
    shown = list(render_diff(old, new, (f"revision {before}", f"revision {after}")))
    text, is_cut = "\n".join(shown[:MAX_DIFF_LINES]), len(shown) > MAX_DIFF_LINES
    return RevisionDiff(
        before, after, tuple(changed), text, is_cut, is_hidden=not shown and one.template != other.template
    )


def find_previous(cluster: str, uid: str, current: str) -> Revision | None:
    """Return the revision to roll back to from the current generation hash: the newest other one.

    Revisions with a completed rollout come first, because one that was superseded may fail as the current one does.
    """
    done = Rollout.objects.filter(cluster=cluster, workload_uid=uid, outcome=Rollout.Outcome.COMPLETE)
    others = Revision.objects.filter(cluster=cluster, workload_uid=uid).exclude(generation_hash=current)
    is_proven = Exists(done.filter(to_hash=OuterRef("generation_hash")))
    return others.annotate(is_proven=is_proven).order_by("-is_proven", "-number").first()


def _find(place: WorkloadRef, uid: str, numbers: Sequence[int]) -> list[Revision]:
    rows = Revision.objects.filter(cluster=place.cluster, workload_uid=uid, number__in=numbers)
    found = {row.number: row for row in rows}
    for number in numbers:
        if number not in found:
            raise NotFound(f"{place.name} has no revision {number}; the oldest revisions are deleted after a while.")
    return [found[number] for number in numbers]


def _render(template: Any, reader: Reader) -> str:
    text: str = yaml.safe_dump(
        mask_manifest(template, reader.with_copies()), sort_keys=True, allow_unicode=True, width=1000
    )
    return text


def _summary(row: Revision, current: str) -> RevisionSummary:
    hashes = _hashes_of(row)
    cliques = tuple(
        CliqueOfRevision(name, hashes.get(name, ""), images) for name, images in _images(row.template).items()
    )
    return RevisionSummary(row.number, row.generation_hash, row.created, row.generation_hash == current, cliques)


def _images(template: Any) -> dict[str, tuple[str, ...]]:
    cliques = template.get("cliques") if isinstance(template, Mapping) else None
    return {str(clique.get("name")): images_of(clique.get("spec")) for clique in _mappings(cliques)}


def images_of(clique_spec: Any) -> tuple[str, ...]:
    """Return the masked images of the containers of a clique, in their order."""
    pod = clique_spec.get("podSpec") if isinstance(clique_spec, Mapping) else None
    containers = pod.get("containers") if isinstance(pod, Mapping) else None
    return tuple(mask_image(str(one.get("image") or "")) for one in _mappings(containers))


@lru_cache(maxsize=4096)
def mask_image(image: str) -> str:
    """Return an image with secrets masked: people write registry passwords into it."""
    return mask_text(image)


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


# ---- the revision of a template hash


class RevisionNumbers:
    """Finds the revisions of the pods of one workload."""

    def __init__(self, cluster: str, uid: str) -> None:
        """Read the revisions with one query, and another one for revisions that are new to this process."""
        rows = Revision.objects.filter(cluster=cluster, workload_uid=uid).order_by("number")
        self._known = list(rows.values_list("id", "number", "generation_hash"))
        self._hashes = list_template_hashes([(row, generation) for row, _, generation in self._known])
        self._numbers = {
            (clique, template_hash): number
            for row, number, generation in self._known
            for clique, template_hash in self._hashes.get((row, generation), {}).items()
        }

    def of_template(self, clique: str, template_hash: str) -> int | None:
        """Return the newest revision in which a clique had this template; None: it is not stored."""
        return self._numbers.get((clique, template_hash))

    def of_generation(self, generation_hash: str) -> int | None:
        """Return the revision of a generation hash; None: it is not stored."""
        return next((number for _, number, known in self._known if known == generation_hash), None)


def list_template_hashes(keys: Iterable[tuple[int, str]]) -> Mapping[tuple[int, str], Mapping[str, str]]:
    """Return the template hashes of revisions, which never change, so a process reads each revision once."""
    wanted = list(keys)
    missing = [row for row, generation in wanted if (row, generation) not in _HASHES]
    if missing:
        if len(_HASHES) > _MAX_CACHED:
            _HASHES.clear()
        for revision in Revision.objects.filter(id__in=missing):
            _HASHES[revision.pk, revision.generation_hash] = _hashes_of(revision)
    return {key: _HASHES[key] for key in wanted if key in _HASHES}


_MAX_CACHED: Final = 20_000
_HASHES: Final[dict[tuple[int, str], Mapping[str, str]]] = {}


def _hashes_of(revision: Revision) -> Mapping[str, str]:
    """Return the template hash of each clique of a revision; empty for a template that cannot be parsed."""
    manifest = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": revision.name, "namespace": revision.namespace},
        "spec": {"replicas": 1, "template": revision.template},
    }
    workload = parse_workload(manifest)
    if isinstance(workload, ParseFailure):
        return {}
    return {clique.name: compute_template_hash(clique, workload.priority_class) for clique in workload.cliques}
