"""A row is the last state that the cluster has reported, whoever stores it and in whatever order."""

import pytest

from rollouts import mirror, models
from rollouts.cluster.resources import NODES, PODCLIQUES, PODCLIQUESETS, PODGANGS, PODS
from tests.mirror import objects

pytestmark = [pytest.mark.database, pytest.mark.django_db]

KEY = "east/web/my"


def stored(name: str = "my-0-c-abcde") -> models.Pod | None:
    """Return the row of a pod that exists."""
    found: models.Pod | None = models.Pod.objects.filter(name=name).first()
    return found


def test_an_object_is_stored_once_and_wakes_its_workload(cluster: models.Cluster) -> None:
    assert mirror.store(cluster, PODS, [objects.pod(version=3)]) == {KEY}
    assert mirror.store(cluster, PODS, [objects.pod(version=3)]) == set()
    row = stored()
    assert row is not None
    assert (row.uid, row.resource_version, row.workload, row.node, row.ready) == ("pod", 3, "my", "node-1", True)


def test_newer_news_replaces_a_row_and_older_news_does_not(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=5, ready=False)])
    assert mirror.store(cluster, PODS, [objects.pod(version=4, ready=True)]) == set()
    assert not stored().ready  # type: ignore[union-attr]
    assert mirror.store(cluster, PODS, [objects.pod(version=10, ready=True)]) == {KEY}
    assert stored().ready  # type: ignore[union-attr]


def test_versions_are_compared_as_numbers(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=9, ready=False)])
    assert mirror.store(cluster, PODS, [objects.pod(version=10, ready=True)]) == {KEY}


def test_a_newer_version_that_says_the_same_wakes_nobody(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=3)])
    assert mirror.store(cluster, PODS, [objects.pod(version=4)]) == set()
    assert stored().resource_version == 4  # type: ignore[union-attr]
    mirror.store(cluster, PODCLIQUESETS, [objects.pod_clique_set(version=1)])
    assert mirror.store(cluster, PODCLIQUESETS, [objects.pod_clique_set(version=2)]) == set()
    mirror.store(cluster, NODES, [objects.node(heartbeat="1")])
    again = [mirror.ObjectChanges(NODES, [objects.node(version=7, heartbeat="2")])]
    assert mirror.store_all(cluster, again) == []


def test_of_several_news_of_one_object_the_newest_counts(cluster: models.Cluster) -> None:
    told = [objects.pod(version=4), objects.pod(version=6, ready=False), objects.pod(version=5)]
    assert mirror.store(cluster, PODS, told) == {KEY}
    assert stored().resource_version == 6  # type: ignore[union-attr]


def test_what_is_gone_is_not_shown(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=3)])
    assert mirror.store(cluster, PODS, [], gone=[objects.pod(version=4)]) == {KEY}
    assert stored() is None
    assert mirror.store(cluster, PODS, [], gone=[objects.pod(version=4)]) == set()


def test_late_news_does_not_bring_back_what_is_gone(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=3)])
    mirror.store(cluster, PODS, [], gone=[objects.pod(version=7)])
    assert mirror.store(cluster, PODS, [objects.pod(version=6)]) == set()
    assert stored() is None


def test_an_end_heard_before_anything_else_holds_too(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [], gone=[objects.pod(version=7)])
    assert mirror.store(cluster, PODS, [objects.pod(version=6)]) == set()
    assert stored() is None


def test_an_end_that_was_concluded_holds_against_all_further_news_of_that_object(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=3)])
    assert mirror.store(cluster, PODS, [], gone=[objects.pod(version=3)]) == {KEY}
    assert mirror.store(cluster, PODS, [objects.pod(version=5)]) == set()
    assert stored() is None
    assert mirror.store(cluster, PODS, [objects.pod(version=6, uid="another")]) == {KEY}
    assert stored().uid == "another"  # type: ignore[union-attr]


def test_an_object_may_leave_a_selector_and_come_back(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=3)])
    mirror.store(cluster, PODS, [], gone=[objects.pod(version=4)])
    assert mirror.store(cluster, PODS, [objects.pod(version=5)]) == {KEY}
    assert stored() is not None
    # The same in one call.
    mirror.store(cluster, PODS, [objects.pod(version=9)], gone=[objects.pod(version=8)])
    assert stored() is not None


def test_another_object_of_the_name_takes_the_place_of_the_former(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=3, uid="first")])
    assert mirror.store(cluster, PODS, [objects.pod(version=9, uid="second")]) == {KEY}
    # The end of the first one is reported late.
    assert mirror.store(cluster, PODS, [], gone=[objects.pod(version=8, uid="first")]) == set()
    assert mirror.store(cluster, PODS, [objects.pod(version=5, uid="first")]) == set()
    assert stored().uid == "second"  # type: ignore[union-attr]


