"""Strategy overrides put in force, changed and ended.

API and admin hand over a draft (`override_preview`); what is found wrong with it is raised as `ValidationFailed`. The
record and its audit entry are one transaction; workloads are woken after it, and should this process end in between,
the next resync comes to the same. The invariants: an override in force has a reason, an author and an end; records are
never removed, and one that has ended never comes back to life, so that the list of them is their history.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState, NotFound, ValidationFailed, VersionConflict
from rollouts.live import change_feed
from rollouts.manifests.workload_version import matches_version
from rollouts.models import StrategyOverride
from rollouts.queue import dispatch
from rollouts.runtime.connections import redis_client
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
    """An override as it is on record now, and what was found about it."""

    override: StrategyOverride
    check: OverrideCheck


def override_create(caller: Caller, draft: OverrideDraft) -> OverrideResult:
    """Put an override in force; the same one by the same author again is the one that is in force already."""
    with audited_command(caller, Command.CREATE_OVERRIDE, draft.place) as audited:
        check = _require_no_findings(override_check(draft))
        row = build_row(draft, None, timezone.now())
        row.pk, row.author = None, caller.user
        if (twin := _find_duplicate(row)) is not None:
            # Whoever heard no answer sends it again; two of the same would have to be ended twice.
            return OverrideResult(twin, check)
        with transaction.atomic():
            row.save(force_insert=True)
            audited.done(after=render_audit_value(row), detail=f"Override {row.pk}: {row.reason}")
    _publish_change(row, check.keys)
    return OverrideResult(row, check)


def override_change(caller: Caller, pk: int, draft: OverrideDraft, expected: str | None = None) -> OverrideResult:
    """Change an override that is in force; `expected` is what If-Match says of the version that was seen."""
    with audited_command(caller, Command.CHANGE_OVERRIDE, draft.place) as audited:
        seen = override_detail(pk)
        # Who may not touch what it hits now may not take it away from there either.
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
    """End an override now; the record stays."""
    seen = override_detail(pk)
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
    """Say what an override would do, to somebody who may put it in force; nothing is changed or put on record."""
    command = Command.CREATE_OVERRIDE if replacing is None else Command.CHANGE_OVERRIDE
    with audited_command(caller, command, draft.place, dry_run=True):
        return override_check(draft, None if replacing is None else override_detail(replacing))


def override_detail(pk: int) -> StrategyOverride:
    """Return an override on record, also one that has ended."""
    row = StrategyOverride.objects.select_related("author").filter(pk=pk).first()
    if row is None:
        raise NotFound(f"There is no override {pk}.")
    return row


def render_audit_value(row: StrategyOverride) -> dict[str, Any]:
    """Return what an override says, as the audit tells it."""
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
    """Return an override on record that says just the same."""
    alike = StrategyOverride.objects.select_related("author").filter(
        author=row.author, cluster=row.cluster, namespace=row.namespace, name=row.name, expires_at=row.expires_at
    )
    said = [getattr(row, name) for name in _EDITABLE_FIELDS]
    return next((one for one in alike if [getattr(one, name) for name in _EDITABLE_FIELDS] == said), None)


def _require_expected_version(seen: StrategyOverride, expected: str | None) -> None:
    if expected is not None and not matches_version(expected, seen.version):
        raise VersionConflict(f"Override {seen.pk} has been changed since you looked at it; look again.")
    if not seen.is_in_force(timezone.now()):
        raise InvalidState(f"Override {seen.pk} has ended and stays as history; create another one.")


def _lock_row(seen: StrategyOverride) -> StrategyOverride:
    """Return the record, held until the transaction ends, if it is still what was looked at."""
    row = StrategyOverride.objects.select_for_update(of=("self",)).select_related("author").get(pk=seen.pk)
    _require_expected_version(row, f'"{seen.version}"')
    return row


def _require_no_findings(check: OverrideCheck) -> OverrideCheck:
    if check.findings:
        sentence = "This override cannot be put in force: "
        raise ValidationFailed(
            sentence + "; ".join(finding.message for finding in check.findings) + ".", check.findings
        )
    return check


def _publish_change(row: StrategyOverride, keys: Iterable[str]) -> None:
    """Have workers look at the workloads concerned, and pages at the override."""
    concerned = dict.fromkeys(keys)
    if concerned and not dispatch.enqueue(concerned):
        logger.warning("Override %d counts from the next resync on: Redis is away", row.pk)
    changes = [change_feed.Change(row.cluster, "override", str(row.pk))]
    changes += [change_feed.Change(WorkloadRef.parse(key).cluster, "workload", key, ("strategy",)) for key in concerned]
    change_feed.publish(redis_client(), changes)


def _place(row: StrategyOverride) -> WorkloadRef:
    return WorkloadRef(row.cluster, row.namespace, row.name)
