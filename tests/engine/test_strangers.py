"""Objects with the labels of a workload that have no place in it: reported, never changed."""

from dataclasses import replace

from tests.engine.simulated import Cluster, clique, group, settled, workload


def test_strangers_are_reported_and_left_alone_and_do_not_stop_an_update() -> None:
    cluster = settled(workload(clique("a", 2), clique("l", 1), group("g", ("l",), 2)))
    seen = cluster.world.observed()
    lost = replace(seen.pods[0], name="lost", uid="lost-uid", clique="w-0-unknown")
    foreign = replace(seen.cliques[0], name="w-0-unknown", uid="foreign-uid", template="unknown")
    odd = replace(seen.gangs[0], name="elsewhere", uid="odd-uid")
    strange = replace(seen, pods=(lost, *seen.pods), cliques=(foreign, *seen.cliques), gangs=(odd, *seen.gangs))
    cluster.begin_from(strange)
    cluster.update().settle()
    assert {name for name, _ in cluster.plan().strangers} == {"lost", "w-0-unknown", "elsewhere"}
    assert not touched(cluster) & {"lost-uid", "foreign-uid", "odd-uid"}
    assert cluster.view.group_text("w-0-g", "g") == "0 1"
    assert cluster.progress["updateEndedAt"]


def test_a_second_pod_with_one_index_is_reported_and_left_alone() -> None:
    cluster = settled(workload(clique("a", 2)))
    seen = cluster.world.observed()
    twin = replace(seen.pods[0], name="twin", uid="twin-uid", created=seen.pods[0].created + 1)
    cluster.begin_from(replace(seen, pods=(twin, *seen.pods)))
    cluster.settle()
    assert [name for name, _ in cluster.plan().strangers] == ["twin"]
    assert "twin-uid" not in touched(cluster)


def touched(cluster: Cluster) -> set[str]:
    return {getattr(action, "uid", "") for action in cluster.actions}
