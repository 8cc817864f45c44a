"""The tree of a workload: everything in its place, in the engine's own words."""

import json
from typing import Any

import pytest
from django.test import Client

from rollouts import mirror, models
from rollouts.accounts.commands import WorkloadRef
from rollouts.cluster import Obj
from rollouts.cluster.resources import PODCLIQUES, PODS
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.engine.tree.layout import make_layout
from rollouts.engine.tree.tree_builder import build_tree
from rollouts.selectors.tree import WorkloadTree, walk_pods, workload_tree
from tests.api.read import fleet

pytestmark = [pytest.mark.database, pytest.mark.django_db]

PLACE = WorkloadRef("sandbox", "default", "big")


@pytest.fixture
def row() -> models.Cluster:
    """The row of the cluster."""
    return fleet.make_cluster()


def small(**fields: Any) -> Obj:
    """Return a workload of two replicas, each with a clique of three pods and a group of two replicas."""
    cliques = [fleet.clique("router", 3), fleet.clique("leader", 1), fleet.clique("worker", 2)]
    groups = [fleet.group("decode", ["leader", "worker"], 2)]
    return fleet.podcliqueset("big", cliques=cliques, groups=groups, **{"replicas": 2, **fields})


def pod(tree: WorkloadTree, name: str) -> Any:
    """Return a pod of the tree."""
    return next(one for one in walk_pods(tree) if one.name == name)


def test_each_level_holds_the_next(row: models.Cluster) -> None:
    fleet.store_parts(row, small())
    tree = workload_tree(PLACE)
    assert [replica.name for replica in tree.replicas] == ["big-0", "big-1"]
    first = tree.replicas[0]
    assert [(one.name, len(one.pods)) for one in first.cliques] == [("big-0-router", 3)]
    (group,) = first.groups
    assert [part.name for part in group.replicas] == ["big-0-decode-0", "big-0-decode-1"]
    members = [(one.name, len(one.pods)) for part in group.replicas for one in part.cliques]
    assert members == [
        ("big-0-decode-0-leader", 1),
        ("big-0-decode-0-worker", 2),
        ("big-0-decode-1-leader", 1),
        ("big-0-decode-1-worker", 2),
    ]
    assert tree.pods.total == tree.pods.available == 18
    assert tree.strangers == ()


def test_words_mean_what_they_mean_to_the_controller(row: models.Cluster) -> None:
    manifest = small()
    fleet.store_parts(row, manifest, outdated=[1], surge=True)
    tree = workload_tree(PLACE)
    seen = mirror.fetch_workload(row, "default", "big")
    assert seen is not None
    views = build_tree(make_layout(fleet.parse(manifest)), seen.observed)
    for node in tree.replicas:
        view = views.replicas[node.index]
        assert (node.available, node.outdated, node.complete) == (
            view.is_available,
            view.is_outdated,
            view.is_complete,
        )
    assert (tree.pods.outdated, tree.pods.surge) == (9, 1)
    assert [one.name for one in walk_pods(tree) if one.surge] == ["big-0-router-00003"]


def test_what_is_beyond_the_wanted_number_at_any_level_is_surge(row: models.Cluster) -> None:
    fleet.store_parts(row, small())
    manifest = small(replicas=1)
    manifest["metadata"]["resourceVersion"] = "9999999"
    fleet.store_sets(row, [manifest])
    tree = workload_tree(PLACE)
    assert [replica.surge for replica in tree.replicas] == [False, True]
    assert {one.surge for one in walk_pods(tree) if one.name.startswith("big-1-")} == {True}
    assert {one.surge for one in walk_pods(tree) if one.name.startswith("big-0-")} == {False}


def test_a_pod_that_kept_a_higher_index_since_it_was_scaled_in_is_no_surge(row: models.Cluster) -> None:
    manifest = fleet.podcliqueset("big", cliques=[fleet.clique("router", 3)])
    fleet.store_parts(row, manifest)
    gone = models.Pod.objects.get(name="big-0-router-00001")
    gone.delete()
    models.Clique.objects.update(replicas=2)
    tree = workload_tree(PLACE)
    assert tree.replicas[0].complete
    assert [(one.index, one.surge) for one in walk_pods(tree)] == [(0, False), (2, False)]


def test_a_leaving_pod_counts_as_nothing_else(row: models.Cluster) -> None:
    fleet.store_parts(row, small())
    models.Pod.objects.filter(name="big-0-router-00000").update(leaving=True, ready=True)
    tree = workload_tree(PLACE)
    leaving = pod(tree, "big-0-router-00000")
    assert (leaving.leaving, leaving.available, leaving.ready) == (True, False, True)
    assert (tree.pods.total, tree.pods.available, tree.pods.leaving) == (18, 17, 1)


