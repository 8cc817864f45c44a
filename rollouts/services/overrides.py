"""Creates, changes and ends strategy overrides.

API and admin pass a draft (`override_preview`); errors in it raise `ValidationFailed`. The row and its audit entry are
one transaction. After it, the affected workloads are enqueued; if this process dies in between, the next resync does
the same. The invariants: an override in force has a reason, an author and an end; rows are never deleted, and an
override that has ended is never in force again, so the list of all overrides is their history.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState, ValidationFailed, VersionConflict
from rollouts.live import change_feed
from rollouts.manifests.workload_version import matches_version
from rollouts.models import StrategyOverride
from rollouts.queue import dispatch
from rollouts.runtime.connections import redis_client
from rollouts.selectors.overrides import find_override
from rollouts.services.audit import Caller, audited_command, require
from rollouts.services.override_preview import (
    OverrideCheck,
    OverrideDraft,
    build_row,
    list_affected_keys,
    override_check,
)

logger = logging.getLogger(__name__)

_EDITABLE_FIELDS: Final = (
    *("cluster", "namespace", "name", "selector", "strategy", "max_unavailable", "max_surge", "components"),
    *("reason", "expires_at"),
)


@dataclass(frozen=True, slots=True)
class OverrideResult:
    """An override as it is stored now, and the result of its check."""

    override: StrategyOverride
    check: OverrideCheck


def override_create(caller: Caller, draft: OverrideDraft) -> OverrideResult:
    """Create an override; the same draft of the same author again returns the override that exists."""
    with audited_command(caller, Command.CREATE_OVERRIDE, draft.place) as audited:
        check = _require_no_findings(override_check(draft))
        row = build_row(draft, None, timezone.now())
        row.pk, row.author = None, caller.user
        if (twin := _find_duplicate(row)) is not None:
            # A caller who got no answer sends it again; two equal overrides would have to be ended twice.
            return OverrideResult(twin, check)
        with transaction.atomic():
            row.save(force_insert=True)
            audited.done(after=render_audit_value(row), detail=f"Override {row.pk}: {row.reason}")
    _publish_change(row, check.keys)
    return OverrideResult(row, check)


def override_change(caller: Caller, pk: int, draft: OverrideDraft, expected: str | None = None) -> OverrideResult:
    """Change an override that is in force; `expected` is the version that the caller saw, as If-Match names it."""
    with audited_command(caller, Command.CHANGE_OVERRIDE, draft.place) as audited:
        seen = find_override(pk)
        # The caller needs the permission for the present target too, because the override may leave it.
        require(caller, Command.CHANGE_OVERRIDE, _place(seen))
        _require_expected_version(seen, expected)
        check, former_keys = _require_no_findings(override_check(draft, seen)), list_affected_keys(seen)
        with transaction.atomic():
            row = _lock_row(seen)
            before, wanted = render_audit_value(row), build_row(draft, row, timezone.now())
            for name in _EDITABLE_FIELDS:
                setattr(row, name, getattr(wanted, name))
            if render_audit_value(row) != before:
                row.save(update_fields=_EDITABLE_FIELDS)
                audited.done(before=before, after=render_audit_value(row), detail=f"Override {row.pk}: {row.reason}")
    _publish_change(row, [*former_keys, *check.keys])
    return OverrideResult(row, check)


def override_end(caller: Caller, pk: int, expected: str | None = None) -> StrategyOverride:
    """End an override now; its row stays."""
    seen = find_override(pk)
    with audited_command(caller, Command.END_OVERRIDE, _place(seen)) as audited:
        _require_expected_version(seen, expected)
        with transaction.atomic():
            row = _lock_row(seen)
            before, row.expires_at = render_audit_value(row), timezone.now()
            row.save(update_fields=["expires_at"])
            audited.done(before=before, after=render_audit_value(row), detail=f"Override {row.pk}: {row.reason}")
    _publish_change(row, list_affected_keys(row))
    return row


def override_dry_run(caller: Caller, draft: OverrideDraft, replacing: int | None = None) -> OverrideCheck:
    """Return what an override would do; the caller needs the permission to create or change it."""
    command = Command.CREATE_OVERRIDE if replacing is None else Command.CHANGE_OVERRIDE
    with audited_command(caller, command, draft.place, dry_run=True):
        return override_check(draft, None if replacing is None else find_override(replacing))


def render_audit_value(row: StrategyOverride) -> dict[str, Any]:
    """Return an override for the audit log."""
    return {
        "id": row.pk,
        "cluster": row.cluster,
        "namespace": row.namespace,
        "name": row.name,
        "labels": row.selector,
        "strategy": row.settings,
        "reason": row.reason,
        "expires_at": row.expires_at.isoformat() if row.expires_at else None,
    }


def _find_duplicate(row: StrategyOverride) -> StrategyOverride | None:
    """Return an override that is equal in every field."""
    alike = StrategyOverride.objects.select_related("author").filter(
        author=row.author, cluster=row.cluster, namespace=row.namespace, name=row.name, expires_at=row.expires_at
    )
    said = [getattr(row, name) for name in _EDITABLE_FIELDS]
    return next((one for one in alike if [getattr(one, name) for name in _EDITABLE_FIELDS] == said), None)


def _require_expected_version(seen: StrategyOverride, expected: str | None) -> None:
    if expected is not None and not matches_version(expected, seen.version):
        raise VersionConflict(f"Override {seen.pk} has been changed since you loaded it; load it again.")
    if not seen.is_in_force(timezone.now()):
        raise InvalidState(f"Override {seen.pk} has ended and stays as history. Create another one.")


def _lock_row(seen: StrategyOverride) -> StrategyOverride:
    """Return the row, locked until the transaction ends; raises VersionConflict if it has changed."""
    row = StrategyOverride.objects.select_for_update(of=("self",)).select_related("author").get(pk=seen.pk)
    _require_expected_version(row, f'"{seen.version}"')
    return row


def _require_no_findings(check: OverrideCheck) -> OverrideCheck:
    if check.findings:
        sentence = "This override is not valid: "
        raise ValidationFailed(
            sentence + "; ".join(finding.message for finding in check.findings) + ".", check.findings
        )
    return check


def _publish_change(row: StrategyOverride, keys: Iterable[str]) -> None:
    """Enqueue the affected workloads, and publish the change to pages."""
    concerned = dict.fromkeys(keys)
    if concerned and not dispatch.enqueue(concerned):
        logger.warning("Override %d takes effect at the next resync: Redis is down", row.pk)
    changes = [change_feed.Change(row.cluster, "override", str(row.pk))]
    changes += [change_feed.Change(WorkloadRef.parse(key).cluster, "workload", key, ("strategy",)) for key in concerned]
    change_feed.publish(redis_client(), changes)


def _place(row: StrategyOverride) -> WorkloadRef:
    return WorkloadRef(row.cluster, row.namespace, row.name)
