"""While Grove's own operator runs, Grove UI writes nothing: tested on an API server of its own."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pytest_django.fixtures import Settings
from redis import Redis

from rollouts import mirror, models
from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import ClusterUnavailable, CommandRefused, InvalidState
from rollouts.cluster import ClusterClient, Obj, Resource, kubeconfig
from rollouts.cluster.client import FIELD_MANAGER
from rollouts.cluster.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    LEASES,
    PODCLIQUES,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from rollouts.controller import reconciler
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.engine.model import names
from rollouts.mirror import other_operator
from rollouts.mirror.other_operator import GROVE_FINALIZER, GROVE_LEASE, GROVE_MANAGER, OperatorCheck
from rollouts.models import User
from rollouts.queue.results import Done, RequeueAfter, Stop
from rollouts.services import workload_client
from rollouts.services.apply import workload_apply
from rollouts.services.audit import Caller, Source
from rollouts.services.changes import execute
from rollouts.services.takeover import workload_take_over
from rollouts.services.workload_deletion import workload_delete
from rollouts.services.workloads import (
    edit_strategy,
    restart,
    scale,
    set_images,
)
from rollouts.telemetry import metrics
from rollouts.watcher import session
from tests.apiserver import (
    DEFINITIONS,
    HOW_TO_GET_THEM,
    ApiServer,
    install_definitions,
    missing_binaries,
    running_apiserver,
)
from tests.contract.manifests import pod_clique_set
from tests.controlling import running_controller
from tests.engine.manifests import pod as pod_spec
from tests.parts import missing
from tests.project.running import wait_until
from tests.watcher.watching import SECONDS, is_complete, watching

pytestmark = [pytest.mark.apiserver, pytest.mark.django_db(transaction=True)]

KEY = "real/default/my"
PLACE = WorkloadRef("real", "default", "my")
WAITS = RequeueAfter(60.0, "OtherOperator")
GROVES_DEFINITIONS = Path(__file__).parent / "groves_definitions"
KEPT_BY_GROVE = {"metadata": {"finalizers": [GROVE_FINALIZER]}}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """An API server with our CRDs."""
    if lacking := missing_binaries():
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    with running_apiserver() as running:
        install_definitions(ClusterClient(kubeconfig(running.kubeconfig)))
        yield running


@pytest.fixture
def admin(server: ApiServer) -> Iterator[ClusterClient]:
    """The cluster; after each test it has our CRDs, no other operator and no workload."""
    cluster = ClusterClient(kubeconfig(server.kubeconfig))
    yield cluster
    for path in DEFINITIONS.glob("*.yaml"):
        apply_definition(cluster, path)
    for lease in cluster.list(LEASES, fields=f"metadata.name={GROVE_LEASE}").items:
        cluster.delete(LEASES, GROVE_LEASE, namespace=lease["metadata"]["namespace"])
    for obj in cluster.list(PODCLIQUESETS).items:
        name = obj["metadata"]["name"]
        cluster.patch_merge(PODCLIQUESETS, name, {"metadata": {"finalizers": None}}, namespace="default")
        cluster.delete(PODCLIQUESETS, name, namespace="default")
    for kind in (PODGANGS, PODCLIQUES, SERVICES, PODS):
        for obj in cluster.list(kind, namespace="default", labels=f"{names.PART_OF}=my").items:
            cluster.delete(kind, obj["metadata"]["name"], namespace="default", grace_seconds=0)


@pytest.fixture
def check(admin: ClusterClient) -> OperatorCheck:
    """A new check, which has not run yet."""
    return OperatorCheck(admin, mirror.ensure_cluster("real").pk)


@pytest.fixture
def reconcile(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Run one pass over the workload, as a worker that has not checked yet."""

    def act() -> object:
        cluster = ClusterClient(kubeconfig(server.kubeconfig))
        monkeypatch.setattr(reconciler, "shared_cluster", lambda *_: cluster)
        return reconciler.reconcile(KEY)

    return act


