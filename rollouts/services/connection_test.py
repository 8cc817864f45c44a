"""Tests the connection to a cluster: whether Grove UI can do its work there, and what prevents it.

API and admin call it on request; the watcher finds the same problems itself, but reports only the first. Each line is
one request to the API server, sent once, with its result as a sentence. The invariant: the test changes nothing in the
cluster, and no line shows a credential or the contents of an object.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import make_cluster_not_found
from rollouts.cluster import ClusterClient, ClusterError, Forbidden, RetryPolicy, Unauthorized, UnknownResource
from rollouts.cluster.resources import (
    EVENTS,
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SELFSUBJECTACCESSREVIEWS,
    SERVICES,
    Resource,
)
from rollouts.mirror import MIRRORED
from rollouts.runtime.connections import cluster_names, connect_cluster
from rollouts.services.audit import Caller, audited_command

# A person waits for the answer.
_TIMEOUTS: Final = RetryPolicy(connect_timeout=3.0, read_timeout=5.0, deadline=6.0)
# What the controller and the commands write: verb, kind, subresource.
_ROLLOUT_PERMISSIONS: Final[tuple[tuple[str, Resource, str], ...]] = (
    *((verb, kind, "") for kind in (PODS, PODCLIQUES) for verb in ("create", "patch", "delete")),
    *((verb, kind, "") for kind in (PODCLIQUESCALINGGROUPS, PODGANGS, SERVICES) for verb in ("create", "delete")),
    ("update", PODCLIQUESETS, "status"),
    ("create", EVENTS, ""),
)
_COMMAND_PERMISSIONS: Final[tuple[tuple[str, Resource, str], ...]] = (
    ("create", PODCLIQUESETS, ""),
    ("patch", PODCLIQUESETS, ""),
    ("create", PODS, "eviction"),
    ("delete", PODS, ""),
)


_UNKNOWN_PERMISSIONS: Final = "The permissions of Grove UI's account are unknown"


@dataclass(frozen=True, slots=True)
class Line:
    """One request, and its result."""

    name: str
    ok: bool | None  # None: unknown
    sentence: str


@dataclass(frozen=True, slots=True)
class ClusterTest:
    """The result of a test."""

    cluster: str
    lines: tuple[Line, ...]

    @property
    def ok(self) -> bool:
        """Whether no line failed."""
        return all(line.ok is not False for line in self.lines)


def cluster_test(caller: Caller, name: str) -> ClusterTest:
    """Test the connection to a cluster."""
    with audited_command(caller, Command.TEST_CLUSTER, WorkloadRef(name)) as audited:
        found = ClusterTest(name, tuple(_run_checks(name)))
        failed = [line.name for line in found.lines if line.ok is False]
        audited.done(detail=f"Failed: {', '.join(failed)}." if failed else "Every check passed.")
    return found


def _run_checks(name: str) -> Iterator[Line]:
    try:
        configured = cluster_names()
        if name not in configured:
            raise make_cluster_not_found(name, configured)
        cluster = connect_cluster(name, _TIMEOUTS)
    except ClusterError as error:
        yield Line("Settings", ok=False, sentence=str(error))
        return
    try:
        reached = _check_reachable(cluster)
        yield reached
        if reached.ok:
            yield from _check_readable(cluster)
            yield _check_permissions("Rolling out", cluster, _ROLLOUT_PERMISSIONS, "roll out workloads")
            yield _check_permissions("Commands", cluster, _COMMAND_PERMISSIONS, "execute commands")
    finally:
        cluster.close()


def _check_reachable(cluster: ClusterClient) -> Line:
    try:
        version = cluster.version(retry=False)
    except Unauthorized as error:
        sentence = f"The API server rejects the credentials of Grove UI's account; renew them: {error}"
        return Line("Reach", ok=False, sentence=sentence)
    except ClusterError as error:
        return Line("Reach", ok=False, sentence=str(error))
    return Line(
        "Reach", ok=True, sentence=f"The API server answers; its version is {version.get('gitVersion', 'unknown')}."
    )


def _check_readable(cluster: ClusterClient) -> Iterator[Line]:
    """List one object of each kind: this shows whether the kind exists and whether we may read it."""
    missing, refused, others = [], [], []
    for kind in MIRRORED:
        try:
            cluster.list_page(kind, page_size=1, retry=False)
        except UnknownResource:
            missing.append(str(kind))
        except Forbidden:
            refused.append(str(kind))
        except ClusterError as error:
            others.append(str(error))
    yield _make_line(
        "Definitions", missing, "Every kind is installed.", "The API server does not serve {}. Apply deploy/crds."
    )
    yield _make_line(
        *("Reading", refused, "Grove UI's account may list every kind."),
        "Grove UI's account may not list and watch {}. Grant it a role that allows both.",
    )
    if others:
        yield Line("Answers", ok=False, sentence=others[0])


def _check_permissions(
    name: str, cluster: ClusterClient, wanted: tuple[tuple[str, Resource, str], ...], what: str
) -> Line:
    """Ask the API server for our permissions, without using them."""
    refused = []
    for verb, kind, subresource in wanted:
        try:
            answer = cluster.create(SELFSUBJECTACCESSREVIEWS, _access_review(verb, kind, subresource))
        except UnknownResource:
            return Line(
                name,
                ok=None,
                sentence=f"{_UNKNOWN_PERMISSIONS}: the API server has no SelfSubjectAccessReview.",
            )
        except ClusterError as error:
            return Line(name, ok=None, sentence=f"{_UNKNOWN_PERMISSIONS}: {error}")
        if not (answer.get("status") or {}).get("allowed"):
            refused.append(f"{verb} {kind}{'/' + subresource if subresource else ''}")
    return _make_line(
        *(name, refused, f"Grove UI's account may {what}."),
        "Grove UI's account may not {}. Bind it to the roles in deploy/rbac.",
    )


def _access_review(verb: str, kind: Resource, subresource: str) -> dict[str, Any]:
    asked = {"verb": verb, "group": kind.group, "version": kind.version, "resource": kind.plural}
    return {
        "apiVersion": SELFSUBJECTACCESSREVIEWS.api_version,
        "kind": SELFSUBJECTACCESSREVIEWS.kind,
        "spec": {"resourceAttributes": {**asked, "subresource": subresource} if subresource else asked},
    }


def _make_line(name: str, found: list[str], well: str, ill: str) -> Line:
    return Line(name, ok=not found, sentence=ill.format(", ".join(found)) if found else well)
