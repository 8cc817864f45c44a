"""Labels and annotations that leave a template leave its PodCliques too; those that others have put there stay."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rollouts.engine.model.actions import Create, Kind, Patch
from rollouts.engine.model.template_keys import TEMPLATE_KEYS
from rollouts.engine.model.workload import Strategy, Workload
from tests.engine.simulated import Cluster, clique, group, settled, workload

FORMER = {"labels": {"tier": "front", "team.example.com/name": "chat"}, "annotations": {"note": "hello"}}
CURRENT = {"labels": {"tier": "back"}, "annotations": {"example.com/owner": "me"}}
PARTS = (clique("a", 1), clique("l", 1), group("g", ("l",), 1))


def carrying(told: Mapping[str, Any], strategy: Strategy = Strategy.ROLLING_RECREATE) -> Workload:
    built = workload(*PARTS, strategy=strategy)
    return replace(built, cliques=tuple(replace(one, **told) for one in built.cliques))


def merged(there: Any, patch: Any) -> Any:
    """Merge as the API does: null takes out."""
    if not isinstance(patch, Mapping):
        return patch
    there = dict(there) if isinstance(there, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            there.pop(name, None)
        else:
            there[name] = merged(there.get(name), value)
    return there


def metadata_of(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return the labels and annotations of a PodClique after all that was written to it, and somebody's own."""
    metadata: Any = {}
    for action in cluster.actions:
        if isinstance(action, Create) and action.kind is Kind.CLIQUE and action.manifest["metadata"]["name"] == name:
            metadata = merged(action.manifest["metadata"], {"labels": {"theirs": "x"}, "annotations": {"theirs": "x"}})
        elif isinstance(action, Patch) and action.kind is Kind.CLIQUE and action.name == name:
            metadata = merged(metadata, action.patch.get("metadata", {}))
    return {field: metadata[field] for field in ("labels", "annotations")}


NOTHING: dict[str, Any] = {"labels": {}, "annotations": {}}


def updated(former: Workload, current: Workload) -> Cluster:
    cluster = Cluster(former).settle()
    cluster.workload = replace(current, generation=2)
    return cluster.settle()


@pytest.mark.parametrize(("former", "current"), [(FORMER, CURRENT), (FORMER, NOTHING), (NOTHING, CURRENT)])
@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (Strategy.ROLLING_RECREATE, "w-0-a"),
        (Strategy.REPLICA_RECREATE, "w-0-a"),
        (Strategy.ON_DELETE, "w-0-a"),
        (Strategy.ON_DELETE, "w-0-g-0-l"),
    ],
)
def test_a_patched_podclique_carries_what_a_new_one_would_and_what_others_put_there(
    strategy: Strategy, name: str, former: dict[str, Any], current: dict[str, Any]
) -> None:
    cluster = updated(carrying(former, strategy), carrying(current, strategy))
    anew = Cluster(carrying(current, strategy)).settle()
    assert metadata_of(cluster, name) == metadata_of(anew, name)
    assert metadata_of(cluster, name)["labels"]["theirs"] == "x"


def test_nothing_of_a_podclique_is_taken_out_that_nobody_noted() -> None:
    cluster = settled(carrying(FORMER))
    seen = cluster.world.observed()
    cluster.begin_from(replace(seen, cliques=tuple(replace(one, template_keys=()) for one in seen.cliques)))
    cluster.workload = replace(carrying(CURRENT), generation=2)
    cluster.settle()
    patches = [one.patch["metadata"] for one in cluster.actions if isinstance(one, Patch) and one.name == "w-0-a"]
    assert patches[0]["labels"].get("tier") == "back"
    assert None not in {*patches[0]["labels"].values(), *patches[0]["annotations"].values()}
    assert patches[0]["annotations"][TEMPLATE_KEYS] == "labels.tier,annotations.example.com/owner"


def test_a_template_cannot_take_over_nor_take_out_what_is_ours() -> None:
    ours = {
        "labels": {"app.kubernetes.io/part-of": "other", "grove.io/pod-template-hash": "no", "tier": "x"},
        "annotations": {"grove.io/template-replicas": "99", TEMPLATE_KEYS: "labels.app.kubernetes.io/name"},
    }
    for former, current in ((FORMER, ours), (ours, FORMER), (ours, CURRENT)):
        cluster = updated(carrying(former), carrying(current))
        found = metadata_of(cluster, "w-0-a")
        assert found["labels"]["app.kubernetes.io/part-of"] == "w"
        assert found["labels"]["app.kubernetes.io/name"] == "w-0-a"
        assert found["labels"]["grove.io/pod-template-hash"] == cluster.view.hashes["a"]
        assert found["annotations"]["grove.io/template-replicas"] == "1"
