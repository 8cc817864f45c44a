"""A preview starts from the real cluster: its nodes, who else is there, and how this workload's pods have behaved."""

import time
from functools import partial
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from rollouts import mirror, models
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.cluster import Obj
from rollouts.cluster.resources import NODES
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.engine.model.observed import Observed
from rollouts.engine.simulation.cluster import UNLIMITED_NODES
from rollouts.engine.simulation.simulate import SimulationEnd
from rollouts.models import User
from rollouts.selectors.forecast import Assumptions, compute_forecast, fetch_surroundings
from rollouts.services.audit import Caller, Source
from rollouts.services.edit import Edit
from rollouts.services.simulation import workload_simulate
from rollouts.services.simulation_report import Simulated
from tests.api.read import fleet

pytestmark = pytest.mark.django_db

PLACE = WorkloadRef("sandbox", "default", "chat")
READY = [{"type": "Ready", "status": "True"}]


@pytest.fixture
def caller(silent_cluster: models.Cluster) -> Caller:
    """Somebody who may do everything."""
    return Caller(User.objects.create_superuser("ada"), "ada", None, "test-request", Source.PAGE)


def store_node(row: models.Cluster, name: str, gpus: int = 8, **spec: Any) -> None:
    """Put a node into the mirror."""
    conditions = spec.pop("conditions", READY)
    labels = spec.pop("labels", {})
    status = {"conditions": conditions, "allocatable": {"cpu": "32", "pods": "110", "nvidia.com/gpu": str(gpus)}}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "5", "labels": labels}
    mirror.store(row, NODES, [{"metadata": metadata, "spec": spec, "status": status}])


