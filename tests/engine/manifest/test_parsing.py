"""From manifest to values and back: defaults, unknown fields, and manifests that yield no workload."""

import copy
import doctest
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.engine.manifest.defaults import with_defaults
from rollouts.engine.manifest.findings import FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model import durations
from rollouts.engine.model.durations import parse_duration
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.engine.model.workload import BudgetSpec, StartupType, Strategy, Workload
from tests.deploy.manifests import GROVE, REMOVED, SAMPLES, Edits, Obj, load
from tests.engine.manifest.rendering import render_duration, render_manifest
from tests.engine.manifests import JSON, complete, damaged, small, valid, workload_of

FRONTEND = "spec.template.cliques.0"
DECODE = "spec.template.podCliqueScalingGroups.0"
LEAST = {
    "metadata": {"name": "least"},
    "spec": {"template": {"cliques": [{"name": "a", "spec": {"podSpec": {"containers": [{"name": "main"}]}}}]}},
}


def unreadable(manifest: object) -> list[tuple[str, FindingCode]]:
    parsed = parse_workload(manifest)
    assert isinstance(parsed, ParseFailure), parsed
    return [(finding.field, finding.code) for finding in parsed.findings]


def test_everything_left_out_gets_its_default() -> None:
    workload = workload_of(LEAST)
    (clique,) = workload.cliques
    assert (workload.namespace, workload.uid, workload.generation) == ("default", "", 0)
    assert (workload.replicas, workload.strategy, workload.budget) == (0, Strategy.ROLLING_RECREATE, BudgetSpec())
    assert (workload.startup_type, workload.priority_class) == (StartupType.ANY_ORDER, "")
    assert (workload.termination_delay, workload.publish_not_ready_addresses) == (4 * 3600, True)
    assert (clique.replicas, clique.min_available, clique.role_name, clique.budget) == (1, 1, "", None)
    assert (clique.labels, clique.annotations, clique.starts_after, clique.auto_scaling) == ({}, {}, (), None)
    assert workload.groups == ()


def test_what_is_written_is_taken() -> None:
    workload = workload_of(complete({"metadata.uid": "u-1", "metadata.generation": 4, "metadata.namespace": "prod"}))
    assert (workload.namespace, workload.name, workload.uid, workload.generation) == ("prod", "complete", "u-1", 4)
    assert (workload.replicas, workload.strategy, workload.budget) == (3, Strategy.ROLLING_UPDATE, BudgetSpec(1, 0))
    assert (workload.startup_type, workload.priority_class) == (StartupType.EXPLICIT, "high")
    assert (workload.termination_delay, workload.publish_not_ready_addresses) == (5400, False)
    frontend, leader, worker, _ = workload.cliques
    assert (frontend.replicas, frontend.min_available, frontend.budget) == (4, 2, BudgetSpec(1, "25%"))
    assert (frontend.labels, frontend.role_name) == ({"tier": "web"}, "frontend")
    assert (leader.budget, worker.starts_after, worker.min_available) == (None, ("leader", "frontend"), 2)
    decode, store = workload.groups
    assert (decode.clique_names, decode.replicas, decode.min_available) == (("leader", "worker"), 3, 2)
    assert (decode.budget, decode.annotations) == (BudgetSpec(0, 1), {"example.com/owner": "inference"})
    assert (store.replicas, store.min_available, store.budget) == (1, 1, None)
    assert store.annotations == {}


@pytest.mark.parametrize(
    ("edits", "strategy"),
    [
        ({}, Strategy.ROLLING_RECREATE),
        ({"spec.updateStrategy": {}}, Strategy.ROLLING_RECREATE),
        ({"spec.updateStrategy": {"type": None}}, Strategy.ROLLING_RECREATE),
        ({"spec.updateStrategy.rollingUpdate": {"maxSurge": 1}}, Strategy.ROLLING_RECREATE),
        ({f"{FRONTEND}.updateStrategy": None}, Strategy.ROLLING_RECREATE),
        ({f"{FRONTEND}.updateStrategy": {"maxSurge": 1}}, Strategy.ROLLING_UPDATE),
        ({f"{DECODE}.updateStrategy": {}}, Strategy.ROLLING_UPDATE),
        ({f"{DECODE}.updateStrategy": {}, "spec.updateStrategy.type": "OnDelete"}, Strategy.ON_DELETE),
        ({"spec.updateStrategy.type": "ReplicaRecreate"}, Strategy.REPLICA_RECREATE),
    ],
)
def test_a_strategy_left_out_follows_from_the_components(edits: Edits, strategy: Strategy) -> None:
    assert workload_of(small(edits)).strategy == strategy


