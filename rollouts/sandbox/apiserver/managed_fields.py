"""Which manager owns which fields of an object: reads, updates and writes metadata.managedFields.

`verbs` calls `track_managed_fields` for every write that is not an apply; `server_side_apply` works on the same owners.
An owner is a manager's name together with how it writes (Apply or Update) and through which subresource.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

from rollouts.sandbox.apiserver.fieldsets import FieldSet, compare, difference, union
from rollouts.sandbox.apiserver.registry import Kind

Obj = dict[str, Any]
Operation = Literal["Apply", "Update"]


@dataclass(frozen=True, slots=True)
class FieldManager:
    """The manager that writes, its operation (Apply or Update), and the subresource it writes through."""

    manager: str
    operation: Operation
    subresource: str
    api_version: str


@dataclass(frozen=True, slots=True)
class ManagedFieldSet:
    """The fields of one owner, and when the owner last changed one of them."""

    fields: FieldSet
    time: str | None


ManagedFields = dict[FieldManager, ManagedFieldSet]

# More update managers than this are merged into one, so that managedFields stays bounded.
MAX_UPDATE_MANAGERS = 10
ANCIENT_CHANGES = "ancient-changes"


def parse_managed_fields(obj: Obj) -> ManagedFields:
    """Read an object's managedFields; entries that cannot be read are left out."""
    owners: ManagedFields = {}
    for entry in obj["metadata"].get("managedFields") or ():
        if entry.get("operation") not in {"Apply", "Update"} or not isinstance(entry.get("fieldsV1"), dict):
            continue
        owner = FieldManager(
            entry.get("manager", ""),
            entry["operation"],
            entry.get("subresource", ""),
            entry.get("apiVersion", ""),
        )
        owners[owner] = ManagedFieldSet(entry["fieldsV1"], entry.get("time"))
    return owners


def set_managed_fields(obj: Obj, owners: ManagedFields) -> None:
    """Set an object's managedFields: appliers first, then by time and name; none if no manager owns a field."""
    entries = [_render_entry(owner, share) for owner, share in owners.items() if share.fields]
    entries.sort(key=lambda e: (e["operation"], e.get("time") or "", e["manager"], e.get("subresource", "")))
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def _render_entry(owner: FieldManager, share: ManagedFieldSet) -> Obj:
    entry: Obj = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.api_version,
        "time": share.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": share.fields,
    }
    if share.time is None:
        del entry["time"]
    if owner.subresource:
        entry["subresource"] = owner.subresource
    return entry


def is_equal_except_timestamps(left: Obj, right: Obj) -> bool:
    """Return whether two versions differ in nothing but the times of their managedFields."""
    mine, theirs = left["metadata"], right["metadata"]
    if {k: v for k, v in left.items() if k != "metadata"} != {k: v for k, v in right.items() if k != "metadata"}:
        return False
    if {**mine, "managedFields": None} != {**theirs, "managedFields": None}:
        return False
    return _without_timestamps(mine) == _without_timestamps(theirs)


def _without_timestamps(metadata: Obj) -> list[Obj]:
    return [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]


def base_managed_fields(current: Obj | None, sent: Obj, subresource: str) -> ManagedFields:
    """Return the owners a write starts from: those it sends, if it sends any, else the stored ones.

    A single empty entry resets the owners. A subresource cannot set managedFields.
    """
    stored = parse_managed_fields(current) if current is not None else {}
    if subresource:
        return stored
    entries = sent["metadata"].get("managedFields")
    if entries == [{}]:
        return {}
    return parse_managed_fields(sent) or stored


def track_managed_fields(
    kind: Kind, current: Obj | None, obj: Obj, managed: ManagedFields, manager: FieldManager, *, now: str
) -> None:
    """Give the updating manager the fields it changed, take them from the others, and write managedFields.

    A manager without a name takes the fields from the others and keeps nothing: the scale subresource does that.
    """
    if current is not None and not managed:
        obj["metadata"].pop("managedFields", None)  # never tracked, or reset: tracking starts with the next apply
        return
    found = compare(kind.schema, current or _empty_object(kind, obj), obj)
    changed = without_reset_fields(kind, found.changed, manager.subresource)
    after: ManagedFields = {}
    for owner, share in managed.items():
        left = difference(share.fields, found.removed)
        after[owner] = replace(share, fields=left if owner == manager else difference(left, changed))
    if changed and manager.manager:
        after[manager] = ManagedFieldSet(union(after[manager].fields if manager in after else {}, changed), now)
    set_managed_fields(obj, _cap_update_managers(after))


def _empty_object(kind: Kind, obj: Obj) -> Obj:
    """Return what a new object is compared with: a built-in kind has its structures even while they are empty."""
    if not kind.builtin or "spec" not in obj:
        return {}
    return {"spec": {"containers": []} if kind.plural == "pods" else {}}


def without_reset_fields(kind: Kind, fields: FieldSet, subresource: str) -> FieldSet:
    """Remove the fields that a write through this subresource cannot set, so that it does not own them."""
    if subresource == "status":
        if kind.builtin:
            return {key: node for key, node in fields.items() if key != "f:spec"}
        return {key: node for key, node in fields.items() if key == "f:status"}
    if kind.has_status and "f:status" in fields:
        return {key: node for key, node in fields.items() if key != "f:status"}
    return fields


def _cap_update_managers(owners: ManagedFields) -> ManagedFields:
    updaters = sorted(
        (owner for owner, share in owners.items() if owner.operation == "Update" and share.fields),
        key=lambda owner: owners[owner].time or "",
    )
    if len(updaters) <= MAX_UPDATE_MANAGERS:
        return owners
    oldest = updaters[: len(updaters) - MAX_UPDATE_MANAGERS + 1]
    kept = {owner: share for owner, share in owners.items() if owner not in oldest}
    fields: FieldSet = {}
    for owner in oldest:
        fields = union(fields, owners[owner].fields)
    ancient = FieldManager(ANCIENT_CHANGES, "Update", "", oldest[-1].api_version)
    if ancient in kept:
        fields = union(fields, kept[ancient].fields)
    kept[ancient] = ManagedFieldSet(fields, owners[oldest[-1]].time)
    return kept