def store(row: models.Cluster, name: str = "chat", gpus: int = 1, pods: int = 4, **pod_spec: Any) -> Obj:
    """Put a workload into the mirror whose pods ask for GPUs, all of them on the node n1."""
    container = {"name": "main", "image": "example/web:v1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    spec = {"roleName": "web", "replicas": pods, "minAvailable": 1, "podSpec": {"containers": [container], **pod_spec}}
    manifest = fleet.podcliqueset(name, cliques=[{"name": "web", "spec": spec}])
    fleet.store_parts(row, manifest)
    asked = {"nvidia.com/gpu": gpus * 1000, "pods": 1000}
    models.Pod.objects.filter(workload=name).update(node="n1", requests=asked)
    return manifest


def forecast(caller: Caller, edit: Any = None, **belief: Any) -> Simulated:
    """Ask what a change would do, with everything as it is measured unless said otherwise."""
    change = Edit(Command.SET_IMAGES, edit or set_image("v2"))
    return workload_simulate(caller, PLACE, change, Assumptions(**{"seconds_to_ready": None, **belief}))


def set_image(tag: str) -> Any:
    """Return the edit that gives the pods another image."""
    return partial(edits.set_images, images=[ImageEdit("web", f"example/web:{tag}", "main")])


def said(told: Simulated) -> str:
    """Return what was assumed, in words."""
    return " ".join(one.text for one in told.assumptions)


def test_a_rollout_on_cordoned_nodes_gets_stuck_and_says_so(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster)
    store_node(silent_cluster, "n1", unschedulable=True)
    told = forecast(caller)
    assert told.end is SimulationEnd.STUCK
    assert "0 of 1 node take new pods (1 cordoned)" in said(told)
    assert forecast(caller, is_unlimited=True).end is SimulationEnd.DONE


def test_a_cluster_without_nodes_has_no_room(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster)
    told = forecast(caller)
    assert told.end is SimulationEnd.STUCK
    assert "The cluster has no nodes, so there is no room for new pods." in said(told)
    assert forecast(caller, is_unlimited=True).end is SimulationEnd.DONE


def test_until_all_nodes_are_listed_room_is_not_limited(silent_cluster: models.Cluster) -> None:
    workload = fleet.parse(store(silent_cluster))
    store_node(silent_cluster, "n1", unschedulable=True)
    silent_cluster.complete = False
    observed = Observed()
    around = fetch_surroundings(silent_cluster, PLACE.namespace, workload, observed, time.time())
    told = compute_forecast(workload, workload, observed, around)
    assert told.behaviour.nodes == UNLIMITED_NODES
    assert "The nodes of the cluster are still being listed, so room is not limited." in [
        one.text for one in told.assumptions
    ]


@pytest.mark.parametrize("budget", [{"maxUnavailable": 1}, {"maxUnavailable": 0, "maxSurge": 1}])
def test_a_preview_that_gets_stuck_offers_nothing_that_was_not_tried(
    caller: Caller, silent_cluster: models.Cluster, budget: dict[str, int]
) -> None:
    clique = {**fleet.clique("web", 4), "updateStrategy": budget}
    fleet.store_parts(
        silent_cluster, fleet.podcliqueset("chat", cliques=[clique], updateStrategy={"type": "RollingUpdate"})
    )
    models.Pod.objects.update(node="n1")
    store_node(silent_cluster, "n1", unschedulable=True)
    told = forecast(caller)
    assert told.end is SimulationEnd.STUCK
    assert {remedy for wait in told.waits for remedy in wait.remedies} == {"AddCapacity"}


def test_more_than_the_cluster_has_is_not_forecast_to_start(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster, gpus=2)
    for number in range(1, 9):
        store_node(silent_cluster, f"n{number}")
    # Eight nodes of eight GPUs, and four pods of two GPUs a replica.
    assert forecast(caller, partial(edits.scale, replicas=8)).end is SimulationEnd.DONE
    assert forecast(caller, partial(edits.scale, replicas=9)).end is SimulationEnd.STUCK


def test_pods_of_other_workloads_take_their_room(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster)
    store_node(silent_cluster, "n1")
    grow = partial(edits.scale, replicas=2)
    assert forecast(caller, grow).end is SimulationEnd.DONE
    store(silent_cluster, "other", pods=1)
    assert forecast(caller, grow).end is SimulationEnd.STUCK
    models.Pod.objects.filter(workload="other").update(phase="Succeeded")
    assert forecast(caller, grow).end is SimulationEnd.DONE


def test_pods_that_are_not_groves_take_their_room_too(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster)
    store_node(silent_cluster, "n1")
    grow = partial(edits.scale, replicas=2)
    told = forecast(caller, grow)
    assert told.end is SimulationEnd.DONE
    assert "Pods that Grove does not manage are not counted yet." in said(told)
    models.Node.objects.update(foreign_requests={"nvidia.com/gpu": 1000})
    told = forecast(caller, grow)
    assert told.end is SimulationEnd.STUCK
    assert "not counted" not in said(told)


@pytest.mark.parametrize(
    "node",
    [
        {"taints": [{"key": "dedicated", "value": "others", "effect": "NoSchedule"}]},
        {"labels": {"zone": "b"}},
        {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    ],
    ids=["tainted", "of another zone", "not ready"],
)
def test_nodes_that_a_pod_may_not_be_on_do_not_count(
    caller: Caller, silent_cluster: models.Cluster, node: dict[str, Any]
) -> None:
    store(silent_cluster, nodeSelector={"zone": "a"})
    grow = partial(edits.scale, replicas=2)
    store_node(silent_cluster, "n1", **{"labels": {"zone": "a"}, **node})
    assert forecast(caller, grow).end is SimulationEnd.STUCK
    store_node(silent_cluster, "n2", labels={"zone": "a"})
    assert forecast(caller, grow).end is SimulationEnd.DONE


def test_each_clique_takes_as_long_as_its_own_pods_took(caller: Caller, silent_cluster: models.Cluster) -> None:
    cliques = [fleet.clique("fast", 1), fleet.clique("slow", 1)]
    fleet.store_parts(silent_cluster, fleet.podcliqueset("chat", cliques=cliques))
    fleet.store_nodes(silent_cluster, 1)
    for pod in models.Pod.objects.all():
        pod.scheduled_at = pod.created + 100
        pod.ready_since = pod.scheduled_at + (8 if "fast" in pod.name else 40)
        pod.save()
    restart = partial(edits.restart, at="now", components=["fast"])
    assert forecast(caller, restart).seconds == 8
    told = forecast(caller, partial(edits.restart, at="now"))
    assert told.seconds == 40
    assert "New pods of fast take 8 s to become Ready (measured on 1 pod)." in said(told)
    assert told.pace.is_measured
    assert forecast(caller, restart, seconds_to_ready=7).seconds == 7


def fail(row: models.Cluster, **fields: Any) -> None:
    """Have one pod of the current template not be Ready, beside outdated ones that took two seconds."""
    fleet.store_parts(row, fleet.podcliqueset("chat", cliques=[fleet.clique("web", 3)]), outdated=[0])
    store_node(row, "n1")
    now = time.time()
    models.Pod.objects.update(scheduled_at=now - 500, ready_since=now - 498, node="n1")
    new = models.Pod.objects.order_by("name").first()
    assert new is not None
    new.template_hash = models.Clique.objects.get().template_hash
    models.Clique.objects.update(template_hash=new.template_hash)
    for name, value in {"ready": False, "scheduled_at": now - 9, **fields}.items():
        setattr(new, name, value)
    new.save()


RAISE = partial(edits.edit_strategy, changes={"type": "RollingUpdate", "components": {"web": {"maxUnavailable": 3}}})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "is not Ready after 9 s, usually 2 s"),
        ({"reason": "CrashLoopBackOff", "scheduled_at": None}, "CrashLoopBackOff"),
        ({"restarts": 2, "scheduled_at": None}, "2 restarts"),
    ],
)
def test_a_template_that_fails_is_forecast_to_go_on_failing(
    caller: Caller, silent_cluster: models.Cluster, fields: dict[str, Any], why: str
) -> None:
    fail(silent_cluster, **fields)
    told = forecast(caller, RAISE)
    assert told.end is SimulationEnd.STUCK
    assert "New pods of web never become Ready" in said(told)
    assert why in said(told)
    # What if it does, and what if the image is another one?
    assert forecast(caller, RAISE, all_ready=True).end is SimulationEnd.DONE
    assert forecast(caller).end is SimulationEnd.DONE


def test_a_crash_loop_without_a_readiness_probe_is_forecast_to_fail_also_while_its_container_runs(
    caller: Caller, silent_cluster: models.Cluster
) -> None:
    fail(silent_cluster, ready=True, restarts=2, ready_since=time.time() - 3)
    told = forecast(caller, RAISE)
    assert told.end is SimulationEnd.STUCK
    assert "New pods of web never become Ready (chat-0-web-00000: 2 restarts)." in said(told)


def test_a_template_that_has_not_had_its_time_is_forecast_to_become_ready(
    caller: Caller, silent_cluster: models.Cluster
) -> None:
    fail(silent_cluster, scheduled_at=time.time() - 1)
    assert forecast(caller, RAISE).end is SimulationEnd.DONE


def test_times_that_were_noted_count_where_an_update_has_replaced_all_pods(
    caller: Caller, silent_cluster: models.Cluster
) -> None:
    fail(silent_cluster)
    models.Pod.objects.filter(ready=True).delete()
    told = forecast(caller, RAISE)
    assert told.end is SimulationEnd.DONE
    assert "New pods of web take 30 s to become Ready (assumed, since no pod was measured)." in said(told)
    models.Workload.objects.update(ready_times=[["web", "former", 2.0, 3]])
    told = forecast(caller, RAISE)
    assert told.end is SimulationEnd.STUCK
    assert "is not Ready after 9 s, usually 2 s" in said(told)


def test_a_pod_of_which_nothing_like_it_was_measured_is_given_ten_minutes(
    caller: Caller, silent_cluster: models.Cluster
) -> None:
    fail(silent_cluster, scheduled_at=time.time() - 601)
    models.Pod.objects.filter(ready=True).delete()
    told = forecast(caller, RAISE)
    assert told.end is SimulationEnd.STUCK
    assert "is not Ready after 601 s)." in said(told)


