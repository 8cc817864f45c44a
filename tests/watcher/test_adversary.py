"""Nothing that a cluster reports, and no thread that fails, keeps a watcher from mirroring."""

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from rollouts import mirror, models, watcher
from rollouts.cluster import ClusterClient, Obj, Resource, RetryPolicy, kubeconfig
from rollouts.cluster.client import Page
from rollouts.cluster.resources import NAMESPACES, PODCLIQUES, PODCLIQUESETS
from rollouts.engine.model.template_keys import TEMPLATE_KEYS
from rollouts.mirror import writing
from rollouts.mirror.rows import Row, Table, make_row
from rollouts.telemetry import heartbeats
from tests.apiserver import free_port
from tests.contract.manifests import pod_clique, pod_clique_set
from tests.contract.sandbox_process import SandboxProcess
from tests.project.running import wait_until
from tests.watcher.watching import SECONDS, is_complete, trouble, watching

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

EAGER = RetryPolicy(deadline=10, initial_backoff=0.05, max_backoff=0.2)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    with SandboxProcess(tmp_path_factory.mktemp("sandbox"), SANDBOX_NODES="cpu=1,gpu=0") as process:
        yield process


@pytest.fixture
def cluster(sandbox: SandboxProcess) -> Iterator[ClusterClient]:
    api = ClusterClient(kubeconfig(sandbox.kubeconfig))
    yield api
    for resource in (PODCLIQUES, PODCLIQUESETS):
        for obj in api.list(resource, namespace="default").items:
            api.delete(resource, obj["metadata"]["name"], namespace="default")


def workloads() -> set[str]:
    """Return the names of the workloads that the mirror has."""
    return set(models.Workload.objects.values_list("name", flat=True))


def cliques() -> set[str]:
    """Return the names of the PodCliques that the mirror has."""
    return set(models.Clique.objects.values_list("name", flat=True))


@contextlib.contextmanager
def _elsewhere(process: SandboxProcess) -> Iterator[None]:
    """Run a sandbox at another address for a while."""
    home, process._port = process._port, free_port()
    process.start()
    try:
        yield
    finally:
        process.stop()
        process._port = home


class _Stumbling(ClusterClient):
    """A client that fails once at a kind with an unexpected error."""

    stumbles: int = 0

    def list_page(self, resource: Resource, **options: Any) -> Page:
        if resource == PODCLIQUES and not _Stumbling.stumbles:
            _Stumbling.stumbles += 1
            raise RuntimeError("nobody foresees this")
        return super().list_page(resource, **options)


def test_a_thread_that_listens_and_fails_is_made_up_for(sandbox: SandboxProcess, redis: Redis) -> None:
    _Stumbling.stumbles = 0
    with watching("east", partial(_Stumbling, kubeconfig(sandbox.kubeconfig), retry_policy=EAGER), redis):
        wait_until(lambda: is_complete("east"), SECONDS)
    assert _Stumbling.stumbles == 1


class _Slow(ClusterClient):
    """A client that gets PodCliques late."""

    may_go_on = threading.Event()

    def list_page(self, resource: Resource, **options: Any) -> Page:
        if resource == PODCLIQUES:
            _Slow.may_go_on.wait(SECONDS)
        return super().list_page(resource, **options)


def test_a_cluster_is_not_called_heard_before_the_mirror_has_caught_up(sandbox: SandboxProcess, redis: Redis) -> None:
    """Passes trust the mirror of a cluster with a recent heartbeat; after a long silence all must be listed first."""
    heartbeats.record_cluster_heartbeat(redis, "east", {})
    (key,) = redis.keys("grove:heartbeat:cluster:*")
    redis.hset(key, "heard", 1000.0)
    models.Cluster.objects.create(name="east", complete=True, trouble_code="Unreachable", trouble="It was away.")
    with watching("east", partial(_Slow, kubeconfig(sandbox.kubeconfig), retry_policy=EAGER), redis):
        try:
            wait_until(models.Node.objects.exists, SECONDS)
            for _ in range(2):  # turns of the watcher, in which it reports what it knows
                redis.delete("grove:leader:east")
                wait_until(lambda: bool(redis.exists("grove:leader:east")), SECONDS)
            assert (heartbeats.fetch_cluster_heartbeat(redis, "east").age or 0.0) > 3600
            assert trouble("east")[0] == "Unreachable"
        finally:
            _Slow.may_go_on.set()
        wait_until(lambda: (heartbeats.fetch_cluster_heartbeat(redis, "east").age or 0.0) < 3600, SECONDS)
        wait_until(lambda: trouble("east") == ("", ""), SECONDS)


