"""Each field that is accepted without effect is named with its consequence, and no other field is."""

import pytest

from rollouts.engine.manifest.findings import FindingCode
from rollouts.engine.manifest.validation import find_unsupported, render_unsupported, validate_create, validate_update
from tests.deploy.manifests import REMOVED, Edits, edited
from tests.engine.manifests import complete, small

TEMPLATE = "spec.template"
CLIQUE = f"{TEMPLATE}.cliques.0"
GROUP = f"{TEMPLATE}.podCliqueScalingGroups.0"
CLAIMS = [{"name": "gpus", "templateSpec": {"spec": {}}}]
SHARED = [{"name": "gpus", "scope": "AllReplicas"}]
RACK = {"pack": {"required": "rack"}}

UNSUPPORTED: dict[str, tuple[Edits, list[str], str]] = {
    "startup in order": (
        {f"{TEMPLATE}.cliqueStartupType": "CliqueStartupTypeInOrder"},
        [f"{TEMPLATE}.cliqueStartupType"],
        "start at the same time",
    ),
    "startup by names": (
        {f"{TEMPLATE}.cliqueStartupType": "CliqueStartupTypeExplicit", f"{CLIQUE}.spec.startsAfter": ["leader"]},
        [f"{TEMPLATE}.cliqueStartupType", f"{TEMPLATE}.cliques[0].spec.startsAfter"],
        "do not wait for leader",
    ),
    "autoscaling of a clique": (
        {f"{CLIQUE}.spec.autoScalingConfig": {"maxReplicas": 5}},
        [f"{TEMPLATE}.cliques[0].spec.autoScalingConfig"],
        "no HorizontalPodAutoscaler",
    ),
    "autoscaling of a group": (
        {f"{GROUP}.scaleConfig": {"maxReplicas": 5}},
        [f"{TEMPLATE}.podCliqueScalingGroups[0].scaleConfig"],
        "this scaling group keeps its replicas",
    ),
    "topology of the set": (
        {f"{TEMPLATE}.topologyConstraint": RACK},
        [f"{TEMPLATE}.topologyConstraint"],
        "several domains",
    ),
    "topology of a clique": (
        {f"{CLIQUE}.topologyConstraint": RACK},
        [f"{TEMPLATE}.cliques[0].topologyConstraint"],
        "several domains",
    ),
    "topology of a group": (
        {f"{GROUP}.topologyConstraint": RACK},
        [f"{TEMPLATE}.podCliqueScalingGroups[0].topologyConstraint"],
        "several domains",
    ),
    "claims of the set": (
        {f"{TEMPLATE}.resourceClaimTemplates": CLAIMS, f"{TEMPLATE}.resourceSharing": SHARED},
        [f"{TEMPLATE}.resourceClaimTemplates", f"{TEMPLATE}.resourceSharing"],
        "no ResourceClaims",
    ),
    "claims of a clique": (
        {f"{CLIQUE}.resourceSharing": SHARED},
        [f"{TEMPLATE}.cliques[0].resourceSharing"],
        "no ResourceClaims",
    ),
    "claims of a group": (
        {f"{GROUP}.resourceSharing": SHARED},
        [f"{TEMPLATE}.podCliqueScalingGroups[0].resourceSharing"],
        "no ResourceClaims",
    ),
    "paused": ({"spec.paused": True}, ["spec.paused"], "goes on"),
    "deadline": (
        {"spec.progressDeadlineSeconds": 600},
        ["spec.progressDeadlineSeconds"],
        "not marked as failed",
    ),
    "history": ({"spec.revisionHistoryLimit": 0}, ["spec.revisionHistoryLimit"], "keeps 20 revisions"),
    "partition": (
        {"spec.updateStrategy": {"type": "ReplicaRecreate", "rollingUpdate": {"partition": 1}}},
        ["spec.updateStrategy.rollingUpdate.partition"],
        "reaches all replicas",
    ),
}


