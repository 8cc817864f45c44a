"""Objects that a deleted set has left behind are adopted by the set that is created under its name."""

from collections.abc import Callable

import pytest

from rollouts.cluster import ClusterClient, Forbidden, NotFound, Obj
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODCLIQUESETS, PODGANGS, PODS, SERVICES
from rollouts.engine.model.names import PART_OF
from rollouts.queue.results import Stop
from tests.builtin_resources import CONFIGMAPS
from tests.controller.interruptions import Interrupted, Way
from tests.controller.loop import Loop
from tests.controller.small_set import ONE_REPLICA, PODS_OF_ONE, change_image, make
from tests.engine.manifests import small
from tests.project.running import wait_until
from tests.services.grove import write_as_grove

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]

OWNED_BY_THE_SET = (PODCLIQUESCALINGGROUPS, PODGANGS, SERVICES)


@pytest.fixture
def orphaned(cluster: ClusterClient, namespace: str) -> Loop:
    """A set that was deployed, then deleted without its objects."""
    loop = make(cluster, namespace)
    loop.run(loop.is_complete)
    cluster.delete(PODCLIQUESETS, loop.name, namespace=namespace, propagation="Orphan")
    loop.run(lambda: is_gone(loop) and not owners_of(loop, "PodCliqueSet"))
    return loop


def is_gone(loop: Loop) -> bool:
    try:
        loop.stored()
    except NotFound:
        return True
    return False


def objects(loop: Loop) -> list[Obj]:
    kinds = (*OWNED_BY_THE_SET, PODCLIQUES, PODS)
    return [
        obj
        for kind in kinds
        for obj in loop.cluster.list(kind, namespace=loop.namespace, labels=f"{PART_OF}={loop.name}").items
    ]


def owners_of(loop: Loop, kind: str) -> set[str]:
    references = [one for obj in objects(loop) for one in obj["metadata"].get("ownerReferences") or ()]
    return {one["uid"] for one in references if one["kind"] == kind}


def uids(loop: Loop) -> set[str]:
    return {pod["metadata"]["uid"] for pod in loop.pods()}


def create_again(loop: Loop) -> None:
    loop.cluster.create(PODCLIQUESETS, small({"metadata.namespace": loop.namespace, **ONE_REPLICA}))


def test_a_set_created_again_adopts_what_was_left_and_replaces_no_pod(orphaned: Loop) -> None:
    before = uids(orphaned)
    assert len(before) == PODS_OF_ONE
    create_again(orphaned)
    orphaned.run(orphaned.is_complete)
    assert uids(orphaned) == before
    assert owners_of(orphaned, "PodCliqueSet") == {orphaned.stored()["metadata"]["uid"]}
    assert orphaned.status()["availableReplicas"] == 1


def test_a_set_that_has_adopted_is_updated_and_deleted_like_any_other(orphaned: Loop) -> None:
    create_again(orphaned)
    orphaned.run(orphaned.is_complete)
    change_image(orphaned, "frontend:2")
    orphaned.run(lambda: orphaned.is_complete() and orphaned.status()["updatedReplicas"] == 1)
    orphaned.cluster.delete(PODCLIQUESETS, orphaned.name, namespace=orphaned.namespace)
    orphaned.run(lambda: not objects(orphaned))


def test_what_another_object_controls_is_left_to_it_and_named(orphaned: Loop) -> None:
    cluster, namespace = orphaned.cluster, orphaned.namespace
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "keeper", "namespace": namespace}}
    keeper = cluster.create(CONFIGMAPS, manifest)
    kept = cluster.list(SERVICES, namespace=namespace, labels=f"{PART_OF}={orphaned.name}").items[0]["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "keeper", "uid": keeper["metadata"]["uid"]}
    change = {"metadata": {"ownerReferences": [{**reference, "controller": True}]}}
    cluster.patch_merge(SERVICES, kept["name"], change, namespace=namespace)
    create_again(orphaned)
    orphaned.run(lambda: bool(orphaned.condition("WriteDenied")))
    found = cluster.get(SERVICES, kept["name"], namespace=namespace)
    assert [one["uid"] for one in found["metadata"]["ownerReferences"]] == [reference["uid"]]
    assert kept["name"] in orphaned.condition("WriteDenied")["message"]


class Refusing(Interrupted):
    """A cluster that rejects some writes."""

    def __init__(self, cluster: ClusterClient, refuses: Callable[[str], bool]) -> None:
        super().__init__(cluster, Way.CUT_BEFORE, lambda _number, _call: False)
        self._refuses = refuses

    def _write(self, call: str, write: Callable[[], Obj]) -> Obj:
        if self._refuses(call):
            raise Forbidden(f"may not {call}", code=403, reason="Forbidden")
        return super()._write(call, write)


def test_an_adoption_that_is_refused_is_named_and_keeps_no_other_from_being_adopted(orphaned: Loop) -> None:
    real = orphaned.cluster
    kept = real.list(SERVICES, namespace=orphaned.namespace, labels=f"{PART_OF}={orphaned.name}").items[0]["metadata"]
    orphaned.cluster = Refusing(real, lambda call: call == f"patch services {kept['name']}").as_cluster()
    create_again(orphaned)
    orphaned.run(lambda: f"patch services {kept['name']}" in str(orphaned.condition("WriteDenied").get("message")))
    orphaned.run(lambda: bool(orphaned.status().get("availableReplicas")))
    cliques = real.list(PODCLIQUES, namespace=orphaned.namespace).items
    assert all(one["metadata"]["ownerReferences"] for one in cliques)
    orphaned.cluster = real
    orphaned.run(lambda: orphaned.is_complete() and not orphaned.condition("WriteDenied"))


def test_podcliques_of_a_scaling_group_that_somebody_orphaned_are_adopted_and_never_created(
    cluster: ClusterClient, namespace: str
) -> None:
    loop = make(cluster, namespace)
    loop.run(loop.is_complete)
    before = uids(loop)
    (group,) = cluster.list(PODCLIQUESCALINGGROUPS, namespace=namespace).items
    name = group["metadata"]["name"]
    cluster.delete(PODCLIQUESCALINGGROUPS, name, namespace=namespace, propagation="Orphan")
    wait_until(lambda: group["metadata"]["uid"] not in owners_of(loop, "PodCliqueScalingGroup"), 30)
    wait_until(lambda: not cluster.list(PODCLIQUESCALINGGROUPS, namespace=namespace).items, 30)
    watched = Interrupted(cluster, Way.CUT_BEFORE, lambda _number, _call: False)
    loop.cluster = watched.as_cluster()
    loop.run(lambda: loop.is_complete() and bool(owners_of(loop, "PodCliqueScalingGroup")))
    assert uids(loop) == before
    assert [call for call in watched.writes if call.startswith("create podclique")] == [
        f"create podcliquescalinggroups {name}"
    ]


def test_what_a_set_of_groves_left_behind_waits_for_a_takeover(orphaned: Loop) -> None:
    cliques = orphaned.cluster.list(PODCLIQUES, namespace=orphaned.namespace).items
    write_as_grove(orphaned.cluster, orphaned.namespace, PODCLIQUES, cliques[0]["metadata"]["name"])
    create_again(orphaned)
    before = {obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"] for obj in objects(orphaned)}
    orphaned.observe()
    outcome = orphaned.take_pass()
    assert isinstance(outcome, Stop)
    assert outcome.reason == "OtherOperator"
    assert {obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"] for obj in objects(orphaned)} == before
