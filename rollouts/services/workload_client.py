"""Reads and writes one workload in its cluster, for the commands of this package.

Before it: the commands. After it: `rollouts.cluster`, and the mirror, which stores every answer at once, so that pages
and the next pass of the reconciler see the change. Only this module turns errors of the cluster into errors of
`accounts.errors`, each with a sentence.

The invariant: an exception from here means that nothing has changed, unless its sentence says that this is not known.
"""

import contextlib
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from django.db import DatabaseError

from rollouts import mirror, models
from rollouts.accounts import errors
from rollouts.accounts.commands import WorkloadRef
from rollouts.cluster import (
    BadRequest,
    ClusterClient,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    Misconfigured,
    NotFound,
    Obj,
    Resource,
    Throttled,
    TooLarge,
    UnknownResource,
    Unsupported,
)
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.manifest.diff import find_differences, make_json_patch
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.live import change_feed
from rollouts.manifests.masking import make_text_mask
from rollouts.manifests.workload_version import matches_version, version_of
from rollouts.mirror import ObjectChanges
from rollouts.mirror.other_operator import find_grove_management, find_other_operator, is_written_by_grove
from rollouts.queue import dispatch
from rollouts.runtime.connections import cluster_names, redis_client, shared_cluster

logger = logging.getLogger(__name__)

_MAX_SENTENCES: Final = 3
# Of one answer. A manifest may have errors in ten thousand fields, and nobody reads that many.
MAX_FINDINGS: Final = 50
# A longer sentence quotes a long value; to search it for secrets takes too long.
_MAX_SENTENCE_CHARACTERS: Final = 2_000
_TOO_LONG: Final = "the message of the cluster is too long to show"
_OUTCOME_UNKNOWN: Final = "It is not known whether the change was made: check before you try again."
# The message of an API server for an applied object that does not fit the schema, with the status 500.
_NOT_OF_THE_SCHEMA: Final = re.compile(r"failed to create typed patch object \([^)]*\): \.?([^:]*): (.*) \(500\)")


@dataclass(frozen=True, slots=True)
class WorkloadClient:
    """A workload, with the client of its cluster."""

    place: WorkloadRef
    cluster: ClusterClient
    cluster_row: models.Cluster

    def fetch(self) -> Obj:
        """Fetch the PodCliqueSet."""
        return self.fetch_object(PODCLIQUESETS, self.place.name)

    def fetch_object(self, resource: Resource, name: str) -> Obj:
        """Fetch an object in the namespace of the workload; only once, because a person is waiting."""
        with translate_cluster_errors(f"{resource.kind} {name}"):
            return self.cluster.get(resource, name, namespace=self.place.namespace, retry=False)

    def patch(self, resource: Resource, seen: Obj, wanted: Obj, *, dry_run: bool) -> Obj | None:
        """Patch the fields that differ from an object as it was read; None after a conflict.

        The object (uid) must be in the state (generation) in which it was read; its status may have changed.
        """
        metadata = seen["metadata"]
        operations = [
            # Not a "test": to replace the uid is refused as a conflict, a failed test as an invalid request.
            {"op": "replace", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "test", "path": "/metadata/generation", "value": metadata["generation"]},
            *make_json_patch(find_differences(seen, wanted)),
        ]
        name, namespace = metadata["name"], self.place.namespace
        with translate_cluster_errors(f"{resource.kind} {name}", is_write=not dry_run, hiding=(seen, wanted)):
            try:
                return self.cluster.patch_json(resource, name, operations, namespace=namespace, dry_run=dry_run)
            except Conflict:
                return None
            except Invalid as error:
                # A failed test names no cause, so fetch the object again to see whether it was one.
                if not error.causes and version_of_object(self.fetch_object(resource, name)) != version_of_object(seen):
                    return None
                raise

    def write_through(self, changes: Iterable[ObjectChanges]) -> None:
        """Store answers in the mirror and enqueue the workload; raises nothing, as the watcher does the same later."""
        try:
            news = mirror.store_all(self.cluster_row, changes)
        except DatabaseError as error:
            logger.warning(
                "%s: the watcher has to store the answer in the mirror (%s)", self.place, type(error).__name__
            )
            news = []
        change_feed.publish(redis_client(), mirror.compute_changes(self.cluster_row.name, news))
        dispatch.enqueue([self.place.key])


def open_writable_client(place: WorkloadRef) -> WorkloadClient:
    """Return a client to write with; raises NotFound, and InvalidState where another operator manages the workload.

    Only the mirror tells which objects Grove's operator wrote, so it must be complete.
    """
    client = open_client(place)
    with translate_operator_check_errors():
        other = find_other_operator(client.cluster, client.cluster_row)
    if other:
        raise errors.InvalidState(other)
    require_synced(client)
    seen = mirror.fetch_workload(client.cluster_row, place.namespace, place.name)
    if seen is not None and (other := find_grove_management(seen.manifest, seen.written_by_grove)):
        raise errors.InvalidState(other)
    return client


def open_client(place: WorkloadRef) -> WorkloadClient:
    """Return a client to read with; raises NotFound."""
    try:
        names = cluster_names()
        if place.cluster not in names:
            raise errors.make_cluster_not_found(place.cluster, names)
        row = mirror.ensure_cluster(place.cluster)
        return WorkloadClient(place, shared_cluster(row.name, row.url), row)
    except Misconfigured as error:
        raise errors.ClusterUnavailable(f"The cluster {place.cluster} cannot be used: {error}") from error


def require_synced(client: WorkloadClient) -> None:
    """Raise ClusterUnavailable while the mirror is incomplete."""
    if not client.cluster_row.complete:
        raise errors.ClusterUnavailable(
            f"The objects of {client.cluster_row.name} are still being listed. Try again in a moment."
        )


