"""Where Grove's own operator runs, Grove UI writes nothing: tried on an API server that nobody shares."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from redis import Redis

from rollouts import models, operators, reconciler
from rollouts.cluster import Cluster, Obj, kubeconfig
from rollouts.cluster.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    LEASES,
    PODCLIQUES,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from rollouts.commands import Place
from rollouts.operators import GROVE_FINALIZER, GROVE_LEASE, OperatorCheck
from rollouts.outcomes import Done, Stop, Wait
from rollouts.refusals import Contradiction
from rollouts.services import sites
from rollouts.watcher import session
from tests.apiserver import HOW_TO_GET_THEM, ApiServer, install_definitions, missing_binaries, running_apiserver
from tests.contract.manifests import pod_clique_set
from tests.mirror.watching import SECONDS, is_complete, watching
from tests.parts import missing
from tests.project.running import wait_until

pytestmark = [pytest.mark.apiserver, pytest.mark.django_db(transaction=True)]

KEY = "real/default/my"
PLACE = Place("real", "default", "my")
WAITS = Wait(60.0, "OtherOperator")
KEPT_BY_GROVE = {"metadata": {"finalizers": [GROVE_FINALIZER]}}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """An API server with our definitions."""
    if lacking := missing_binaries():
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    with running_apiserver() as running:
        install_definitions(Cluster(kubeconfig(running.kubeconfig)))
        yield running


@pytest.fixture
def admin(server: ApiServer) -> Iterator[Cluster]:
    """The cluster; after each test it has our definitions, no other operator and no workload."""
    cluster = Cluster(kubeconfig(server.kubeconfig))
    yield cluster
    mark_definition(cluster, "v1alpha1")
    for lease in cluster.list(LEASES, fields=f"metadata.name={GROVE_LEASE}").items:
        cluster.delete(LEASES, GROVE_LEASE, namespace=lease["metadata"]["namespace"])
    for obj in cluster.list(PODCLIQUESETS).items:
        name = obj["metadata"]["name"]
        cluster.patch_merge(PODCLIQUESETS, name, {"metadata": {"finalizers": None}}, namespace="default")
        cluster.delete(PODCLIQUESETS, name, namespace="default")


@pytest.fixture
def reconcile(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Take the workload one pass further, as a worker that has not looked yet."""

    def act() -> object:
        cluster = Cluster(kubeconfig(server.kubeconfig))
        monkeypatch.setattr(reconciler, "shared_cluster", lambda *_: cluster)
        return reconciler.reconcile(KEY)

    return act


def mark_definition(cluster: Cluster, value: str | None) -> None:
    """Make the definition of PodCliqueSets ours, or somebody else's."""
    change = {"metadata": {"annotations": {operators.DEFINITION: value}}}
    cluster.patch_merge(CUSTOMRESOURCEDEFINITIONS, "podcliquesets.grove.io", change)


def renew_lease(cluster: Cluster, ago: float) -> None:
    """Renew the lease of Grove's operator as if it were some seconds ago."""
    renewed = (datetime.now(UTC) - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "grove-operator-0", "leaseDurationSeconds": 15, "renewTime": renewed}
    if cluster.list(LEASES, fields=f"metadata.name={GROVE_LEASE}").items:
        cluster.patch_merge(LEASES, GROVE_LEASE, {"spec": spec}, namespace="kube-system")
    else:
        cluster.create(LEASES, {"metadata": {"name": GROVE_LEASE, "namespace": "kube-system"}, "spec": spec})


def keep_by_grove(cluster: Cluster) -> None:
    """Put the finalizer of Grove's operator on the workload."""
    cluster.patch_merge(PODCLIQUESETS, "my", KEPT_BY_GROVE, namespace="default")


def list_all(cluster: Cluster) -> list[Obj]:
    """Return everything that a controller writes, as it is now."""
    kinds = (PODCLIQUESETS, PODCLIQUES, PODGANGS, PODS, SERVICES)
    return [obj for kind in kinds for obj in cluster.list(kind, namespace="default").items]


def test_nobody_else_is_there_with_our_definitions_and_no_lease(admin: Cluster) -> None:
    assert OperatorCheck(admin).look() == ""


def test_a_definition_without_our_mark_is_somebody_elses(admin: Cluster) -> None:
    mark_definition(admin, None)
    assert "is not Grove UI's" in OperatorCheck(admin).look()


def test_a_lease_that_was_renewed_within_a_minute_is_held(admin: Cluster) -> None:
    renew_lease(admin, ago=30)
    assert "renews the lease kube-system/grove-operator-leader-election" in OperatorCheck(admin).look()


def test_a_lease_that_nobody_renews_any_more_is_none(admin: Cluster) -> None:
    renew_lease(admin, ago=70)
    check = OperatorCheck(admin)
    assert (check.look(), check.look()) == ("", "")


def test_a_lease_that_moves_on_is_held_whatever_our_clock_says(admin: Cluster) -> None:
    check = OperatorCheck(admin, clock=lambda: time.time() + 3600)
    renew_lease(admin, ago=10)
    assert check.look() == ""
    renew_lease(admin, ago=0)
    assert "renews the lease" in check.look()


def test_who_may_not_look_writes_nothing(server: ApiServer, admin: Cluster) -> None:
    restricted = Cluster(kubeconfig(server.kubeconfig, "restricted"))
    assert "Our account may not get customresourcedefinitions" in OperatorCheck(restricted).look()


@pytest.mark.parametrize(
    ("appear", "outcome"),
    [
        (partial(mark_definition, value=None), WAITS),
        (partial(renew_lease, ago=0), WAITS),
        (keep_by_grove, Stop(operators.find_other_keeper(KEPT_BY_GROVE), "OtherOperator")),
    ],
    ids=["definition", "lease", "finalizer"],
)
def test_a_pass_beside_another_operator_writes_nothing(
    *,
    server: ApiServer,
    admin: Cluster,
    redis: Redis,
    reconcile: Callable[[], object],
    appear: Callable[[Cluster], Any],
    outcome: object,
) -> None:
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    appear(admin)
    before = list_all(admin)
    with watching("real", partial(Cluster, kubeconfig(server.kubeconfig)), redis):
        wait_until(lambda: is_complete("real"), SECONDS)
        assert reconcile() == outcome
    assert list_all(admin) == before


def test_an_observing_installation_makes_no_pass(
    server: ApiServer, admin: Cluster, redis: Redis, reconcile: Callable[[], object], settings: Settings
) -> None:
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    before = list_all(admin)
    with watching("real", partial(Cluster, kubeconfig(server.kubeconfig)), redis):
        wait_until(lambda: is_complete("real"), SECONDS)
        settings.ENVIRONMENT = replace(settings.ENVIRONMENT, observe=True)
        assert reconcile() == Done()
        assert list_all(admin) == before
        settings.ENVIRONMENT = replace(settings.ENVIRONMENT, observe=False)
        reconcile()
    assert list_all(admin) != before


def test_the_watcher_says_so_while_it_lasts_and_wakes_the_workloads_afterwards(
    server: ApiServer, admin: Cluster, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_OPERATOR_SECONDS", 0.1)
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))

    def said() -> str:
        return models.Cluster.objects.values_list("other_operator", flat=True).get(name="real")

    with watching("real", partial(Cluster, kubeconfig(server.kubeconfig)), redis) as heard:
        wait_until(lambda: KEY in heard.woken, SECONDS)
        assert said() == ""
        mark_definition(admin, None)
        wait_until(lambda: "is not Grove UI's" in said(), SECONDS)
        heard.woken.clear()
        mark_definition(admin, "v1alpha1")
        wait_until(lambda: said() == "" and KEY in heard.woken, SECONDS)


def test_a_command_is_refused_with_the_same_sentence(
    server: ApiServer, admin: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "cluster_names", lambda: ("real",))
    monkeypatch.setattr(sites, "shared_cluster", lambda *_: Cluster(kubeconfig(server.kubeconfig)))
    assert sites.open_site(PLACE).place == PLACE
    mark_definition(admin, None)
    with pytest.raises(Contradiction, match="is not Grove UI's"):
        sites.open_site(PLACE)
    assert sites.find_site(PLACE).place == PLACE
