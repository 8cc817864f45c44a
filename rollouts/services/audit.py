"""The audit log: every command, from wherever it came, with its caller and its outcome.

A service wraps what it does:

    with audited_command(caller, Command.SCALE_WORKLOAD, place) as audited:
        ... read, decide, refuse by raising ...
        audited.begin(before=3, after=5)   # writes an entry before anything is sent
        ... send ...
        audited.done(detail="3 → 5 replicas")

`audited_command` checks the permission first, and turns an exception into an entry. The invariants: a command has an
entry before its first write to the cluster; no entry is ever changed, so a "Begun" entry without an outcome means that
the process died in between; and values are masked and limited in size before they are stored.

Entries are stored at once. A transaction that is rolled back removes them too: a caller that needs a transaction opens
it inside `audited_command`, around the change and `done`.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson
from django.db import DatabaseError, transaction
from django.http import HttpRequest

from rollouts.accounts import permissions
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import ClusterUnavailable, CommandRefused, PermissionDenied
from rollouts.accounts.token_scopes import Scope, scope_of
from rollouts.live import change_feed
from rollouts.live.change_feed import Change
from rollouts.manifests.masking import (
    PUBLIC_READER,
    RECORD_READER,
    Reader,
    make_workload_reader,
    mask_manifest,
    without_digests,
)
from rollouts.models import ApiToken, AuditEntry, User
from rollouts.models.mirror import LABEL_LENGTH, NAME_LENGTH
from rollouts.runtime.connections import redis_client
from rollouts.services.audit_values import limit_size

Result = AuditEntry.Result

logger = logging.getLogger(__name__)

MAX_DETAIL_LENGTH: Final = 4000
NOTHING_TO_CHANGE: Final = "Nothing to change."


RequiredPermission = tuple[Command, str, str]  # a command, the cluster and the namespace
_required_permissions: ContextVar[list[RequiredPermission] | None] = ContextVar("needs", default=None)


class Source(StrEnum):
    """Where a command came from."""

    API = "api"
    PAGE = "page"
    ADMIN = "admin"
    COMMAND = "command"  # manage.py, in a terminal on the server
    START = "start"  # the environment, at the start of Grove UI


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a command, and from where."""

    user: User | None  # None: an anonymous caller, or Grove UI itself at its start
    name: str
    source_ip: str | None
    request_id: str
    source: str
    scope: Scope = permissions.UNLIMITED_SCOPE  # of the token that authenticated the request
    token: str = ""  # the name of that token


def caller_of(request: HttpRequest, via: str) -> Caller:
    """Return the caller of a request, of Django or of the REST framework, which knows the token."""
    user = request.user if isinstance(request.user, User) else None
    token = getattr(request, "auth", None)
    token = token if isinstance(token, ApiToken) else None
    return Caller(
        user=user,
        name=user.get_username() if user else "",
        source_ip=getattr(request, "source_ip", None),
        request_id=getattr(request, "request_id", ""),
        source=via,
        scope=scope_of(token) if token else permissions.UNLIMITED_SCOPE,
        token=token.name if token else "",
    )


def reader_for(caller: Caller, place: WorkloadRef) -> Reader:
    """Return how much of the manifest of a workload a caller may read."""
    may_read = permissions.may_view_pod_commands(caller.user, place.cluster, place.namespace, caller.scope)
    return make_workload_reader(place.key) if may_read else PUBLIC_READER


class AuditedCommand:
    """A command that is being executed."""

    def __init__(self, caller: Caller, command: Command, place: WorkloadRef, *, is_recorded: bool) -> None:
        self.caller = caller
        self.command = command
        self.target = place
        self._is_recorded = is_recorded
        self._begun: AuditEntry | None = None
        self._ended: AuditEntry | None = None
        self._is_finished = False

    @property
    def entry_id(self) -> int | None:
        """The entry with the outcome, once there is one."""
        return None if self._ended is None else self._ended.pk

    def begin(self, *, before: Any = None, after: Any = None, detail: str = "") -> None:
        """Store what is about to be sent; when this fails, the command fails before it sends anything."""
        self._begun = self._record(Result.BEGUN, before=before, after=after, detail=detail)

    def done(self, *, before: Any = None, after: Any = None, detail: str = "") -> None:
        """Store that the command succeeded."""
        self._end(Result.DONE, before=before, after=after, detail=detail)

    def _end(self, result: Result, *, before: Any = None, after: Any = None, detail: str = "") -> None:
        if not self._is_finished:
            self._ended = self._record(result, before=before, after=after, detail=detail, begun=self._begun)
            self._is_finished = True

    def _fail(self, error: Exception) -> None:
        """Store the exception; a failing database must not hide it."""
        try:
            self._end(_result_of(error), detail=_render_error(error))
        except DatabaseError:
            logger.warning("The audit log has no outcome of %s %s: the database is down", self.command, self.target)

    def _finish(self) -> None:
        if not self._is_finished:
            self.done(detail="" if self._begun else NOTHING_TO_CHANGE)

    def _record(self, result: Result, **values: Any) -> AuditEntry | None:
        if not self._is_recorded:
            return None
        return record(self.caller, self.command, self.target, result, **values)


