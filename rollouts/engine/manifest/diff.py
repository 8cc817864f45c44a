"""What differs between two JSON values: where, what it was, what it is.

Before it: an object before and after an edit, or as somebody saw it and as it is by now. After it: the JSON patch that
makes the one of the other, the fields that a lost race names, and what the audit keeps of a command.

Objects are compared field by field and lists of one length entry by entry; a list that has got longer or shorter is one
difference, so that no index ever means two entries. The invariant: the operations, carried out on the first value, give
the second.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")


class Absent(Enum):
    """Nothing is written at a place; null would be something."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT

FieldPath = tuple[str | int, ...]
"""How to get to a value: names of fields and indices of entries."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A place at which two values are not the same."""

    path: FieldPath
    before: Any  # ABSENT where there was nothing
    after: Any  # ABSENT where there is nothing any more

    @property
    def field(self) -> str:
        """The place as Kubernetes writes it."""
        return render_field_path(self.path)


def find_differences(before: Any, after: Any) -> list[Difference]:
    """Return all that differs, in the order of the fields."""
    return list(_iter_differences(before, after, ()))


def make_json_patch(differences: Iterable[Difference]) -> list[dict[str, Any]]:
    """Return the operations that turn what was before into what is after."""
    return [_make_operation(difference) for difference in differences]


def render_field_path(way: FieldPath) -> str:
    """Return a way as text.

    >>> render_field_path(("spec", "cliques", 1, "annotations", "example.com/owner"))
    'spec.cliques[1].annotations[example.com/owner]'
    """
    text = ""
    for part in way:
        if isinstance(part, int) or not _PLAIN.fullmatch(part):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def _iter_differences(before: Any, after: Any, way: FieldPath) -> Iterator[Difference]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in (*before, *(name for name in after if name not in before)):
            yield from _iter_differences(before.get(name, ABSENT), after.get(name, ABSENT), (*way, name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (former, present) in enumerate(zip(before, after, strict=True)):
            yield from _iter_differences(former, present, (*way, index))
    elif not _is_same(before, after):
        yield Difference(way, before, after)


def _is_same(before: Any, after: Any) -> bool:
    # For Python true is 1; whoever reads the field sees two values.
    return before == after and isinstance(before, bool) == isinstance(after, bool)


def _make_operation(difference: Difference) -> dict[str, Any]:
    path = "".join(f"/{_escape(str(part))}" for part in difference.path)
    if difference.after is ABSENT:
        return {"op": "remove", "path": path}
    return {"op": "add" if difference.before is ABSENT else "replace", "path": path, "value": difference.after}


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
