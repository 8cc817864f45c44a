"""On a cluster with the CRDs that Grove's own operator installs nothing is written until ours replace them.

This file has an API server of its own: other tests need our CRDs. `tests/groves_definitions` has what Grove's CRDs
accept and store: the same names, but one selected pod or replica at a time, and nothing that Grove UI adds.
"""

import time
from collections.abc import Iterable, Iterator
from functools import partial

import pytest
from redis import Redis

from rollouts.accounts.errors import InvalidState
from rollouts.cluster import ClusterClient, Invalid, Obj, kubeconfig
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESETS, PODS
from rollouts.controller import reconciler
from rollouts.engine.model.times import render_time
from rollouts.mirror import other_operator
from rollouts.mirror.other_operator import GROVE_FINALIZER, GROVE_MANAGER, find_last_write
from rollouts.models import User
from rollouts.services import workload_client
from rollouts.services.audit import Caller, Source
from rollouts.services.takeover import workload_take_over
from tests.apiserver import (
    DEFINITIONS,
    HOW_TO_GET_THEM,
    ApiServer,
    install_definitions,
    missing_binaries,
    running_apiserver,
)
from tests.contract.manifests import pod_clique_set
from tests.groves_operator import (
    GROVES_DEFINITIONS,
    KEY,
    PLACE,
    WAITS,
    apply_definition,
    list_all,
    made_by_grove,
)
from tests.parts import missing
from tests.project.running import wait_until
from tests.watcher.watching import SECONDS, is_complete, watching

pytestmark = [pytest.mark.apiserver, pytest.mark.django_db(transaction=True)]

GROVES_HASH = "6f4b8d"
STARTED = "2026-01-01T00:00:00Z"
SELECTED = {
    "podCliqueSetGenerationHash": GROVES_HASH,
    "podTemplateHash": "5d98c7b84",
    "updateStartedAt": STARTED,
    "readyPodsSelectedToUpdate": {"current": "my-0-worker-0"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """An API server with Grove's CRDs."""
    if lacking := missing_binaries():
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    with running_apiserver() as running:
        install_definitions(ClusterClient(kubeconfig(running.kubeconfig)), GROVES_DEFINITIONS)
        yield running


@pytest.fixture
def caller(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """A caller with all permissions, in the only cluster."""
    monkeypatch.setattr(workload_client, "cluster_names", lambda: ("real",))
    for module in (workload_client, reconciler):  # each time as a process that has not looked yet
        monkeypatch.setattr(module, "shared_cluster", lambda *_: ClusterClient(kubeconfig(server.kubeconfig)))
    return Caller(User.objects.create_superuser("ada"), "ada", None, "test-request", Source.API)


def make_by_grove(cluster: ClusterClient) -> None:
    """Create a set with everything that Grove's operator creates for it, in the middle of an update."""
    stored = cluster.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    kept = {"metadata": {"name": "my", "namespace": "default", "finalizers": [GROVE_FINALIZER]}}
    cluster.apply(PODCLIQUESETS, kept, field_manager=GROVE_MANAGER)
    clique: Obj = {}
    for resource, obj in made_by_grove(stored):
        if resource == PODCLIQUES:
            obj["spec"] = stored["spec"]["template"]["cliques"][0]["spec"]
        if resource == PODS:
            (owner,) = obj["metadata"]["ownerReferences"]
            owner |= {"kind": "PodClique", "name": "my-0-worker", "uid": clique["metadata"]["uid"]}
        made = cluster.apply(resource, obj, field_manager=GROVE_MANAGER)
        clique = made if resource == PODCLIQUES else clique
    progress = {"updateStartedAt": STARTED, "currentlyUpdating": [{"replicaIndex": 0, "updateStartedAt": STARTED}]}
    statuses = {
        PODCLIQUESETS: ("my", {"replicas": 1, "currentGenerationHash": GROVES_HASH, "updateProgress": progress}),
        PODCLIQUES: ("my-0-worker", {"replicas": 2, "updateProgress": SELECTED}),
    }
    for resource, (name, status) in statuses.items():
        written = {"metadata": {"name": name, "namespace": "default"}, "status": status}
        cluster.apply(resource, written, field_manager=GROVE_MANAGER, subresource="status")


def knows_surge(cluster: ClusterClient) -> bool:
    """Return whether the server accepts what only our CRD of PodCliqueSets has."""
    ours = pod_clique_set("default", "probe", updateStrategy={"type": "ReplicaRecreate"})
    try:
        cluster.create(PODCLIQUESETS, ours, dry_run=True)
    except Invalid:
        return False
    return True


def uids(objects: Iterable[Obj]) -> set[str]:
    """Return the uids of objects."""
    return {obj["metadata"]["uid"] for obj in objects}


def versions(objects: Iterable[Obj]) -> dict[str, str]:
    """Return the resourceVersion of each object by its uid; its content depends on the defaults of the CRD."""
    return {obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"] for obj in objects}


def test_nothing_is_written_under_groves_definitions_and_a_takeover_under_ours_replaces_nothing(
    server: ApiServer, redis: Redis, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_operator, "RECENT_SECONDS", -60.0)  # as if Grove's operator had written long ago
    cluster = ClusterClient(kubeconfig(server.kubeconfig))
    make_by_grove(cluster)
    before, pods = list_all(cluster), uids(cluster.list(PODS, namespace="default").items)
    assert not knows_surge(cluster)
    with watching("real", partial(ClusterClient, kubeconfig(server.kubeconfig)), redis):
        wait_until(lambda: is_complete("real"), SECONDS)
        assert [reconciler.reconcile(KEY) for _ in range(5)] == [WAITS] * 5
        with pytest.raises(InvalidState, match=r"The definition of podcliquesets\.grove\.io .* is not Grove UI's"):
            workload_take_over(caller, PLACE, now=lambda: time.time() + 120)
        assert list_all(cluster) == before

        for path in DEFINITIONS.glob("*.yaml"):
            apply_definition(cluster, path, "kubectl")
        wait_until(lambda: knows_surge(cluster), SECONDS)
        assert versions(list_all(cluster)) == versions(before)
        # Of two writes in one second Grove's counts as the later one.
        written = max(find_last_write(obj, GROVE_MANAGER) or "" for obj in before)
        wait_until(lambda: render_time(time.time()) > written, SECONDS)
        told = workload_take_over(caller, PLACE, now=lambda: time.time() + 120)
        assert (told.pods, told.outdated) == (2, 0)
        assert uids(list_all(cluster)) == uids(before)

        for _ in range(10):
            assert getattr(reconciler.reconcile(KEY), "reason", "") != "OtherOperator"
    stored = cluster.get(PODCLIQUESETS, "my", namespace="default")
    assert stored["status"]["currentGenerationHash"] != GROVES_HASH
    assert stored["status"]["observedGeneration"] == stored["metadata"]["generation"]
    assert uids(before) <= uids(list_all(cluster))
    assert uids(cluster.list(PODS, namespace="default").items) == pods