@pytest.mark.parametrize(
    ("edits", "minimum", "floor"),
    [
        ({}, 3, 3),
        ({f"{FRONTEND}.spec.minAvailable": 2}, 2, 3),
        ({f"{FRONTEND}.spec.replicas": 5}, 5, 5),
        ({f"{FRONTEND}.spec.replicas": REMOVED}, 1, 1),
        ({f"{FRONTEND}.spec.autoScalingConfig.minReplicas": 4}, 3, 4),
    ],
)
def test_minimum_and_floor_of_a_clique_follow_its_replicas(edits: Edits, minimum: int, floor: int) -> None:
    scaled: Edits = {f"{FRONTEND}.spec.autoScalingConfig": {"maxReplicas": 9}}
    clique = workload_of(small(scaled | edits)).cliques[0]
    assert clique.auto_scaling is not None
    assert (clique.min_available, clique.auto_scaling["minReplicas"]) == (minimum, floor)


def test_a_group_has_a_minimum_of_one_and_a_floor_of_its_replicas() -> None:
    manifest = small({f"{DECODE}.scaleConfig": {"maxReplicas": 9}})
    group = workload_of(manifest).groups[0]
    filled: Any = with_defaults(manifest)
    (scaling,) = (one["scaleConfig"] for one in filled["spec"]["template"]["podCliqueScalingGroups"])
    assert (group.replicas, group.min_available, scaling) == (4, 1, {"minReplicas": 4, "maxReplicas": 9})


