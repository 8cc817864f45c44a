"""Applies a manifest to a workload, which may exist or not.

Server-side apply with Grove UI as the field manager: a field that was applied before and is left out now is removed,
and fields of other managers stay. A field that another manager owns with another value is refused, with the name of the
manager, unless `force` takes it over. Fields that our own commands wrote are no conflict.

Each apply asks the cluster twice: first as a dry run, for the engine to validate the result and for the audit log to
keep it; then for effect, with the uid and resourceVersion that were read. Writes to the status change the
resourceVersion too, so the second call runs again on the new state as long as only the status has changed.

Of the metadata, only labels and annotations are applied. Finalizers and ownerReferences decide when the cluster deletes
the workload, which is another command: a manifest may name them as the cluster has them, and is refused otherwise. No
manifest changes them, whether it names them or not.

Server-side apply cannot require that an object does not exist yet. So a lock serializes applies to one workload: of
two that would create it, the second finds it.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final

from redis import RedisError
from redis.lock import Lock

from rollouts.accounts import errors
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.cluster import Conflict, NotFound, Obj, Unavailable
from rollouts.cluster.client import FIELD_MANAGER
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.manifest.findings import Finding, FindingCode, ValidationReport
from rollouts.engine.manifest.validation import validate_create, validate_update
from rollouts.manifests.masking import unmask_manifest
from rollouts.manifests.strict_yaml import MAX_BODY_BYTES
from rollouts.manifests.workload_version import version_of
from rollouts.runtime.connections import redis_client
from rollouts.services.audit import AuditedCommand, Caller, audited_command, reader_for
from rollouts.services.edit import (
    EDITABLE_METADATA,
    MAX_ATTEMPTS,
    EditResult,
    compute_changes,
    finish_edit,
    render_audit_side,
    require_expected,
    too_many_conflicts,
)
from rollouts.services.pod_security import find_pod_security_violations
from rollouts.services.workload_client import (
    WorkloadClient,
    find_schema_fault,
    invalid_command,
    open_writable_client,
    require_not_grove_managed,
    translate_cluster_errors,
)

_EMPTY: Final[Obj] = {"metadata": {}}
# Longer than an apply takes; the lock of a process that was killed ends after it.
_LOCK_SECONDS: Final = 60
_LOCK_WAIT_SECONDS: Final = 10
_PROTECTED_METADATA: Final = {
    "finalizers": "finalizers block the deletion of a workload, so a manifest cannot set them; leave them out",
    "ownerReferences": (
        "the cluster deletes a workload whose owner is gone, so a manifest cannot set ownerReferences; leave them out"
    ),
}
_CONFLICTING_MANAGER: Final = re.compile(r'conflict with "([^"]*)"')


def workload_apply(
    caller: Caller,
    place: WorkloadRef,
    manifest: Any,
    *,
    force: bool = False,
    must_be_new: bool = False,
    expected: str | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Apply a manifest; masked values in it are restored from the cluster."""
    with audited_command(caller, Command.APPLY_WORKLOAD, place, dry_run=dry_run) as audited:
        wanted = _normalize_manifest(manifest, place)
        application = _ServerSideApply(
            caller, open_writable_client(place), wanted, force=force, must_be_new=must_be_new
        )
        with contextlib.nullcontext() if dry_run else _apply_lock(place):
            return application.run(audited, expected or _find_version(manifest), dry_run=dry_run)


@contextlib.contextmanager
def _apply_lock(place: WorkloadRef) -> Iterator[None]:
    """Wait for other applies to the same workload in this installation; without Redis there is no lock."""
    lock = redis_client().lock(f"grove:apply:{place.key}", timeout=_LOCK_SECONDS, blocking_timeout=_LOCK_WAIT_SECONDS)
    if not _acquire(lock):
        raise errors.InvalidState(f"Another manifest is being applied to {place.name}. Try again.")
    try:
        yield
    finally:
        with contextlib.suppress(RedisError):  # it may have expired, or Redis is down
            lock.release()


def _acquire(lock: Lock) -> bool:
    try:
        return bool(lock.acquire())
    except RedisError:
        return True


def preview_apply(caller: Caller, client: WorkloadClient, manifest: Any) -> tuple[Obj | None, Obj, ValidationReport]:
    """Return the workload now (None: it does not exist), the workload after an apply, and the warnings."""
    application = _ServerSideApply(
        caller, client, _normalize_manifest(manifest, client.place), force=True, must_be_new=False
    )
    live = application.fetch(None)
    tried = application.fetch_dry_run(live)
    return live, tried, application.validate(live, tried)