def require_not_grove_managed(obj: Obj) -> None:
    """Raise InvalidState where the object itself shows that Grove's own operator manages it.

    The mirror may have an older version of the object, or none.
    """
    what = f"{obj['kind']} {obj['metadata']['name']}"
    if other := find_grove_management(obj, what if is_written_by_grove(obj) else ""):
        raise errors.InvalidState(other)


def version_of_object(obj: Obj) -> str:
    """Return the version of an object, as in its ETag."""
    metadata = obj["metadata"]
    return version_of(metadata.get("uid") or "", metadata.get("generation") or 0)


def matches_expected_version(obj: Obj, expected: str | None) -> bool:
    """Return whether the caller saw this version of an object, or named no version."""
    return expected is None or matches_version(expected, version_of_object(obj))


# ---- errors of the cluster


@contextlib.contextmanager
def translate_cluster_errors(what: str, *, is_write: bool = False, hiding: Sequence[Obj] = ()) -> Iterator[None]:
    """Turn errors of the cluster into errors of commands; a Conflict passes, because only the caller can explain it.

    A message may quote the request: secrets of the manifests in `hiding` are masked in it.
    """
    try:
        yield
    except Conflict:
        raise
    except ClusterError as error:
        raise translate_error(error, what, is_write=is_write, hiding=hiding) from error


@contextlib.contextmanager
def translate_operator_check_errors() -> Iterator[None]:
    """Turn errors of the cluster during the check for another operator into errors of commands."""
    try:
        yield
    except ClusterError as error:
        sentence = f"Grove UI cannot check for another operator: {_mask_sentence(str(error), make_text_mask())}"
        raise errors.ClusterUnavailable(sentence, error.retry_after) from error


def translate_error(
    error: ClusterError, what: str, *, is_write: bool = False, hiding: Sequence[Obj] = ()
) -> errors.CommandRefused:
    """Return the error of a command for an error of the cluster other than a Conflict."""
    if isinstance(error, Invalid | BadRequest | TooLarge | Unsupported):
        return _translate_invalid(error, hiding)
    words = _mask_sentence(str(error), make_text_mask(*hiding))
    match error:
        case NotFound():
            return errors.NotFound(f"The cluster has no {what}: {words}")
        case Forbidden():
            return errors.PermissionDenied(f"Grove UI's account lacks a permission in the cluster: {words}")
        case UnknownResource():
            return errors.InvalidState(f"The cluster does not have this kind of object; install the CRDs: {words}")
        case Throttled():
            return errors.ClusterUnavailable(f"The API server is throttling requests: {words}", error.retry_after)
        case _:
            return errors.ClusterUnavailable(f"{words}. {_OUTCOME_UNKNOWN}" if is_write else words, error.retry_after)


def _translate_invalid(error: ClusterError, hiding: Sequence[Obj]) -> errors.ValidationFailed:
    """Return the error with a finding for each field that the cluster names.

    The mask is built once, however many fields there are.
    """
    mask = make_text_mask(*hiding)
    by_field: dict[str, str] = {}
    for cause in error.causes:
        by_field.setdefault(cause.field.removeprefix("."), cause.message)
    by_field = by_field or {"": str(error)}
    shown = itertools.islice(by_field.items(), MAX_FINDINGS)
    findings = [
        Finding(field, FindingCode.REFUSED_BY_CLUSTER, _mask_sentence(message, mask)) for field, message in shown
    ]
    return invalid_command(findings, count=len(by_field))


def _mask_sentence(sentence: str, mask: Callable[[str], str]) -> str:
    return mask(sentence) if len(sentence) <= _MAX_SENTENCE_CHARACTERS else _TOO_LONG


def find_schema_fault(error: ClusterError, hiding: Sequence[Obj] = ()) -> tuple[Finding, ...]:
    """Return the error in an applied object that does not fit the schema; the server reports it as an internal error.

    >>> find_schema_fault(ClusterError("…: failed to create typed patch object (a/b; v1): .spec.x: not declared (500)"))
    (Finding(field='spec.x', code=<FindingCode.REFUSED_BY_CLUSTER: 'RefusedByCluster'>, message='not declared'),)
    """
    found = _NOT_OF_THE_SCHEMA.search(str(error))
    if not found:
        return ()
    return (Finding(found[1], FindingCode.REFUSED_BY_CLUSTER, _mask_sentence(found[2], make_text_mask(*hiding))),)


def invalid_command(findings: Sequence[Finding], *, count: int | None = None) -> errors.ValidationFailed:
    """Return the error for these findings; its sentence has the first of them.

    `count` is the number of all findings when only some of them are given. The check of Pod Security stops when it has
    found more than an answer shows, so their number is unknown then.
    """
    count = len(findings) if count is None else count
    sentences = [f"{finding.field}: {finding.message}".removeprefix(": ") for finding in findings[:_MAX_SENTENCES]]
    more, left_out = count - len(sentences), count - MAX_FINDINGS
    is_counted = sum(finding.code is FindingCode.POD_SECURITY for finding in findings) <= MAX_FINDINGS
    text = "; ".join(sentences) + (f"; and {more if is_counted else 'many'} more" if more > 0 else "")
    shown = [*findings[:MAX_FINDINGS]]
    if left_out > 0:
        sentence = f"{f'{left_out:,} more' if is_counted else 'more'} errors are left out; correct these first"
        shown.append(Finding("", FindingCode.TOO_MANY, sentence))
    return errors.ValidationFailed(f"{text}.", shown)