@contextmanager
def audited_command(
    caller: Caller,
    command: Command,
    target: WorkloadRef = WorkloadRef(),  # noqa: B008 (frozen)
    *,
    dry_run: bool = False,
) -> Iterator[AuditedCommand]:
    """Check the permission and write the audit entries of a command; a dry run is checked and leaves no entry."""
    command_record = AuditedCommand(caller, command, target, is_recorded=not dry_run)
    try:
        require(caller, command, target)
        yield command_record
        command_record._finish()  # noqa: SLF001 (of this module)
    except Exception as error:
        command_record._fail(error)  # noqa: SLF001
        raise


def require(caller: Caller, command: Command, target: WorkloadRef = WorkloadRef()) -> None:  # noqa: B008 (frozen)
    """Raise PermissionDenied unless the caller has the permission."""
    refusal = permissions.find_refusal(caller.user, command, target.cluster, target.namespace, scope=caller.scope)
    if refusal is not None:
        raise PermissionDenied(refusal.sentence)
    if (needs := _required_permissions.get()) is not None:
        needs.append((command, target.cluster, target.namespace))


@contextmanager
def recorded_permissions() -> Iterator[list[RequiredPermission]]:
    """Collect the permissions that are checked and granted, so that they can be checked again."""
    needs: list[RequiredPermission] = []
    token = _required_permissions.set(needs)
    try:
        yield needs
    finally:
        _required_permissions.reset(token)


def require_one_of(
    caller: Caller, commands: Sequence[Command], target: WorkloadRef | None = None, *, dry_run: bool = False
) -> None:
    """Raise PermissionDenied unless the caller may execute one of these commands; the request is not parsed yet.

    Without a target the caller needs the permission somewhere. A refusal is stored, as `audited_command` does.
    """
    places = [target] if target else _list_allowed_targets(caller)
    refusals = []
    for command in commands:
        for one in places:
            try:
                require(caller, command, one)
            except PermissionDenied as refusal:
                refusals.append(refusal)
            else:
                return
    if not dry_run:
        record(caller, commands[0], target or WorkloadRef(), Result.REFUSED, detail=refusals[0].sentence)
    raise refusals[0]


def _list_allowed_targets(caller: Caller) -> list[WorkloadRef]:
    """Return the targets of the caller's grants, narrowed by the scope of the token."""
    grants = [("", ""), *(permissions.grants_of(caller.user) if caller.user else ())]
    scopes = [("", ""), *(caller.scope.namespaces or ())]
    return [WorkloadRef(one[0] or other[0], one[1] or other[1]) for one in grants for other in scopes]


def record(
    caller: Caller,
    command: Command,
    target: WorkloadRef,
    result: Result,
    *,
    before: Any = None,
    after: Any = None,
    detail: str = "",
    begun: AuditEntry | None = None,
) -> AuditEntry:
    """Add an entry, and publish it to the pages that show the audit log."""
    entry = AuditEntry.objects.create(
        actor=_truncate(caller.name, 150),
        token=caller.token,
        via=caller.source,
        source_ip=caller.source_ip,
        request_id=caller.request_id,
        command=command.value,
        cluster=_truncate(target.cluster, NAME_LENGTH),
        namespace=_truncate(target.namespace, LABEL_LENGTH),
        name=_truncate(target.name, NAME_LENGTH),
        before=_render_value(before),
        after=_render_value(after),
        result=result,
        detail=_truncate(detail, MAX_DETAIL_LENGTH),
        begun=begun,
    )
    change = Change(entry.cluster, "audit", str(entry.pk))
    transaction.on_commit(lambda: change_feed.publish(redis_client(), [change]))
    return entry


def _result_of(error: Exception) -> Result:
    """A cluster that does not answer leaves the outcome open; every other refusal has changed nothing."""
    is_refusal = isinstance(error, CommandRefused) and not isinstance(error, ClusterUnavailable)
    return Result.REFUSED if is_refusal else Result.FAILED


def _render_error(error: Exception) -> str:
    # The text of an unexpected error may contain secrets; the log has it.
    return error.sentence if isinstance(error, CommandRefused) else f"{type(error).__name__}; see the log"


def _render_value(value: Any) -> Any:
    """Mask secrets, limit the size, and remove characters that PostgreSQL cannot store."""
    if value is None:
        return None
    plain = orjson.loads(orjson.dumps(value, default=str))
    # Marks without digests: a reader of the audit log must not be able to test a guess against a mark. Masked before
    # anything is omitted: an option that indicates a secret must not be lost before the argument after it is hidden.
    masked = without_digests(mask_manifest(plain, RECORD_READER))
    text = orjson.dumps(limit_size(masked))
    plain = orjson.loads(text)
    return _without_nul(plain) if rb"\u0000" in text else plain


def _without_nul(value: Any) -> Any:
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_nul(part) for part in value]
    return value.replace("\0", "") if isinstance(value, str) else value


def _truncate(text: str, letters: int) -> str:
    return text.replace("\0", "")[:letters]
