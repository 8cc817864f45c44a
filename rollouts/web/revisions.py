"""Revisions as text: a short description of the change of each, and the lines of a diff.

Takes `selectors.revisions`; the page of one revision is here too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.permissions import find_refusal
from rollouts.selectors.revisions import RevisionSummary, revision_detail, revision_diff, revision_list
from rollouts.services.audit import Source, caller_of, reader_for
from rollouts.web.manifests import render_yaml
from rollouts.web.page_layout import viewer_required


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A row of the card."""

    number: int
    generation_hash: str
    template_age: str  # current, previous or older
    revision: RevisionSummary
    change: str  # a short description of the change


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff."""

    kind: str  # added, removed, hunk or empty
    text: str


def make_revision_rows(revisions: Sequence[RevisionSummary]) -> list[RevisionRow]:
    """Return the revisions, newest first, each with its change."""
    others = [one.number for one in revisions if not one.is_current]
    lines = []
    for place, one in enumerate(revisions):
        before = revisions[place + 1] if place + 1 < len(revisions) else None
        age = "current" if one.is_current else "previous" if one.number == max(others) else "older"
        lines.append(RevisionRow(one.number, one.generation_hash, age, one, _describe_change(before, one)))
    return lines


def _describe_change(before: RevisionSummary | None, after: RevisionSummary) -> str:
    if before is None:
        return ", ".join(dict.fromkeys(_short_image(image) for clique in after.cliques for image in clique.images))
    images = {clique.name: clique.images for clique in before.cliques}
    changes = [
        change for clique in after.cliques for change in _image_changes(images.get(clique.name, ()), clique.images)
    ]
    if changes:
        return ", ".join(dict.fromkeys(changes))
    hashes = {clique.name: clique.template_hash for clique in before.cliques}
    names = [clique.name for clique in after.cliques if hashes.get(clique.name) != clique.template_hash]
    gone = [name for name in hashes if name not in {clique.name for clique in after.cliques}]
    words = [f"other changes in {', '.join(names)}"] if names else []
    return ", ".join([*words, *(f"without {name}" for name in gone)]) or "changes that affect no pod"


def _image_changes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    for old, new in zip(before, after, strict=False):
        if old != new:
            name, _, old_tag = _short_image(old).rpartition(":")
            other, _, new_tag = _short_image(new).rpartition(":")
            yield (
                f"{name} {old_tag} → {new_tag}"
                if name and name == other
                else f"{_short_image(old)} → {_short_image(new)}"
            )


def _short_image(image: str) -> str:
    """Return an image without registry and path."""
    return image.rpartition("/")[2]


def parse_diff(text: str) -> list[DiffLine]:
    """Return the lines of a unified diff without its two header lines."""
    kinds = {"+": "added", "-": "removed", "@": "hunk"}
    return [DiffLine(kinds.get(line[:1], ""), line) for line in text.splitlines()[2:]]


@require_safe
@viewer_required
def page(request: HttpRequest, cluster: str, namespace: str, name: str, number: int) -> HttpResponse:
    """Show a revision and its difference from another one: that of `?from=`, else the current one."""
    place = WorkloadRef(cluster, namespace, name)
    reader = reader_for(caller_of(request, Source.PAGE), place)
    revision = revision_detail(place, number, reader)
    revisions = revision_list(place)
    before = _requested_revision(request.GET.get("from", ""), revisions) or choose_base_revision(revisions, number)
    diff = revision_diff(place, before, number, reader) if before else None
    context: dict[str, Any] = {
        "place": place,
        "revision": revision,
        "revisions": revisions,
        "before": before,
        "diff": diff,
        "lines": parse_diff(diff.text) if diff else [],
        "template": render_yaml(revision.template),
        "refusal": find_refusal(request.user, Command.ROLL_BACK_WORKLOAD, cluster, namespace),
    }
    return render(request, "workload/revision.html", context)


def _requested_revision(given: str, revisions: Sequence[RevisionSummary]) -> int | None:
    return next((one.number for one in revisions if str(one.number) == given), None)


def choose_base_revision(revisions: Sequence[RevisionSummary], number: int) -> int | None:
    """Return the revision to compare with: the current one, or for that one the newest other."""
    others = [one for one in revisions if one.number != number]
    current = next((one for one in others if one.is_current), None)
    chosen = current or next(iter(others), None)
    return None if chosen is None else chosen.number
