"""Renders the changes of a command as the lines of a YAML diff, each change below its parent fields.

Before it: a service, which returns the changes with secrets masked. The parent fields, and a few fields beside the
change, come from the present manifest, which is masked here. The invariant: every line that is marked as removed or
added is a change that the service returned.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import yaml

from rollouts.engine.manifest.diff import FieldPath
from rollouts.manifests.masking import PUBLIC_READER, Reader, mask_manifest
from rollouts.services.edit import Change
from rollouts.web.revisions import DiffLine

_MAX_LINES: Final = 400
_MAX_CONTEXT_FIELDS: Final = 4
_PATH_PARTS: Final = re.compile(r"([A-Za-z0-9_-]+)|\[(\d+)\]|\[([^\]]*)\]")


def render_manifest_diff(
    changes: Sequence[Change], manifest: Mapping[str, Any], reader: Reader = PUBLIC_READER
) -> list[DiffLine]:
    """Return the lines of the diff; of a very long diff the first ones."""
    lines = list(_iter_lines(changes, mask_manifest(manifest, reader)))
    cut = [DiffLine("hunk", f"… and {len(lines) - _MAX_LINES} more lines")] if len(lines) > _MAX_LINES else []
    return [*lines[:_MAX_LINES], *cut]


def parse_field_path(field: str) -> tuple[str, FieldPath]:
    """Return the object of a field (empty: the set itself) and its path there.

    >>> parse_field_path("spec.cliques[1].annotations[example.com/owner]")
    ('', ('spec', 'cliques', 1, 'annotations', 'example.com/owner'))
    >>> parse_field_path("PodClique chat-0-web: spec.replicas")
    ('PodClique chat-0-web', ('spec', 'replicas'))
    """
    owner, _, path = field.rpartition(": ")
    found = _PATH_PARTS.finditer(path)
    return owner, tuple(int(one[2]) if one[2] else (one[1] or one[3] or "") for one in found)


def _iter_lines(changes: Sequence[Change], manifest: Any) -> Iterator[DiffLine]:
    read = [(*parse_field_path(change.field), change) for change in changes]
    shown: FieldPath = ()
    for (owner, parent), group in groupby(read, key=lambda one: (one[0], one[1][:-1])):
        if owner:
            yield DiffLine("hunk", f"  {owner}")
        yield from _parent_lines(parent, () if owner else shown, manifest)
        changed = list(group)
        for _, way, change in changed:
            yield from _changed_lines(way, change)
        if not owner:
            yield from _context_lines(parent, {way[-1] for _, way, _ in changed if way}, manifest)
        shown = () if owner else parent


def _parent_lines(parent: FieldPath, shown: FieldPath, manifest: Any) -> Iterator[DiffLine]:
    """Yield the parent fields that are not shown yet."""
    known = next((at for at, (one, other) in enumerate(zip(parent, shown, strict=False)) if one != other), None)
    first = min(len(parent), len(shown)) if known is None else known
    for depth in range(first, len(parent)):
        part = parent[depth]
        head = f"{part}:" if isinstance(part, str) else _entry_header(_value_at(manifest, parent[: depth + 1]), part)
        yield DiffLine("", f"  {'  ' * depth}{head}")


def _entry_header(entry: Any, index: int) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return f"- name: {name}" if name else f"- # {index}"


def _changed_lines(way: FieldPath, change: Change) -> Iterator[DiffLine]:
    for mark, kind, value in (("-", "removed", change.before), ("+", "added", change.after)):
        if value is not None:
            for line in _yaml_lines(way[-1] if way else "", value):
                yield DiffLine(kind, f"{mark} {'  ' * max(0, len(way) - 1)}{line}")


def _context_lines(parent: FieldPath, changed: set[str | int], manifest: Any) -> Iterator[DiffLine]:
    """Yield the plain fields beside a change if they are few, as context."""
    owner = _value_at(manifest, parent)
    fields = owner if isinstance(owner, Mapping) else {}
    plain = {
        name: value
        for name, value in fields.items()
        if name not in changed and name != "name" and not isinstance(value, Mapping | list)
    }
    for name, value in plain.items() if len(plain) <= _MAX_CONTEXT_FIELDS else ():
        for line in _yaml_lines(name, value):
            yield DiffLine("", f"  {'  ' * len(parent)}{line}")


def _value_at(value: Any, way: FieldPath) -> Any:
    for part in way:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def _yaml_lines(name: str | int, value: Any) -> list[str]:
    data = [value] if isinstance(name, int) else {name: value}
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)
    return text.splitlines()
