"""The definition files themselves: names, descriptions, size, and the CEL that they use."""

import json
from pathlib import Path

import pytest
from cel import compile as compile_cel

from tests.deploy.conftest import Server
from tests.deploy.manifests import DEFINITIONS, Obj, definition_schema, load, rules_of_sets, schema_nodes

CLIENT_SIDE_APPLY_LIMIT = 262_144  # bytes that an annotation may hold

# What Grove registers: kind, short name, and the paths of its scale subresource.
KINDS = {
    "podcliquesets.grove.io": ("PodCliqueSet", "pcs", ".status.hpaPodSelector"),
    "podcliques.grove.io": ("PodClique", "pclq", ".status.hpaPodSelector"),
    "podcliquescalinggroups.grove.io": ("PodCliqueScalingGroup", "pcsg", ".status.selector"),
    "podgangs.scheduler.grove.io": ("PodGang", "pg", None),
}

COLUMNS = {
    "PodCliqueSet": "Replicas Available Updated PCLQs-Updated PCLQs-Total PCSGs-Updated PCSGs-Total Age",
    "PodClique": "MinAvail Replicas Ready Scheduled Updated Gated* MinBreached* Age",
    "PodCliqueScalingGroup": "MinAvail Replicas Available Scheduled Updated PCLQs-Updated PCLQs-Total MinBreached* Age",
    "PodGang": "Phase Age",
}


@pytest.fixture(params=DEFINITIONS, ids=lambda path: path.stem)
def definition(request: pytest.FixtureRequest) -> Obj:
    """Each definition in turn."""
    return load(request.param)


def test_the_four_kinds_are_registered_as_grove_registers_them() -> None:
    found = {}
    for definition in map(load, DEFINITIONS):
        spec = definition["spec"]
        (version,) = spec["versions"]
        (short_name,) = spec["names"]["shortNames"]
        scale = version["subresources"].get("scale", {})
        found[definition["metadata"]["name"]] = (spec["names"]["kind"], short_name, scale.get("labelSelectorPath"))
        assert (spec["scope"], version["name"]) == ("Namespaced", "v1alpha1")
        assert version["subresources"]["status"] == {}
        if scale:
            assert (scale["specReplicasPath"], scale["statusReplicasPath"]) == (".spec.replicas", ".status.replicas")
    assert found == KINDS


def test_the_columns_are_groves(definition: Obj) -> None:
    (version,) = definition["spec"]["versions"]
    names = [column["name"] + "*" * column.get("priority", 0) for column in version["additionalPrinterColumns"]]
    assert " ".join(names) == COLUMNS[definition["spec"]["names"]["kind"]]


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_a_definition_is_small_enough_for_client_side_apply(path: Path) -> None:
    assert len(json.dumps(load(path))) < CLIENT_SIDE_APPLY_LIMIT / 2


def test_every_field_has_a_description_for_kubectl_explain(definition: Obj) -> None:
    own = [(path, node) for path, node in schema_nodes(definition_schema(definition)) if "." in path]
    standard = {".apiVersion", ".kind", ".metadata", ".metadata.name"}
    undescribed = [path for path, node in own if "description" not in node and path not in standard]
    assert [path for path in undescribed if not path.endswith("[]")] == []


@pytest.mark.parametrize("rule", rules_of_sets(), ids=lambda rule: rule["message"][:60])
def test_every_rule_is_in_the_part_of_cel_that_the_sandbox_knows(rule: Obj) -> None:
    assert compile_cel(rule["rule"])


@pytest.mark.apiserver
def test_a_real_api_server_finds_nothing_to_complain_about(apiserver: Server, definition: Obj) -> None:
    name = definition["metadata"]["name"]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    stored = apiserver.raw.call("GET", path).obj
    conditions = {condition["type"]: condition["status"] for condition in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}  # a NonStructuralSchema would show here