def test_a_restart_repairs_no_template(caller: Caller, silent_cluster: models.Cluster) -> None:
    fail(silent_cluster)
    assert forecast(caller, partial(edits.restart, at="now")).end is SimulationEnd.STUCK


@pytest.mark.parametrize("supposed", [{}, {"is_full": True}, {"is_unlimited": True}])
def test_pods_that_select_and_tolerate_find_the_room_that_is_supposed(
    caller: Caller, silent_cluster: models.Cluster, supposed: dict[str, bool]
) -> None:
    taint = {"key": "special", "value": "", "effect": "NoSchedule"}
    tolerations = [{"key": "special", "operator": "Exists"}]
    store(silent_cluster, nodeSelector={"zone": "a"}, tolerations=tolerations)
    store_node(silent_cluster, "n1", labels={"zone": "a"}, taints=[taint])
    assert forecast(caller, **supposed).end is SimulationEnd.DONE
    # Nothing else fits where the pods that run fill their node.
    grown = forecast(caller, partial(edits.scale, replicas=2), **supposed)
    assert grown.end is (SimulationEnd.STUCK if supposed == {"is_full": True} else SimulationEnd.DONE)


def test_a_full_cluster_is_supposed_with_its_taints(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster)
    store_node(silent_cluster, "n1", taints=[{"key": "special", "value": "", "effect": "NoSchedule"}])
    assert forecast(caller, is_full=True).end is SimulationEnd.STUCK
    assert forecast(caller, is_unlimited=True).end is SimulationEnd.DONE


def test_a_pod_that_became_ready_again_after_two_days_is_not_measured(
    caller: Caller, silent_cluster: models.Cluster
) -> None:
    store(silent_cluster)
    store_node(silent_cluster, "n1")
    now = time.time()
    models.Pod.objects.update(scheduled_at=now - 180_000, ready_since=now - 7_200)
    assert "New pods of web take 30 s to become Ready (assumed, since no pod was measured)." in said(forecast(caller))
    models.Pod.objects.filter(name="chat-0-web-00000").update(ready_since=now - 179_995)
    assert "New pods of web take 5 s to become Ready (measured on 1 pod)." in said(forecast(caller))


def test_pods_whose_podclique_is_gone_keep_the_room_that_they_request(silent_cluster: models.Cluster) -> None:
    store(silent_cluster)
    found = mirror.fetch_cluster_snapshot(silent_cluster, (PLACE.namespace, PLACE.name), {}, {}, time.time())
    assert {*found.requests} == {*models.Pod.objects.values_list("name", flat=True)}
    assert not found.records


def test_what_is_not_simulated_is_told(caller: Caller, silent_cluster: models.Cluster) -> None:
    term = [{"topologyKey": "zone", "labelSelector": {}}]
    store(
        silent_cluster,
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}},
        volumes=[{"name": "tmp", "emptyDir": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        resourceClaims=[{"name": "gpu"}],
    )
    told = said(forecast(caller))
    assert "Not simulated: required pod (anti-)affinity, claimed volumes, resource claims of web." in told
    models.Pod.objects.all().delete()
    store(silent_cluster, volumes=[{"name": "tmp", "emptyDir": {}}])
    assert "Not simulated" not in said(forecast(caller))


def test_the_number_of_queries_does_not_grow(
    caller: Caller, silent_cluster: models.Cluster, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    store(silent_cluster)
    store_node(silent_cluster, "n1")
    place: tuple[Any, ...] = (silent_cluster, (PLACE.namespace, PLACE.name), {"chat-0-web": "web"}, {}, time.time())
    with django_assert_num_queries(4):
        mirror.fetch_cluster_snapshot(*place)
    for number in range(30):
        store(silent_cluster, f"other-{number}")
        store_node(silent_cluster, f"m{number}")
    with django_assert_num_queries(4):
        mirror.fetch_cluster_snapshot(*place)
