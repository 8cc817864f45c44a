"""The differences between two JSON values: path, value before, value after.

The services compare an object before and after an edit, or as a page showed it and as it is now. From the differences
come the JSON patch of an edit, the fields that a version conflict names, and the audit entry of a command.

Objects are compared field by field, and lists of equal length entry by entry; a list of another length is one
difference, so that an index always means the same entry. The invariant: the JSON patch turns the first value into the
second.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")


class Absent(Enum):
    """Stands for a missing field, in contrast to null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT

FieldPath = tuple[str | int, ...]
"""The path to a value: names of fields and indices of entries."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A path at which two values differ."""

    path: FieldPath
    before: Any  # ABSENT: the field is new
    after: Any  # ABSENT: the field was removed

    @property
    def field(self) -> str:
        """The path as Kubernetes writes it."""
        return render_field_path(self.path)


def find_differences(before: Any, after: Any) -> list[Difference]:
    """Return the differences, in the order of the fields."""
    return list(_iter_differences(before, after, ()))


def make_json_patch(differences: Iterable[Difference]) -> list[dict[str, Any]]:
    """Return the operations that turn the value before into the value after."""
    return [_make_operation(difference) for difference in differences]


def render_field_path(path: FieldPath) -> str:
    """Return a path as Kubernetes writes it.

    >>> render_field_path(("spec", "cliques", 1, "annotations", "example.com/owner"))
    'spec.cliques[1].annotations[example.com/owner]'
    """
    text = ""
    for part in path:
        if isinstance(part, int) or not _PLAIN.fullmatch(part):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def _iter_differences(before: Any, after: Any, path: FieldPath) -> Iterator[Difference]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in (*before, *(name for name in after if name not in before)):
            yield from _iter_differences(before.get(name, ABSENT), after.get(name, ABSENT), (*path, name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (former, present) in enumerate(zip(before, after, strict=True)):
            yield from _iter_differences(former, present, (*path, index))
    elif not _is_same(before, after):
        yield Difference(path, before, after)


def _is_same(before: Any, after: Any) -> bool:
    # In Python True equals 1; in JSON they are two values.
    return before == after and isinstance(before, bool) == isinstance(after, bool)


def _make_operation(difference: Difference) -> dict[str, Any]:
    path = "".join(f"/{_escape(str(part))}" for part in difference.path)
    if difference.after is ABSENT:
        return {"op": "remove", "path": path}
    return {"op": "add" if difference.before is ABSENT else "replace", "path": path, "value": difference.after}


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
