"""Whether another operator manages the workloads of a cluster: Grove's own.

Two controllers that write the same objects undo each other's work, and pods are deleted for nothing. So a pass and a
command check here before they write, and the watcher stores the answer on the cluster's row for the pages. Grove's
operator runs if a CRD of its kinds is not ours, if its lease is renewed, or if it has written any object of any
workload within a minute, as managed fields show. A single workload is Grove's while its set has Grove's finalizer, or
while the managed fields of one of its objects say that Grove's operator wrote it last.

The invariant: without an answer to this question nothing is written. An account without the permission to check gets a
sentence that says so, and a cluster that does not answer raises its error.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.db.models import Value

from rollouts import models
from rollouts.cluster import ClusterClient, Forbidden, NotFound, Obj
from rollouts.cluster.client import FIELD_MANAGER
from rollouts.cluster.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    LEASES,
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
)
from rollouts.engine.model.times import parse_time

OTHER_OPERATOR: Final = models.mirror.OTHER_OPERATOR

# Only our CRDs (deploy/crds) have it. It stays if another schema is applied over ours.
DEFINITION_ANNOTATION: Final = "grove-ui.io/definition"
# The title of our schema, which is replaced with it: the versions of a CRD are one atomic list.
_SCHEMA_TITLE: Final = "Grove UI"
GROVE_LEASE: Final = "grove-operator-leader-election"
# On every PodCliqueSet that Grove's operator manages or has managed.
GROVE_FINALIZER: Final = "grove.io/podcliqueset.grove.io"
# The field manager of Grove's operator: a Go client uses the name of its program.
GROVE_MANAGER: Final = "grove-operator"

# PodCliqueSets first: usually their CRD alone answers the question.
_GROVE_RESOURCES: Final = (PODCLIQUESETS, PODCLIQUES, PODCLIQUESCALINGGROUPS, PODGANGS)
RECENT_SECONDS: Final = 60.0
"""How long Grove's operator counts as running after it has renewed its lease or has written an object."""
# For a lease that does not say how long it lasts.
_LEASE_SECONDS: Final = 15.0
# A lease that was renewed longer ago counts as abandoned at first sight: a wrong time zone shifts a clock by less.
_ABANDONED_LEASE_SECONDS: Final = 86_400.0
# How long a new set waits for Grove's finalizer, in a cluster with workloads of Grove's.
FINALIZER_WAIT_SECONDS: Final = 10.0
_CHECK_INTERVAL_SECONDS: Final = 10.0

_FOREIGN_DEFINITION: Final = (
    "The definition of {} in this cluster is not Grove UI's, so another operator may manage these workloads. "
    "Grove UI shows them and changes nothing here. If Grove's own operator runs, do not apply deploy/crds: that would "
    "replace the definition, and with it the API that the operator uses. Stop the operator first. If no other "
    "operator runs, or the definition is from an earlier version of Grove UI, apply deploy/crds."
)
_LEASE_RENEWED: Final = (
    "Grove's own operator runs in this cluster and renews the lease {}. "
    "Grove UI shows the workloads and changes nothing here while that operator runs. Stop it, then take its "
    "workloads over."
)
_LEASE_UNCERTAIN: Final = (
    "Grove UI has not watched the lease {0} for {1:.0f} s yet, so it cannot tell whether Grove's own operator still "
    "renews it, and changes nothing here. Try again in {1:.0f} s. If that operator is gone, you may delete the lease."
)
_RECENT_WRITE: Final = (
    f"Grove's own operator ({GROVE_MANAGER}) wrote {{}} {{}} s ago, so it seems to run. Grove UI shows the workloads "
    "and changes nothing here. Stop it, and take its workloads over when it has written nothing for "
    f"{RECENT_SECONDS:.0f} s."
)
_OBSERVE_ONLY: Final = "Grove UI only observes (OBSERVE is set): it shows everything and writes nothing to any cluster."
_CHECK_FORBIDDEN: Final = (
    "Grove UI's account may not {}, so Grove UI cannot tell whether another operator manages these workloads, and "
    "changes nothing here. Apply deploy/rbac/controller.yaml."
)
_TAKE_OVER: Final = "Grove UI shows it and changes nothing. When that operator is gone, take the workload over."
_MANAGED_BY_GROVE: Final = (
    f"The finalizer {GROVE_FINALIZER} says that Grove's own operator manages this set. {_TAKE_OVER}"
)
_WRITTEN_BY_GROVE: Final = (
    f"Grove's own operator ({GROVE_MANAGER}) wrote {{}} after Grove UI, so it manages this workload. {_TAKE_OVER}"
)


