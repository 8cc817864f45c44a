"""/metrics: who may read it, and that it has every metric."""

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings
from redis import Redis

from rollouts import models
from rollouts.queue.dispatch import open_queue
from rollouts.telemetry import heartbeats, metrics
from tests.queue.delaying import delay

pytestmark = [pytest.mark.database, pytest.mark.django_db]

TOKEN = "s3cret-token"


@pytest.fixture(autouse=True)
def _nothing_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each test with empty counts."""
    monkeypatch.setattr(metrics, "_tally", metrics.Tally())


@pytest.fixture
def prometheus(settings: Settings, redis: Redis) -> Client:
    """A client with METRICS_TOKEN."""
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, metrics_token=TOKEN)
    return Client(headers={"authorization": f"Bearer {TOKEN}"})


@pytest.fixture
def cluster() -> models.Cluster:
    return models.Cluster.objects.create(name="sandbox")


def _scrape(client: Client) -> dict[tuple[str, ...], float]:
    """Return all samples by name and label values, in the order of the label names."""
    response = client.get("/metrics")
    assert response.status_code == 200
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.content.decode())
        for sample in family.samples
    }


def _workload(cluster: models.Cluster, name: str, **values: Any) -> models.Workload:
    row = models.Workload.objects.create(
        cluster=cluster,
        namespace="default",
        name=name,
        uid=name,
        resource_version=1,
        created=0.0,
        **{"manifest": {}, "replicas": 2, "updated_replicas": 2, **values},
    )
    assert isinstance(row, models.Workload)
    return row


def _clique(workload: models.Workload, replicas: int, updated: int) -> None:
    models.Clique.objects.create(
        cluster=workload.cluster,
        namespace=workload.namespace,
        name=f"{workload.name}-0-worker",
        uid=f"{workload.name}-0-worker",
        workload=workload.name,
        resource_version=1,
        created=0.0,
        status={"replicas": replicas, "updatedReplicas": updated},
    )


def _rollout(name: str, outcome: str) -> None:
    models.Rollout.objects.create(
        cluster="sandbox",
        namespace="default",
        name=name,
        workload_uid=name,
        to_hash="h",
        strategy="RollingUpdate",
        started=timezone.now(),
        outcome=outcome,
    )


def test_a_stranger_is_refused_and_not_sent_to_the_sign_in_page(client: Client, redis: Redis) -> None:
    response = client.get("/metrics")
    assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")


def test_an_account_that_sees_workloads_may_read_and_one_without_a_role_may_not(
    client: Client, admin_client: Client, redis: Redis
) -> None:
    assert admin_client.get("/metrics").status_code == 200
    nora = models.User.objects.create_user("nora")
    client.force_login(nora, "rollouts.accounts.permissions.AccountBackend")
    refused = client.get("/metrics")
    assert (refused.status_code, b"grove_ui_" in refused.content) == (403, False)
    nora.groups.add(Group.objects.get(name="viewer"))
    assert client.get("/metrics").status_code == 200


def test_a_token_lets_a_prometheus_in_by_the_address_of_a_pod(prometheus: Client) -> None:
    response = prometheus.get("/metrics", headers={"host": "10.1.2.3:8000"})
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("shown", ["Bearer wrong", f"Basic {TOKEN}", "Bearer ", ""])
def test_another_token_does_not(prometheus: Client, shown: str) -> None:
    assert Client(headers={"authorization": shown}).get("/metrics").status_code == 401


@pytest.mark.parametrize("shown", ["Bearer None", "Bearer ", ""])
def test_without_a_configured_token_none_is_right(redis: Redis, shown: str) -> None:
    assert Client(headers={"authorization": shown}).get("/metrics").status_code == 401


def test_nothing_can_be_written(prometheus: Client, admin_client: Client) -> None:
    assert admin_client.post("/metrics").status_code == 405
    assert prometheus.post("/metrics").status_code in (401, 405)


def test_the_queue_is_measured_by_state_and_age(prometheus: Client) -> None:
    queue = open_queue()
    queue.add(["sandbox/default/a", "sandbox/default/b"])
    queue.claim("sandbox/default/a")
    queue.add(["sandbox/default/a"])
    delay(queue, "sandbox/default/c", 60_000)
    seen = _scrape(prometheus)
    states = {state: seen["grove_ui_queue_keys", state] for state in ("ready", "flying", "dirty", "delayed")}
    assert states == {"ready": 1, "flying": 1, "dirty": 1, "delayed": 1}
    assert seen["grove_ui_queue_oldest_seconds",] >= 0


def test_rollouts_are_counted_by_state_and_absent_states_are_0(prometheus: Client, cluster: models.Cluster) -> None:
    for number, outcome in enumerate(["", "", "Complete", "Stuck"]):
        _rollout(f"w{number}", outcome)
    seen = _scrape(prometheus)
    states = {labels[2]: value for labels, value in seen.items() if labels[0] == "grove_ui_rollouts"}
    assert states == {"Progressing": 2, "Complete": 1, "Stuck": 1, "Superseded": 0, "RolledBack": 0, "Deleted": 0}


def test_outdated_pods_are_counted_where_an_update_is_behind(prometheus: Client, cluster: models.Cluster) -> None:
    _clique(_workload(cluster, "behind", updated_replicas=0), replicas=8, updated=3)
    _clique(_workload(cluster, "settled"), replicas=4, updated=4)
    seen = _scrape(prometheus)
    assert seen["grove_ui_outdated_pods", "sandbox"] == 5
    assert seen["grove_ui_workloads", "sandbox"] == 2


def test_outdated_pods_are_counted_too_while_surge_makes_up_for_them(
    prometheus: Client, cluster: models.Cluster
) -> None:
    rolling = _workload(cluster, "rolling", replicas=2, updated_replicas=2, update_ended_at=None)
    _clique(rolling, replicas=3, updated=2)
    done = _workload(cluster, "done", replicas=2, updated_replicas=2, update_ended_at=1.0)
    _clique(done, replicas=3, updated=1)  # not counted: its rollout is complete
    assert _scrape(prometheus)["grove_ui_outdated_pods", "sandbox"] == 1


def test_a_surge_that_does_not_come_up_is_counted_by_its_reason(prometheus: Client, cluster: models.Cluster) -> None:
    _workload(cluster, "a", stuck_reason="SurgeUnschedulable")
    _workload(cluster, "b", stuck_reason="WaitingForReady")
    seen = _scrape(prometheus)
    stuck = {labels: value for labels, value in seen.items() if labels[0] == "grove_ui_stuck_surges"}
    assert stuck == {("grove_ui_stuck_surges", "sandbox", "SurgeUnschedulable"): 1}


def test_passes_calls_rollouts_and_the_lag_of_the_watch_are_on_the_page(
    prometheus: Client, cluster: models.Cluster, redis: Redis
) -> None:
    metrics.observe_pass("Done", 0.02)
    metrics.call_observer("sandbox")("create", "pods", 201, 0.01)
    metrics.observe_rollout("RollingUpdate", "Complete", 30.0, 400.0)
    metrics.observe_watch("sandbox", 0.004)
    heartbeats.record_cluster_heartbeat(redis, "sandbox", {})
    seen = _scrape(prometheus)
    assert seen["grove_ui_reconcile_seconds_count", "Done"] == 1
    assert seen["grove_ui_api_call_seconds_count", "sandbox", "201", "pods", "create"] == 1
    assert seen["grove_ui_rollout_seconds_sum", "Complete", "progressing", "RollingUpdate"] == 30
    assert seen["grove_ui_rollout_seconds_bucket", "300.0", "Complete", "waiting", "RollingUpdate"] == 0
    assert seen["grove_ui_watch_lag_seconds_count", "sandbox"] == 1
    assert seen["grove_ui_cluster_silence_seconds", "sandbox"] >= 0


def test_a_redis_that_is_away_hides_nothing_else(
    prometheus: Client, cluster: models.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere: Redis = Redis.from_url("unix:///nonexistent/redis.sock")
    for module in ("selectors.gauges", "runtime.readiness", "queue.dispatch", "web.metrics"):
        monkeypatch.setattr(f"rollouts.{module}.redis_client", lambda: nowhere)
    seen = _scrape(prometheus)
    assert (seen["grove_ui_part_up", "redis"], seen["grove_ui_part_up", "database"]) == (0, 1)
    assert seen["grove_ui_workloads", "sandbox"] == 0
    assert ("grove_ui_queue_keys", "ready") not in seen


def test_the_number_of_queries_does_not_grow(
    prometheus: Client, cluster: models.Cluster, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(30):
        _clique(_workload(cluster, f"w{number}", updated_replicas=0), replicas=8, updated=3)
        _rollout(f"w{number}", "")
    with django_assert_num_queries(11):
        _scrape(prometheus)
