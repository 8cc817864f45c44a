"""Lists in pages that show one snapshot.

All pages of a list show the objects as they were at its first page, whatever is written meanwhile. A continue token
names the revision of the snapshot and the last key of the page; the snapshots of the most recent lists are kept here as
references to the stored versions. A token whose snapshot is gone gets a 410, as from a real server.
"""

import base64
import binascii
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from rollouts.sandbox.apiserver.errors import bad_request, resource_expired
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.selectors import Predicate
from rollouts.sandbox.apiserver.storage import Storage, StoredObject

MAX_SNAPSHOTS = 64

_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list."""

    items: Sequence[StoredObject]
    revision: int  # of the whole list
    token: str  # continues the list; "" on the last page
    remaining: int  # objects after this page


class Paging:
    """The snapshots of lists that clients read in pages."""

    def __init__(self, store: Storage) -> None:
        self._store = store
        self._snapshots: OrderedDict[tuple[str, str | None, str, int], Sequence[StoredObject]] = OrderedDict()

    def page(self, kind: Kind, namespace: str | None, selection: tuple[str, Predicate], limit: int, token: str) -> Page:
        """Return the next page; `selection` is the selectors' text, which identifies the list, and their predicate."""
        text, matches = selection
        if token:
            revision, start = parse_continue_token(token)
            found = self._snapshots.get((kind.key, namespace, text, revision))
            if found is None:
                raise resource_expired(_EXPIRED)
        else:
            revision, start = self._store.revision, ""
            found = [one for one in self._store.list(kind, namespace) if matches(one.obj)]
        return self._cut((kind.key, namespace, text, revision), found, start, limit)

    def _cut(
        self, snapshot_key: tuple[str, str | None, str, int], found: Sequence[StoredObject], start: str, limit: int
    ) -> Page:
        first = next((i for i, one in enumerate(found) if _key(one) > start), len(found)) if start else 0
        end = first + limit if limit else len(found)
        items, remaining = found[first:end], max(0, len(found) - end)
        if not remaining:
            return Page(items, snapshot_key[3], "", 0)
        self._snapshots[snapshot_key] = found
        self._snapshots.move_to_end(snapshot_key)
        while len(self._snapshots) > MAX_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return Page(items, snapshot_key[3], make_continue_token(snapshot_key[3], _key(items[-1])), remaining)


def _key(stored: StoredObject) -> str:
    metadata = stored.obj["metadata"]
    # The separator sorts before every character a name can have, so that keys sort as the store lists.
    return f"{metadata.get('namespace', '')}\x00{metadata['name']}"


def make_continue_token(revision: int, start: str) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_continue_token(token: str) -> tuple[int, str]:
    """Return the revision and last key of a token; reject a token that the sandbox did not make."""
    try:
        value = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(value["rv"]), str(value["start"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise bad_request(
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0"
        ) from None