def mark_definition(cluster: ClusterClient, value: str | None, name: str = "podcliquesets.grove.io") -> None:
    """Set or remove the annotation of a CRD that makes it ours."""
    change = {"metadata": {"annotations": {other_operator.DEFINITION_ANNOTATION: value}}}
    cluster.patch_merge(CUSTOMRESOURCEDEFINITIONS, name, change)


def apply_definition(cluster: ClusterClient, path: Path, manager: str = FIELD_MANAGER) -> Obj:
    """Apply a CRD over the existing one, as an installation does."""
    return cluster.apply(CUSTOMRESOURCEDEFINITIONS, yaml.safe_load(path.read_text()), field_manager=manager, force=True)


def renew_lease(cluster: ClusterClient, ago: float) -> None:
    """Renew the lease of Grove's operator as if it were some seconds ago."""
    renewed = (datetime.now(UTC) - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "grove-operator-0", "leaseDurationSeconds": 15, "renewTime": renewed}
    if cluster.list(LEASES, fields=f"metadata.name={GROVE_LEASE}").items:
        cluster.patch_merge(LEASES, GROVE_LEASE, {"spec": spec}, namespace="kube-system")
    else:
        cluster.create(LEASES, {"metadata": {"name": GROVE_LEASE, "namespace": "kube-system"}, "spec": spec})


def keep_by_grove(cluster: ClusterClient) -> None:
    """Put the finalizer of Grove's operator on the workload."""
    cluster.patch_merge(PODCLIQUESETS, "my", KEPT_BY_GROVE, namespace="default")


def list_all(cluster: ClusterClient) -> list[Obj]:
    """Return all objects that a controller writes, as they are now."""
    kinds = (PODCLIQUESETS, PODCLIQUES, PODGANGS, PODS, SERVICES)
    return [obj for kind in kinds for obj in cluster.list(kind, namespace="default").items]


def test_nobody_else_is_there_with_our_definitions_and_no_lease(check: OperatorCheck) -> None:
    assert check.check_now() == ""


EACH_DEFINITION = pytest.mark.parametrize("name", sorted(path.stem for path in DEFINITIONS.glob("*.yaml")))


@EACH_DEFINITION
def test_a_definition_without_our_mark_is_somebody_elses(admin: ClusterClient, check: OperatorCheck, name: str) -> None:
    group, plural = name.split("_")
    mark_definition(admin, None, f"{plural}.{group}")
    assert f"The definition of {plural}.{group} in this cluster is not Grove UI's" in check.check_now()


@EACH_DEFINITION
def test_a_schema_that_was_applied_over_ours_is_somebody_elses_although_our_mark_stays(
    admin: ClusterClient, check: OperatorCheck, name: str
) -> None:
    """The fields of one field manager stay when another one applies the rest."""
    group, plural = name.split("_")
    applied = apply_definition(admin, GROVES_DEFINITIONS / f"{name}.yaml", "crd-installer")
    assert other_operator.DEFINITION_ANNOTATION in applied["metadata"]["annotations"]
    assert f"The definition of {plural}.{group} in this cluster is not Grove UI's" in check.check_now()
    apply_definition(admin, DEFINITIONS / f"{name}.yaml", "kubectl")
    assert check.check_now() == ""


def test_a_version_of_somebody_else_beside_ours_is_served_by_somebody_else(
    admin: ClusterClient, check: OperatorCheck
) -> None:
    definition = yaml.safe_load((DEFINITIONS / "grove.io_podcliques.yaml").read_text())
    theirs = yaml.safe_load((GROVES_DEFINITIONS / "grove.io_podcliques.yaml").read_text())["spec"]["versions"][0]
    definition["spec"]["versions"].append({**theirs, "name": "v1beta1", "storage": False})
    admin.apply(CUSTOMRESOURCEDEFINITIONS, definition, field_manager="crd-installer", force=True)
    assert "The definition of podcliques.grove.io in this cluster is not Grove UI's" in check.check_now()


def test_a_lease_that_was_renewed_within_a_minute_is_held(admin: ClusterClient, check: OperatorCheck) -> None:
    renew_lease(admin, ago=30)
    assert "renews the lease kube-system/grove-operator-leader-election" in check.check_now()
    assert "Stop it, then take its workloads over" in check.check_now()


