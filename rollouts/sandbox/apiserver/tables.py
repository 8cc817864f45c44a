"""Objects as rows: the Table form in which `kubectl get` asks for them.

Columns come from `printer_columns` for built-in kinds and from the definition for custom ones. Cells are computed
for each request, since ages grow; a row carries only the metadata of its object unless the client asks for more.
"""

from datetime import datetime
from functools import lru_cache
from typing import Any

import orjson

from rollouts.sandbox.apiserver.ages import render_age
from rollouts.sandbox.apiserver.jsonpath import parse_jsonpath
from rollouts.sandbox.apiserver.printer_columns import AGE, COLUMNS, NAME, CellReader, PrinterColumn
from rollouts.sandbox.apiserver.registry import AdditionalPrinterColumn, Kind

Obj = dict[str, Any]

# The part of its object that a row carries; for any other value none.
INCLUDE_METADATA, INCLUDE_OBJECT = "Metadata", "Object"


@lru_cache(maxsize=256)
def list_columns(kind: Kind) -> tuple[PrinterColumn, ...]:
    """Return the columns of a kind, the name first; a kind without columns shows its age."""
    if kind.builtin and kind.plural in COLUMNS:
        return COLUMNS[kind.plural]
    if not kind.columns:
        return (NAME, AGE)
    return (NAME, *(_make_custom_column(column) for column in kind.columns))


def _make_custom_column(column: AdditionalPrinterColumn) -> PrinterColumn:
    described = column.description or f"Custom resource definition column (in JSONPath format): {column.path}"
    return PrinterColumn(column.name, _make_cell_reader(column), column.type, column.format, column.priority, described)


def _make_cell_reader(column: AdditionalPrinterColumn) -> CellReader:
    select = parse_jsonpath(column.path)

    def read(obj: Obj, now: datetime) -> Any:
        found = select(obj)
        if not found or found[0] is None:
            return None
        if column.type == "date":
            return render_age(found[0] if isinstance(found[0], str) else None, now)
        if column.type == "string":
            return " ".join(_text(one) for one in found)
        return _number(column.type, found[0])

    return read


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _number(wanted: str, value: Any) -> Any:
    """Return a cell of the column's type, or None: the real server shows no cell of another type."""
    if isinstance(value, bool):
        return value if wanted == "boolean" else None
    if wanted == "integer" and isinstance(value, int | float):
        return int(value)
    return value if wanted == "number" and isinstance(value, int | float) else None


def column_definitions(kind: Kind) -> list[Obj]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in list_columns(kind)
    ]


def render_row(kind: Kind, obj: Obj, now: datetime, include: str) -> Obj:
    """Return the row of one object."""
    cells = [column.read(obj, now) for column in list_columns(kind)]
    shown = {INCLUDE_OBJECT: obj, INCLUDE_METADATA: partial_metadata(obj)}
    return {"cells": cells, "object": shown.get(include)}


def partial_metadata(obj: Obj) -> Obj:
    """Return an object reduced to its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def render_table(definitions: list[Obj] | None, rows: list[Obj], metadata: Obj) -> Obj:
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }
