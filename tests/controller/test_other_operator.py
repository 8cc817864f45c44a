"""While Grove's own operator runs, Grove UI writes nothing: tested on an API server of its own."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from redis import Redis

from rollouts import models
from rollouts.accounts.errors import InvalidState
from rollouts.cluster import ClusterClient, kubeconfig
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.controller import reconciler
from rollouts.mirror import other_operator
from rollouts.mirror.other_operator import GROVE_FINALIZER, GROVE_MANAGER
from rollouts.models import User
from rollouts.queue.results import Done, RequeueAfter, Stop
from rollouts.services import workload_client
from rollouts.services.audit import Caller, Source
from rollouts.services.takeover import workload_take_over
from rollouts.telemetry import metrics
from rollouts.watcher import session
from tests import groves_operator
from tests.apiserver import ApiServer
from tests.contract.manifests import pod_clique_set
from tests.controlling import running_controller
from tests.groves_operator import (
    KEPT_BY_GROVE,
    KEY,
    PLACE,
    WAITS,
    Rival,
    keep_by_grove,
    list_all,
    mark_definition,
    renew_lease,
)
from tests.project.running import wait_until
from tests.watcher.watching import SECONDS, is_complete, watching

pytestmark = [pytest.mark.apiserver, pytest.mark.django_db(transaction=True)]

server, admin = groves_operator.server, groves_operator.admin


@pytest.fixture
def reconcile(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Run one pass over the workload, as a worker that has not checked yet."""

    def act() -> object:
        cluster = ClusterClient(kubeconfig(server.kubeconfig))
        monkeypatch.setattr(reconciler, "shared_cluster", lambda *_: cluster)
        return reconciler.reconcile(KEY)

    return act


def test_while_grove_writes_to_one_workload_no_other_is_written_to_nor_taken_over(
    *,
    server: ApiServer,
    admin: ClusterClient,
    redis: Redis,
    reconcile: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload_client, "cluster_names", lambda: ("real",))
    monkeypatch.setattr(workload_client, "shared_cluster", lambda *_: ClusterClient(kubeconfig(server.kubeconfig)))
    admin.create(PODCLIQUESETS, pod_clique_set("default", "other"))
    applied = {"metadata": {"name": "other", "namespace": "default", "finalizers": [GROVE_FINALIZER]}}
    admin.apply(PODCLIQUESETS, applied, field_manager=GROVE_MANAGER)
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    before = list_all(admin)
    caller = Caller(User.objects.create_superuser("ada"), "ada", None, "test-request", Source.API)
    with watching("real", partial(ClusterClient, kubeconfig(server.kubeconfig)), redis):
        wait_until(lambda: is_complete("real"), SECONDS)
        assert reconcile() == WAITS
        with pytest.raises(InvalidState, match=r"wrote PodCliqueSet other \d+ s ago, so it seems to run"):
            workload_take_over(caller, PLACE)
        with pytest.raises(InvalidState, match="wrote PodCliqueSet other"):
            workload_client.open_writable_client(PLACE)
    assert list_all(admin) == before


