"""The watcher keeps the mirror equal to the cluster, enqueues workloads, and repairs what others break."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from redis import Redis

from rollouts import mirror, models, watcher
from rollouts.cluster import ClusterClient, Obj, RetryPolicy, kubeconfig
from rollouts.cluster.resources import NAMESPACES, NODES, PODCLIQUES, PODCLIQUESETS, PODS
from rollouts.engine.model import names
from rollouts.engine.model.metadata import make_owner_references
from rollouts.telemetry import heartbeats
from rollouts.watcher import session
from tests.contract.manifests import pod_clique, pod_clique_set
from tests.contract.sandbox_process import SandboxProcess
from tests.project.running import wait_until
from tests.redis_process import running_redis
from tests.watcher.watching import SECONDS, Heard, is_complete, kubeconfig_to_nowhere, trouble, watching

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

EAGER = RetryPolicy(deadline=10, initial_backoff=0.05, max_backoff=0.2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sandbox")


@pytest.fixture(scope="module")
def sandbox(folder: Path) -> Iterator[SandboxProcess]:
    with SandboxProcess(folder, SANDBOX_NODES="cpu=1,gpu=0") as process:
        yield process


@pytest.fixture(scope="module")
def cluster(sandbox: SandboxProcess) -> ClusterClient:
    return ClusterClient(kubeconfig(sandbox.kubeconfig))


@pytest.fixture
def namespace(cluster: ClusterClient) -> str:
    """A namespace that no other test uses."""
    created = cluster.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"m-{time.monotonic_ns()}"}}
    )
    return str(created["metadata"]["name"])


@pytest.fixture
def heard(sandbox: SandboxProcess, redis: Redis) -> Iterator[Heard]:
    """A watcher of the sandbox that has listed everything."""
    with watching(
        "east", partial(ClusterClient, kubeconfig(sandbox.kubeconfig), retry_policy=EAGER), redis
    ) as listening:
        wait_until(lambda: is_complete("east"), SECONDS)
        yield listening


def create_set(cluster: ClusterClient, namespace: str, name: str = "my") -> Obj:
    """Create a PodCliqueSet."""
    return cluster.create(PODCLIQUESETS, pod_clique_set(namespace, name))


def owned_pod(namespace: str, name: str, owner: Obj) -> Obj:
    """Return a gated pod with the owner and labels of a set."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {names.MANAGED_BY: names.OPERATOR, names.PART_OF: "my"},
            "ownerReferences": make_owner_references("PodCliqueSet", "my", owner["metadata"]["uid"]),
        },
        "spec": {
            "schedulingGates": [{"name": names.SCHEDULING_GATE}],
            "containers": [{"name": "main", "image": "a:1"}],
        },
    }


def shown(namespace: str) -> list[str]:
    """Return the names of the pods that the mirror has."""
    return sorted(models.Pod.objects.filter(namespace=namespace).values_list("name", flat=True))


def test_what_was_there_before_is_mirrored_and_woken(cluster: ClusterClient, namespace: str, heard: Heard) -> None:
    """The order of the fixtures matters: the watcher starts after the namespace, and before the set."""
    create_set(cluster, namespace)
    key = f"east/{namespace}/my"
    wait_until(lambda: key in heard.woken, SECONDS)
    (workload,) = models.Workload.objects.filter(namespace=namespace)
    assert workload.replicas == 1
    wait_until(lambda: models.Node.objects.count() == len(cluster.list(NODES).items), SECONDS)


def test_a_watcher_that_begins_lists_everything_and_wakes_it(
    cluster: ClusterClient, namespace: str, sandbox: SandboxProcess, redis: Redis
) -> None:
    create_set(cluster, namespace)
    with watching("east", partial(ClusterClient, kubeconfig(sandbox.kubeconfig)), redis) as listening:
        wait_until(lambda: f"east/{namespace}/my" in listening.woken, SECONDS)
        wait_until(lambda: is_complete("east"), SECONDS)
    row = models.Cluster.objects.get()
    assert (row.version, row.trouble_code) == ("v1.36.3+sandbox", "")
    assert row.identity == cluster.get(NAMESPACES, "kube-system")["metadata"]["uid"]
    assert row.url.startswith("http://127.0.0.1:")