def test_a_pod_shows_where_it_is_and_why_it_is_not_further(row: models.Cluster) -> None:
    fleet.store_parts(row, small())
    models.Pod.objects.filter(name="big-0-router-00000").update(
        ready=False, reason="CrashLoopBackOff", message="exit 1, TOKEN=abcdef", restarts=7, images="a:1 b:2", gated=True
    )
    one = pod(workload_tree(PLACE), "big-0-router-00000")
    assert (one.reason, one.restarts, one.images, one.gated, one.node) == (
        "CrashLoopBackOff",
        7,
        ("a:1", "b:2"),
        True,
        "node-0000",
    )
    assert one.message == "exit 1, TOKEN=‹hidden›"


def test_the_revision_of_a_pod_is_told_by_its_template_hash(row: models.Cluster) -> None:
    manifest = small()
    fleet.store_parts(row, manifest)
    older = json.loads(json.dumps(manifest["spec"]["template"]))
    older["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"] = "example/router:v0"
    was = make_layout(fleet.parse({**manifest, "spec": {**manifest["spec"], "template": older}}))
    now = compute_generation_hash(fleet.parse(manifest))
    for number, (generation, template) in enumerate(
        [(was.generation_hash, older), (now, manifest["spec"]["template"])]
    ):
        models.Revision.objects.create(
            cluster="sandbox",
            namespace="default",
            name="big",
            workload_uid="uid-big",
            number=number + 1,
            generation_hash=generation,
            template=template,
            created="2026-01-02T03:04:05Z",
        )
    models.Pod.objects.filter(name="big-0-router-00000").update(template_hash=was.hashes["router"])
    models.Pod.objects.filter(name="big-0-router-00001").update(template_hash="unheard")
    tree = workload_tree(PLACE)
    assert tree.revision == 2
    assert [pod(tree, f"big-0-router-0000{n}").revision for n in range(3)] == [1, None, 2]
    # What did not change between the two is of the newer one.
    assert pod(tree, "big-0-decode-0-leader-00000").revision == 2


def test_what_has_no_place_is_a_stranger_and_not_in_the_tree(row: models.Cluster) -> None:
    fleet.store_parts(row, small())
    models.Pod.objects.filter(name="big-0-router-00002").update(owner_uid="")
    models.Clique.objects.filter(name="big-1-router").update(template="unknown")
    tree = workload_tree(PLACE)
    strangers = {one.name for one in tree.strangers}
    assert {"big-0-router-00002", "big-1-router"} <= strangers
    assert all(one.name not in strangers for one in walk_pods(tree))


def test_a_manifest_that_cannot_be_read_still_shows_its_pods(row: models.Cluster) -> None:
    fleet.store_parts(row, small())
    broken = small()
    broken["spec"]["template"]["cliques"] = "none"
    fleet.store_sets(row, [broken])
    tree = workload_tree(PLACE)
    assert tree.replicas == ()
    assert tree.findings
    assert len(tree.strangers) == 18


def test_pods_without_their_clique_are_where_they_were(row: models.Cluster) -> None:
    fleet.store_parts(row, small())
    models.Clique.objects.filter(name="big-0-router").delete()
    tree = workload_tree(PLACE)
    (router,) = tree.replicas[0].cliques
    assert (router.exists, len(router.pods), router.available) == (False, 3, False)
    assert all(one.leaving for one in router.pods)


def test_the_tree_is_answered_as_the_selector_has_it(
    row: models.Cluster, client: Client, django_user_model: Any, redis: Any
) -> None:
    fleet.store_parts(row, small(), outdated=[0])
    client.force_login(django_user_model.objects.create_superuser("ada"))
    body = json.loads(client.get("/api/v1/workloads/sandbox/default/big/tree/").content)
    first = body["replicas"][0]["cliques"][0]["pods"][0]
    assert (first["name"], first["outdated"], first["template_hash"]) == ("big-0-router-00000", True, "old")
    assert first["created"] == fleet.CREATED
    assert body["pods"] == {"total": 18, "available": 18, "outdated": 9, "surge": 0, "leaving": 0}


def test_objects_of_another_owner_are_leaving(row: models.Cluster) -> None:
    fleet.store_parts(row, small())
    for table in (PODCLIQUES, PODS):
        assert mirror.MIRRORED[table].model.objects.exists()
    models.Workload.objects.update(uid="another")
    tree = workload_tree(PLACE)
    assert {one.leaving for one in walk_pods(tree)} == {True}
    assert tree.pods.leaving == 18
