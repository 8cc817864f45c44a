"""The defaults in the definitions, and those that are left to the code on purpose."""

from pathlib import Path

from tests.deploy.manifests import load
from tests.deploy.sets import Sets

LEAST = Path(__file__).parent / "grove" / "least.yaml"


def test_what_a_least_manifest_leaves_out_is_filled_in(sets: Sets) -> None:
    spec = sets.create(load(LEAST)).obj["spec"]
    assert spec["replicas"] == 0
    assert spec["template"]["cliqueStartupType"] == "CliqueStartupTypeAnyOrder"
    assert spec["template"]["terminationDelay"] == "4h"
    assert spec["template"]["headlessServiceConfig"] == {"publishNotReadyAddresses": True}
    assert spec["template"]["cliques"][0]["spec"]["replicas"] == 1


def test_a_scaling_group_is_one_replica_of_which_one_must_be_available(sets: Sets) -> None:
    manifest = load(LEAST)
    manifest["spec"]["template"]["podCliqueScalingGroups"] = [{"name": "group", "cliqueNames": ["only"]}]
    (group,) = sets.create(manifest).obj["spec"]["template"]["podCliqueScalingGroups"]
    assert (group["replicas"], group["minAvailable"]) == (1, 1)


def test_an_empty_headless_service_config_publishes_addresses_early(sets: Sets) -> None:
    manifest = load(LEAST)
    manifest["spec"]["template"]["headlessServiceConfig"] = {}
    stored = sets.create(manifest).obj
    assert stored["spec"]["template"]["headlessServiceConfig"] == {"publishNotReadyAddresses": True}


def test_nothing_is_filled_in_that_is_derived_from_other_fields(sets: Sets) -> None:
    """The type of the strategy and the minimum of a clique depend on the rest, which a schema cannot see."""
    manifest = load(LEAST)
    manifest["spec"]["updateStrategy"] = {}
    spec = sets.create(manifest).obj["spec"]
    assert spec["updateStrategy"] == {}
    assert "minAvailable" not in spec["template"]["cliques"][0]["spec"]


def test_a_pod_spec_is_stored_as_it_was_written(sets: Sets) -> None:
    """A default inside the template could change its hash, and with it restart every pod."""
    manifest = load(LEAST)
    written = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
    stored = sets.create(manifest).obj
    assert stored["spec"]["template"]["cliques"][0]["spec"]["podSpec"] == written
