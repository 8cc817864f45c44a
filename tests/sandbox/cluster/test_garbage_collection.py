"""Owner references: which dependents are deleted, in which order, and at what cost."""

from typing import Any

import pytest

from rollouts.sandbox.apiserver.patch import PatchType
from rollouts.sandbox.cluster.garbage_collection import Delete, Keep, OwnerState, choose_action
from tests.sandbox.cluster.cluster import Cluster

Obj = dict[str, Any]


def reference(owner: Obj, *, blocks: bool = True) -> Obj:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": blocks,
    }


def config(cluster: Cluster, name: str, *owners: Obj, namespace: str = "default", **metadata: Any) -> Obj:
    body: Obj = {"metadata": {"name": name, "ownerReferences": [*owners], **metadata}}
    for entry in body["metadata"]["ownerReferences"][1:]:
        entry["controller"] = False
    return cluster.verbs.create(cluster.registry.kind("configmaps"), namespace, body)


def names(cluster: Cluster, namespace: str = "default") -> set[str]:
    stored = cluster.verbs.list(cluster.registry.kind("configmaps"), namespace)
    return {entry["metadata"]["name"] for entry in stored}


def delete(cluster: Cluster, name: str, propagation: str | None = None) -> None:
    cluster.verbs.delete(cluster.registry.kind("configmaps"), "default", name, propagation=propagation)


@pytest.mark.parametrize(
    ("states", "has_dependents", "verdict"),
    [
        ((), False, Keep()),
        (("solid",), False, Keep()),
        (("absent",), False, Delete("Background")),
        (("absent", "absent"), True, Delete("Background")),
        (("absent", "solid"), False, Keep(("owner-0",))),
        (("waiting", "solid"), True, Keep(("owner-0",))),
        (("waiting",), False, Delete("Background")),
        (("waiting",), True, Delete("Foreground")),
        (("waiting", "absent"), True, Delete("Foreground")),
    ],
)
def test_each_mix_of_owners_has_its_verdict(states: tuple[str, ...], *, has_dependents: bool, verdict: object) -> None:
    references = [{"uid": f"owner-{number}"} for number in range(len(states))]
    by_uid = {entry["uid"]: OwnerState(state) for entry, state in zip(references, states, strict=True)}
    obj = {"metadata": {"ownerReferences": references}}
    assert choose_action(obj, lambda entry: by_uid[entry["uid"]], has_dependents=has_dependents) == verdict


def test_dependents_follow_their_owner_down_to_the_leaves(cluster: Cluster) -> None:
    root = config(cluster, "root")
    middle = config(cluster, "middle", reference(root))
    config(cluster, "leaf", reference(middle))
    config(cluster, "bystander")
    delete(cluster, "root")
    assert names(cluster) == {"middle", "leaf", "bystander"}
    cluster.advance()
    assert names(cluster) == {"bystander"}


def test_an_owner_deleted_in_the_foreground_goes_after_its_dependents(cluster: Cluster) -> None:
    root = config(cluster, "root")
    middle = config(cluster, "middle", reference(root))
    config(cluster, "leaf", reference(middle), finalizers=["example.com/hold"])
    config(cluster, "loose", reference(root, blocks=False))
    delete(cluster, "root", "Foreground")
    cluster.advance()
    assert names(cluster) == {"root", "middle", "leaf"}
    kind = cluster.registry.kind("configmaps")
    cluster.verbs.patch(kind, "default", "leaf", PatchType.MERGE, {"metadata": {"finalizers": None}})
    cluster.advance()
    assert names(cluster) == set()


def test_an_owner_that_orphans_leaves_its_dependents_without_it(cluster: Cluster) -> None:
    root = config(cluster, "root")
    for number in range(60):
        config(cluster, f"child-{number}", reference(root))
    delete(cluster, "root", "Orphan")
    cluster.advance()
    kind = cluster.registry.kind("configmaps")
    assert len(names(cluster)) == 60
    assert not any(entry["metadata"].get("ownerReferences") for entry in cluster.verbs.list(kind))


def test_an_object_with_another_owner_stays_and_forgets_the_one_that_went(cluster: Cluster) -> None:
    first, second = config(cluster, "first"), config(cluster, "second")
    config(cluster, "shared", reference(first), reference(second))
    delete(cluster, "first")
    cluster.advance()
    shared = cluster.verbs.get(cluster.registry.kind("configmaps"), "default", "shared")
    assert [entry["name"] for entry in shared["metadata"]["ownerReferences"]] == ["second"]


def test_an_object_whose_owner_never_existed_is_removed(cluster: Cluster) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    config(cluster, "orphan", reference(ghost))
    cluster.advance()
    assert names(cluster) == set()


def test_an_owner_of_the_same_name_but_another_uid_is_not_the_owner(cluster: Cluster) -> None:
    root = config(cluster, "root")
    delete(cluster, "root")
    config(cluster, "root")
    config(cluster, "child", reference(root))
    cluster.advance()
    assert names(cluster) == {"root"}


def test_an_owner_in_another_namespace_does_not_count(cluster: Cluster) -> None:
    cluster.verbs.create(cluster.registry.kind("namespaces"), None, {"metadata": {"name": "other"}})
    config(cluster, "child", reference(config(cluster, "root", namespace="other")))
    cluster.advance()
    assert names(cluster) == set()
    assert names(cluster, "other") == {"root"}


def test_pods_of_a_deleted_owner_end_gracefully(cluster: Cluster) -> None:
    cluster.add_node("n1")
    root = config(cluster, "root")
    cluster.add_pod("p", owner=reference(root))
    cluster.advance(5)
    delete(cluster, "root", "Foreground")
    cluster.advance(0.5)
    assert cluster.pod("p")["metadata"]["deletionTimestamp"]
    assert names(cluster) == {"root"}
    cluster.advance(1)
    assert not cluster.exists("p")
    assert names(cluster) == set()


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
def test_a_thousand_dependents_cost_a_write_each(cluster: Cluster, propagation: str) -> None:
    root = config(cluster, "root")
    for number in range(1000):
        config(cluster, f"child-{number}", reference(root))
    cluster.advance()
    before = cluster.store.revision
    delete(cluster, "root", propagation)
    cluster.advance()
    assert cluster.store.revision - before <= 1000 + 3


def test_garbage_left_by_a_kill_is_collected_after_the_restart(cluster: Cluster) -> None:
    root = config(cluster, "root")
    config(cluster, "child", reference(root))
    held = config(cluster, "held", finalizers=["example.com/hold"])
    config(cluster, "waits", reference(held))
    delete(cluster, "root")
    delete(cluster, "held", "Foreground")
    cluster.restart()
    cluster.advance()
    assert names(cluster) == {"held"}
