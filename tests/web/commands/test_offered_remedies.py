"""Only remedies that help are offered, on the page and by the API, and finding them out costs little."""

import copy
import time
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from rollouts import models
from rollouts.engine.model.actions import Kind, Wait, WriteStatus
from rollouts.engine.model.container_faults import ContainerFault
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.engine.plan.planner import plan_tree
from rollouts.engine.tree.layout import make_layout
from rollouts.selectors import remedies
from rollouts.selectors.activity import summarize_waits
from rollouts.selectors.diagnosis import Diagnosis, diagnosis_detail
from rollouts.selectors.workload_snapshot import read_snapshot
from tests.api.read import fleet
from tests.web.commands.test_forecast import PLACE

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    """Have nothing found out by another test."""
    remedies._cache.clear()


@pytest.fixture(autouse=True)
def _node(silent_cluster: models.Cluster) -> None:
    """Have room for every pod."""
    fleet.store_nodes(silent_cluster, 1)


def store_failing(row: models.Cluster, fault: str = "", *, with_revision: bool = True) -> Any:
    """Put a rollout into the mirror whose first new pod crashes, beside two healthy ones of the old template.

    Return its manifest. Without a fault its containers say why they wait, and nothing of how they ended.
    """
    strategy = {"type": "RollingUpdate"}
    manifest = fleet.podcliqueset("chat", cliques=[fleet.clique("web", 3)], updateStrategy=strategy)
    fleet.store_parts(row, manifest, outdated=[0])
    now = time.time()
    models.Pod.objects.update(scheduled_at=now - 900, ready_since=now - 898, node="n1")
    wanted = compute_hash(manifest)
    models.Clique.objects.update(template_hash=wanted)
    new = models.Pod.objects.order_by("name").first()
    assert new is not None
    new.template_hash, new.ready, new.reason, new.restarts = wanted, False, fault or "CrashLoopBackOff", 4
    new.fault = fault
    new.save()
    begin_update()
    if with_revision:
        store_revisions(manifest, "v0", "v1")
    return manifest


def store_lost_surge(row: models.Cluster) -> None:
    """Put a rollout into the mirror whose first surge pod is up, and whose second one is on a node that is down."""
    budget = {"maxUnavailable": 0, "maxSurge": 2}
    cliques = [{**fleet.clique("web", 3), "updateStrategy": budget}]
    manifest = fleet.podcliqueset("chat", cliques=cliques, updateStrategy={"type": "RollingUpdate"})
    fleet.store_parts(row, manifest, outdated=[0])
    now, wanted = time.time(), compute_hash(manifest)
    models.Pod.objects.update(scheduled_at=now - 900, ready_since=now - 898, node="n1")
    models.Clique.objects.update(template_hash=wanted)
    pattern = models.Pod.objects.order_by("name").first()
    assert pattern is not None
    for index, ready in ((3, True), (4, False)):
        name = f"chat-0-web-surge{index}"
        new = copy.copy(pattern)
        new.pk, new.name, new.uid, new.index, new.template_hash, new.ready = None, name, name, index, wanted, ready
        new.save(force_insert=True)
    begin_update()
    store_revisions(manifest, "v0", "v1")


def begin_update() -> None:
    """Write the status that the controller would write, as long as it has anything to say."""
    row = models.Workload.objects.get()
    for _ in range(10):
        look = read_snapshot(PLACE)
        assert look.planner_input is not None
        planned = plan_tree(look.planner_input.layout, look.planner_input.tree, look.mirrored.observed.status, look.now)
        told = [one.status for one in planned.actions if isinstance(one, WriteStatus) and one.kind is Kind.SET]
        if not told:
            return
        row.manifest = {**row.manifest, "status": told[-1]}
        row.save()


def compute_hash(manifest: Any) -> str:
    """Return the template hash of the only clique."""
    return make_layout(fleet.parse(manifest)).hashes["web"]


def store_revisions(manifest: Any, *tags: str) -> None:
    """Put the templates before the current one on record, by the tags of their images, and the current one."""
    for number, tag in enumerate(tags, start=1):
        one = copy.deepcopy(manifest)
        one["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"] = f"example/web:{tag}"
        models.Revision.objects.create(
            **whose(manifest),
            number=number,
            generation_hash=compute_generation_hash(fleet.parse(one)),
            template=one["spec"]["template"],
            created="2026-01-01T00:00:00Z",
        )


def whose(manifest: Any) -> dict[str, str]:
    """Return whose history it is."""
    return {
        "cluster": "sandbox",
        "namespace": "default",
        "name": "chat",
        "workload_uid": manifest["metadata"]["uid"],
    }


def planned_waits() -> tuple[Wait, ...]:
    """Return what the plan waits for, with what would help by the rules alone."""
    look = read_snapshot(PLACE)
    assert look.planner_input is not None
    return plan_tree(look.planner_input.layout, look.planner_input.tree, look.mirrored.observed.status, look.now).waits


def offered(told: Diagnosis) -> set[str]:
    """Return every remedy that is offered."""
    return {remedy for wait in told.waits for remedy in wait.remedies}