def test_nothing_is_put_into_the_pod_spec() -> None:
    before = small()["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
    assert workload_of(small()).cliques[0].pod_spec == before


def test_the_given_manifest_is_not_changed() -> None:
    given_manifest = small()
    kept = copy.deepcopy(given_manifest)
    _ = render_manifest(workload_of(given_manifest))
    assert given_manifest == kept


@pytest.mark.parametrize("path", [*SAMPLES, *GROVE], ids=lambda path: path.stem)
def test_manifests_that_are_applied_elsewhere_become_workloads(path: object) -> None:
    manifest = load(path)  # type: ignore[arg-type]
    workload = workload_of(manifest)
    assert render_manifest(workload) == workload.manifest == with_defaults(manifest)


def test_unknown_fields_and_the_status_survive() -> None:
    unknown: Edits = {
        "status": {"replicas": 3, "deep": [{"a": None}]},
        "metadata.labels": {"a": "b"},
        "spec.new": {"nested": [1, None, {}]},
        f"{FRONTEND}.extra": False,
        f"{FRONTEND}.nothing": None,
        f"{FRONTEND}.spec.topology": "x",
        f"{DECODE}.extra": [],
        "spec.updateStrategy.rollingUpdate.partition": 2,
    }
    rendered = render_manifest(workload_of(small(unknown)))
    for path, value in unknown.items():
        node: object = rendered
        for part in path.split("."):
            node = node[int(part)] if isinstance(node, list) else node[part]  # type: ignore[index]
        assert node == value, path


def test_a_changed_value_is_rendered_and_nothing_else_changes() -> None:
    workload = workload_of(complete())
    frontend, *others = workload.cliques
    changed = replace(
        workload,
        replicas=9,
        strategy=Strategy.ON_DELETE,
        termination_delay=90.0,
        priority_class="",
        cliques=(replace(frontend, budget=None, labels={}, replicas=6), *others),
        groups=(replace(workload.groups[0], budget=BudgetSpec("50%")), *workload.groups[1:]),
    )
    expected = complete(
        {
            "metadata.namespace": "default",
            "spec.replicas": 9,
            "spec.updateStrategy.type": "OnDelete",
            "spec.template.terminationDelay": "90s",
            "spec.template.priorityClassName": REMOVED,
            f"{FRONTEND}.updateStrategy": REMOVED,
            f"{FRONTEND}.labels": REMOVED,
            f"{FRONTEND}.spec.replicas": 6,
            f"{DECODE}.updateStrategy": {"maxUnavailable": "50%"},
        }
    )
    assert render_manifest(changed) == with_defaults(expected)
    assert parse_workload(render_manifest(changed)) == replace(changed, manifest=render_manifest(changed))


def test_an_empty_strategy_of_a_component_stays_one() -> None:
    rendered = render_manifest(workload_of(small({f"{FRONTEND}.updateStrategy": {}})))
    assert rendered["spec"]["template"]["cliques"][0]["updateStrategy"] == {}


@pytest.mark.parametrize("manifest", [None, True, 3, 1.5, "set", [], [{}]], ids=repr)
def test_what_is_not_an_object_is_said_to_be_none(manifest: object) -> None:
    code = FindingCode.FIELD_MISSING if manifest is None else FindingCode.WRONG_TYPE
    assert unreadable(manifest) == [("", code)]


@pytest.mark.parametrize(
    ("edits", "field", "code"),
    [
        ({"metadata": REMOVED}, "metadata", FindingCode.FIELD_MISSING),
        ({"metadata.name": REMOVED}, "metadata.name", FindingCode.FIELD_MISSING),
        ({"metadata.name": 7}, "metadata.name", FindingCode.INVALID_NAME),
        ({"metadata.name": "a" * 64}, "metadata.name", FindingCode.INVALID_NAME),
        ({"kind": "Deployment"}, "kind", FindingCode.UNKNOWN_VALUE),
        ({"apiVersion": "v1"}, "apiVersion", FindingCode.UNKNOWN_VALUE),
        ({"spec": REMOVED}, "spec", FindingCode.FIELD_MISSING),
        ({"spec": []}, "spec", FindingCode.WRONG_TYPE),
        ({"spec.template": "x"}, "spec.template", FindingCode.WRONG_TYPE),
        ({"spec.replicas": "2"}, "spec.replicas", FindingCode.WRONG_TYPE),
        ({"spec.replicas": True}, "spec.replicas", FindingCode.WRONG_TYPE),
        ({"spec.replicas": 2.5}, "spec.replicas", FindingCode.WRONG_TYPE),
        ({"spec.replicas": -1}, "spec.replicas", FindingCode.OUT_OF_RANGE),
        ({"spec.replicas": 2**31}, "spec.replicas", FindingCode.OUT_OF_RANGE),
        ({"spec.replicas": 10**30}, "spec.replicas", FindingCode.OUT_OF_RANGE),
        ({"spec.x": -(10**30)}, "spec.x", FindingCode.OUT_OF_RANGE),
        ({"spec.replicas": float("nan")}, "spec.replicas", FindingCode.WRONG_TYPE),
        ({"spec.replicas": 2**31 - 1}, "spec.replicas", FindingCode.TOO_MANY_PODS),
        ({"spec.updateStrategy": "OnDelete"}, "spec.updateStrategy", FindingCode.WRONG_TYPE),
        ({"spec.updateStrategy.type": "BlueGreen"}, "spec.updateStrategy.type", FindingCode.UNKNOWN_VALUE),
        ({"spec.updateStrategy.type": 1}, "spec.updateStrategy.type", FindingCode.WRONG_TYPE),
        ({"spec.template.cliques": {}}, "spec.template.cliques", FindingCode.WRONG_TYPE),
        ({f"{FRONTEND}": None}, "spec.template.cliques[0]", FindingCode.FIELD_MISSING),
        ({f"{FRONTEND}.name": "leader"}, "spec.template.cliques[1].name", FindingCode.DUPLICATE_NAME),
        ({f"{FRONTEND}.labels": {"a": 1}}, "spec.template.cliques[0].labels", FindingCode.WRONG_TYPE),
        ({f"{FRONTEND}.spec.replicas": 0}, "spec.template.cliques[0].spec.replicas", FindingCode.OUT_OF_RANGE),
        ({"spec.template.terminationDelay": 30}, "spec.template.terminationDelay", FindingCode.INVALID_DURATION),
        (
            {f"{DECODE}.cliqueNames": ["leader", "worker", "x"]},
            "spec.template.podCliqueScalingGroups[0].cliqueNames[2]",
            FindingCode.UNKNOWN_CLIQUE,
        ),
        (
            {f"{FRONTEND}.spec.podSpec.volumes": {1: 2}},
            "spec.template.cliques[0].spec.podSpec.volumes",
            FindingCode.WRONG_TYPE,
        ),
    ],
    ids=str,
)
def test_a_manifest_that_cannot_be_relied_on_is_no_workload(edits: Edits, field: str, code: FindingCode) -> None:
    assert unreadable(small(edits)) == [(field, code)]


@pytest.mark.parametrize(
    "text", ["x%", "101%", " 5 %", "5 %", "-5%", "2.5%", "", "5", "%", -1, 1.5, True, [], {}, 2**31]
)
def test_a_budget_that_is_none_is_found_at_every_level(text: object) -> None:
    for strategy, field in (
        ("spec.updateStrategy.rollingUpdate", "spec.updateStrategy.rollingUpdate"),
        (f"{FRONTEND}.updateStrategy", "spec.template.cliques[0].updateStrategy"),
        (f"{DECODE}.updateStrategy", "spec.template.podCliqueScalingGroups[0].updateStrategy"),
    ):
        found = unreadable(small({strategy: {"maxUnavailable": text}}))
        assert found == [(f"{field}.maxUnavailable", FindingCode.INVALID_BUDGET)]


def test_a_manifest_that_nests_without_end_is_not_walked_through() -> None:
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    assert unreadable(small({"spec.x": None}) | {"spec": {"deep": deep}}) == [("", FindingCode.TOO_DEEP)]


def test_nesting_ends_at_its_limit() -> None:
    # spec.x is two levels down.
    for more, is_read in ((62, True), (63, False)):
        value: object = 1
        for _ in range(more):
            value = [value]
        assert isinstance(parse_workload(small({"spec.x": value})), Workload) is is_read


def test_texts_end_at_their_limit() -> None:
    role = f"{FRONTEND}.spec.roleName"
    assert workload_of(small({role: "r" * 253})).cliques[0].role_name == "r" * 253
    assert unreadable(small({role: "r" * 254})) == [("spec.template.cliques[0].spec.roleName", FindingCode.TOO_LONG)]


def test_whole_numbers_have_64_bits() -> None:
    assert isinstance(parse_workload(small({"spec.x": 2**64 - 1})), Workload)
    assert unreadable(small({"spec.x": 2**64})) == [("spec.x", FindingCode.OUT_OF_RANGE)]


def test_a_number_that_python_will_not_even_print_is_found() -> None:
    assert unreadable(small({"spec.replicas": 10**5000})) == [("spec.replicas", FindingCode.OUT_OF_RANGE)]


def test_a_set_whose_budget_scaling_has_outgrown_is_still_a_workload() -> None:
    shrunk: Edits = {"spec.replicas": 1, "spec.updateStrategy": {"type": "ReplicaRecreate"}}
    workload = workload_of(small(shrunk | {"spec.updateStrategy.rollingUpdate": {"maxUnavailable": 5}}))
    assert workload.budget == BudgetSpec(5)


def test_the_budget_of_a_member_is_not_acted_on() -> None:
    assert workload_of(small({"spec.template.cliques.1.updateStrategy": {"maxSurge": 1}})).cliques[1].budget is None


@given(JSON)
def test_no_value_at_all_raises(value: object) -> None:
    assert isinstance(parse_workload(value), Workload | ParseFailure)


@given(damaged())
def test_no_damaged_manifest_raises_and_what_is_readable_can_be_used(manifest: object) -> None:
    parsed = parse_workload(manifest)
    if isinstance(parsed, Workload):
        assert compute_generation_hash(parsed)
        assert parse_workload(render_manifest(parsed)) == replace(parsed, manifest=render_manifest(parsed))


@given(valid())
def test_what_is_parsed_and_rendered_parses_and_renders_to_the_same(manifest: Obj) -> None:
    workload = workload_of(manifest)
    rendered = render_manifest(workload)
    assert workload_of(rendered) == workload
    assert render_manifest(workload_of(rendered)) == rendered


@given(JSON | damaged())
def test_defaults_put_in_twice_are_put_in_once(manifest: object) -> None:
    # As text, since a number that is none does not equal itself.
    assert repr(with_defaults(with_defaults(manifest))) == repr(with_defaults(manifest))


def test_the_examples_of_durations_hold() -> None:
    results = doctest.testmod(durations)
    assert results.attempted > 2
    assert results.failed == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h2m3s", 3723.0),
        ("500ms", 0.5),
        ("1.5us", 1.5e-6),
        ("1ns", 1e-9),
        ("0" * 62 + "1h", 3600.0),
        ("2540400h", 9145440000.0),
    ],
)
def test_a_time_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "4",
        "h",
        "4 h",
        "4H",
        "4h ",
        "1h-1m",
        "+4h",
        "4h\n",
        "0.1ns",
        "0" * 63 + "1h",
        "9" * 70 + "h",
        "3000000h",
        "\u0664h",
    ],
)
def test_what_is_not_a_time_is_not_read(text: str) -> None:
    assert parse_duration(text) is None


@given(st.integers(1, 9 * 10**12))
def test_a_rendered_time_reads_as_itself(milliseconds: int) -> None:
    assert parse_duration(render_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, rel=1e-12)


def test_a_duration_is_rendered_in_the_largest_unit_that_holds_it() -> None:
    assert [render_duration(seconds) for seconds in (14400.0, 5400.0, 0.25)] == ["4h", "90m", "250ms"]