@dataclass(frozen=True, slots=True)
class _LeaseRenewal:
    """The renewal of a held lease, as this process has observed it."""

    at: str  # the time in the lease, by the clock of its holder
    first_seen_at: float  # monotonic: when this process first saw it
    duration_seconds: float  # the next renewal must follow within these seconds
    has_changed: bool  # this process has also seen the renewal before it


class OperatorCheck:
    """Checks whether another operator runs in one cluster. Safe to share between threads."""

    def __init__(self, cluster: ClusterClient, row: int, clock: Callable[[], float] = time.time) -> None:
        """Take the client and the key of the cluster's row."""
        self._cluster = cluster
        self._row = row
        self._clock = clock
        self._lock = threading.Lock()
        self._renewals: dict[str, _LeaseRenewal] = {}  # by lease, as of the check before
        self._result = ""
        self._checked_at = float("-inf")  # monotonic

    def check(self) -> str:
        """Return why nothing may be written, as of at most a few seconds ago; raise an error of the cluster."""
        with self._lock:
            if time.monotonic() - self._checked_at > _CHECK_INTERVAL_SECONDS:
                self._result = self._run_check()
                self._checked_at = time.monotonic()
            return self._result

    def check_now(self, now: float | None = None) -> str:
        """Return why nothing may be written, as of now; raise an error of the cluster."""
        with self._lock:
            self._result = self._run_check(now)
            self._checked_at = time.monotonic()
            return self._result

    def _run_check(self, now: float | None = None) -> str:
        now = self._clock() if now is None else now
        if foreign := self._find_foreign_definition():
            return foreign
        try:
            leases = self._cluster.list(LEASES, fields=f"metadata.name={GROVE_LEASE}").items
        except Forbidden:
            return _CHECK_FORBIDDEN.format("list leases")
        return self._check_leases(leases, now) or find_recent_grove_write(self._row, now)

    def _find_foreign_definition(self) -> str:
        for resource in _GROVE_RESOURCES:
            try:
                definition = self._cluster.get(CUSTOMRESOURCEDEFINITIONS, str(resource))
            except NotFound:
                continue  # then there are no workloads either, and the watcher reports that
            except Forbidden:
                return _CHECK_FORBIDDEN.format(f"get customresourcedefinitions {resource}")
            if not _is_our_definition(definition):
                return _FOREIGN_DEFINITION.format(resource)
        return ""

    def _check_leases(self, leases: Iterable[Obj], now: float) -> str:
        """Return a sentence if a lease is held, or if it is too early to tell; else an empty one."""
        seen_at = time.monotonic()
        lease_by_key = {_lease_key(lease): lease for lease in leases if (lease.get("spec") or {}).get("holderIdentity")}
        previous = self._renewals
        self._renewals = {
            key: _parse_renewal(lease, previous.get(key), now, seen_at) for key, lease in lease_by_key.items()
        }
        sentences = [_describe_holder(key, renewal, now, seen_at) for key, renewal in self._renewals.items()]
        return next(filter(None, sentences), "")


def find_other_operator(cluster: ClusterClient, row: models.Cluster) -> str:
    """Return why nothing may be written to a cluster, empty if it may; raise an error of the cluster."""
    return _get_check(cluster, row.pk).check()


def find_other_operator_now(cluster: ClusterClient, row: models.Cluster, now: float) -> str:
    """Do the same as of now, even if the last check was a moment ago."""
    return _get_check(cluster, row.pk).check_now(now)


def find_recent_grove_write(row: int, now: float) -> str:
    """Return a sentence if Grove's operator has written an object of a cluster within a minute; else an empty one."""
    fresh = [
        table.objects.filter(cluster=row, grove_wrote_at__gt=now - RECENT_SECONDS)
        .annotate(kind=Value(kind))
        .order_by()
        .values_list("grove_wrote_at", "kind", "name")
        for table, kind in _TABLES_WITH_GROVE_WRITES
    ]
    last = fresh[0].union(*fresh[1:], all=True).order_by("-grove_wrote_at", "name").first()
    if last is None:
        return ""
    at, kind, name = last
    return _RECENT_WRITE.format(f"{kind} {name}", max(0, round(now - at)))


def may_get_grove_finalizer(row: models.Cluster, manifest: Mapping[str, Any], now: float) -> bool:
    """Return whether Grove's operator may still put its finalizer on a new set.

    A running operator does that within a second. In a cluster without workloads of Grove's there is no need to wait.
    """
    created = parse_time(manifest["metadata"].get("creationTimestamp"))
    is_new = created is not None and now - created < FINALIZER_WAIT_SECONDS
    return is_new and models.Workload.objects.filter(cluster=row, written_by_grove=True).exists()


