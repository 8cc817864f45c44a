"""An edit of a manifest changes exactly what was asked for, or nothing and says why."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.engine.manifest import edits
from rollouts.engine.manifest.diff import find_differences
from rollouts.engine.manifest.edits import RESTARTED_AT, ImageEdit, InvalidEdit
from rollouts.engine.manifest.findings import FindingCode
from rollouts.engine.manifest.validation import validate_update
from rollouts.engine.model.hashing import compute_generation_hash
from tests.deploy.manifests import Obj
from tests.engine.manifests import JSON, complete, small, valid, workload_of

CLIQUE = "spec.template.cliques[0]"
GROUP = "spec.template.podCliqueScalingGroups[0]"


def changed(before: Obj, after: Obj | InvalidEdit) -> dict[str, Any]:
    """Return what an edit changed, by field."""
    assert not isinstance(after, InvalidEdit), after
    return {one.field: one.after for one in find_differences(before, after)}


def refused(after: Obj | InvalidEdit) -> list[tuple[str, FindingCode]]:
    """Return the fields and codes of the findings of a refused edit."""
    assert isinstance(after, InvalidEdit), after
    return [(finding.field, finding.code) for finding in after.findings]


# ---- images


def test_an_image_is_all_that_changes() -> None:
    manifest = small()
    after = edits.set_images(manifest, [ImageEdit("frontend", "app:v2"), ImageEdit("worker", "app:v3", "main")])
    assert changed(manifest, after) == {
        f"{CLIQUE}.spec.podSpec.containers[0].image": "app:v2",
        "spec.template.cliques[2].spec.podSpec.containers[0].image": "app:v3",
    }


def test_an_init_container_gets_its_image_by_name() -> None:
    path = "spec.template.cliques.0.spec.podSpec.initContainers"
    manifest = small({path: [{"name": "fetch", "image": "fetch:v1"}]})
    after = edits.set_images(manifest, [ImageEdit("frontend", "fetch:v2", "fetch")])
    assert changed(manifest, after) == {f"{CLIQUE}.spec.podSpec.initContainers[0].image": "fetch:v2"}


def test_two_containers_of_a_clique_change_together() -> None:
    side = {"name": "side", "image": "side:v1"}
    manifest = small({"spec.template.cliques.0.spec.podSpec.containers.1": side})
    after = edits.set_images(
        manifest, [ImageEdit("frontend", "app:v2", "main"), ImageEdit("frontend", "side:v2", "side")]
    )
    assert [*changed(manifest, after).values()] == ["app:v2", "side:v2"]


def test_a_container_must_be_named_where_there_are_several() -> None:
    side = {"name": "side", "image": "side:v1"}
    manifest = small({"spec.template.cliques.0.spec.podSpec.containers.1": side})
    after = edits.set_images(manifest, [ImageEdit("frontend", "app:v2")])
    assert refused(after) == [("images[0].container", FindingCode.FIELD_MISSING)]
    assert isinstance(after, InvalidEdit)
    assert "main, side" in after.findings[0].message


def test_every_mistake_about_images_is_named_at_once() -> None:
    asked = [
        ImageEdit("nobody", "app:v2"),
        ImageEdit("worker", "app:v2", "other"),
        ImageEdit("leader", "a b"),
        ImageEdit("leader", ""),
    ]
    assert refused(edits.set_images(small(), asked)) == [
        ("images[0].clique", FindingCode.UNKNOWN_CLIQUE),
        ("images[1].container", FindingCode.UNKNOWN_CONTAINER),
        ("images[2].image", FindingCode.INVALID_IMAGE),
        ("images[3].image", FindingCode.INVALID_IMAGE),
    ]


# ---- numbers


def test_scaling_the_set_changes_its_replicas_alone() -> None:
    assert changed(small(), edits.scale(small(), 5)) == {"spec.replicas": 5}


def test_scaling_a_group_changes_its_replicas_in_the_template() -> None:
    assert changed(small(), edits.scale(small(), 6, "decode")) == {f"{GROUP}.replicas": 6}


@pytest.mark.parametrize("replicas", [1, 5])
def test_scaling_a_clique_leaves_out_the_minimum_that_was_left_out(replicas: int) -> None:
    after = edits.scale(small(), replicas, "frontend")
    assert changed(small(), after) == {f"{CLIQUE}.spec.replicas": replicas}
    assert not validate_update(small(), after).errors


def test_scaling_a_clique_leaves_the_minimum_that_is_written() -> None:
    manifest = small({"spec.template.cliques.0.spec.minAvailable": 1})
    assert changed(manifest, edits.scale(manifest, 2, "frontend")) == {f"{CLIQUE}.spec.replicas": 2}


def test_a_component_that_is_not_there_cannot_be_scaled() -> None:
    assert refused(edits.scale(small(), 2, "nobody")) == [("component", FindingCode.UNKNOWN_COMPONENT)]


def test_a_group_is_meant_before_a_clique_of_the_same_name() -> None:
    edits_ = {
        "spec.template.cliques.1.name": "decode",
        "spec.template.podCliqueScalingGroups.0.cliqueNames.0": "decode",
    }
    assert changed(small(edits_), edits.scale(small(edits_), 6, "decode")) == {f"{GROUP}.replicas": 6}


# ---- strategy


def test_a_type_of_strategy_is_all_that_changes() -> None:
    after = edits.edit_strategy(small(), {"type": "OnDelete"})
    assert changed(small(), after) == {"spec.updateStrategy": {"type": "OnDelete"}}


def test_the_budget_of_the_set_is_merged_into_what_is_there() -> None:
    manifest = small(
        {"spec.updateStrategy": {"type": "ReplicaRecreate", "rollingUpdate": {"maxUnavailable": 2, "partition": 0}}}
    )
    after = edits.edit_strategy(manifest, {"maxUnavailable": 1, "maxSurge": "50%"})
    assert changed(manifest, after) == {
        "spec.updateStrategy.rollingUpdate.maxUnavailable": 1,
        "spec.updateStrategy.rollingUpdate.maxSurge": "50%",
    }


def test_null_takes_a_part_of_the_strategy_out() -> None:
    manifest = small({"spec.updateStrategy": {"type": "ReplicaRecreate", "rollingUpdate": {"maxSurge": 1}}})
    after = edits.edit_strategy(manifest, {"type": None, "maxSurge": None})
    assert isinstance(after, dict)
    assert "updateStrategy" not in after["spec"]


def test_budgets_of_components_change_by_name() -> None:
    manifest = small({"spec.template.podCliqueScalingGroups.0.updateStrategy": {"maxUnavailable": 2}})
    components = {"frontend": {"maxSurge": 1, "maxUnavailable": 0}, "decode": {"maxUnavailable": None, "maxSurge": 1}}
    after = edits.edit_strategy(manifest, {"components": components})
    assert isinstance(after, dict)
    template = after["spec"]["template"]
    assert template["cliques"][0]["updateStrategy"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert template["podCliqueScalingGroups"][0]["updateStrategy"] == {"maxSurge": 1}


@pytest.mark.parametrize("gone", [None, {"maxUnavailable": None}], ids=["whole", "its last field"])
def test_a_component_without_a_budget_has_no_strategy_left(gone: Any) -> None:
    # An empty one would make RollingUpdate of a type that is left out.
    manifest = small({"spec.template.podCliqueScalingGroups.0.updateStrategy": {"maxUnavailable": 2}})
    after = edits.edit_strategy(manifest, {"components": {"decode": gone}})
    assert isinstance(after, dict)
    assert "updateStrategy" not in after["spec"]["template"]["podCliqueScalingGroups"][0]


def test_an_unknown_component_has_no_strategy() -> None:
    after = edits.edit_strategy(small(), {"type": "OnDelete", "components": {"nobody": {"maxSurge": 1}}})
    assert refused(after) == [("components.nobody", FindingCode.UNKNOWN_COMPONENT)]


def test_no_edit_of_strategy_or_numbers_starts_an_update() -> None:
    before = compute_generation_hash(workload_of(small()))
    for after in (
        edits.edit_strategy(small(), {"type": "RollingUpdate", "components": {"frontend": {"maxSurge": 1}}}),
        edits.scale(small(), 5),
        edits.scale(small(), 5, "frontend"),
        edits.scale(small(), 5, "decode"),
    ):
        assert compute_generation_hash(workload_of(after)) == before


# ---- restart


def test_a_restart_marks_the_template_of_every_clique() -> None:
    after = edits.restart(small(), "2026-01-01T00:00:00Z")
    assert isinstance(after, dict)
    marks = [clique["annotations"] for clique in after["spec"]["template"]["cliques"]]
    assert marks == [{RESTARTED_AT: "2026-01-01T00:00:00Z"}] * 3
    assert compute_generation_hash(workload_of(after)) != compute_generation_hash(workload_of(small()))


def test_a_group_is_restarted_with_all_its_cliques() -> None:
    after = edits.restart(small(), "now", ["decode"])
    assert [*changed(small(), after)] == [
        "spec.template.cliques[1].annotations",
        "spec.template.cliques[2].annotations",
    ]


def test_nothing_is_restarted_when_a_name_is_unknown() -> None:
    assert refused(edits.restart(small(), "now", ["decode", "nobody"])) == [
        ("components[1]", FindingCode.UNKNOWN_COMPONENT)
    ]


# ---- the way back


def test_rolling_back_gives_the_pods_of_the_revision_and_keeps_everything_else() -> None:
    former = small({"spec.template.priorityClassName": "low", "spec.template.cliques.0.labels": {"tier": "old"}})
    now = small(
        {
            "spec.replicas": 7,
            "spec.updateStrategy": {"type": "OnDelete"},
            "spec.template.cliques.0.spec.replicas": 9,
            "spec.template.cliques.0.spec.minAvailable": 3,
            "spec.template.cliques.0.annotations": {RESTARTED_AT: "now"},
            "spec.template.cliques.0.spec.podSpec.containers.0.image": "ghcr.io/example/app:broken",
            "spec.template.podCliqueScalingGroups.0.updateStrategy": {"maxSurge": 1},
        }
    )
    after = edits.roll_back(now, former["spec"]["template"])
    assert changed(now, after) == {
        f"{CLIQUE}.spec.podSpec.containers[0].image": "ghcr.io/example/app:v1",
        f"{CLIQUE}.annotations": changed_to_nothing(),
        f"{CLIQUE}.labels": {"tier": "old"},
        "spec.template.priorityClassName": "low",
    }


def changed_to_nothing() -> Any:
    """Return the value of a removed field."""
    (gone,) = find_differences({"a": 1}, {})
    return gone.after


@given(valid(), st.text("abc", min_size=1, max_size=5), st.booleans())
def test_the_way_back_has_the_hash_of_the_revision(manifest: Obj, image: str, has_priority: bool) -> None:
    template = copy.deepcopy(manifest["spec"]["template"])
    now = edits.set_images(manifest, [ImageEdit(clique["name"], image) for clique in template["cliques"]])
    now = edits.restart(now if isinstance(now, dict) else manifest, "now")
    assert isinstance(now, dict)
    if has_priority:
        now["spec"]["template"]["priorityClassName"] = "high"
    back = edits.roll_back(now, template)
    assert compute_generation_hash(workload_of(back)) == compute_generation_hash(workload_of(manifest))
    assert not validate_update(now, back).errors


def test_a_revision_with_other_cliques_is_no_way_back() -> None:
    former = small({"spec.template.cliques.0.name": "web"})
    assert refused(edits.roll_back(small(), former["spec"]["template"])) == [("revision", FindingCode.IMMUTABLE)]


def test_a_complete_set_can_be_rolled_back_to_itself_without_a_change() -> None:
    assert changed(complete(), edits.roll_back(complete(), complete()["spec"]["template"])) == {}


# ---- all of them


EDITS: list[Callable[[Any], Any]] = [
    lambda manifest: edits.set_images(manifest, [ImageEdit("frontend", "app:v2"), ImageEdit("c0", "app:v2", "main")]),
    lambda manifest: edits.scale(manifest, 3),
    lambda manifest: edits.scale(manifest, 3, "c0"),
    lambda manifest: edits.edit_strategy(manifest, {"type": "OnDelete", "components": {"c0": {"maxSurge": 1}}}),
    lambda manifest: edits.restart(manifest, "now"),
    lambda manifest: edits.roll_back(manifest, manifest.get("spec") if isinstance(manifest.get("spec"), dict) else {}),
]


@pytest.mark.parametrize("edit", EDITS)
@given(manifest=st.dictionaries(st.just("spec"), JSON) | valid())
def test_no_edit_raises_or_changes_what_it_was_given(edit: Callable[[Any], Any], manifest: Obj) -> None:
    before = copy.deepcopy(manifest)
    after = edit(manifest)
    assert repr(manifest) == repr(before)  # for a NaN is not itself
    assert isinstance(after, dict | InvalidEdit)
    if isinstance(after, InvalidEdit):
        assert all(re.fullmatch(r"[a-z]+(\[\d+\])?(\.[\w-]+)?", finding.field) for finding in after.findings)


def test_edits_that_ask_for_what_is_there_change_nothing() -> None:
    manifest = small({"spec.updateStrategy": {"type": "OnDelete"}, "spec.template.cliques.0.spec.minAvailable": 3})
    for after in (
        edits.set_images(manifest, [ImageEdit("frontend", "ghcr.io/example/app:v1")]),
        edits.scale(manifest, 2),
        edits.scale(manifest, 3, "frontend"),
        edits.edit_strategy(manifest, {"type": "OnDelete"}),
        edits.edit_strategy(manifest, {"maxSurge": None, "components": {"frontend": None}}),
        edits.edit_strategy(manifest, {}),
    ):
        assert changed(manifest, after) == {}
