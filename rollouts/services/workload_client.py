"""The place in a cluster that a command goes to: what is there now, and what the cluster answers.

Before it: the commands of this package. After it: `rollouts.cluster`, and the mirror, which takes in every answer at
once, so that pages and the next pass see what was commanded. What the cluster refuses becomes one of `errors` with a
sentence here and nowhere else.

The invariant: what is raised from here has changed nothing, unless its sentence says that nobody knows.
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
from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import (
    ClusterUnavailable,
    CommandRefused,
    InvalidState,
    NotFound,
    PermissionDenied,
    make_cluster_not_found,
)
from rollouts.accounts.errors import ValidationFailed as InvalidCommand
from rollouts.cluster import (
    BadRequest,
    ClusterClient,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    Misconfigured,
    Obj,
    Resource,
    Throttled,
    TooLarge,
    UnknownResource,
    Unsupported,
)
from rollouts.cluster import (
    NotFound as ClusterNotFound,
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
# Of one answer. A manifest may have a fault in each of ten thousand fields; nobody reads further than this.
MAX_FINDINGS: Final = 50
# A longer sentence quotes a value, which takes its time to search for secrets and does not help.
_MAX_SENTENCE_CHARACTERS: Final = 2_000
_TOO_LONG: Final = "the cluster's explanation is too long to show"
_OUTCOME_UNKNOWN: Final = "Whether it was carried out is not known: look before you ask again."
# How an API server says that an applied object is not of its kind's schema, with a code of 500.
_NOT_OF_THE_SCHEMA: Final = re.compile(r"failed to create typed patch object \([^)]*\): \.?([^:]*): (.*) \(500\)")


@dataclass(frozen=True, slots=True)
class WorkloadClient:
    """A workload's place in a cluster that answers."""

    place: WorkloadRef
    cluster: ClusterClient
    cluster_row: models.Cluster

    def fetch(self) -> Obj:
        """Return the PodCliqueSet as it is now."""
        return self.fetch_object(PODCLIQUESETS, self.place.name)

    def fetch_object(self, resource: Resource, name: str) -> Obj:
        """Return an object of the workload's namespace as it is now; one try, since a person is waiting."""
        with translate_cluster_errors(f"{resource.kind} {name}"):
            return self.cluster.get(resource, name, namespace=self.place.namespace, retry=False)

    def patch(self, resource: Resource, seen: Obj, wanted: Obj, *, dry_run: bool) -> Obj | None:
        """Write what differs from an object as it was read; None when it is not that one any more.

        The object (uid) must be in the state (generation) in which it was read; its status may have moved on.
        """
        metadata = seen["metadata"]
        operations = [
            # Not a test: to write another uid is refused as a conflict, a failed test only as something invalid.
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
                # A failed test names no cause; whether it was one is seen by looking again.
                if not error.causes and version_of_object(self.fetch_object(resource, name)) != version_of_object(seen):
                    return None
                raise

    def write_through(self, changes: Iterable[ObjectChanges]) -> None:
        """Let mirror, pages and workers know of answers. They learn of it anyhow: nothing here may fail a command."""
        try:
            news = mirror.store_all(self.cluster_row, changes)
        except DatabaseError as error:
            logger.warning("%s: the mirror learns of it by the watcher (%s)", self.place, type(error).__name__)
            news = []
        change_feed.publish(redis_client(), mirror.compute_changes(self.cluster_row.name, news))
        dispatch.enqueue([self.place.key])


def open_writable_client(place: WorkloadRef) -> WorkloadClient:
    """Find the cluster of a place, to write there; raises NotThere, and Contradiction where another operator writes.

    Which objects Grove's operator wrote is told by the mirror alone, so it must know all of them.
    """
    client = open_client(place)
    with translate_cluster_errors("look for another operator"):
        other = find_other_operator(client.cluster, client.cluster_row)
    if other:
        raise InvalidState(other)
    require_synced(client)
    seen = mirror.fetch_workload(client.cluster_row, place.namespace, place.name)
    if seen is not None and (other := find_grove_management(seen.manifest, seen.written_by_grove)):
        raise InvalidState(other)
    return client


def open_client(place: WorkloadRef) -> WorkloadClient:
    """Find the cluster of a place, to look at it; raises NotThere."""
    try:
        names = cluster_names()
        if place.cluster not in names:
            raise make_cluster_not_found(place.cluster, names)
        row = mirror.ensure_cluster(place.cluster)
        return WorkloadClient(place, shared_cluster(row.name, row.url), row)
    except Misconfigured as error:
        raise ClusterUnavailable(f"The cluster {place.cluster} cannot be used: {error}") from error


def require_synced(client: WorkloadClient) -> None:
    """Raise ClusterAway while the mirror does not know all that the cluster has."""
    if not client.cluster_row.complete:
        raise ClusterUnavailable(
            f"What runs in {client.cluster_row.name} is not known yet: the cluster is being listed."
        )


def require_not_grove_managed(obj: Obj) -> None:
    """Raise Contradiction where Grove's own operator keeps an object, as the object itself tells.

    The mirror may be older than the object, or may have no row of it.
    """
    what = f"{obj['kind']} {obj['metadata']['name']}"
    if other := find_grove_management(obj, what if is_written_by_grove(obj) else ""):
        raise InvalidState(other)


def version_of_object(obj: Obj) -> str:
    """Return the version of an object, as its ETag names it."""
    metadata = obj["metadata"]
    return version_of(metadata.get("uid") or "", metadata.get("generation") or 0)


def matches_expected_version(obj: Obj, expected: str | None) -> bool:
    """Say whether an object is as the caller saw it; whoever saw nothing takes it as it is."""
    return expected is None or matches_version(expected, version_of_object(obj))


# ---- what the cluster refuses


@contextlib.contextmanager
def translate_cluster_errors(what: str, *, is_write: bool = False, hiding: Sequence[Obj] = ()) -> Iterator[None]:
    """Turn what the cluster raises into refusals; a Conflict passes, since only the caller knows what it means.

    The cluster may quote what it was sent: what is secret about the manifests in `hiding` is hidden in its words.
    """
    try:
        yield
    except Conflict:
        raise
    except ClusterError as error:
        raise translate_error(error, what, is_write=is_write, hiding=hiding) from error


def translate_error(
    error: ClusterError, what: str, *, is_write: bool = False, hiding: Sequence[Obj] = ()
) -> CommandRefused:
    """Return the refusal that a failure of the cluster is, other than a Conflict."""
    if isinstance(error, Invalid | BadRequest | TooLarge | Unsupported):
        return _translate_invalid(error, hiding)
    words = _mask_sentence(str(error), make_text_mask(*hiding))
    match error:
        case ClusterNotFound():
            return NotFound(f"The cluster has no {what}: {words}")
        case Forbidden():
            return PermissionDenied(f"The cluster does not let this installation do that: {words}")
        case UnknownResource():
            return InvalidState(f"The cluster does not know this kind of object; install the definitions: {words}")
        case Throttled():
            return ClusterUnavailable(f"The API server is throttling requests: {words}", error.retry_after)
        case _:
            return ClusterUnavailable(f"{words}. {_OUTCOME_UNKNOWN}" if is_write else words, error.retry_after)


def _translate_invalid(error: ClusterError, hiding: Sequence[Obj]) -> InvalidCommand:
    """Return what a cluster says is wrong, field by field, each field once.

    The manifests are gone through once, however many fields there are.
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
    """Return what is wrong with an applied object that the server could not read, though it calls it its own fault.

    >>> find_schema_fault(ClusterError("…: failed to create typed patch object (a/b; v1): .spec.x: not declared (500)"))
    (Finding(field='spec.x', code=<Code.REFUSED_BY_CLUSTER: 'RefusedByCluster'>, message='not declared'),)
    """
    found = _NOT_OF_THE_SCHEMA.search(str(error))
    if not found:
        return ()
    return (Finding(found[1], FindingCode.REFUSED_BY_CLUSTER, _mask_sentence(found[2], make_text_mask(*hiding))),)


def invalid_command(findings: Sequence[Finding], *, count: int | None = None) -> InvalidCommand:
    """Return the refusal of what breaks rules, with as many of their sentences as one can read.

    `count` says how many faults there are when only some of them are given.
    """
    count = len(findings) if count is None else count
    sentences = [f"{finding.field}: {finding.message}".removeprefix(": ") for finding in findings[:_MAX_SENTENCES]]
    more = count - len(sentences)
    text = "; ".join(sentences) + (f"; and {more} more" if more > 0 else "")
    left_out = count - MAX_FINDINGS
    shown = [*findings[:MAX_FINDINGS]]
    if left_out > 0:
        shown.append(Finding("", FindingCode.TOO_MANY, f"{left_out:,} more faults are left out; correct these first"))
    return InvalidCommand(f"{text}.", shown)
