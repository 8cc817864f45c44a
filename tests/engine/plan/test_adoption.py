"""What a takeover from Grove's own operator changes, object by object; on whole clusters: tests/services."""

from typing import Any

import pytest

from rollouts.engine.manifest.parsing import parse_workload
from rollouts.engine.model import names
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.adoption import (
    TAKEN_OVER_AT,
    Adoption,
    AdoptionPlan,
    Manifest,
    WorkloadObjects,
    plan_adoption,
)
from rollouts.engine.tree.layout import make_layout
from tests.engine.manifests import small

AT = "2026-11-18T12:00:00Z"
NEXT: Any = iter(range(1, 10_000))


def stored_set(**status: Any) -> Manifest:
    """Return the set as Grove has it."""
    finalizers = ["grove.io/podcliqueset.grove.io", "example.com/theirs"]
    metadata = {"uid": "set", "generation": 4, "resourceVersion": "9", "finalizers": finalizers}
    manifest = small()
    told = {"observedGeneration": 4, "currentGenerationHash": "theirs", **status}
    return {**manifest, "metadata": {**manifest["metadata"], **metadata}, "status": told}


def read(manifest: Manifest) -> Workload:
    """Return the workload of a manifest."""
    workload = parse_workload(manifest)
    assert isinstance(workload, Workload)
    return workload


def made(name: str, owner: str, **parts: Any) -> Manifest:
    """Return an object of Grove's; labels may be given."""
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(next(NEXT)),
        "labels": parts.pop("labels", {}),
        "ownerReferences": [{"uid": owner, "controller": True}],
        **parts.pop("metadata", {}),
    }
    return {"metadata": metadata, **parts}


def clique(name: str = "chat-0-frontend", owner: str = "set", wants: str = "old", **parts: Any) -> Manifest:
    """Return a PodClique of Grove's."""
    labels = {names.TEMPLATE_HASH: wants, names.REPLICA_INDEX: "0"}
    return made(name, owner, labels=labels, metadata={"finalizers": ["grove.io/podclique.grove.io"]}, **parts)


def pod(name: str, has: str = "old", owner: str = "uid-chat-0-frontend", **parts: Any) -> Manifest:
    """Return a pod of Grove's."""
    return made(name, owner, labels={names.TEMPLATE_HASH: has}, **parts)


def plan(manifest: Manifest, *, foreign: bool = False, **parts: Any) -> AdoptionPlan:
    """Return how a workload is taken over."""
    return plan_adoption(read(manifest), manifest, WorkloadObjects(**parts), AT, lambda _: foreign)


def changed(planned: AdoptionPlan) -> list[str]:
    """Return the names of the parts that are changed, in their order."""
    return [one.name for one in planned.adoptions]


def find(planned: AdoptionPlan, name: str) -> Adoption:
    """Return the change of one object."""
    (found,) = [one for one in planned.adoptions if one.name == name]
    return found


def hash_of(manifest: Manifest, name: str) -> str:
    """Return our hash of a clique."""
    return make_layout(read(manifest)).hashes[name]


def test_pods_that_their_clique_wants_become_current_and_the_rest_stays_outdated() -> None:
    manifest = stored_set()
    planned = plan(manifest, cliques=[clique()], pods=[pod("a"), pod("b", has="older")])
    ours = {names.TEMPLATE_HASH: hash_of(manifest, "frontend")}
    assert find(planned, "a").patch == {"metadata": {"labels": ours}}
    assert changed(planned) == ["a", "chat-0-frontend"]
    assert (planned.pods, planned.outdated) == (2, ("b",))
    # So the set keeps its hash, and an update brings the rest.
    assert planned.status is None


def test_the_set_has_our_hash_when_nothing_is_outdated_and_only_groves_finalizer_goes() -> None:
    manifest = stored_set()
    planned = plan(manifest, cliques=[clique()], pods=[pod("a")])
    assert planned.status == {
        **manifest["status"],
        "currentGenerationHash": make_layout(read(manifest)).generation_hash,
    }
    assert planned.set_adoption is not None
    assert planned.set_adoption.patch == {
        "metadata": {"finalizers": ["example.com/theirs"], "annotations": {TAKEN_OVER_AT: AT}}
    }


