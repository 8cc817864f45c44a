"""Server-side apply: several managers of one set, each with its own fields.

Update tools touch single containers and variables of a template (Grove's own tests set one variable that way), so the
lists that clients edit in part must be merged by their keys and not replaced.
"""

from typing import Any

from tests.deploy.manifests import Obj, complete
from tests.deploy.sets import Sets

CONFLICT = 409


def part(name: str, spec: Obj) -> Obj:
    """Return a piece of a set, as a manager that owns only this would apply it."""
    return {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": name}, "spec": spec}


def of_frontend(container: Obj) -> Obj:
    """Return a piece that touches one container of one clique."""
    clique = {"name": "frontend", "spec": {"podSpec": {"containers": [{"name": "main", **container}]}}}
    return part("complete", {"template": {"cliques": [clique]}})


def main_container(stored: Obj, clique: int = 0) -> dict[str, Any]:
    """Return the container of a stored clique."""
    container: dict[str, Any] = stored["spec"]["template"]["cliques"][clique]["spec"]["podSpec"]["containers"][0]
    return container


def test_a_variable_set_by_another_hand_leaves_the_rest_of_the_template_alone(sets: Sets) -> None:
    before = sets.apply(complete(), "gitops").obj
    after = sets.apply(of_frontend({"env": [{"name": "UPDATE_TRIGGER", "value": "1"}]}), "trigger").obj
    assert [variable["name"] for variable in main_container(after)["env"]] == ["LEVEL", "UPDATE_TRIGGER"]
    assert main_container(after)["image"] == main_container(before)["image"]
    assert main_container(after, 1) == main_container(before, 1)
    assert len(after["spec"]["template"]["cliques"]) == len(before["spec"]["template"]["cliques"])


def test_a_variable_goes_when_its_owner_no_longer_applies_it(sets: Sets) -> None:
    _ = sets.apply(complete(), "gitops").obj
    _ = sets.apply(of_frontend({"env": [{"name": "UPDATE_TRIGGER", "value": "1"}]}), "trigger").obj
    after = sets.apply(of_frontend({}), "trigger").obj
    assert [variable["name"] for variable in main_container(after)["env"]] == ["LEVEL"]


def test_applying_again_what_is_stored_changes_nothing(sets: Sets) -> None:
    first = sets.apply(complete(), "gitops").obj
    second = sets.apply(complete(), "gitops").obj
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_an_image_that_belongs_to_another_hand_is_a_conflict_until_forced(sets: Sets) -> None:
    _ = sets.apply(complete(), "gitops").obj
    other_image = of_frontend({"image": "ghcr.io/example/app:v2"})
    assert sets.apply(other_image, "trigger").code == CONFLICT
    forced = sets.apply(other_image, "trigger", force=True).obj
    assert main_container(forced)["image"] == "ghcr.io/example/app:v2"


def test_the_budget_of_a_group_can_be_taken_over_without_touching_other_groups(sets: Sets) -> None:
    before = sets.apply(complete(), "gitops").obj["spec"]["template"]["podCliqueScalingGroups"]
    decode = {"name": "decode", "cliqueNames": ["leader", "worker"], "updateStrategy": {"maxUnavailable": 2}}
    piece = part("complete", {"template": {"podCliqueScalingGroups": [decode]}})
    after = sets.apply(piece, "incident", force=True).obj["spec"]["template"]["podCliqueScalingGroups"]
    assert after[0] == before[0] | {"updateStrategy": {"maxUnavailable": 2, "maxSurge": 1}}
    assert after[1:] == before[1:]
