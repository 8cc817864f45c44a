"""Change images: one field for each container, and how many pods of each clique would be replaced.

The form keeps what each field showed at first, and sends only the fields that the user changed. So after a conflict
with another change of images, sending the form again does not revert that change.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.http import QueryDict

from rollouts.accounts.commands import Command
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.edits import ImageEdit, InvalidEdit
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.manifests.masking import MARK
from rollouts.selectors.revisions import mask_image, revision_list
from rollouts.services import workloads
from rollouts.services.changes import WorkloadChange
from rollouts.services.edit import EditResult
from rollouts.services.workload_client import invalid_command
from rollouts.web.commands.forms import EditForm
from rollouts.web.commands.pod_counts import count_pods_by_clique
from rollouts.web.workload import WorkloadContext

# Names of cliques and containers have no underscores.
_IMAGE_PREFIX: Final = "image_"
_FORMER_PREFIX: Final = "was_"
_MASKED_SENTENCE: Final = "a part of this image is masked; write the whole image"
_KINDS: Final = (("initContainers", "init container"), ("containers", ""))


@dataclass(frozen=True, slots=True)
class ImageField:
    """The field of one container."""

    clique: str
    container: str
    kind: str  # in words; empty for an ordinary container
    name: str  # of the field
    current: str  # the present image, masked
    former: str  # the image when the form was opened
    value: str  # the text in the field

    @property
    def repository(self) -> str:
        """The image without its tag."""
        return repository_of(self.current)


@dataclass(frozen=True, slots=True)
class CliqueFields:
    """The fields of one clique."""

    name: str
    group: str  # its scaling group; empty: none
    pods: int
    fields: tuple[ImageField, ...]
    former_images: tuple[str, ...]  # images that its containers had under earlier revisions


class ImagesForm(EditForm):
    """The form has every container of every clique."""

    name, title, submit_label, command = "images", "Change images", "Change the images", Command.SET_IMAGES
    oob_template = "commands/_replaced_counts.html"
    unchanged_text = "Change an image to see what it would do."

    def field_context(self, context: WorkloadContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show the cliques with the images of their containers."""
        cliques = _list_cliques(context, given)
        fields = [field for clique in cliques for field in clique.fields]
        return {
            "cliques": cliques,
            "fields": [field.name for field in fields],
            "shared": _shared_repositories(fields),
        }

    def parse_change(self, context: WorkloadContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the images that were changed in the form."""
        images = _parse_images(given)
        hidden = [
            Finding(_field_name(one), FindingCode.UNKNOWN_VALUE, _MASKED_SENTENCE)
            for one in images
            if MARK.search(one.image)
        ]
        if hidden:
            raise invalid_command(hidden)
        tried = edits.set_images(context.snapshot.mirrored.manifest, images)
        if isinstance(tried, InvalidEdit):
            raise invalid_command([_finding_for_field(finding, images) for finding in tried.findings])
        return workloads.set_images(images)

    def find_field(self, context: WorkloadContext, finding: Finding) -> str:
        """Return the field of a finding; findings about the manifest have none."""
        return finding.field if finding.field.startswith(_IMAGE_PREFIX) else ""

    def success_message(self, changed: EditResult) -> str:
        """Return the new images."""
        images = [str(change.after) for change in changed.changes if change.field.endswith(".image")]
        names = ", ".join(dict.fromkeys(images))
        return f"Changed to {names}: the update strategy decides when pods are replaced."


# ---- the fields


def _list_cliques(context: WorkloadContext, given: QueryDict | None) -> list[CliqueFields]:
    workload = context.snapshot.workload
    if workload is None:
        return []
    group_of = {name: group.name for group in workload.groups for name in group.clique_names}
    pods, former = count_pods_by_clique(context.tree), _former_images(context)
    return [
        CliqueFields(
            name=clique.name,
            group=group_of.get(clique.name, ""),
            pods=pods.get(clique.name, 0),
            fields=tuple(_list_fields(clique.name, clique.pod_spec, given)),
            former_images=former.get(clique.name, ()),
        )
        for clique in workload.cliques
    ]


def _list_fields(clique: str, pod_spec: Mapping[str, Any], given: QueryDict | None) -> Iterator[ImageField]:
    for key, kind in _KINDS:
        for container in pod_spec.get(key) or ():
            name, now = str(container.get("name") or ""), mask_image(str(container.get("image") or ""))
            field = f"{_IMAGE_PREFIX}{clique}_{name}"
            was, value = (now, now) if given is None else _parse_field(given, field, now)
            yield ImageField(clique, name, kind, field, now, was, value)


def _parse_field(given: QueryDict, field: str, now: str) -> tuple[str, str]:
    """Return what a field showed at first and shows now; a field without a change shows the present image."""
    was, value = given.get(f"{_FORMER_PREFIX}{field}", now), given.get(field, now).strip()
    return (now, now) if value == was else (was, value)


def _former_images(context: WorkloadContext) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for revision in revision_list(context.ref):
        for clique in revision.cliques:
            found.setdefault(clique.name, {}).update(dict.fromkeys(clique.images))
    return {name: tuple(images) for name, images in found.items()}


def _shared_repositories(fields: Sequence[ImageField]) -> list[tuple[str, int]]:
    """Return the repositories of several images, with the number of images."""
    counts: dict[str, int] = {}
    for field in fields:
        counts[field.repository] = counts.get(field.repository, 0) + 1
    return [(repository, count) for repository, count in counts.items() if count > 1 and repository]


def repository_of(image: str) -> str:
    """Return an image without its tag and digest.

    >>> repository_of("ghcr.io/example/vllm:v2"), repository_of("localhost:5000/app@sha256:0a1b"), repository_of("app")
    ('ghcr.io/example/vllm', 'localhost:5000/app', 'app')
    """
    folder, slash, name = image.partition("@")[0].rpartition("/")
    return f"{folder}{slash}{name.partition(':')[0]}"


# ---- the changes


def _parse_images(given: QueryDict) -> list[ImageEdit]:
    """Return the images that differ from what the form showed at first, in its order."""
    fields = {field: given.get(field, "").strip() for field in given if field.startswith(_IMAGE_PREFIX)}
    return [
        _make_image(field, value) for field, value in fields.items() if value != given.get(f"{_FORMER_PREFIX}{field}")
    ]


def _make_image(field: str, value: str) -> ImageEdit:
    clique, _, container = field.removeprefix(_IMAGE_PREFIX).partition("_")
    return ImageEdit(clique, value, container)


def _field_name(image: ImageEdit) -> str:
    return f"{_IMAGE_PREFIX}{image.clique}_{image.container}"


def _finding_for_field(finding: Finding, images: Sequence[ImageEdit]) -> Finding:
    """Return a finding about `images[1].image` with the field of the form."""
    index = finding.field.removeprefix("images[").partition("]")[0]
    return Finding(_field_name(images[int(index)]), finding.code, finding.message)