def find_observe_only() -> str:
    """Return a sentence if this installation is configured to write nothing; else an empty one."""
    return _OBSERVE_ONLY if settings.ENVIRONMENT.observe else ""


def find_grove_management(manifest: Mapping[str, Any], written_by_grove: str = "") -> str:
    """Return why nothing may be written to a PodCliqueSet and its parts; empty if it may.

    `written_by_grove` names an object of the workload that Grove's operator wrote last, if there is one.
    """
    if GROVE_FINALIZER in (manifest["metadata"].get("finalizers") or ()):
        return _MANAGED_BY_GROVE
    return _WRITTEN_BY_GROVE.format(written_by_grove) if written_by_grove else ""


def is_written_by_grove(obj: Mapping[str, Any]) -> bool:
    """Return whether Grove's operator wrote an object after us, as its managed fields show.

    The API server sets these times in whole seconds: of two writes in one second Grove's counts as the later one. A
    takeover comes at least a minute after Grove's last write, so its own writes count as ours.
    """
    theirs = find_last_write(obj, GROVE_MANAGER)
    return theirs is not None and theirs >= (find_last_write(obj, FIELD_MANAGER) or "")


def find_last_write(obj: Mapping[str, Any], manager: str) -> str | None:
    """Return when a field manager last wrote an object, as an RFC 3339 time; None: never."""
    entries = obj["metadata"].get("managedFields") or ()
    # An entry without a time counts as written now: the word sorts behind every time.
    times = [str(entry.get("time") or "unknown") for entry in entries if entry.get("manager") == manager]
    return max(times, default=None)


def find_grove_write_time(obj: Mapping[str, Any]) -> float | None:
    """Return when Grove's operator last wrote an object; None if never, or if the time cannot be parsed."""
    return parse_time(find_last_write(obj, GROVE_MANAGER))


_TABLES_WITH_GROVE_WRITES: Final = (
    (models.Workload, "PodCliqueSet"),
    (models.Clique, "PodClique"),
    (models.ScalingGroup, "PodCliqueScalingGroup"),
    (models.Gang, "PodGang"),
)


@lru_cache(maxsize=64)
def _get_check(cluster: ClusterClient, row: int) -> OperatorCheck:
    """Return the check that all users of a client share."""
    return OperatorCheck(cluster, row)


def _is_our_definition(definition: Mapping[str, Any]) -> bool:
    """Return whether a CRD has our annotation and every schema that it serves is ours."""
    served = [version for version in definition["spec"]["versions"] if version["served"]]
    titles = {((version.get("schema") or {}).get("openAPIV3Schema") or {}).get("title") for version in served}
    return DEFINITION_ANNOTATION in (definition["metadata"].get("annotations") or {}) and titles == {_SCHEMA_TITLE}


def _lease_key(lease: Mapping[str, Any]) -> str:
    metadata = lease["metadata"]
    return f"{metadata.get('namespace')}/{metadata['name']}"


def _parse_renewal(lease: Mapping[str, Any], before: _LeaseRenewal | None, now: float, seen_at: float) -> _LeaseRenewal:
    """Return the renewal of a lease, and since when we have seen it: its time comes from another clock than ours."""
    spec = lease["spec"]
    at, lasts = str(spec.get("renewTime") or ""), float(spec.get("leaseDurationSeconds") or _LEASE_SECONDS)
    if before is not None and before.at == at:
        return replace(before, duration_seconds=lasts)
    renewed = parse_time(at)
    is_old = before is None and renewed is not None and now - renewed > _ABANDONED_LEASE_SECONDS
    return _LeaseRenewal(at, float("-inf") if is_old else seen_at, lasts, has_changed=before is not None)


def _describe_holder(lease_key: str, renewal: _LeaseRenewal, now: float, seen_at: float) -> str:
    """Return a sentence if a lease is renewed, by its time or as observed, or if it is too early to tell."""
    renewed = parse_time(renewal.at)
    if renewed is not None and now - renewed < RECENT_SECONDS:
        return _LEASE_RENEWED.format(lease_key)
    if seen_at - renewal.first_seen_at >= renewal.duration_seconds:
        return ""
    return (
        _LEASE_RENEWED.format(lease_key)
        if renewal.has_changed
        else _LEASE_UNCERTAIN.format(lease_key, renewal.duration_seconds)
    )