class _ServerSideApply:
    """One apply; metadata that is not applied is only compared."""

    def __init__(self, caller: Caller, client: WorkloadClient, wanted: Obj, *, force: bool, must_be_new: bool) -> None:
        self._caller = caller
        self._client = client
        self._wanted = wanted
        self._force = force
        self._must_be_new = must_be_new

    def run(self, audited: AuditedCommand, expected: str | None, *, dry_run: bool) -> EditResult:
        """Apply as a dry run, then for effect, again after each conflict."""
        for attempt in range(MAX_ATTEMPTS):
            live = self.fetch(expected)
            if live is not None:
                require_not_grove_managed(live)
            tried = self.fetch_dry_run(live)
            report = self.validate(live, tried)
            before = live or _EMPTY
            if dry_run:
                return finish_edit(
                    self._client, audited, before, tried, report.warnings, dry_run=True, is_new=live is None
                )
            if attempt == 0:
                changes = compute_changes(
                    self._client.place, before, tried, reader_for(audited.caller, self._client.place)
                )
                audited.begin(
                    before=render_audit_side(live, changes, "before"), after=render_audit_side(None, changes, "after")
                )
            stored = self._apply_if_unchanged(live, dry_run=False)
            if stored is not None:
                return finish_edit(
                    self._client, audited, before, stored, report.warnings, dry_run=False, is_new=live is None
                )
        raise too_many_conflicts(self._client.place.name)

    def fetch(self, expected: str | None) -> Obj | None:
        """Return the workload if it exists; raises VersionConflict when the caller saw another version."""
        place = self._client.place
        try:
            live = self._client.fetch()
        except errors.NotFound:
            if expected is not None:
                raise errors.VersionConflict(f"{place.name} no longer exists.") from None
            return None
        if self._must_be_new:
            raise errors.VersionConflict(f"A workload {place.name} exists already.")
        require_expected(self._client, live, expected)
        if live["metadata"].get("deletionTimestamp"):
            raise errors.InvalidState(f"{place.name} is being deleted; apply the manifest again when it is gone.")
        return live

    def fetch_dry_run(self, live: Obj | None) -> Obj:
        """Return the workload as the dry run has it."""
        if live is None:
            # The manifest is complete, so all its errors can be reported at once.
            obj, findings = self._unmask(live)
            security = find_pod_security_violations(self._caller, self._client.place, None, obj)
            if found := (*findings, *validate_create(obj).errors, *security):
                raise invalid_command(found)
        for _ in range(MAX_ATTEMPTS):
            tried = self._apply_if_unchanged(live, dry_run=True)
            if tried is not None:
                return tried
            live = self._client.fetch()
        raise too_many_conflicts(self._client.place.name)

    def validate(self, live: Obj | None, tried: Obj) -> ValidationReport:
        """Return the warnings about the workload after an apply; raises ValidationFailed with the errors."""
        report = validate_create(tried) if live is None else validate_update(live, tried)
        if found := (*report.errors, *find_pod_security_violations(self._caller, self._client.place, live, tried)):
            raise invalid_command(found)
        return report

    def _unmask(self, live: Obj | None) -> tuple[Obj, list[Finding]]:
        """Return the manifest to send, with masked values restored, and the findings that keep it from being sent."""
        restored, findings = unmask_manifest(self._wanted, live or {}, self._client.place.key, MAX_BODY_BYTES)
        metadata, known = restored["metadata"], (live or _EMPTY)["metadata"]
        not_applied = [
            Finding(f"metadata.{name}", FindingCode.FIELD_NOT_APPLIED, sentence)
            for name, sentence in _PROTECTED_METADATA.items()
            if metadata.get(name) and metadata[name] != known.get(name)
        ]
        sent = {name: value for name, value in metadata.items() if name not in _PROTECTED_METADATA}
        return {**restored, "metadata": {**sent, **_find_formerly_applied(live)}}, [*findings, *not_applied]

    def _apply_if_unchanged(self, live: Obj | None, *, dry_run: bool) -> Obj | None:
        """Apply to the workload as it was read; None after a conflict."""
        obj, findings = self._unmask(live)
        if findings:
            raise invalid_command(findings)
        if live is not None:
            # Both, because a server ignores the resourceVersion of an object that does not exist.
            known = {name: live["metadata"][name] for name in ("uid", "resourceVersion")}
            obj = {**obj, "metadata": {**obj["metadata"], **known}}
        hiding = [obj, *([live] if live else [])]
        with translate_cluster_errors(f"PodCliqueSet {self._client.place.name}", is_write=not dry_run, hiding=hiding):
            try:
                return self._apply(obj, dry_run=dry_run)
            except Unavailable as error:
                if faults := find_schema_fault(error, hiding):
                    raise invalid_command(faults) from error
                raise
            except Conflict as error:
                if any(cause.reason == "FieldManagerConflict" for cause in error.causes):
                    raise _field_manager_conflict(error) from error
                return None

    def _apply(self, obj: Obj, *, dry_run: bool) -> Obj:
        cluster = self._client.cluster
        try:
            return cluster.apply(PODCLIQUESETS, obj, force=self._force, dry_run=dry_run)
        except NotFound as error:
            raise errors.NotFound(
                f"There is no namespace {self._client.place.namespace} in {self._client.cluster_row.name}."
            ) from error
        except Conflict as error:
            holders = {found[1] for cause in error.causes if (found := _CONFLICTING_MANAGER.search(cause.message))}
            if holders != {FIELD_MANAGER}:
                raise
            return cluster.apply(PODCLIQUESETS, obj, force=True, dry_run=dry_run)


