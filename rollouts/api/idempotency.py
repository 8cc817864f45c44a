"""Commands that are sent twice and run once: `Idempotency-Key`.

A client that gets no answer repeats its command with the same key. The first call claims the key in a row before it
does anything (`models.calls`). Its answer is stored, and a repetition gets the same answer with the header
`Idempotent-Replayed: true`. A refused command has changed nothing and releases the key.

The outcome of a call is unknown if the cluster did not answer or the process was killed. The next call with the key
runs the command again: at once in the first case, after `RECLAIM_AFTER` in the second. That is safe: commands have
preconditions and do nothing if nothing is left to do. A restart, which would do something each time, uses the time of
the first call.

A stored answer is repeated only while the caller still has the permissions for the command.

The invariant: of two calls with one key, at most one runs its command at a time.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils import timezone
from rest_framework import exceptions
from rest_framework.request import Request

from rollouts.accounts.commands import COMMANDS, WorkloadRef
from rollouts.accounts.errors import ClusterUnavailable, InvalidState, PermissionDenied
from rollouts.api.problems import BadParameter, RequestFinding
from rollouts.models import Call, User
from rollouts.services.audit import RequiredPermission, Result, Source, caller_of, record, recorded_permissions, require

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"

# Longer than any command takes, so that a second call never claims the key of a running one.
RECLAIM_AFTER: Final = timedelta(seconds=120)
RETENTION: Final = timedelta(hours=24)
# A client that never repeats itself must not fill the database with answers.
_DELETE_BATCH: Final = 100
_KEY: Final = re.compile(r"[!-~]{1,255}")
_STORED_HEADERS: Final = ("ETag", "Location")


class InFlight(InvalidState):
    """The first call with this key is still running."""


def answer_once(request: Request, carry_out: Callable[[datetime], HttpResponse]) -> HttpResponse:
    """Run a command with the time of its first request, or return the stored answer."""
    key = _read_key(request)
    if key is None:
        return carry_out(timezone.now())
    call = _claim_key(request, key)
    if call.finished is not None:
        _require_still_allowed(request, call)
        return _replay(call)
    try:
        with recorded_permissions() as needs:
            response = carry_out(call.started)
    except (ClusterUnavailable, DatabaseError):
        _current_attempt(call).update(tried=None)
        raise
    except Exception:
        _current_attempt(call).delete()
        raise
    _store_response(call, response, needs)
    return response


def _current_attempt(call: Call) -> QuerySet[Call]:
    """Return the row, unless another call has claimed it."""
    return Call.objects.filter(pk=call.pk, tried=call.tried, finished=None)


def _read_key(request: Request) -> str | None:
    key: str | None = request.headers.get(HEADER)
    if key is not None and not _KEY.fullmatch(key):
        sentence = f"{HEADER} must have 1 to 255 printable ASCII characters without spaces."
        raise BadParameter(RequestFinding(HEADER, "InvalidName", sentence))
    return key


def _claim_key(request: Request, key: str) -> Call:
    """Claim a key, or return the finished call that has it."""
    user, fingerprint = request.user, compute_fingerprint(request)
    assert isinstance(user, User), "commands are for accounts"  # noqa: S101 (the permission class has seen to it)
    _delete_expired()
    try:
        with transaction.atomic():
            return Call.objects.create(user=user, key=key, fingerprint=fingerprint, tried=timezone.now())
    except IntegrityError:
        call = Call.objects.filter(user=user, key=key).first()
    if call is None:
        raise InFlight(f"The first call with this {HEADER} was refused a moment ago. Send the command again.")
    if call.fingerprint != fingerprint:
        sentence = f"this {HEADER} was used for another command; use a new key for each command"
        raise exceptions.ValidationError({HEADER: [exceptions.ErrorDetail(sentence, code="key_reused")]})
    if call.finished is None:
        _reclaim_key(call)
    return call


def _reclaim_key(call: Call) -> None:
    """Claim the key of a call with an unknown outcome; raise InFlight while that call may still be running."""
    now = timezone.now()
    is_free = call.tried is None or call.tried < now - RECLAIM_AFTER
    if not is_free or not _current_attempt(call).update(tried=now):
        raise InFlight(f"The first call with this {HEADER} is still running. Try again later.")
    call.tried = now


def _require_still_allowed(request: Request, call: Call) -> None:
    """Refuse and record the repetition if the caller has lost the permission for the command."""
    caller = caller_of(request, Source.API)
    for name, cluster, namespace in call.needs:
        command, place = COMMANDS[name], WorkloadRef(cluster, namespace)
        try:
            require(caller, command, place)
        except PermissionDenied as refusal:
            record(caller, command, place, Result.REFUSED, detail=refusal.sentence)
            raise


def _store_response(call: Call, response: HttpResponse, needs: Sequence[RequiredPermission]) -> None:
    kept = {name: response[name] for name in _STORED_HEADERS if response.has_header(name)}
    _current_attempt(call).update(
        finished=timezone.now(),
        status=response.status_code,
        headers=kept,
        body=response.content.decode(),
        needs=list(dict.fromkeys(needs)),
    )


def _replay(call: Call) -> HttpResponse:
    response = HttpResponse(call.body, content_type="application/json", status=call.status)
    for name, value in {**call.headers, REPLAYED: "true"}.items():
        response[name] = value
    return response


def _delete_expired() -> None:
    old = Call.objects.filter(started__lt=timezone.now() - RETENTION).order_by("started").values("pk")
    Call.objects.filter(pk__in=[row["pk"] for row in old[:_DELETE_BATCH]]).delete()


def compute_fingerprint(request: Request) -> str:
    """Return a digest of the command: its method, path, If-Match and body."""
    parts = (request.method or "", request.get_full_path(), request.headers.get("If-Match", ""))
    digest = hashlib.sha256("\0".join(parts).encode())
    digest.update(request.body)
    return digest.hexdigest()
