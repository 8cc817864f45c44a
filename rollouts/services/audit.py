"""On record: every command, by whichever door it came, with who gave it and what came of it.

A service wraps what it does:

    with deed(caller, Command.SCALE_WORKLOAD, place) as it:
        ... read, decide, refuse by raising ...
        it.begin(before=3, after=5)        # on record before anything is sent
        ... send ...
        it.done(detail="3 → 5 replicas")

`audited_command` asks `permissions` first, so nothing is commanded without the permission, and turns what is raised
into an entry. The invariants: what was sent has an entry from before it was sent; an entry is never changed, so a
beginning without an outcome tells that the process was ended in between; values are masked and bounded before they are
written.

Entries are written at once. In a transaction that is rolled back they go with it: a caller that opens one puts it
inside the deed, around the change and `done`.
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

Result = AuditEntry.Result

logger = logging.getLogger(__name__)

# Of one value, written down: enough for the manifest of a large workload, and an end for what is no manifest.
MAX_VALUE_BYTES: Final = 256 * 1024
MAX_DETAIL_LENGTH: Final = 4000
NOTHING_TO_CHANGE: Final = "Nothing to change."


RequiredPermission = tuple[Command, str, str]  # a command, with the cluster and the namespace it is given in
_required_permissions: ContextVar[list[RequiredPermission] | None] = ContextVar("needs", default=None)


class Source(StrEnum):
    """The door by which a command came."""

    API = "api"
    PAGE = "page"
    ADMIN = "admin"
    COMMAND = "command"  # manage.py, at the terminal of the server
    START = "start"  # the environment, when the product starts


@dataclass(frozen=True, slots=True)
class Caller:
    """Who gives a command, from where."""

    user: User | None  # None: a stranger, or the product itself when it starts
    name: str
    source_ip: str | None
    request_id: str
    source: str
    scope: Scope = permissions.UNLIMITED_SCOPE  # of the token it came with
    token: str = ""  # the name of the token it came with


def caller_of(request: HttpRequest, via: str) -> Caller:
    """Say who sent a request. One of the REST framework is welcome too: it knows the token."""
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
    """Return how much of a workload's manifest a caller is shown."""
    may_read = permissions.may_view_pod_commands(caller.user, place.cluster, place.namespace, caller.scope)
    return make_workload_reader(place.key) if may_read else PUBLIC_READER


class AuditedCommand:
    """A command under way."""

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
        """The entry that says what came of it, once there is one."""
        return None if self._ended is None else self._ended.pk

    def begin(self, *, before: Any = None, after: Any = None, detail: str = "") -> None:
        """Put on record what is about to be sent. Nothing is sent when this fails."""
        self._begun = self._record(Result.BEGUN, before=before, after=after, detail=detail)

    def done(self, *, before: Any = None, after: Any = None, detail: str = "") -> None:
        """Put on record that it was carried out."""
        self._end(Result.DONE, before=before, after=after, detail=detail)

    def _end(self, result: Result, *, before: Any = None, after: Any = None, detail: str = "") -> None:
        if not self._is_finished:
            self._ended = self._record(result, before=before, after=after, detail=detail, begun=self._begun)
            self._is_finished = True

    def _fail(self, error: Exception) -> None:
        """Put on record what was raised; that this is not possible must not hide what was raised."""
        try:
            self._end(_result_of(error), detail=_render_error(error))
        except DatabaseError:
            logger.warning("The outcome of %s %s is not on record: the database is away", self.command, self.target)

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
    """Check that somebody may, and put on record what they do. A dry run needs the permission and leaves no entry."""
    command_record = AuditedCommand(caller, command, target, is_recorded=not dry_run)
    try:
        require(caller, command, target)
        yield command_record
        command_record._finish()  # noqa: SLF001 (of this module)
    except Exception as error:
        command_record._fail(error)  # noqa: SLF001
        raise


def require(caller: Caller, command: Command, target: WorkloadRef = WorkloadRef()) -> None:  # noqa: B008 (frozen)
    """Raise NotAllowed unless the caller may."""
    refusal = permissions.find_refusal(caller.user, command, target.cluster, target.namespace, scope=caller.scope)
    if refusal is not None:
        raise PermissionDenied(refusal.sentence)
    if (needs := _required_permissions.get()) is not None:
        needs.append((command, target.cluster, target.namespace))


@contextmanager
def recorded_permissions() -> Iterator[list[RequiredPermission]]:
    """Note which permissions are asked for and given, so that they can be asked for again."""
    needs: list[RequiredPermission] = []
    token = _required_permissions.set(needs)
    try:
        yield needs
    finally:
        _required_permissions.reset(token)


def require_one_of(
    caller: Caller, commands: Sequence[Command], target: WorkloadRef | None = None, *, dry_run: bool = False
) -> None:
    """Raise NotAllowed unless the caller may give one of these commands, before it is read which one is given.

    Without a place they must be allowed somewhere. A refusal is on record, as one by `audited_command` is.
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
    """Return the places where a caller may command, if anywhere: those of grants, narrowed by the scope of a token."""
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
    """Add an entry, and let pages that show the audit know of it."""
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
    """A cluster that is away leaves the outcome open; every other refusal has changed nothing."""
    is_refusal = isinstance(error, CommandRefused) and not isinstance(error, ClusterUnavailable)
    return Result.REFUSED if is_refusal else Result.FAILED


def _render_error(error: Exception) -> str:
    # The words of an unexpected error may hold what must not be on record; the log has them.
    return error.sentence if isinstance(error, CommandRefused) else f"{type(error).__name__}; see the log"


def _render_value(value: Any) -> Any:
    """Hide what may be secret, bound it, and leave out what PostgreSQL cannot hold."""
    if value is None:
        return None
    text = orjson.dumps(value, default=str)
    if len(text) > MAX_VALUE_BYTES:
        return {"omitted": f"{len(text)} bytes"}
    # Marks that are alike: whoever reads the audit must not find out by a text that they typed what another one was.
    text = orjson.dumps(without_digests(mask_manifest(orjson.loads(text), RECORD_READER)))
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
