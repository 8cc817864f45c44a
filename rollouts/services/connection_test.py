"""The test of a connection: can this installation do its work with a cluster, and if not, what is in the way.

API and admin call it on request; the watcher finds the same troubles by itself, but tells only the first of them. Each
line is one question to the API server, asked once and answered with a sentence. The invariant: nothing is changed in
the cluster, and no line shows a credential or what an object holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import NotThere
from rollouts.cluster import Cluster, ClusterError, Forbidden, Patience, Unauthorized, UnknownResource
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
from rollouts.services.audit import Caller, deed

# Somebody waits for the answer.
_PATIENCE: Final = Patience(connect=3.0, read=5.0, deadline=6.0)
# What a rollout writes, and what people command: verb, kind, subresource.
_ROLLOUT: Final[tuple[tuple[str, Resource, str], ...]] = (
    *((verb, kind, "") for kind in (PODS, PODCLIQUES) for verb in ("create", "patch", "delete")),
    *((verb, kind, "") for kind in (PODCLIQUESCALINGGROUPS, PODGANGS, SERVICES) for verb in ("create", "delete")),
    ("update", PODCLIQUESETS, "status"),
    ("create", EVENTS, ""),
)
_COMMANDS: Final[tuple[tuple[str, Resource, str], ...]] = (
    ("create", PODCLIQUESETS, ""),
    ("patch", PODCLIQUESETS, ""),
    ("create", PODS, "eviction"),
    ("delete", PODS, ""),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One question, and what came of it."""

    name: str
    ok: bool | None  # None: it could not be found out
    sentence: str


@dataclass(frozen=True, slots=True)
class ClusterTest:
    """What a test of a connection found."""

    cluster: str
    lines: tuple[Line, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is in the way."""
        return all(line.ok is not False for line in self.lines)


def cluster_test(caller: Caller, name: str) -> ClusterTest:
    """Ask a cluster whether we can work with it."""
    with deed(caller, Command.TEST_CLUSTER, Place(name)) as it:
        found = ClusterTest(name, tuple(_ask(name)))
        failed = [line.name for line in found.lines if line.ok is False]
        it.done(detail=f"In the way: {', '.join(failed)}." if failed else "Nothing is in the way.")
    return found


def _ask(name: str) -> Iterator[Line]:
    try:
        configured = cluster_names()
        if name not in configured:
            raise NotThere(f"There is no cluster {name!r}; configured: {', '.join(configured) or 'none'}.")
        cluster = connect_cluster(name, _PATIENCE)
    except ClusterError as error:
        yield Line("Settings", ok=False, sentence=str(error))
        return
    try:
        reached = _reach(cluster)
        yield reached
        if reached.ok:
            yield from _read(cluster)
            yield _may("Rolling out", cluster, _ROLLOUT, "roll workloads out")
            yield _may("Commands", cluster, _COMMANDS, "carry out what people command")
    finally:
        cluster.close()


def _reach(cluster: Cluster) -> Line:
    try:
        version = cluster.version(repeat=False)
    except Unauthorized as error:
        return Line("Reach", ok=False, sentence=f"The server does not know us; renew the credentials: {error}")
    except ClusterError as error:
        return Line("Reach", ok=False, sentence=str(error))
    return Line(
        "Reach", ok=True, sentence=f"The API server answers; it is {version.get('gitVersion', 'of no version')}."
    )


def _read(cluster: Cluster) -> Iterator[Line]:
    """Ask for one object of each kind: tells whether the kind is known and whether we may read it."""
    missing, refused, others = [], [], []
    for kind in MIRRORED:
        try:
            cluster.list_page(kind, page_size=1, repeat=False)
        except UnknownResource:
            missing.append(str(kind))
        except Forbidden:
            refused.append(str(kind))
        except ClusterError as error:
            others.append(str(error))
    yield _line("Definitions", missing, "Every kind is served.", "Install deploy/crds; the server does not know {}.")
    yield _line("Reading", refused, "Our account may list every kind.", "Grant our account to list and watch {}.")
    if others:
        yield Line("Answers", ok=False, sentence=others[0])


def _may(name: str, cluster: Cluster, wanted: tuple[tuple[str, Resource, str], ...], what: str) -> Line:
    """Ask the server what our account may, without doing it."""
    refused = []
    for verb, kind, subresource in wanted:
        try:
            answer = cluster.create(SELFSUBJECTACCESSREVIEWS, _review(verb, kind, subresource))
        except UnknownResource:
            return Line(name, ok=None, sentence="This server has no answer to what an account may do.")
        except ClusterError as error:
            return Line(name, ok=None, sentence=f"What our account may do could not be found out: {error}")
        if not (answer.get("status") or {}).get("allowed"):
            refused.append(f"{verb} {kind}{'/' + subresource if subresource else ''}")
    return _line(name, refused, f"Our account may {what}.", "Bind the roles in deploy/rbac; our account may not {}.")


def _review(verb: str, kind: Resource, subresource: str) -> dict[str, Any]:
    asked = {"verb": verb, "group": kind.group, "version": kind.version, "resource": kind.plural}
    return {
        "apiVersion": SELFSUBJECTACCESSREVIEWS.api_version,
        "kind": SELFSUBJECTACCESSREVIEWS.kind,
        "spec": {"resourceAttributes": {**asked, "subresource": subresource} if subresource else asked},
    }


def _line(name: str, found: list[str], well: str, ill: str) -> Line:
    return Line(name, ok=not found, sentence=ill.format(", ".join(found)) if found else well)
