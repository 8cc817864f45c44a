"""Edits a PodCliqueSet: read it, run the edit, validate the result, patch with preconditions, update the mirror.

Before it: `workloads`, which builds the `Edit`; its function is one of `engine.manifest.edits`. After it: the cluster,
which gets a JSON patch of only the fields that differ. The patch applies only to the object (uid) in the state
(generation) that was read. Writes to the status change neither, so a rollout in progress causes no conflict.

Another writer may be faster. A caller who named a version (`expected`) then gets a VersionConflict that names the
changed fields; for any other caller the edit runs again on the new state.

A process that is killed at any line leaves nothing half done: before the patch nothing has changed, after it everything
has, and the watcher updates the mirror. The same command again finds nothing left to change.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from rollouts import models
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState, VersionConflict
from rollouts.cluster import Obj
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.manifest.diff import ABSENT, Difference, find_differences
from rollouts.engine.manifest.edits import InvalidEdit
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.validation import validate_update
from rollouts.manifests.masking import Reader, make_workload_reader, mask_manifest, without_digests
from rollouts.manifests.workload_version import matches_version
from rollouts.mirror import ObjectChanges
from rollouts.models import AuditEntry
from rollouts.services.audit import AuditedCommand, Caller, audited_command, reader_for
from rollouts.services.audit_values import merge_fields
from rollouts.services.pod_security import find_pod_security_violations
from rollouts.services.workload_client import (
    WorkloadClient,
    invalid_command,
    matches_expected_version,
    open_writable_client,
    require_not_grove_managed,
    version_of_object,
)

EditFunction = Callable[[Obj], Obj | InvalidEdit]
"""Returns the manifest as it shall be, given the one that is stored; it runs again after each conflict."""

MAX_ATTEMPTS: Final = 5
"""How often a change is tried before it gives up because of other writers."""

EDITABLE_METADATA: Final = ("labels", "annotations")
"""The fields of metadata that people write; a command sends no others."""

_PROTECTED_METADATA: Final = ("finalizers", "ownerReferences")
"""Fields of metadata that no command sends; they are compared, so that every answer names a change of them."""

_MAX_AUDIT_ENTRIES: Final = 50
_MAX_FIELDS: Final = 100
_FIELDS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of the manifest of a PodCliqueSet, and the command that makes it."""

    command: Command
    function: EditFunction
    # Of a change that starts no update: the edit that stands for the next rollout, for a simulation to run it.
    rehearsal: EditFunction | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A field that a command changed; secrets in it are masked."""

    field: str
    before: Any  # None: it was absent
    after: Any


@dataclass(frozen=True, slots=True)
class EditResult:
    """A workload after a command."""

    place: WorkloadRef
    version: str  # of the workload after the command; after a dry run: the present one
    changes: tuple[Change, ...]
    warnings: tuple[Finding, ...] = ()
    is_dry_run: bool = False
    is_new: bool = False  # the command created it
    manifest: Obj = field(default_factory=dict)  # after the command, or as a dry run predicts it; masked


def workload_edit(caller: Caller, place: WorkloadRef, edit: Edit, *, expected: str | None, dry_run: bool) -> EditResult:
    """Edit a workload."""
    with audited_command(caller, edit.command, place, dry_run=dry_run) as audited:
        return apply_edit(open_writable_client(place), audited, edit.function, expected=expected, dry_run=dry_run)


def apply_edit(
    client: WorkloadClient, audited: AuditedCommand, edit: EditFunction, *, expected: str | None, dry_run: bool
) -> EditResult:
    """Edit the workload, again after each conflict."""
    live, reader = fetch_expected(client, expected), reader_for(audited.caller, client.place)
    for attempt in range(MAX_ATTEMPTS):
        wanted, warnings = evaluate_edit(audited.caller, client.place, live, edit)
        changes = compute_changes(client.place, live, wanted, reader)
        if not changes:
            return EditResult(
                client.place, version_of_object(live), (), warnings, dry_run, manifest=mask_manifest(live, reader)
            )
        if attempt == 0:
            audited.begin(
                before=render_audit_side(live, changes, "before"), after=render_audit_side(None, changes, "after")
            )
        stored = client.patch(PODCLIQUESETS, live, wanted, dry_run=dry_run)
        if stored is not None:
            return finish_edit(client, audited, live, stored, warnings, dry_run=dry_run)
        live = fetch_expected(client, expected, seen=live)
    raise too_many_conflicts(client.place.name)


def too_many_conflicts(name: str) -> VersionConflict:
    """Return the error for an object that other writers changed at every attempt."""
    return VersionConflict(f"{name} was modified {MAX_ATTEMPTS} times while this command ran. Try again.")


def evaluate_edit(caller: Caller, place: WorkloadRef, live: Obj, edit: EditFunction) -> tuple[Obj, tuple[Finding, ...]]:
    """Return the workload after an edit, with the warnings; raises ValidationFailed with the errors."""
    if live["metadata"].get("deletionTimestamp"):
        raise InvalidState(f"{live['metadata']['name']} is being deleted and can no longer be changed.")
    wanted = edit(live)
    if isinstance(wanted, InvalidEdit):
        raise invalid_command(wanted.findings)
    report = validate_update(live, wanted)
    if errors := (*report.errors, *find_pod_security_violations(caller, place, live, wanted)):
        raise invalid_command(errors)
    return wanted, report.warnings


def finish_edit(
    client: WorkloadClient,
    audited: AuditedCommand,
    live: Obj,
    stored: Obj,
    warnings: tuple[Finding, ...],
    *,
    dry_run: bool,
    is_new: bool = False,
) -> EditResult:
    """Update mirror and audit log after a write, and return what it changed."""
    reader = reader_for(audited.caller, client.place)
    changes = compute_changes(client.place, live, stored, reader)
    if not dry_run:
        client.write_through([ObjectChanges(PODCLIQUESETS, [stored])])
        audited.done(
            before=render_audit_side(live, changes, "before"), after=render_audit_side(stored, changes, "after")
        )
    version = version_of_object(live if dry_run and not is_new else stored)
    return EditResult(client.place, version, changes, warnings, dry_run, is_new, mask_manifest(stored, reader))


# ---- changes


def compute_changes(place: WorkloadRef, before: Obj, after: Obj, reader: Reader) -> tuple[Change, ...]:
    """Return the fields that people write and that differ, masked for a reader.

    Whether a secret differs shows in its mark, so the marks of the workload are compared, whoever reads. An annotation
    that readers never see is compared too: in a template it restarts pods.
    """
    marked = make_workload_reader(place.key).with_copies()
    differences = find_differences(
        _editable_fields(mask_manifest(before, marked)), _editable_fields(mask_manifest(after, marked))
    )
    changes = tuple(Change(one.field, _absent_as_none(one.before), _absent_as_none(one.after)) for one in differences)
    reader = reader.with_copies()
    return changes if reader == marked else tuple(_mask_for(reader, change) for change in changes)


def _mask_for(reader: Reader, change: Change) -> Change:
    before, after = (mask_manifest({change.field: value}, reader) for value in (change.before, change.after))
    return Change(change.field, *(without_digests(one[change.field]) for one in (before, after)))


def render_audit_side(obj: Obj | None, changes: Iterable[Change], side: str) -> dict[str, Any]:
    """Return one side of a change for the audit log; the version links one command to the next."""
    fields = merge_fields({change.field: getattr(change, side) for change in changes})
    return {"version": version_of_object(obj), "fields": fields} if obj and obj["metadata"] else {"fields": fields}


def _editable_fields(obj: Obj) -> Obj:
    metadata = obj.get("metadata") or {}
    return {
        "metadata": {
            **{name: metadata.get(name) or {} for name in EDITABLE_METADATA},
            **{name: metadata.get(name) or [] for name in _PROTECTED_METADATA},
        },
        "spec": obj.get("spec") or {},
    }


def _absent_as_none(value: Any) -> Any:
    return None if value is ABSENT else value


# ---- conflicts


def fetch_expected(client: WorkloadClient, expected: str | None, *, seen: Obj | None = None) -> Obj:
    """Return the workload to write to; raises VersionConflict when the caller saw another version of it."""
    live = client.fetch()
    require_not_grove_managed(live)
    require_expected(client, live, expected, seen=seen)
    return live


def require_expected(client: WorkloadClient, live: Obj, expected: str | None, *, seen: Obj | None = None) -> None:
    """Raise VersionConflict, with the changed fields if they are known, unless the caller saw this version."""
    if matches_expected_version(live, expected):
        return
    changed = _find_changed_fields(client, live, expected or "", seen)
    more = ", …" if len(changed) > _FIELDS_SHOWN else ""
    what = f" ({', '.join(changed[:_FIELDS_SHOWN])}{more})" if changed else ""
    raise VersionConflict(
        f"{client.place.name} has been changed{what}{_last_writer(live)} since you loaded it; load it again.", changed
    )


def _find_changed_fields(client: WorkloadClient, live: Obj, expected: str, seen: Obj | None) -> list[str]:
    """Return the fields that differ from what the caller saw, from our last read, the mirror, or the audit log."""
    if seen is not None:
        return [one.field for one in _differences(seen, live)]
    row = models.Workload.objects.filter(
        cluster=client.cluster_row, namespace=client.place.namespace, name=client.place.name
    ).first()
    if row is not None and matches_expected_version(row.manifest, expected):
        return [one.field for one in _differences(row.manifest, live)]
    return _list_audited_fields(client.place, expected)


def _differences(before: Obj, after: Obj) -> list[Difference]:
    return find_differences(_editable_fields(before), _editable_fields(after))[:_MAX_FIELDS]


def _list_audited_fields(place: WorkloadRef, expected: str) -> list[str]:
    """Return the fields that commands changed since the version that the caller saw, if the audit log has it."""
    entries = AuditEntry.objects.filter(
        cluster=place.cluster, namespace=place.namespace, name=place.name, result=AuditEntry.Result.DONE
    )
    fields: dict[str, None] = {}
    for before, after in entries.order_by("-at", "-id").values_list("before", "after")[:_MAX_AUDIT_ENTRIES]:
        if not isinstance(before, dict) or not isinstance(after, dict) or "version" not in after:
            continue
        if matches_version(expected, str(after["version"])):
            break
        fields |= dict.fromkeys(after.get("fields") or {})
        if matches_version(expected, str(before.get("version"))):
            break
    return [*fields][:_MAX_FIELDS]


def _last_writer(live: Obj) -> str:
    """Return the last writer of spec and metadata, from the managed fields of the object."""
    entries = [entry for entry in live["metadata"].get("managedFields") or () if not entry.get("subresource")]
    last = max(entries, key=lambda entry: str(entry.get("time") or ""), default=None)
    return f", last by {last.get('manager')} at {last.get('time')}," if last else ""