@pytest.mark.parametrize("status", [{"updateProgress": {"updateStartedAt": AT}}, {"observedGeneration": 3}])
def test_half_way_through_an_update_a_clique_is_current_if_it_has_the_current_template(status: Any) -> None:
    manifest = stored_set(**status)
    spec = manifest["spec"]["template"]["cliques"][0]["spec"]
    other = {**spec["podSpec"], "containers": [{"name": "main", "image": "other"}]}
    for pod_spec, outdated in ((spec["podSpec"], ()), (other, ("a",))):
        planned = plan(manifest, cliques=[clique(spec={"podSpec": pod_spec})], pods=[pod("a")])
        assert planned.outdated == outdated
        labels = find(planned, "chat-0-frontend").patch["metadata"].get("labels", {})
        assert (names.TEMPLATE_HASH in labels) == (not outdated)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("chat-1", {names.REPLICA_INDEX: "1"}),
        ("chat-12", {names.REPLICA_INDEX: "12"}),
        ("chat-1-decode-0", {names.REPLICA_INDEX: "1", names.BASE_GANG: "chat-1"}),
        ("chat-1-nobody-0", None),
        ("chat-01", None),
        ("chat", None),
    ],
)
def test_a_gang_is_told_where_it_belongs_by_its_name(name: str, labels: dict[str, str] | None) -> None:
    planned = plan(stored_set(), gangs=[made(name, "set")])
    if labels is None:
        assert [one.name for one in planned.skipped] == [name]
    else:
        assert find(planned, name).patch["metadata"]["labels"] == labels


def test_what_others_control_is_left_alone_with_its_pods() -> None:
    groups = [made("chat-0-decode", "another")]
    cliques = [clique(owner="uid-chat-0-decode"), clique("chat-0-nobody")]
    pods = [pod("a"), pod("b", owner="uid-chat-0-nobody"), pod("c", owner="nobody")]
    planned = plan(stored_set(), groups=groups, cliques=cliques, pods=pods)
    assert planned.adoptions == ()
    assert sorted(one.name for one in planned.skipped) == [
        *("a", "b", "c"),
        *("chat-0-decode", "chat-0-frontend", "chat-0-nobody"),
    ]


def test_what_is_being_deleted_only_loses_the_finalizer_that_would_keep_it() -> None:
    leaving = clique()
    leaving["metadata"]["deletionTimestamp"] = AT
    (one,) = plan(stored_set(), cliques=[leaving]).adoptions
    assert one.patch == {"metadata": {"finalizers": [], "annotations": {TAKEN_OVER_AT: AT}}}


def test_what_is_ours_already_is_changed_only_where_another_wrote_last() -> None:
    manifest = stored_set()
    del manifest["metadata"]["finalizers"]
    gang = made("chat-0", "set", labels={names.REPLICA_INDEX: "0"})
    assert plan(manifest, gangs=[gang]).adoptions == ()
    assert plan(manifest, gangs=[gang]).set_adoption is None
    (one,) = plan(manifest, gangs=[gang], foreign=True).adoptions
    assert one.patch == {"metadata": {"annotations": {TAKEN_OVER_AT: AT}}}


def test_pods_of_ours_that_wait_to_be_deleted_stay_outdated() -> None:
    manifest = stored_set(updateProgress={"updateStartedAt": AT, "updateEndedAt": AT})
    manifest["status"]["currentGenerationHash"] = make_layout(read(manifest)).generation_hash
    del manifest["metadata"]["finalizers"]
    waiting = clique(spec={"podSpec": {"containers": [{"name": "main", "image": "old"}]}})
    del waiting["metadata"]["finalizers"]
    planned = plan(manifest, cliques=[waiting], pods=[pod("a")])
    assert (planned.adoptions, planned.set_adoption, planned.status, planned.outdated) == ((), None, None, ("a",))


def test_a_clique_that_was_taken_over_already_is_current_and_so_are_its_pods_of_that_hash() -> None:
    manifest = stored_set(currentGenerationHash="x", updateProgress={"updateStartedAt": AT})
    ours = hash_of(manifest, "frontend")
    taken = clique(wants=ours, spec={"podSpec": {}})
    planned = plan(manifest, cliques=[taken], pods=[pod("a", has=ours), pod("b")])
    assert planned.outdated == ("b",)