def test_counts_and_signs_of_life_are_told(cluster: ClusterClient, namespace: str, heard: Heard, redis: Redis) -> None:
    create_set(cluster, namespace)
    sets = len(cluster.list(PODCLIQUESETS).items)
    wait_until(lambda: heartbeats.fetch_cluster_heartbeat(redis, "east").counts.get("podcliquesets") == sets, SECONDS)
    assert heartbeats.fetch_cluster_heartbeat(redis, "east").trouble is None
    wait_until(lambda: models.Cluster.objects.get().heard_at is not None, SECONDS)


def test_changes_wake_their_workload_and_what_changes_nothing_wakes_nobody(
    cluster: ClusterClient, namespace: str, heard: Heard
) -> None:
    create_set(cluster, namespace, "one")
    create_set(cluster, namespace, "two")
    one, two = f"east/{namespace}/one", f"east/{namespace}/two"
    wait_until(lambda: one in heard.woken and two in heard.woken, SECONDS)
    heard.woken.clear()
    # The event of one comes before that of two: both come from the same watch.
    touched: Obj = {"metadata": {"managedFields": [{}]}}
    version = cluster.patch_merge(PODCLIQUESETS, "one", touched, namespace=namespace)["metadata"]["resourceVersion"]
    cluster.patch_merge(PODCLIQUESETS, "two", {"spec": {"replicas": 2}}, namespace=namespace)
    wait_until(lambda: two in heard.woken, SECONDS)
    assert heard.woken == [two]
    assert models.Workload.objects.get(namespace=namespace, name="one").resource_version == int(version)


def test_pods_of_others_are_not_mirrored(cluster: ClusterClient, namespace: str, heard: Heard) -> None:
    owner = create_set(cluster, namespace)
    foreign = owned_pod(namespace, "foreign", owner)
    del foreign["metadata"]["labels"]
    cluster.create(PODS, foreign)
    cluster.create(PODS, owned_pod(namespace, "ours", owner))
    wait_until(lambda: "ours" in shown(namespace), SECONDS)
    assert shown(namespace) == ["ours"]