def look_after(check: OperatorCheck, monkeypatch: pytest.MonkeyPatch, seconds: float) -> str:
    """Check again, some seconds later by the monotonic clock."""
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + seconds, time=time.time)
    monkeypatch.setattr(other_operator, "time", later)
    return check.check_now()


def test_a_lease_that_nobody_renews_any_more_is_none(
    admin: ClusterClient, check: OperatorCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This takes as long as the lease lasts: its time may come from another clock than ours."""
    renew_lease(admin, ago=70)
    assert "has not watched the lease kube-system/grove-operator-leader-election for 15 s" in check.check_now()
    assert "has not watched the lease" in look_after(check, monkeypatch, 14)
    assert look_after(check, monkeypatch, 30) == ""


def test_a_lease_that_lasts_longer_is_watched_for_longer(
    admin: ClusterClient, check: OperatorCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew_lease(admin, ago=70)
    admin.patch_merge(LEASES, GROVE_LEASE, {"spec": {"leaseDurationSeconds": 60}}, namespace="kube-system")
    check.check_now()
    assert "for 60 s" in look_after(check, monkeypatch, 50)
    assert look_after(check, monkeypatch, 70) == ""


def test_a_lease_that_was_given_up_or_is_days_old_delays_no_start(admin: ClusterClient, check: OperatorCheck) -> None:
    renew_lease(admin, ago=2 * 86_400)
    assert check.check_now() == ""
    renew_lease(admin, ago=0)
    admin.patch_merge(LEASES, GROVE_LEASE, {"spec": {"holderIdentity": ""}}, namespace="kube-system")
    assert check.check_now() == ""


@pytest.mark.parametrize("ahead", [120, 3_600, 14 * 3_600])
def test_a_lease_that_moves_on_is_held_whatever_our_clock_says(
    admin: ClusterClient, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    check = OperatorCheck(admin, mirror.ensure_cluster("real").pk, clock=lambda: time.time() + ahead)
    renew_lease(admin, ago=10)
    assert "has not watched the lease" in check.check_now()
    renew_lease(admin, ago=0)
    assert "renews the lease" in look_after(check, monkeypatch, 20)
    assert "renews the lease" in look_after(check, monkeypatch, 30)
    assert look_after(check, monkeypatch, 40) == ""


def test_a_lease_that_moves_on_is_held_although_our_clock_is_days_ahead(admin: ClusterClient) -> None:
    check = OperatorCheck(admin, mirror.ensure_cluster("real").pk, clock=lambda: time.time() + 2 * 86_400)
    renew_lease(admin, ago=10)
    check.check_now()
    renew_lease(admin, ago=0)
    assert ["renews the lease" in check.check_now() for _ in range(2)] == [True, True]


def test_who_may_not_look_writes_nothing(server: ApiServer, admin: ClusterClient) -> None:
    restricted = ClusterClient(kubeconfig(server.kubeconfig, "restricted"))
    row = mirror.ensure_cluster("real").pk
    assert "Grove UI's account may not get customresourcedefinitions" in OperatorCheck(restricted, row).check_now()


def test_one_check_sees_a_mark_come_and_go(
    admin: ClusterClient, check: OperatorCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 11))
    monkeypatch.setattr(other_operator, "time", SimpleNamespace(monotonic=lambda: float(next(clock)), time=time.time))
    assert check.check() == ""
    mark_definition(admin, None)
    assert "is not Grove UI's" in check.check()
    mark_definition(admin, "v1alpha1")
    assert check.check() == ""
    renew_lease(admin, ago=0)
    assert "renews the lease" in check.check()
    admin.delete(LEASES, GROVE_LEASE, namespace="kube-system")
    assert check.check() == ""


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


# ---- a second controller


class Rival:
    """What a running operator of Grove's does: it creates every missing object again, under its own field manager."""

    def __init__(self, cluster: ClusterClient, stored: Obj, finalizers: Sequence[str]) -> None:
        self.made = 0
        self._cluster = cluster
        self._wanted = [*made_by_grove(stored)]
        applied = {"metadata": {"name": "my", "namespace": "default", "finalizers": [*finalizers]}}
        cluster.apply(PODCLIQUESETS, applied, field_manager=GROVE_MANAGER)

    def reconcile(self) -> None:
        """Create what is missing."""
        for resource, obj in self._wanted:
            name = obj["metadata"]["name"]
            there = {one["metadata"]["name"] for one in self._cluster.list(resource, namespace="default").items}
            if name not in there:
                self._cluster.apply(resource, obj, field_manager=GROVE_MANAGER)
                self.made += 1


def made_by_grove(stored: Obj) -> Iterator[tuple[Resource, Obj]]:
    """Yield a PodClique of two pods, its pods and its gang, with Grove's hash and without the label of the gang."""
    owner = {"kind": "PodCliqueSet", "name": "my", "uid": stored["metadata"]["uid"]}
    labels = {names.PART_OF: "my", names.MANAGED_BY: names.OPERATOR}
    placed = {**labels, names.REPLICA_INDEX: "0", names.TEMPLATE_HASH: "5d98c7b84"}
    spec = {"roleName": "worker", "replicas": 2, "minAvailable": 1, "podSpec": pod_spec()}
    yield PODCLIQUES, {"metadata": _metadata("my-0-worker", placed, owner), "spec": spec}
    for index in "01":
        mine = {**placed, names.CLIQUE: "my-0-worker", names.POD_INDEX: index}
        held = {"schedulingGates": [{"name": names.SCHEDULING_GATE}]}
        metadata = _metadata(f"my-0-worker-{index}", mine, owner)
        yield PODS, {"metadata": metadata, "spec": pod_spec() | held}
    yield PODGANGS, {"metadata": _metadata("my-0", labels, owner), "spec": {"podgroups": []}}


def _metadata(name: str, labels: dict[str, str], owner: dict[str, str]) -> Obj:
    reference = {**owner, "apiVersion": "grove.io/v1alpha1", "controller": True, "blockOwnerDeletion": True}
    return {"name": name, "namespace": "default", "labels": labels, "ownerReferences": [reference]}


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


@pytest.mark.parametrize(
    ("appear", "sentence"),
    [
        (partial(mark_definition, value=None), "is not Grove UI's"),
        (partial(renew_lease, ago=0), "renews the lease"),
        (lambda _: None, "so it still runs. Stop it"),
    ],
    ids=["definition", "lease", "managed fields"],
)
def test_a_workload_is_not_taken_over_while_another_operator_runs(
    *,
    server: ApiServer,
    admin: ClusterClient,
    redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
    appear: Callable[[ClusterClient], Any],
    sentence: str,
) -> None:
    monkeypatch.setattr(workload_client, "cluster_names", lambda: ("real",))
    monkeypatch.setattr(workload_client, "shared_cluster", lambda *_: ClusterClient(kubeconfig(server.kubeconfig)))
    caller = Caller(User.objects.create_superuser("ada"), "ada", None, "test-request", Source.API)
    rival = Rival(admin, admin.create(PODCLIQUESETS, pod_clique_set("default", "my")), (GROVE_FINALIZER,))
    rival.reconcile()
    appear(admin)
    before = list_all(admin)
    for dry_run in (True, False):
        with pytest.raises(InvalidState, match=sentence):
            workload_take_over(caller, PLACE, dry_run=dry_run)
    assert list_all(admin) == before


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


def test_a_command_is_refused_with_the_same_sentence(
    server: ApiServer, admin: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_client, "cluster_names", lambda: ("real",))
    monkeypatch.setattr(workload_client, "shared_cluster", lambda *_: ClusterClient(kubeconfig(server.kubeconfig)))
    mirror.ensure_cluster("real")
    models.Cluster.objects.update(complete=True)
    assert workload_client.open_writable_client(PLACE).place == PLACE
    mark_definition(admin, None)
    with pytest.raises(InvalidState, match="is not Grove UI's"):
        workload_client.open_writable_client(PLACE)
    assert workload_client.open_client(PLACE).place == PLACE


# ---- commands to a workload that the mirror does not know

COMMANDS: dict[str, Callable[[Caller], object]] = {
    "strategy": lambda caller: execute(caller, PLACE, edit_strategy({"type": "OnDelete"})),
    "images": lambda caller: execute(caller, PLACE, set_images([ImageEdit("worker", "app:v2")])),
    "scale": lambda caller: execute(caller, PLACE, scale(3)),
    "scale one replica": lambda caller: execute(caller, PLACE, scale(3, "worker", 0)),
    "restart": lambda caller: execute(caller, PLACE, restart()),
    "apply": lambda caller: workload_apply(caller, PLACE, pod_clique_set("default", "my", replicas=2)),
    "delete": lambda caller: workload_delete(caller, PLACE),
}


@pytest.fixture
def caller(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """A caller with all permissions, in the only cluster."""
    cluster = ClusterClient(kubeconfig(server.kubeconfig))
    monkeypatch.setattr(workload_client, "cluster_names", lambda: ("real",))
    monkeypatch.setattr(workload_client, "shared_cluster", lambda *_: cluster)
    return Caller(User.objects.create_superuser("ada"), "ada", None, "test-request", Source.API)


def refusal_of(command: Callable[[Caller], object], caller: Caller) -> tuple[type[CommandRefused], str]:
    """Run a command, and return the error."""
    with pytest.raises(CommandRefused) as refused:
        command(caller)
    return refused.type, refused.value.sentence


@pytest.mark.parametrize("name", COMMANDS)
def test_while_the_cluster_is_being_listed_nobody_commands_anything(
    name: str, admin: ClusterClient, redis: Redis, caller: Caller
) -> None:
    """The mirror does not know yet which operator manages the workload."""
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    keep_by_grove(admin)
    before = list_all(admin)
    kind, sentence = refusal_of(COMMANDS[name], caller)
    assert (kind, list_all(admin)) == (ClusterUnavailable, before)
    assert "objects of real are still being listed" in sentence


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_looks_at_the_set_itself_where_the_mirror_has_none(
    name: str, admin: ClusterClient, redis: Redis, caller: Caller
) -> None:
    mirror.ensure_cluster("real")
    models.Cluster.objects.update(complete=True)
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    keep_by_grove(admin)
    before = list_all(admin)
    kind, sentence = refusal_of(COMMANDS[name], caller)
    assert (kind, list_all(admin)) == (InvalidState, before)
    assert "Grove's own operator manages this set" in sentence


def test_a_command_looks_at_who_wrote_the_set_last_where_the_mirror_has_an_older_one(
    admin: ClusterClient, redis: Redis, caller: Caller, server: ApiServer
) -> None:
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    with watching("real", partial(ClusterClient, kubeconfig(server.kubeconfig)), redis):
        wait_until(lambda: is_complete("real"), SECONDS)
    note = {"metadata": {"name": "my", "namespace": "default", "annotations": {"grove.io/reconcile-trigger": "1"}}}
    admin.apply(PODCLIQUESETS, note, field_manager=GROVE_MANAGER)
    before = list_all(admin)
    kind, sentence = refusal_of(COMMANDS["scale"], caller)
    assert (kind, list_all(admin)) == (InvalidState, before)
    assert "wrote PodCliqueSet my after Grove UI" in sentence


def test_a_component_that_grove_wrote_last_is_not_scaled(admin: ClusterClient, redis: Redis, caller: Caller) -> None:
    mirror.ensure_cluster("real")
    models.Cluster.objects.update(complete=True)
    resource, clique = next(made_by_grove(admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))))
    admin.apply(resource, clique, field_manager=GROVE_MANAGER)
    before = list_all(admin)
    kind, sentence = refusal_of(COMMANDS["scale one replica"], caller)
    assert (kind, list_all(admin)) == (InvalidState, before)
    assert "wrote PodClique my-0-worker after Grove UI" in sentence