@pytest.mark.parametrize(("edits", "fields", "text"), UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_a_field_without_effect_is_accepted_and_named(edits: Edits, fields: list[str], text: str) -> None:
    found = find_unsupported(small(edits))
    assert [one.field for one in found] == fields
    assert {one.code for one in found} == {FindingCode.UNSUPPORTED}
    assert text in found[-1].message
    report = validate_create(small(edits))
    assert report.errors == ()
    assert {*found} <= {*report.warnings}


SUPPORTED: dict[str, Edits] = {
    "as small as it gets": {},
    "any order": {f"{TEMPLATE}.cliqueStartupType": "CliqueStartupTypeAnyOrder"},
    "names that nobody looks at": {f"{CLIQUE}.spec.startsAfter": ["leader"]},
    "not paused": {"spec.paused": False},
    "nothing held back": {"spec.updateStrategy": {"type": "ReplicaRecreate", "rollingUpdate": {"partition": 0}}},
    "empty lists": {f"{TEMPLATE}.resourceClaimTemplates": [], f"{TEMPLATE}.resourceSharing": []},
    "what is built": {
        f"{TEMPLATE}.terminationDelay": "1m",
        f"{TEMPLATE}.priorityClassName": "high",
        f"{TEMPLATE}.headlessServiceConfig": {"publishNotReadyAddresses": False},
    },
}


@pytest.mark.parametrize("edits", SUPPORTED.values(), ids=SUPPORTED.keys())
def test_what_says_what_happens_anyway_is_not_named(edits: Edits) -> None:
    assert find_unsupported(small(edits)) == ()


def test_an_edit_is_warned_about_what_it_brings_and_not_about_what_was_there() -> None:
    stored = small({"spec.paused": True})
    image = edited(stored, {f"{CLIQUE}.spec.podSpec.containers.0.image": "two"})
    assert validate_update(stored, image).warnings == ()
    limited = edited(stored, {"spec.revisionHistoryLimit": 3})
    assert [one.field for one in validate_update(stored, limited).warnings] == ["spec.revisionHistoryLimit"]


def test_every_field_without_effect_is_found_in_the_set_that_has_every_field() -> None:
    fields = " ".join(one.field for one in find_unsupported(complete()))
    for name in (
        *("cliqueStartupType", "startsAfter", "autoScalingConfig", "scaleConfig", "topologyConstraint"),
        *("resourceClaimTemplates", "resourceSharing", "progressDeadlineSeconds", "revisionHistoryLimit"),
    ):
        assert name in fields


def test_the_sentence_names_every_field_first_and_each_consequence_once() -> None:
    scaling = {"minReplicas": 2, "maxReplicas": 4}
    pods = {"containers": [{"name": "main", "image": "app:v1"}]}
    cliques = [
        {"name": f"c{index}", "spec": {"replicas": 2, "autoScalingConfig": scaling, "podSpec": pods}}
        | {"topologyConstraint": RACK, "resourceSharing": SHARED}
        for index in range(20)
    ]
    edits = {f"{TEMPLATE}.cliques": cliques, f"{TEMPLATE}.podCliqueScalingGroups": REMOVED, "spec.paused": True}
    found = find_unsupported(small(edits))
    assert len(found) == 1 + 3 * 20
    text = render_unsupported(found)
    names, _, consequences = text.partition(". ")
    assert names.removeprefix("These fields have no effect: ").split(", ") == sorted(
        [one.field for one in found], key=names.index
    )
    assert all(text.count(f"{one.field},") + text.count(f"{one.field}.") == 1 for one in found)
    assert {text.count(one.message) for one in found} == {1}
    assert consequences.count("Grove UI") == len({one.message for one in found}) == 4
    assert render_unsupported(()) == ""


def test_one_field_is_told_as_one() -> None:
    (one,) = find_unsupported(small({"spec.paused": True}))
    assert render_unsupported([one]) == f"This field has no effect: spec.paused. {one.message}."


def test_what_is_no_manifest_has_no_fields() -> None:
    assert find_unsupported(None) == find_unsupported({"spec": {"paused": "yes", "template": []}}) == ()
