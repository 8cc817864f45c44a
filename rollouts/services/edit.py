"""An edit of a PodCliqueSet on its way: read, edit, check, send with preconditions, take the answer in.

Before it: `workloads`, which says what is to be edited; the edit itself is a function of `engine.manifest.edits`. After
it: the cluster, by a JSON patch of just the fields that differ, which counts only for the object (uid) in the state
(generation) that was read. Writes of a status change neither, so a rollout under way makes nobody lose a race.

Somebody else may be quicker. A caller who said what they saw (`expected`) has lost the race then and is told what
changed; for a caller who said nothing the edit is made anew on what is there now.

Killed at any line, nothing is half done: before the patch nothing was changed, after it everything was, and the watcher
brings the mirror along. The same command again finds nothing left to change.
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
"""How often an edit is made anew because somebody else was quicker."""

EDITABLE_METADATA: Final = ("labels", "annotations")
"""What of metadata people write; a command sends nothing else of it."""

_PROTECTED_METADATA: Final = ("finalizers", "ownerReferences")
"""What of metadata no command sends; it is compared all the same, so that no answer leaves out that it was changed."""

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
    """A field that a command changed; what is secret about it is hidden."""

    field: str
    before: Any  # None where there was nothing
    after: Any


@dataclass(frozen=True, slots=True)
class EditResult:
    """A workload after a command."""

    place: WorkloadRef
    version: str  # of the workload by then; of a dry run: as it is
    changes: tuple[Change, ...]
    warnings: tuple[Finding, ...] = ()
    is_dry_run: bool = False
    is_new: bool = False  # the command has created it
    manifest: Obj = field(default_factory=dict)  # as it is by then, or would be; masked


def workload_edit(caller: Caller, place: WorkloadRef, edit: Edit, *, expected: str | None, dry_run: bool) -> EditResult:
    """Edit a workload."""
    with audited_command(caller, edit.command, place, dry_run=dry_run) as audited:
        return apply_edit(open_writable_client(place), audited, edit.function, expected=expected, dry_run=dry_run)


def apply_edit(
    client: WorkloadClient, audited: AuditedCommand, edit: EditFunction, *, expected: str | None, dry_run: bool
) -> EditResult:
    """Make an edit of what is there now, as often as somebody else is quicker."""
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
    raise VersionConflict(
        f"{client.place.name} changes so often that this command found no moment for its own; try again."
    )


def evaluate_edit(caller: Caller, place: WorkloadRef, live: Obj, edit: EditFunction) -> tuple[Obj, tuple[Finding, ...]]:
    """Return the workload as it is to be, and what there is to say about it; raises what the rules refuse."""
    if live["metadata"].get("deletionTimestamp"):
        raise InvalidState(f"{live['metadata']['name']} is being deleted; nothing about it can be changed any more.")
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
    """Let everybody know of a write, and return what it changed."""
    reader = reader_for(audited.caller, client.place)
    changes = compute_changes(client.place, live, stored, reader)
    if not dry_run:
        client.write_through([ObjectChanges(PODCLIQUESETS, [stored])])
        audited.done(
            before=render_audit_side(live, changes, "before"), after=render_audit_side(stored, changes, "after")
        )
    version = version_of_object(live if dry_run and not is_new else stored)
    return EditResult(client.place, version, changes, warnings, dry_run, is_new, mask_manifest(stored, reader))


# ---- what was changed


def compute_changes(place: WorkloadRef, before: Obj, after: Obj, reader: Reader) -> tuple[Change, ...]:
    """Return the fields that people write and that differ, with as much hidden as a reader may not see.

    That a value differs is told by its mark, so the marks of the workload are compared for every reader.
    """
    marked = make_workload_reader(place.key)
    differences = find_differences(
        _editable_fields(mask_manifest(before, marked)), _editable_fields(mask_manifest(after, marked))
    )
    changes = tuple(Change(one.field, _absent_as_none(one.before), _absent_as_none(one.after)) for one in differences)
    return changes if reader == marked else tuple(_mask_for(reader, change) for change in changes)


def _mask_for(reader: Reader, change: Change) -> Change:
    before, after = (mask_manifest({change.field: value}, reader) for value in (change.before, change.after))
    return Change(change.field, *(without_digests(one[change.field]) for one in (before, after)))


def render_audit_side(obj: Obj | None, changes: Iterable[Change], side: str) -> dict[str, Any]:
    """Return one side of a change as the audit keeps it; the version leads from one command to the next."""
    fields = {change.field: getattr(change, side) for change in changes}
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


# ---- lost races


def fetch_expected(client: WorkloadClient, expected: str | None, *, seen: Obj | None = None) -> Obj:
    """Return the workload as it is now, to write to it; raises RaceLost when the caller saw another state of it."""
    live = client.fetch()
    require_not_grove_managed(live)
    require_expected(client, live, expected, seen=seen)
    return live


def require_expected(client: WorkloadClient, live: Obj, expected: str | None, *, seen: Obj | None = None) -> None:
    """Raise RaceLost, with what changed as far as that is known, unless the workload is as the caller saw it."""
    if matches_expected_version(live, expected):
        return
    changed = _find_changed_fields(client, live, expected or "", seen)
    more = ", …" if len(changed) > _FIELDS_SHOWN else ""
    what = f" ({', '.join(changed[:_FIELDS_SHOWN])}{more})" if changed else ""
    raise VersionConflict(
        f"{client.place.name} has been changed{what}{_last_writer(live)} since you looked; look again.", changed
    )


def _find_changed_fields(client: WorkloadClient, live: Obj, expected: str, seen: Obj | None) -> list[str]:
    """Return which fields differ from what the caller saw: by what we read before, the mirror, or the audit."""
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
    """Return what was commanded here since the caller looked, if the audit goes back that far."""
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
    """Say who last wrote what people write, as the cluster has it on record."""
    entries = [entry for entry in live["metadata"].get("managedFields") or () if not entry.get("subresource")]
    last = max(entries, key=lambda entry: str(entry.get("time") or ""), default=None)
    return f", last by {last.get('manager')} at {last.get('time')}," if last else ""