@pytest.mark.parametrize("fault", ["", *ContainerFault])
def test_a_broken_image_is_rolled_back_and_nothing_healthy_is_taken_down(
    silent_cluster: models.Cluster, fault: str
) -> None:
    store_failing(silent_cluster, fault)
    told = diagnosis_detail(PLACE)
    assert {wait.code for wait in told.waits} >= {fault or "WaitingForReady", "BudgetExhausted"}
    assert offered(told) == {"RollBack", "LookAtPods"}
    first = summarize_waits(told.waits)[0]
    assert (first.code, first.remedies[0]) == (fault or "WaitingForReady", ("RollBack", "Roll back", "chat-0-web"))


def test_rolling_back_leads_to_the_newest_revision_that_was_ever_complete(
    silent_cluster: models.Cluster, client: Client
) -> None:
    manifest = store_failing(silent_cluster, with_revision=False)
    store_revisions(manifest, "good", "bad", "v1")
    client.force_login(models.User.objects.create_superuser("ada"))
    place = {"cluster": PLACE.cluster, "namespace": PLACE.namespace, "name": PLACE.name}
    address = reverse("command-remedy", kwargs={**place, "code": "RollBack"})
    assert client.get(address).headers["Location"].endswith("/roll-back/2/"), "no rollout is on record"
    good = models.Revision.objects.get(number=1)
    start = {"strategy": "RollingUpdate", "started": "2026-01-01T00:00:00Z"}
    models.Rollout.objects.create(**whose(manifest), **start, to_hash=good.generation_hash, outcome="Complete")
    assert client.get(address).headers["Location"].endswith("/roll-back/1/")
    remedies._cache.clear()
    former = remedies._make_rolled_back(read_snapshot(PLACE))
    assert former is not None
    assert former.cliques[0].pod_spec["containers"][0]["image"] == "example/web:good"


def test_a_budget_that_an_override_sets_is_not_offered_to_be_raised(silent_cluster: models.Cluster) -> None:
    store_lost_surge(silent_cluster)
    assert "RaiseMaxUnavailable" in offered(diagnosis_detail(PLACE))
    author = models.User.objects.create_user("ada")
    override = {"name": "chat", "components": {"web": {"maxUnavailable": 0}}, "reason": "night shift"}
    models.StrategyOverride.objects.create(**override, author=author)
    assert "RaiseMaxUnavailable" in {one for wait in planned_waits() for one in wait.remedies}
    assert "RaiseMaxUnavailable" not in offered(diagnosis_detail(PLACE))


def test_waits_that_are_no_problem_have_no_remedies(silent_cluster: models.Cluster) -> None:
    store_failing(silent_cluster)
    # The image was changed just now, and nobody knows yet that it is broken.
    models.Pod.objects.filter(ready=False).update(reason="", restarts=0, scheduled_at=time.time(), ready_since=None)
    assert {"RaiseMaxUnavailable", "LookAtPods", "RollBack"} == {
        one for wait in planned_waits() for one in wait.remedies
    }
    told = diagnosis_detail(PLACE)
    assert {(wait.code, wait.is_problem) for wait in told.waits} == {
        ("WaitingForReady", False),
        ("BudgetExhausted", False),
    }
    assert offered(told) == set()


def test_outdated_pods_that_wait_to_be_deleted_keep_their_command(silent_cluster: models.Cluster) -> None:
    manifest = fleet.podcliqueset("chat", cliques=[fleet.clique("web", 3)], updateStrategy={"type": "OnDelete"})
    fleet.store_parts(silent_cluster, manifest, outdated=[0])
    (wait,) = diagnosis_detail(PLACE).waits
    assert (wait.code, wait.is_problem, wait.remedies) == ("AwaitingDeletion", False, ("DeleteOutdatedPods",))


def test_a_budget_that_a_problem_exhausts_is_part_of_it_and_may_be_raised_if_that_helps(
    silent_cluster: models.Cluster,
) -> None:
    store_lost_surge(silent_cluster)
    told = {wait.code: wait for wait in diagnosis_detail(PLACE).waits}
    assert (told["BudgetExhausted"].is_problem, told["BudgetExhausted"].remedies) == (True, ("RaiseMaxUnavailable",))
    first = summarize_waits(told.values())[0]
    assert first.code == "SurgeNotReady"
    assert [code for code, _, _ in first.remedies] == [
        *("RollBack", "LookAtPods", "SetMaxSurgeToZero", "DeleteSurge", "RaiseMaxUnavailable")
    ]


def test_without_a_revision_to_go_back_to_rolling_back_is_not_offered(silent_cluster: models.Cluster) -> None:
    store_failing(silent_cluster, with_revision=False)
    assert offered(diagnosis_detail(PLACE)) == {"LookAtPods"}


def test_what_was_found_out_is_not_found_out_again(
    silent_cluster: models.Cluster, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    store_failing(silent_cluster)
    first = diagnosis_detail(PLACE)
    with django_assert_max_num_queries(8):  # the cluster, the workload with its parts, overrides
        again = diagnosis_detail(PLACE)
    assert [wait.remedies for wait in again.waits] == [wait.remedies for wait in first.waits]
    models.Pod.objects.filter(ready=False).update(resource_version=10**9)
    assert len(remedies._cache) == 1
    diagnosis_detail(PLACE)
    assert len(remedies._cache) == 2


def test_while_others_are_looked_into_only_what_takes_nothing_is_offered(
    silent_cluster: models.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_failing(silent_cluster)
    monkeypatch.setattr(remedies, "_LOCK_WAIT_SECONDS", 0.01)
    with remedies._lock:
        assert offered(diagnosis_detail(PLACE)) == {"RollBack", "LookAtPods"}
