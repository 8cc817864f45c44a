"""An edit of a PodCliqueSet on its way: read, edit, check, send with preconditions, take the answer in.

Before it: `workloads`, which says what is to be edited; the edit itself is a function of `engine.manifest.edits`. After it: the
cluster, by a JSON patch of just the fields that differ, which counts only for the object (uid) in the state
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
from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import Contradiction, RaceLost
from rollouts.cluster import Obj
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.manifest.diff import ABSENT, Difference, find_differences
from rollouts.engine.manifest.edits import Unfit
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.validation import validate_update
from rollouts.manifests.masking import Reader, mask_manifest, reader_of, without_digests
from rollouts.manifests.workload_version import names_version
from rollouts.mirror import Changes
from rollouts.models import AuditEntry
from rollouts.services.audit import Caller, Deed, deed, reader_for
from rollouts.services.pod_security import find_pod_security
from rollouts.services.workload_client import Site, is_expected, open_site, refuse, require_ours, version_in

Edit = Callable[[Obj], Obj | Unfit]

TRIES: Final = 5
"""How often an edit is made anew because somebody else was quicker."""

METADATA: Final = ("labels", "annotations")
"""What of metadata people write; a command sends nothing else of it."""

_KEPT_BY_OTHERS: Final = ("finalizers", "ownerReferences")
"""What of metadata no command sends; it is compared all the same, so that no answer leaves out that it was changed."""

_ENTRIES_LOOKED_AT: Final = 50
_MOST_FIELDS: Final = 100
_FIELDS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Change:
    """A field that a command changed; what is secret about it is hidden."""

    field: str
    before: Any  # None where there was nothing
    after: Any


@dataclass(frozen=True, slots=True)
class Changed:
    """A workload after a command."""

    place: Place
    version: str  # of the workload by then; of a dry run: as it is
    changes: tuple[Change, ...]
    warnings: tuple[Finding, ...] = ()
    is_dry_run: bool = False
    is_new: bool = False  # the command has created it
    manifest: Obj = field(default_factory=dict)  # as it is by then, or would be; masked


def change_workload(
    caller: Caller, command: Command, place: Place, edit: Edit, *, expected: str | None, dry_run: bool
) -> Changed:
    """Carry out an edit of a workload."""
    with deed(caller, command, place, dry_run=dry_run) as it:
        return carry_out(open_site(place), it, edit, expected=expected, dry_run=dry_run)


def carry_out(site: Site, it: Deed, edit: Edit, *, expected: str | None, dry_run: bool) -> Changed:
    """Make an edit of what is there now, as often as somebody else is quicker."""
    live, reader = fetch_expected(site, expected), reader_for(it.caller, site.place)
    for attempt in range(TRIES):
        wanted, warnings = make_edit(it.caller, site.place, live, edit)
        changes = describe(site.place, live, wanted, reader)
        if not changes:
            return Changed(site.place, version_in(live), (), warnings, dry_run, manifest=mask_manifest(live, reader))
        if attempt == 0:
            it.begin(before=on_record(live, changes, "before"), after=on_record(None, changes, "after"))
        stored = site.patch(PODCLIQUESETS, live, wanted, dry_run=dry_run)
        if stored is not None:
            return conclude(site, it, live, stored, warnings, dry_run=dry_run)
        live = fetch_expected(site, expected, seen=live)
    raise RaceLost(f"{site.place.name} changes so often that this command found no moment for its own; try again.")


def make_edit(caller: Caller, place: Place, live: Obj, edit: Edit) -> tuple[Obj, tuple[Finding, ...]]:
    """Return the workload as it is to be, and what there is to say about it; raises what the rules refuse."""
    if live["metadata"].get("deletionTimestamp"):
        raise Contradiction(f"{live['metadata']['name']} is being deleted; nothing about it can be changed any more.")
    wanted = edit(live)
    if isinstance(wanted, Unfit):
        raise refuse(wanted.findings)
    report = validate_update(live, wanted)
    if errors := (*report.errors, *find_pod_security(caller, place, live, wanted)):
        raise refuse(errors)
    return wanted, report.warnings


def conclude(
    site: Site, it: Deed, live: Obj, stored: Obj, warnings: tuple[Finding, ...], *, dry_run: bool, is_new: bool = False
) -> Changed:
    """Let everybody know of a write, and return what it changed."""
    reader = reader_for(it.caller, site.place)
    changes = describe(site.place, live, stored, reader)
    if not dry_run:
        site.take_in([Changes(PODCLIQUESETS, [stored])])
        it.done(before=on_record(live, changes, "before"), after=on_record(stored, changes, "after"))
    version = version_in(live if dry_run and not is_new else stored)
    return Changed(site.place, version, changes, warnings, dry_run, is_new, mask_manifest(stored, reader))


# ---- what was changed


def describe(place: Place, before: Obj, after: Obj, reader: Reader) -> tuple[Change, ...]:
    """Return the fields that people write and that differ, with as much hidden as a reader may not see.

    That a value differs is told by its mark, so the marks of the workload are compared for every reader.
    """
    marked = reader_of(place.key)
    differences = find_differences(_written(mask_manifest(before, marked)), _written(mask_manifest(after, marked)))
    changes = tuple(Change(one.field, _shown(one.before), _shown(one.after)) for one in differences)
    return changes if reader == marked else tuple(_hide_from(reader, change) for change in changes)


def _hide_from(reader: Reader, change: Change) -> Change:
    before, after = (mask_manifest({change.field: value}, reader) for value in (change.before, change.after))
    return Change(change.field, *(without_digests(one[change.field]) for one in (before, after)))


def on_record(obj: Obj | None, changes: Iterable[Change], side: str) -> dict[str, Any]:
    """Return one side of a change as the audit keeps it; the version leads from one command to the next."""
    fields = {change.field: getattr(change, side) for change in changes}
    return {"version": version_in(obj), "fields": fields} if obj and obj["metadata"] else {"fields": fields}


def _written(obj: Obj) -> Obj:
    metadata = obj.get("metadata") or {}
    return {
        "metadata": {
            **{name: metadata.get(name) or {} for name in METADATA},
            **{name: metadata.get(name) or [] for name in _KEPT_BY_OTHERS},
        },
        "spec": obj.get("spec") or {},
    }


def _shown(value: Any) -> Any:
    return None if value is ABSENT else value


# ---- lost races


def fetch_expected(site: Site, expected: str | None, *, seen: Obj | None = None) -> Obj:
    """Return the workload as it is now, to write to it; raises RaceLost when the caller saw another state of it."""
    live = site.fetch()
    require_ours(live)
    require_expected(site, live, expected, seen=seen)
    return live


def require_expected(site: Site, live: Obj, expected: str | None, *, seen: Obj | None = None) -> None:
    """Raise RaceLost, with what changed as far as that is known, unless the workload is as the caller saw it."""
    if is_expected(live, expected):
        return
    changed = _find_changed(site, live, expected or "", seen)
    more = ", …" if len(changed) > _FIELDS_SHOWN else ""
    what = f" ({', '.join(changed[:_FIELDS_SHOWN])}{more})" if changed else ""
    raise RaceLost(
        f"{site.place.name} has been changed{what}{_last_writer(live)} since you looked; look again.", changed
    )


def _find_changed(site: Site, live: Obj, expected: str, seen: Obj | None) -> list[str]:
    """Return which fields differ from what the caller saw: by what we read before, the mirror, or the audit."""
    if seen is not None:
        return [one.field for one in _differences(seen, live)]
    row = models.Workload.objects.filter(cluster=site.row, namespace=site.place.namespace, name=site.place.name).first()
    if row is not None and is_expected(row.manifest, expected):
        return [one.field for one in _differences(row.manifest, live)]
    return _fields_on_record(site.place, expected)


def _differences(before: Obj, after: Obj) -> list[Difference]:
    return find_differences(_written(before), _written(after))[:_MOST_FIELDS]


def _fields_on_record(place: Place, expected: str) -> list[str]:
    """Return what was commanded here since the caller looked, if the audit goes back that far."""
    entries = AuditEntry.objects.filter(
        cluster=place.cluster, namespace=place.namespace, name=place.name, result=AuditEntry.Result.DONE
    )
    fields: dict[str, None] = {}
    for before, after in entries.order_by("-at", "-id").values_list("before", "after")[:_ENTRIES_LOOKED_AT]:
        if not isinstance(before, dict) or not isinstance(after, dict) or "version" not in after:
            continue
        if names_version(expected, str(after["version"])):
            break
        fields |= dict.fromkeys(after.get("fields") or {})
        if names_version(expected, str(before.get("version"))):
            break
    return [*fields][:_MOST_FIELDS]


def _last_writer(live: Obj) -> str:
    """Say who last wrote what people write, as the cluster has it on record."""
    entries = [entry for entry in live["metadata"].get("managedFields") or () if not entry.get("subresource")]
    last = max(entries, key=lambda entry: str(entry.get("time") or ""), default=None)
    return f", last by {last.get('manager')} at {last.get('time')}," if last else ""