def test_the_end_of_a_later_object_is_the_end_of_the_former_one(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=3, uid="first")])
    assert mirror.store(cluster, PODS, [], gone=[objects.pod(version=9, uid="second")]) == {KEY}
    assert stored() is None


def test_an_end_without_a_version_ends_just_that_object(cluster: models.Cluster) -> None:
    bare = {"metadata": {"namespace": "web", "name": "my-0-c-abcde", "uid": "pod"}}
    mirror.store(cluster, PODS, [objects.pod(version=3)])
    assert mirror.store(cluster, PODS, [], gone=[bare]) == {KEY}
    assert stored() is None
    mirror.store(cluster, PODS, [objects.pod(version=9, uid="another")])
    assert mirror.store(cluster, PODS, [], gone=[bare]) == set()
    assert stored() is not None


def test_leaving_is_never_taken_back(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=3, leaving=True)])
    mirror.store(cluster, PODS, [objects.pod(version=4, ready=False)])
    assert stored().leaving  # type: ignore[union-attr]
    mirror.store(cluster, PODS, [objects.pod(version=5, uid="another")])
    assert not stored().leaving  # type: ignore[union-attr]


def test_what_a_list_does_not_have_is_gone_unless_it_is_newer(cluster: models.Cluster) -> None:
    told = [objects.pod(f"p-{number}", version=number, uid=f"u-{number}") for number in (3, 4, 5, 12)]
    mirror.store(cluster, PODS, told)
    assert mirror.replace(cluster, PODS, {("web", "p-4")}, "10") == {KEY}
    assert sorted(models.Pod.objects.values_list("name", flat=True)) == ["p-12", "p-4"]
    assert mirror.store(cluster, PODS, [objects.pod("p-3", version=9, uid="u-3")]) == set()
    assert mirror.replace(cluster, PODS, {("web", "p-4")}, "10") == set()


def test_a_list_of_one_cluster_and_kind_says_nothing_about_others(cluster: models.Cluster) -> None:
    west = mirror.ensure_cluster("west")
    mirror.store(cluster, PODS, [objects.pod(version=3)])
    mirror.store(cluster, PODCLIQUES, [objects.clique(version=3)])
    mirror.store(west, PODS, [objects.pod(version=3)])
    assert mirror.replace(cluster, PODS, set(), "10") == {KEY}
    assert models.Pod.objects.filter(cluster=west).count() == 1
    assert models.Clique.objects.count() == 1


def test_tombstones_are_dropped_after_a_while_and_nothing_is_left(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod(version=3)])
    mirror.store(cluster, PODS, [], gone=[objects.pod(version=4)])
    (ended,) = models.Pod.everything.values_list("gone_at", flat=True)
    assert mirror.delete_tombstones(before=ended) == 0
    assert mirror.delete_tombstones(before=ended + 1) == 1
    assert not models.Pod.everything.exists()


def test_several_kinds_are_stored_in_one_transaction(cluster: models.Cluster) -> None:
    news = mirror.store_all(
        cluster,
        [
            mirror.ObjectChanges(PODS, [objects.pod()]),
            mirror.ObjectChanges(PODCLIQUES, [objects.clique()]),
            mirror.ObjectChanges(PODS, gone=[objects.pod("other", uid="other", version=9)]),
        ],
    )
    assert [(part.name, part.workload, part.is_gone) for part in news] == [
        ("my-0-c", "my", False),
        ("my-0-c-abcde", "my", False),
        ("other", "my", True),
    ]


def test_odd_objects_do_not_stop_the_others(cluster: models.Cluster) -> None:
    odd = objects.pod("odd", uid="odd")
    odd["metadata"]["labels"] = None
    odd["spec"] = None
    odd["status"] = {"reason": "x" * 1000, "message": "nul\0 in it", "containerStatuses": [{"restartCount": 2**40}]}
    mirror.store(cluster, PODS, [odd, objects.pod()])
    assert models.Pod.objects.count() == 2


def test_fields_of_another_form_than_the_schema_says_are_blanks(cluster: models.Cluster) -> None:
    gang = objects.gang()
    gang["spec"]["podgroups"] = ["x", {"name": "my-0-c", "podReferences": ["y"], "minReplicas": "many"}]
    gang["metadata"]["ownerReferences"] = {"controller": True}
    mirror.store(cluster, PODGANGS, [gang])
    assert models.Gang.objects.get().pod_groups == {"my-0-c": [0, []]}
    workload = objects.pod_clique_set()
    workload["status"] = {"conditions": ["x"], "updateProgress": [], "updatedReplicas": "two"}
    workload["metadata"]["resourceVersion"] = str(2**70)
    mirror.store(cluster, PODCLIQUESETS, [workload])
    assert models.Workload.objects.get().updated_replicas == 0