def _normalize_manifest(manifest: Any, place: WorkloadRef) -> Obj:
    """Return a manifest with the kind and name of its URL; raises ValidationFailed where the two differ."""
    if not isinstance(manifest, dict):
        raise invalid_command([Finding("", FindingCode.WRONG_TYPE, "the body must be one PodCliqueSet")])
    metadata = manifest.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise invalid_command([Finding("metadata", FindingCode.WRONG_TYPE, "metadata must be an object")])
    said = {
        "apiVersion": (manifest.get("apiVersion"), PODCLIQUESETS.api_version),
        "kind": (manifest.get("kind"), PODCLIQUESETS.kind),
        "metadata.name": (metadata.get("name"), place.name),
        "metadata.namespace": (metadata.get("namespace"), place.namespace),
    }
    wrong = [
        Finding(field, FindingCode.UNKNOWN_VALUE, f"must be {known}, as in the URL, or left out")
        for field, (given, known) in said.items()
        if given not in (None, "", known)
    ]
    if manifest.get("spec") is None:
        # Without a spec, everything that was applied before would be removed.
        wrong.append(Finding("spec", FindingCode.FIELD_MISSING, "spec is missing; add it"))
    if wrong:
        raise invalid_command(wrong)
    written = {
        name: metadata[name] for name in (*EDITABLE_METADATA, *_PROTECTED_METADATA) if metadata.get(name) is not None
    }
    return {
        **{name: value for name, value in manifest.items() if name != "status"},
        "apiVersion": PODCLIQUESETS.api_version,
        "kind": PODCLIQUESETS.kind,
        "metadata": {"name": place.name, "namespace": place.namespace, **written},
    }


def _find_version(manifest: Any) -> str | None:
    """Return the version that a manifest was read in, if it names one: sent back, it is meant for that version."""
    metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
    uid, generation = (metadata.get("uid"), metadata.get("generation")) if isinstance(metadata, dict) else (None, None)
    if isinstance(uid, str) and isinstance(generation, int) and uid:
        return f'"{version_of(uid, generation)}"'
    return None


def _find_formerly_applied(live: Obj | None) -> Obj:
    """Return protected fields that an earlier release applied: the server would remove them if they were left out."""
    metadata = (live or _EMPTY)["metadata"]
    fields = [
        (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        for entry in metadata.get("managedFields") or ()
        if (entry.get("manager"), entry.get("operation")) == (FIELD_MANAGER, "Apply")
    ]
    return {
        name: metadata[name]
        for name in _PROTECTED_METADATA
        if name in metadata and any(f"f:{name}" in one for one in fields)
    }


def _field_manager_conflict(error: Conflict) -> errors.InvalidState:
    findings = []
    for cause in error.causes:
        holder = _CONFLICTING_MANAGER.search(cause.message)
        sentence = f"{holder[1] if holder else 'another manager'} owns this field; leave it out, or apply with force"
        findings.append(Finding(cause.field.removeprefix("."), FindingCode.FIELD_HELD, sentence))
    refusal = invalid_command(findings)
    return errors.InvalidState(f"Other managers own fields that this manifest sets. {refusal.sentence}", findings)
