"""The form in which objects are sent: in full, as rows of a Table, or as metadata alone.

`negotiate_form` reads the Accept header; `ResponseEncoder` renders single objects, lists and watch events in that form.
The full form serialises nothing: it joins the stored bytes.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

import orjson

from rollouts.sandbox.apiserver import tables
from rollouts.sandbox.apiserver.errors import not_acceptable
from rollouts.sandbox.apiserver.paging import Page
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.storage import StoredObject

Obj = dict[str, Any]

_NOT_ACCEPTABLE = "only the following media types are accepted: application/json"


class OutputForm(Enum):
    PLAIN = "plain"
    TABLE = "table"
    METADATA = "metadata"


def negotiate_form(accept: str) -> OutputForm:
    """Return the first served form in an Accept header; raise 406 when there is none."""
    for item in accept.split(",") if accept else ["*/*"]:
        media, *parts = (part.strip() for part in item.split(";"))
        if media not in {"application/json", "application/*", "*/*"}:
            continue
        params = dict(part.partition("=")[::2] for part in parts)
        wanted = params.get("as")
        if wanted is None:
            return OutputForm.PLAIN
        if params.get("g") == "meta.k8s.io" and params.get("v") == "v1":
            if wanted == "Table":
                return OutputForm.TABLE
            if wanted in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
                return OutputForm.METADATA
    raise not_acceptable(_NOT_ACCEPTABLE)


class ResponseEncoder:
    """Renders objects of one kind for one request."""

    def __init__(self, kind: Kind, form: OutputForm, include: str, clock: Callable[[], datetime]) -> None:
        self._kind, self._form, self._clock = kind, form, clock
        self._include = include or tables.INCLUDE_METADATA
        # How the stored bytes of every object begin: `admission` puts the type first.
        self._type = orjson.dumps({"apiVersion": kind.api_version, "kind": kind.kind})[:-1] + b","
        self._definitions: list[Obj] | None = tables.column_definitions(kind) if form is OutputForm.TABLE else None

    def encode_object(self, obj: Obj, body: bytes | None = None) -> bytes:
        """Return a single object."""
        if self._form is OutputForm.TABLE:
            return orjson.dumps(self._render_table([obj], _list_metadata(obj["metadata"]["resourceVersion"])))
        if self._form is OutputForm.METADATA:
            return orjson.dumps(tables.partial_metadata(obj))
        return body if body is not None else orjson.dumps(obj)

    def encode_list(self, page: Page, *, counted: bool) -> bytes:
        """Return a list, or a page of one; `counted` adds how many objects remain."""
        metadata = _list_metadata(str(page.revision))
        if page.token:
            metadata["continue"] = page.token
            if counted:
                metadata["remainingItemCount"] = page.remaining
        if self._form is OutputForm.TABLE:
            return orjson.dumps(self._render_table([stored.obj for stored in page.items], metadata))
        if self._form is OutputForm.METADATA:
            items = [orjson.dumps(tables.partial_metadata(stored.obj)) for stored in page.items]
            return _join_list("PartialObjectMetadataList", "meta.k8s.io/v1", metadata, items)
        if not self._kind.builtin:
            metadata.setdefault("continue", "")
        bodies = [self._encode_item(stored) for stored in page.items]
        return _join_list(self._kind.list_kind, self._kind.api_version, metadata, bodies)

    def _encode_item(self, stored: StoredObject) -> bytes:
        """Return an object in a list; a built-in kind leaves out apiVersion and kind there."""
        if not self._kind.builtin:
            return stored.body
        if stored.body.startswith(self._type):
            return b"{" + stored.body[len(self._type) :]
        return orjson.dumps({key: value for key, value in stored.obj.items() if key not in {"apiVersion", "kind"}})

    def encode_event(self, change_type: str, obj: Obj, body: bytes) -> bytes:
        """Return one line of a watch; in a Table only the first line has the columns."""
        if change_type == "BOOKMARK" or self._form is OutputForm.PLAIN:
            shown = body
        elif self._form is OutputForm.METADATA:
            shown = orjson.dumps(tables.partial_metadata(obj))
        else:
            shown = orjson.dumps(self._render_table([obj], _list_metadata(obj["metadata"]["resourceVersion"])))
            self._definitions = None
        return b'{"type":"%s","object":%s}\n' % (change_type.encode(), shown)

    def _render_table(self, objects: Sequence[Obj], metadata: Obj) -> Obj:
        now = self._clock()
        rows = [tables.render_row(self._kind, obj, now, self._include) for obj in objects]
        return tables.render_table(self._definitions, rows, metadata)


def _list_metadata(revision: str) -> Obj:
    return {"resourceVersion": revision}


def _join_list(kind: str, api_version: str, metadata: Obj, bodies: Sequence[bytes]) -> bytes:
    head = orjson.dumps({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(bodies) + b"]}"


def stored_bytes(stored: StoredObject | None, obj: Obj) -> bytes | None:
    """Return the stored bytes of exactly this object, None if it is not the stored version."""
    return stored.body if stored is not None and stored.obj is obj else None
