"""The samples and Grove's own workloads: both servers accept them unchanged."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import COMPLETE, GROVE, SAMPLES, load
from tests.deploy.sets import Sets

EXAMPLES = {
    "single-node-aggregated",
    "multi-node-disaggregated-surge",
    "multi-node-disaggregated-no-spare",
    "multi-node-aggregated",
    "interrupted-update",
    "ondelete-training",
}
GPUS_OF_THE_SANDBOX = 64


def is_part_of(part: Any, whole: Any) -> bool:
    """Return whether everything in `part` is in `whole`, which may have more fields but not more list items."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and is_part_of(v, whole[k]) for k, v in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(map(is_part_of, part, whole))
    return bool(part == whole)


@pytest.mark.parametrize("path", [*SAMPLES, *GROVE, COMPLETE], ids=lambda path: path.stem)
def test_a_manifest_is_stored_with_everything_it_says(sets: Sets, path: Path) -> None:
    manifest = load(path)
    assert is_part_of(manifest["spec"], sets.create(copy.deepcopy(manifest), dry_run=False).obj["spec"])
    stored = sets.get(manifest["metadata"]["name"])
    assert sets.update(stored, dry_run=False).obj["metadata"]["generation"] == 1


def test_the_largest_set_that_the_bounds_allow_does_not_exhaust_the_cost_of_the_rules(sets: Sets) -> None:
    names = [f"c{number:02}" for number in range(64)]
    cliques = [
        {
            "name": name,
            "spec": {
                "roleName": name * 40,
                "startsAfter": names[:number],
                "podSpec": {"schedulerName": "s" * 60, "containers": [{"name": "main", "image": "app:v1"}]},
            },
        }
        for number, name in enumerate(names)
    ]
    groups = [{"name": f"g{name}", "cliqueNames": [name], "updateStrategy": {"maxSurge": 1}} for name in names]
    manifest = load(COMPLETE)
    manifest["spec"]["template"] = {
        "cliqueStartupType": "CliqueStartupTypeExplicit",
        "cliques": cliques,
        "podCliqueScalingGroups": groups,
    }
    stored = sets.create(manifest, dry_run=False).obj
    stored["spec"]["template"]["priorityClassName"] = "high"
    assert sets.update(stored).obj["metadata"]["generation"] == 2


def test_there_is_a_sample_for_every_example_and_a_large_one_that_is_not_applied_by_default() -> None:
    by_default = {path.stem for path in SAMPLES if path.parent.name == "samples"}
    assert by_default == EXAMPLES
    assert {path.stem for path in SAMPLES if path.parent.name == "large"} == {"thousand-pods"}


def test_the_large_sample_has_a_thousand_pods() -> None:
    (large,) = (load(path) for path in SAMPLES if path.parent.name == "large")
    assert pods_by_clique(large) == {"expert": 1000}


def test_the_samples_fit_the_sandbox_with_room_for_every_surge() -> None:
    used = sum(gpus(load(path)) for path in SAMPLES)
    surge = 1 + 4 + 2  # one worker of chat-single, one replica of disagg-surge, one decode replica of agg-multi
    assert (used, used + surge) == (53, 60)
    assert used + surge <= GPUS_OF_THE_SANDBOX


def pods_by_clique(manifest: dict[str, Any]) -> dict[str, int]:
    """Return how many pods each clique of a set has in all."""
    template = manifest["spec"]["template"]
    groups = {
        name: g.get("replicas", 1) for g in template.get("podCliqueScalingGroups", []) for name in g["cliqueNames"]
    }
    return {
        clique["name"]: manifest["spec"]["replicas"] * groups.get(clique["name"], 1) * clique["spec"]["replicas"]
        for clique in template["cliques"]
    }


def gpus(manifest: dict[str, Any]) -> int:
    """Return how many GPUs a set requests."""
    pods = pods_by_clique(manifest)
    return sum(
        pods[clique["name"]] * int(container["resources"]["requests"].get("nvidia.com/gpu", 0))
        for clique in manifest["spec"]["template"]["cliques"]
        for container in clique["spec"]["podSpec"]["containers"]
    )