def test_an_object_that_cannot_be_stored_neither_hides_others_nor_has_everything_listed_again(
    cluster: ClusterClient, sandbox: SandboxProcess, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(table: Table, obj: Obj) -> Row:
        if obj["metadata"]["name"] == "poison":
            raise TypeError("not as the schema says")
        return make_row(table, obj)

    monkeypatch.setattr(writing, "make_row", poisoned)
    monkeypatch.setattr(watcher, "_PERIODS", watcher._PERIODS | {"count": 0.2})
    cluster.create(PODCLIQUES, pod_clique("default", "poison"))
    connections: list[ClusterClient] = []

    def connect() -> ClusterClient:
        connections.append(ClusterClient(kubeconfig(sandbox.kubeconfig), retry_policy=EAGER))
        return connections[-1]

    with watching("east", connect, redis):
        wait_until(lambda: is_complete("east"), SECONDS)
        for number in range(5):
            cluster.create(PODCLIQUES, pod_clique("default", f"good-{number}"))
            wait_until(lambda number=number: f"good-{number}" in cliques(), SECONDS)  # type: ignore[misc]
    assert len(connections) == 1


def test_an_annotation_with_what_no_database_keeps_does_no_harm(cluster: ClusterClient) -> None:
    odd = pod_clique("default", "odd")
    odd["metadata"]["annotations"] = {TEMPLATE_KEYS: "a\0b"}
    stored = cluster.create(PODCLIQUES, odd)
    mirror.store(mirror.ensure_cluster("east"), PODCLIQUES, [stored])
    assert cliques() == {"odd"}


def test_another_cluster_with_a_longer_past_replaces_the_mirror_too(tmp_path: Path, redis: Redis) -> None:
    with SandboxProcess(tmp_path, SANDBOX_NODES="cpu=1,gpu=0") as process:
        api = ClusterClient(kubeconfig(process.kubeconfig))
        for name in ("a", "b"):
            api.create(PODCLIQUESETS, pod_clique_set("default", name))
        with watching("east", partial(ClusterClient, kubeconfig(process.kubeconfig), retry_policy=EAGER), redis):
            wait_until(lambda: is_complete("east") and models.Workload.objects.count() == 2, SECONDS)
            process.stop()
            process.forget()
            # As long as the watcher asks at another port it does not meet the new one half made.
            with _elsewhere(process):
                api = ClusterClient(kubeconfig(process.kubeconfig))
                created = api.create(PODCLIQUESETS, pod_clique_set("default", "b"))
                for number in range(200):
                    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"n{number}"}}
                    api.create(NAMESPACES, namespace)
            process.start()
            wait_until(
                lambda: list(models.Workload.objects.values_list("name", "uid")) == [("b", created["metadata"]["uid"])],
                SECONDS,
            )


def test_a_cluster_that_is_made_anew_at_another_address_is_found(tmp_path: Path, redis: Redis) -> None:
    """As tools for local clusters do it: the same context of the kubeconfig now names another port."""
    config = tmp_path / "config"
    for name in ("former", "later"):
        (tmp_path / name).mkdir()
    with SandboxProcess(tmp_path / "former", SANDBOX_NODES="cpu=1,gpu=0") as former:
        config.write_bytes(former.kubeconfig.read_bytes())
        ClusterClient(kubeconfig(config)).create(PODCLIQUESETS, pod_clique_set("default", "a"))
        with watching("east", partial(ClusterClient, kubeconfig(config), retry_policy=EAGER), redis):
            wait_until(lambda: workloads() == {"a"}, SECONDS)
            former.stop()
            with SandboxProcess(tmp_path / "later", SANDBOX_NODES="cpu=1,gpu=0") as later:
                config.write_bytes(later.kubeconfig.read_bytes())
                ClusterClient(kubeconfig(config)).create(PODCLIQUESETS, pod_clique_set("default", "b"))
                wait_until(lambda: workloads() == {"b"}, SECONDS)
