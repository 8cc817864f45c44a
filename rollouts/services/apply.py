"""A manifest applied: the workload is to carry these fields, whether it is there already or not.

Server-side apply, with this product as the field manager: what was applied before and is left out now is removed, what
others hold stays theirs. A field that somebody else holds with another value is refused, with who it is, unless `force`
takes it over. What our own commands have written is no such conflict: it was written for the same people.

The cluster is asked twice. First without effect: that tells what the workload would be, which the rules of the engine
look at and the audit keeps; then in earnest, for the very object and state that was read. Writes of a status change
that state too, so the second call is repeated on what is there then, as long as nobody has written what people write.

Of metadata only labels and annotations are applied. Finalizers and ownerReferences decide when the cluster deletes the
workload, which is another command: they may stand in a manifest as the cluster has them, and are refused otherwise. No
manifest changes them, be they written there or left out.

An API server cannot be told that what is applied must not be there yet. So manifests are applied to one workload one
after the other: of two that would create it, the second finds it there.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final

from redis import RedisError
from redis.lock import Lock

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState, NotFound, VersionConflict
from rollouts.cluster import Conflict, Obj, Unavailable
from rollouts.cluster import NotFound as ClusterNotFound
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
# Longer than applying takes; so long a workload is held by a process that was killed meanwhile.
_LOCK_SECONDS: Final = 60
_LOCK_WAIT_SECONDS: Final = 10
_PROTECTED_METADATA: Final = {
    "finalizers": "finalizers keep a workload from being deleted, so they cannot be applied; leave them out",
    "ownerReferences": (
        "a workload whose owner is gone is deleted by the cluster, so ownerReferences cannot be applied; leave them out"
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
    """Apply a manifest; what is hidden in it, as it was shown, is put back from what the cluster has."""
    with audited_command(caller, Command.APPLY_WORKLOAD, place, dry_run=dry_run) as audited:
        wanted = _normalize_manifest(manifest, place)
        application = _ServerSideApply(
            caller, open_writable_client(place), wanted, force=force, must_be_new=must_be_new
        )
        with contextlib.nullcontext() if dry_run else _apply_lock(place):
            return application.run(audited, expected or _find_version(manifest), dry_run=dry_run)


@contextlib.contextmanager
def _apply_lock(place: WorkloadRef) -> Iterator[None]:
    """Wait for others of this installation who apply to the same workload; without Redis nobody waits."""
    lock = redis_client().lock(f"grove:apply:{place.key}", timeout=_LOCK_SECONDS, blocking_timeout=_LOCK_WAIT_SECONDS)
    if not _acquire(lock):
        raise InvalidState(f"Somebody else applies a manifest to {place.name} just now; try again.")
    try:
        yield
    finally:
        with contextlib.suppress(RedisError):  # it may have run out, or Redis be away
            lock.release()


def _acquire(lock: Lock) -> bool:
    try:
        return bool(lock.acquire())
    except RedisError:
        return True


def preview_apply(caller: Caller, client: WorkloadClient, manifest: Any) -> tuple[Obj | None, Obj, ValidationReport]:
    """Return the workload as it is, if it is, as a manifest would make it, and the warnings; nothing is changed."""
    application = _ServerSideApply(
        caller, client, _normalize_manifest(manifest, client.place), force=True, must_be_new=False
    )
    live = application.fetch(None)
    tried = application.fetch_dry_run(live)
    return live, tried, application.validate(live, tried)


class _ServerSideApply:
    """A manifest on its way; what it says of metadata that is not applied is only compared."""

    def __init__(self, caller: Caller, client: WorkloadClient, wanted: Obj, *, force: bool, must_be_new: bool) -> None:
        self._caller = caller
        self._site = client
        self._wanted = wanted
        self._force = force
        self._must_be_new = must_be_new

    def run(self, audited: AuditedCommand, expected: str | None, *, dry_run: bool) -> EditResult:
        """Try it out, and then in earnest, as often as somebody else writes in between."""
        for attempt in range(MAX_ATTEMPTS):
            live = self.fetch(expected)
            if live is not None:
                require_not_grove_managed(live)
            tried = self.fetch_dry_run(live)
            report = self.validate(live, tried)
            before = live or _EMPTY
            if dry_run:
                return finish_edit(
                    self._site, audited, before, tried, report.warnings, dry_run=True, is_new=live is None
                )
            if attempt == 0:
                changes = compute_changes(self._site.place, before, tried, reader_for(audited.caller, self._site.place))
                audited.begin(
                    before=render_audit_side(live, changes, "before"), after=render_audit_side(None, changes, "after")
                )
            stored = self._apply_if_unchanged(live, dry_run=False)
            if stored is not None:
                return finish_edit(
                    self._site, audited, before, stored, report.warnings, dry_run=False, is_new=live is None
                )
        raise VersionConflict(
            f"{self._site.place.name} changes so often that this found no moment for its own; try again."
        )

    def fetch(self, expected: str | None) -> Obj | None:
        """Return the workload if it is there; raises when it is not as the caller saw it."""
        place = self._site.place
        try:
            live = self._site.fetch()
        except NotFound:
            if expected is not None:
                raise VersionConflict(f"{place.name} is not there any more.") from None
            return None
        if self._must_be_new:
            raise VersionConflict(f"There is a workload {place.name} already.")
        require_expected(self._site, live, expected)
        if live["metadata"].get("deletionTimestamp"):
            raise InvalidState(f"{place.name} is being deleted; apply it again when it is gone.")
        return live

    def fetch_dry_run(self, live: Obj | None) -> Obj:
        """Return the workload as it would be."""
        if live is None:
            # A whole manifest, so everything that is wrong with it can be said at once.
            obj, findings = self._unmask(live)
            security = find_pod_security_violations(self._caller, self._site.place, None, obj)
            if errors := (*findings, *validate_create(obj).errors, *security):
                raise invalid_command(errors)
        for _ in range(MAX_ATTEMPTS):
            tried = self._apply_if_unchanged(live, dry_run=True)
            if tried is not None:
                return tried
            live = self._site.fetch()
        raise VersionConflict(
            f"{self._site.place.name} changes so often that this found no moment for its own; try again."
        )

    def validate(self, live: Obj | None, tried: Obj) -> ValidationReport:
        """Return what there is to say about the workload as it would be; raises what the rules refuse."""
        report = validate_create(tried) if live is None else validate_update(live, tried)
        if errors := (*report.errors, *find_pod_security_violations(self._caller, self._site.place, live, tried)):
            raise invalid_command(errors)
        return report

    def _unmask(self, live: Obj | None) -> tuple[Obj, list[Finding]]:
        """Return what is sent, with what was hidden put back, and what keeps it from being sent."""
        restored, findings = unmask_manifest(self._wanted, live or {}, self._site.place.key, MAX_BODY_BYTES)
        metadata, known = restored["metadata"], (live or _EMPTY)["metadata"]
        not_applied = [
            Finding(f"metadata.{name}", FindingCode.FIELD_NOT_APPLIED, sentence)
            for name, sentence in _PROTECTED_METADATA.items()
            if metadata.get(name) and metadata[name] != known.get(name)
        ]
        sent = {name: value for name, value in metadata.items() if name not in _PROTECTED_METADATA}
        return {**restored, "metadata": {**sent, **_find_formerly_applied(live)}}, [*findings, *not_applied]

    def _apply_if_unchanged(self, live: Obj | None, *, dry_run: bool) -> Obj | None:
        """Apply it to the workload as it was read; None when that is not as it was any more."""
        obj, findings = self._unmask(live)
        if findings:
            raise invalid_command(findings)
        if live is not None:
            # Both: a server looks at the resourceVersion alone only where there is an object.
            known = {name: live["metadata"][name] for name in ("uid", "resourceVersion")}
            obj = {**obj, "metadata": {**obj["metadata"], **known}}
        hiding = [obj, *([live] if live else [])]
        with translate_cluster_errors(f"PodCliqueSet {self._site.place.name}", is_write=not dry_run, hiding=hiding):
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
        cluster = self._site.cluster
        try:
            return cluster.apply(PODCLIQUESETS, obj, force=self._force, dry_run=dry_run)
        except ClusterNotFound as error:
            raise NotFound(
                f"There is no namespace {self._site.place.namespace} in {self._site.cluster_row.name}."
            ) from error
        except Conflict as error:
            holders = {found[1] for cause in error.causes if (found := _CONFLICTING_MANAGER.search(cause.message))}
            if holders != {FIELD_MANAGER}:
                raise
            return cluster.apply(PODCLIQUESETS, obj, force=True, dry_run=dry_run)


def _normalize_manifest(manifest: Any, place: WorkloadRef) -> Obj:
    """Return what a manifest says of a workload, named as its address says; raises where the two differ."""
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
        Finding(field, FindingCode.UNKNOWN_VALUE, f"this must be {known}, as the address says, or be left out")
        for field, (given, known) in said.items()
        if given not in (None, "", known)
    ]
    if manifest.get("spec") is None:
        # Nothing at all would take out whatever was applied before.
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
    """Return the state that a manifest was read in, when it says so: sent back, it is meant for that one."""
    metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
    uid, generation = (metadata.get("uid"), metadata.get("generation")) if isinstance(metadata, dict) else (None, None)
    if isinstance(uid, str) and isinstance(generation, int) and uid:
        return f'"{version_of(uid, generation)}"'
    return None


def _find_formerly_applied(live: Obj | None) -> Obj:
    """Return what was applied here before it was refused, as it is now: left out, the server would take it out."""
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


def _field_manager_conflict(error: Conflict) -> InvalidState:
    findings = []
    for cause in error.causes:
        holder = _CONFLICTING_MANAGER.search(cause.message)
        sentence = f"{holder[1] if holder else 'somebody else'} holds this field; leave it out, or apply with force"
        findings.append(Finding(cause.field.removeprefix("."), FindingCode.FIELD_HELD, sentence))
    refusal = invalid_command(findings)
    return InvalidState(f"Others hold fields that this manifest sets. {refusal.sentence}", findings)