def test_what_pods_of_others_request_is_noted_on_their_node(
    cluster: ClusterClient, namespace: str, monkeypatch: pytest.MonkeyPatch, sandbox: SandboxProcess, redis: Redis
) -> None:
    monkeypatch.setattr(session, "_OPERATOR_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(session, "_FOREIGN_PODS_SECONDS", 0.05)
    requests = {"cpu": "250m", "memory": "1Gi"}
    spec = {
        "nodeName": "cpu-node-0",
        "containers": [{"name": "main", "image": "a:1", "resources": {"requests": requests}}],
    }
    with watching("east", partial(ClusterClient, kubeconfig(sandbox.kubeconfig), retry_policy=EAGER), redis):
        wait_until(lambda: foreign_requests() == {}, SECONDS)
        metadata = {"namespace": namespace, "name": "foreign"}
        cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        asked = {"cpu": 250, "memory": 2**30 * 1000, "pods": 1000}
        wait_until(lambda: foreign_requests() == asked, SECONDS)
        cluster.patch_merge(NODES, "cpu-node-0", {"metadata": {"labels": {"moved": namespace}}})
        wait_until(lambda: models.Node.objects.get().labels.get("moved") == namespace, SECONDS)
        assert foreign_requests() == asked
        cluster.delete(PODS, "foreign", namespace=namespace)
        wait_until(lambda: foreign_requests() == {}, SECONDS)


def foreign_requests() -> dict[str, int] | None:
    """Return what pods of others request on the only node, as the mirror has it."""
    node = models.Node.objects.first()
    return None if node is None else node.foreign_requests


def test_a_deleted_workload_vanishes_with_all_that_it_had(cluster: ClusterClient, namespace: str, heard: Heard) -> None:
    owner = create_set(cluster, namespace)
    for name in ("one", "two"):
        cluster.create(PODS, owned_pod(namespace, name, owner))
    wait_until(lambda: shown(namespace) == ["one", "two"], SECONDS)
    heard.changes.clear()
    cluster.delete(PODCLIQUESETS, "my", namespace=namespace)
    wait_until(lambda: not any(rows_of(namespace)), SECONDS)
    wait_until(lambda: any(change.deleted and change.kind == "workload" for change in heard.changes), SECONDS)
    mirror.delete_tombstones(before=float("inf"))
    assert not models.Pod.everything.filter(namespace=namespace).exists()


def rows_of(namespace: str) -> list[bool]:
    """Return for each kind whether the mirror has objects of a namespace."""
    return [table.model.objects.filter(namespace=namespace).exists() for table in mirror.MIRRORED.values()]


def test_wake_ups_wait_for_redis_and_then_everything_is_woken(
    cluster: ClusterClient, namespace: str, heard: Heard
) -> None:
    create_set(cluster, namespace, "quiet")
    wait_until(lambda: f"east/{namespace}/quiet" in heard.woken, SECONDS)
    heard.is_redis_away = True
    heard.woken.clear()
    create_set(cluster, namespace, "loud")
    wait_until(lambda: heard.refused > 0, SECONDS)
    assert heard.woken == []
    heard.is_redis_away = False
    wait_until(lambda: {f"east/{namespace}/quiet", f"east/{namespace}/loud"} <= set(heard.woken), SECONDS)


def test_a_failure_to_tell_is_no_reason_to_stop_waking(cluster: ClusterClient, namespace: str, heard: Heard) -> None:
    heard.failures = [RuntimeError("what nobody thought of")]
    create_set(cluster, namespace)
    wait_until(lambda: f"east/{namespace}/my" in heard.woken, SECONDS)
    assert heard.failures == []


def test_a_lost_lease_wakes_everything_once_more(
    cluster: ClusterClient, namespace: str, heard: Heard, redis: Redis
) -> None:
    create_set(cluster, namespace)
    wait_until(lambda: f"east/{namespace}/my" in heard.woken, SECONDS)
    heard.woken.clear()
    redis.flushall()
    wait_until(lambda: f"east/{namespace}/my" in heard.woken, SECONDS)


def test_dropped_rows_come_back_with_everything(cluster: ClusterClient, namespace: str, heard: Heard) -> None:
    owner = create_set(cluster, namespace)
    cluster.create(PODS, owned_pod(namespace, "one", owner))
    wait_until(lambda: shown(namespace) == ["one"], SECONDS)
    former = models.Cluster.objects.get()
    models.Cluster.objects.all().delete()
    wait_until(lambda: is_complete("east") and shown(namespace) == ["one"], SECONDS)
    assert models.Workload.objects.get(namespace=namespace).cluster_id != former.pk


def test_rows_dropped_while_the_cluster_is_busy_come_back_too(
    cluster: ClusterClient, namespace: str, heard: Heard
) -> None:
    """The next write finds that the row it refers to is gone."""
    owner = create_set(cluster, namespace)
    wait_until(lambda: models.Workload.objects.filter(namespace=namespace).exists(), SECONDS)
    models.Cluster.objects.all().delete()
    cluster.create(PODS, owned_pod(namespace, "one", owner))
    wait_until(lambda: is_complete("east") and shown(namespace) == ["one"], SECONDS)
    assert models.Workload.objects.filter(namespace=namespace).exists()


def test_rows_of_one_kind_that_somebody_dropped_come_back(
    cluster: ClusterClient, namespace: str, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(watcher._PERIODS, "count", 0.2)
    owner = create_set(cluster, namespace)
    cluster.create(PODS, owned_pod(namespace, "one", owner))
    wait_until(lambda: shown(namespace) == ["one"], SECONDS)
    models.Pod.everything.all().delete()
    wait_until(lambda: shown(namespace) == ["one"], SECONDS)


def test_another_cluster_at_the_same_address_replaces_the_mirror(tmp_path: Path, redis: Redis) -> None:
    with SandboxProcess(tmp_path, SANDBOX_NODES="cpu=3,gpu=0") as process:
        api = ClusterClient(kubeconfig(process.kubeconfig))
        for name in ("a", "b", "c"):
            create_set(api, "default", name)
        with watching(
            "east", partial(ClusterClient, kubeconfig(process.kubeconfig), retry_policy=EAGER), redis
        ) as listening:
            wait_until(lambda: is_complete("east") and models.Workload.objects.count() == 3, SECONDS)
            process.stop()
            process.forget()
            process.start()
            uid = create_set(api, "default", "b")["metadata"]["uid"]
            wait_until(lambda: list(models.Workload.objects.values_list("name", "uid")) == [("b", uid)], SECONDS)
            wait_until(lambda: is_complete("east"), SECONDS)
            wait_until(lambda: "east/default/b" in listening.woken, SECONDS)


def test_a_cluster_that_went_away_is_said_and_heard_again_when_it_is_back(tmp_path: Path, redis: Redis) -> None:
    with SandboxProcess(tmp_path) as process:
        api = ClusterClient(kubeconfig(process.kubeconfig))
        create_set(api, "default")
        with watching(
            "east", partial(ClusterClient, kubeconfig(process.kubeconfig), retry_policy=EAGER), redis
        ) as listening:
            wait_until(lambda: is_complete("east"), SECONDS)
            process.stop()
            wait_until(lambda: trouble("east")[0] == "Unreachable", SECONDS)
            assert models.Cluster.objects.get().trouble_since is not None
            assert "Unreachable" in (heartbeats.fetch_cluster_heartbeat(redis, "east").trouble or "")
            listening.woken.clear()
            process.start()
            wait_until(lambda: trouble("east") == ("", ""), SECONDS)
            assert models.Cluster.objects.get().trouble_since is None
            wait_until(lambda: "east/default/my" in listening.woken, SECONDS)


def test_a_cluster_that_never_answers_is_said(redis: Redis, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(kubeconfig_to_nowhere())
    with watching("away", partial(ClusterClient, kubeconfig(config), retry_policy=EAGER), redis):
        wait_until(lambda: trouble("away")[0] == "Unreachable", SECONDS)
    assert not is_complete("away")


def test_a_certificate_that_is_not_verified_is_said_once_however_often_a_watcher_begins(
    redis: Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config, begun = tmp_path / "config", list[ClusterClient]()
    nowhere = yaml.safe_load(kubeconfig_to_nowhere())
    nowhere["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    config.write_text(yaml.safe_dump(nowhere))

    def connect() -> ClusterClient:
        begun.append(ClusterClient(kubeconfig(config), retry_policy=EAGER))
        return begun[-1]

    with watching("away", connect, redis):
        wait_until(lambda: trouble("away")[0] == "Unreachable", SECONDS)
        models.Cluster.objects.all().delete()
        wait_until(lambda: len(begun) >= 2, SECONDS)
    (said,) = [text for text in caplog.messages if "is not verified" in text]
    assert "https://127.0.0.1:1" in said
    assert "certificate-authority" in said


def test_a_dropped_row_of_a_cluster_that_is_away_comes_back_with_its_trouble(redis: Redis, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(kubeconfig_to_nowhere())
    with watching("away", partial(ClusterClient, kubeconfig(config), retry_policy=EAGER), redis):
        wait_until(lambda: trouble("away")[0] == "Unreachable", SECONDS)
        models.Cluster.objects.all().delete()
        wait_until(lambda: trouble("away")[0] == "Unreachable", SECONDS)


def test_whoever_leads_again_tells_again_how_the_cluster_is(
    cluster: ClusterClient, sandbox: SandboxProcess, heard: Heard, redis: Redis
) -> None:
    lease = redis.get("grove:leader:east")
    assert lease is not None
    redis.set("grove:leader:east", "another watcher")
    models.Cluster.objects.update(trouble_code="Unreachable", trouble="as the other one had it", complete=True)
    redis.delete("grove:leader:east")
    wait_until(lambda: redis.get("grove:leader:east") == lease, SECONDS)
    wait_until(lambda: trouble("east") == ("", ""), SECONDS)


def test_a_configuration_that_cannot_be_used_is_said_and_tried_again(
    sandbox: SandboxProcess, redis: Redis, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    with watching("late", lambda: ClusterClient(kubeconfig(config), retry_policy=EAGER), redis) as listening:
        wait_until(lambda: trouble("late")[0] == "Misconfigured", SECONDS)
        assert "does not exist" in trouble("late")[1]
        assert listening.woken == []
        shutil.copy(sandbox.kubeconfig, config)
        wait_until(lambda: is_complete("late"), SECONDS)
        wait_until(lambda: trouble("late") == ("", ""), SECONDS)


def test_a_second_watcher_stands_by_until_the_first_one_ends(
    cluster: ClusterClient, namespace: str, sandbox: SandboxProcess, redis: Redis
) -> None:
    connect = partial(ClusterClient, kubeconfig(sandbox.kubeconfig), retry_policy=EAGER)
    with contextlib.ExitStack() as stack:
        with watching("east", connect, redis) as first:
            wait_until(lambda: is_complete("east"), SECONDS)
            second = stack.enter_context(watching("east", connect, redis))
            create_set(cluster, namespace, "one")
            wait_until(lambda: f"east/{namespace}/one" in first.woken, SECONDS)
            assert second.woken == []
        create_set(cluster, namespace, "two")
        wait_until(lambda: {f"east/{namespace}/one", f"east/{namespace}/two"} <= set(second.woken), SECONDS)
    assert redis.get("grove:leader:east") is None


def test_whoever_leads_goes_on_while_redis_is_away(
    cluster: ClusterClient, namespace: str, sandbox: SandboxProcess, tmp_path: Path
) -> None:
    connect = partial(ClusterClient, kubeconfig(sandbox.kubeconfig), retry_policy=EAGER)
    with (
        running_redis(tmp_path / "redis.sock", tmp_path / "redis") as server,
        Redis.from_url(server.url) as redis,
        watching("east", connect, redis) as listening,
    ):
        wait_until(lambda: is_complete("east"), SECONDS)
        server.kill()
        create_set(cluster, namespace)
        wait_until(lambda: f"east/{namespace}/my" in listening.woken, SECONDS)
        listening.woken.clear()
        server.forget()
        server.start()
        wait_until(lambda: f"east/{namespace}/my" in listening.woken, SECONDS)
        wait_until(lambda: bool(heartbeats.fetch_cluster_heartbeat(redis, "east").counts), SECONDS)


def test_cliques_of_the_api_are_read_back(cluster: ClusterClient, namespace: str, heard: Heard) -> None:
    owner = create_set(cluster, namespace)
    labels = {names.MANAGED_BY: names.OPERATOR, names.PART_OF: "my", names.REPLICA_INDEX: "0"}
    owners = make_owner_references("PodCliqueSet", "my", owner["metadata"]["uid"])
    cluster.create(PODCLIQUES, pod_clique(namespace, "my-0-worker", labels=labels, ownerReferences=owners))
    wait_until(lambda: models.Clique.objects.filter(namespace=namespace).exists(), SECONDS)
    # Each kind has its own watch: the first event may be notified last.
    wait_until(lambda: models.Workload.objects.filter(namespace=namespace).exists(), SECONDS)
    seen = mirror.fetch_workload(models.Cluster.objects.get(), namespace, "my")
    assert seen is not None
    assert [(clique.template, clique.replicas, clique.leaving) for clique in seen.observed.cliques] == [
        ("worker", 2, False)
    ]