def test_a_new_set_waits_for_groves_finalizer_where_other_workloads_are_groves(
    *,
    server: ApiServer,
    admin: ClusterClient,
    redis: Redis,
    reconcile: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Grove's operator may have written nothing for a while."""
    monkeypatch.setattr(other_operator, "RECENT_SECONDS", -60.0)
    admin.create(PODCLIQUESETS, pod_clique_set("default", "other"))
    applied = {"metadata": {"name": "other", "namespace": "default", "finalizers": [GROVE_FINALIZER]}}
    admin.apply(PODCLIQUESETS, applied, field_manager=GROVE_MANAGER)
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    before = list_all(admin)
    with watching("real", partial(ClusterClient, kubeconfig(server.kubeconfig)), redis):
        wait_until(lambda: is_complete("real"), SECONDS)
        assert reconcile() == RequeueAfter(other_operator.FINALIZER_WAIT_SECONDS, "OtherOperator")
        assert list_all(admin) == before
        monkeypatch.setattr(other_operator, "FINALIZER_WAIT_SECONDS", 0.0)
        reconcile()
    assert list_all(admin) != before


@pytest.mark.parametrize(
    ("appear", "outcome"),
    [
        (partial(mark_definition, value=None), WAITS),
        (partial(renew_lease, ago=0), WAITS),
        (keep_by_grove, Stop(other_operator.find_grove_management(KEPT_BY_GROVE), "OtherOperator")),
    ],
    ids=["definition", "lease", "finalizer"],
)
def test_a_pass_beside_another_operator_writes_nothing(
    *,
    server: ApiServer,
    admin: ClusterClient,
    redis: Redis,
    reconcile: Callable[[], object],
    appear: Callable[[ClusterClient], Any],
    outcome: object,
) -> None:
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    appear(admin)
    before = list_all(admin)
    with watching("real", partial(ClusterClient, kubeconfig(server.kubeconfig)), redis):
        wait_until(lambda: is_complete("real"), SECONDS)
        assert reconcile() == outcome
    assert list_all(admin) == before


@pytest.mark.parametrize(
    ("appear", "finalizers"),
    [
        (partial(mark_definition, value=None), ()),
        (partial(renew_lease, ago=0), ()),
        (lambda _: None, (GROVE_FINALIZER,)),
        (lambda _: None, ()),
    ],
    ids=["definition", "lease", "finalizer", "managed fields"],
)
def test_beside_a_controller_that_makes_everything_again_nothing_is_deleted_or_made(
    *,
    server: ApiServer,
    admin: ClusterClient,
    redis: Redis,
    reconcile: Callable[[], object],
    appear: Callable[[ClusterClient], Any],
    finalizers: tuple[str, ...],
) -> None:
    rival = Rival(admin, admin.create(PODCLIQUESETS, pod_clique_set("default", "my")), finalizers)
    rival.reconcile()
    appear(admin)
    before, made = list_all(admin), rival.made
    with watching("real", partial(ClusterClient, kubeconfig(server.kubeconfig)), redis):
        wait_until(lambda: is_complete("real"), SECONDS)
        for _ in range(10):
            outcome = reconcile()
            rival.reconcile()
        assert isinstance(outcome, RequeueAfter | Stop)
        assert outcome.reason == "OtherOperator"
    assert (rival.made, list_all(admin)) == (made, before)


def count_observed(redis: Redis, histogram: metrics.Histogram) -> dict[tuple[str, ...], int]:
    """Return how often each combination of labels was counted."""
    spreads = dict(metrics.read(redis))[histogram]
    return {spread.labels: spread.buckets[-1][1] for spread in spreads}


def list_writes(redis: Redis) -> set[tuple[str, str]]:
    """Return what the processes of a controller have sent to their cluster but reads: verbs and resources."""
    calls = {(verb, resource) for _, verb, resource, _ in count_observed(redis, metrics.CALL_SECONDS)}
    return {call for call in calls if call[0] not in ("get", "list", "watch")}


def change_image(cluster: ClusterClient, tag: str) -> None:
    """Give the workload another image."""
    path = "/spec/template/cliques/0/spec/podSpec/containers/0/image"
    change = [{"op": "replace", "path": path, "value": f"app:{tag}"}]
    cluster.patch_json(PODCLIQUESETS, "my", change, namespace="default")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("appear", "variables", "outcome"),
    [
        (partial(mark_definition, value=None), {}, "Wait"),
        (partial(renew_lease, ago=0), {"READ_ONLY": "1"}, "Wait"),
        (lambda _: None, {"OBSERVE": "1"}, "Done"),
    ],
    ids=["definition", "lease", "observing"],
)
def test_the_running_controller_sends_no_write_beside_a_controller_that_makes_everything_again(
    *,
    server: ApiServer,
    admin: ClusterClient,
    tmp_path: Path,
    appear: Callable[[ClusterClient], Any],
    variables: dict[str, Any],
    outcome: str,
) -> None:
    rival = Rival(admin, admin.create(PODCLIQUESETS, pod_clique_set("default", "my")), ())
    rival.reconcile()
    appear(admin)
    made = rival.made
    with running_controller(tmp_path, server.kubeconfig, **variables) as controller:
        redis = Redis.from_url(controller.redis.url)
        for number in range(3):
            passes = count_observed(redis, metrics.PASS_SECONDS)
            change_image(admin, f"v{number + 2}")
            before = list_all(admin)
            wait_until(lambda: count_observed(redis, metrics.PASS_SECONDS) != passes, SECONDS)  # noqa: B023
            rival.reconcile()
            assert list_all(admin) == before
        assert {*count_observed(redis, metrics.PASS_SECONDS)} == {(outcome,)}
        assert list_writes(redis) == set()
    assert rival.made == made


@pytest.mark.slow
def test_the_running_controller_writes_where_nobody_else_is(
    server: ApiServer, admin: ClusterClient, tmp_path: Path
) -> None:
    """What the tests before this one count is what a controller sends."""
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    with running_controller(tmp_path, server.kubeconfig) as controller:
        redis = Redis.from_url(controller.redis.url)
        wait_until(lambda: ("create", "pods") in list_writes(redis), SECONDS)


def test_an_observing_installation_makes_no_pass(
    server: ApiServer, admin: ClusterClient, redis: Redis, reconcile: Callable[[], object], settings: Settings
) -> None:
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    before = list_all(admin)
    with watching("real", partial(ClusterClient, kubeconfig(server.kubeconfig)), redis):
        wait_until(lambda: is_complete("real"), SECONDS)
        settings.ENVIRONMENT = replace(settings.ENVIRONMENT, observe=True)
        assert reconcile() == Done()
        assert list_all(admin) == before
        settings.ENVIRONMENT = replace(settings.ENVIRONMENT, observe=False)
        reconcile()
    assert list_all(admin) != before


def test_the_watcher_says_so_while_it_lasts_and_wakes_the_workloads_afterwards(
    server: ApiServer, admin: ClusterClient, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_OPERATOR_CHECK_SECONDS", 0.1)
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))

    def said() -> str:
        return models.Cluster.objects.values_list("other_operator", flat=True).get(name="real")

    with watching("real", partial(ClusterClient, kubeconfig(server.kubeconfig)), redis) as heard:
        wait_until(lambda: KEY in heard.woken, SECONDS)
        assert said() == ""
        mark_definition(admin, None)
        wait_until(lambda: "is not Grove UI's" in said(), SECONDS)
        heard.woken.clear()
        mark_definition(admin, "v1alpha1")
        wait_until(lambda: said() == "" and KEY in heard.woken, SECONDS)
