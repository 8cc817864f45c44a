"""What a page shows of a simulated change: words and figures that are true of it, a diff that leads to each field."""

from dataclasses import replace
from typing import Any

from rollouts.accounts.commands import WorkloadRef
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.simulation.cluster import ClusterBehaviour
from rollouts.engine.simulation.simulate import SimulationEnd, simulate
from rollouts.manifests.masking import PUBLIC_READER
from rollouts.selectors.forecast import Forecast, Pace
from rollouts.services.edit import Change
from rollouts.services.simulation_report import Simulated, SimulatedChange, SimulationRun, build_baseline, build_report
from rollouts.web.commands.manifest_diff import render_manifest_diff
from rollouts.web.commands.simulation_summary import SimulationSummary, summarize_simulation
from tests.engine.simulated import QUICK, Cluster, clique, group, settled, with_image, workload

PACE = Pace(10.0, is_measured=True)
MANIFEST: dict[str, Any] = {"metadata": {"uid": "u", "generation": 1}, "spec": {}}
CONSIDERED = SimulatedChange(
    WorkloadRef("sandbox", "default", "w"),
    MANIFEST,
    MANIFEST,
    Observed(),
    is_new=False,
    warnings=(),
    reader=PUBLIC_READER,
)


def run(cluster: Cluster, changed: Workload, behaviour: ClusterBehaviour = QUICK) -> SimulationRun:
    """Run a change to its end."""
    observed = cluster.world.observed()
    outcome = simulate(cluster.workload, observed, changed, behaviour, cluster.world.now)
    return SimulationRun(cluster.workload, changed, observed, outcome, Forecast(behaviour, PACE, (), ()))


def told_of(cluster: Cluster, changed: Workload, behaviour: ClusterBehaviour = QUICK) -> Simulated:
    """Return what is told of a change."""
    considered = replace(CONSIDERED, observed=cluster.world.observed())
    return build_report(considered, run(cluster, changed, behaviour))


def facts(preview: SimulationSummary) -> dict[str, str]:
    """Return the figures by what they stand for."""
    return {fact.label: fact.value for fact in preview.stats}


def grouped() -> Cluster:
    """Two replicas of three pods and a group."""
    members = clique("b", 1), clique("c", 1)
    return settled(workload(clique("a", 3), *members, group("g", ("b", "c"), 1), replicas=2))


def test_a_rollout_says_whom_it_replaces_and_when() -> None:
    cluster = grouped()
    preview = summarize_simulation(told_of(cluster, with_image(cluster.workload, "app:v2")))
    first = preview.steps[0]
    assert first.text == "replaces a, g-0 of replica 0"
    # Of ten pods one of the clique and both of the group are away.
    assert (first.at, first.available, preview.desired) == ("0 s", 7, 10)
    assert facts(preview)["pods replaced"] == "10"
    assert facts(preview)["lowest capacity"] == "7 of 10"
    assert any(line.text == "replaces a, g-0 of replica 1" for line in (*preview.steps, *preview.more_steps))
    assert preview.chart is not None
    assert preview.chart.summary == "At least 7 of 10 pods are available at any time; the floor is 7."


def test_pods_that_come_and_pods_that_go_are_not_called_replaced() -> None:
    cluster = grouped()
    more = summarize_simulation(told_of(cluster, replace(cluster.workload, replicas=3)))
    assert facts(more)["pods more"] == "5"
    assert "pods replaced" not in facts(more)
    fewer = summarize_simulation(told_of(cluster, replace(cluster.workload, replicas=1)))
    assert facts(fewer)["pods fewer"] == "5"
    assert "pods replaced" not in facts(fewer)
    assert not [label for label in facts(fewer) if "surge" in label]
    assert "scales in replica 1" in [line.text for line in fewer.steps]


def test_surge_is_told_as_such() -> None:
    cluster = settled(workload(clique("a", 3, budget=(0, 1)), strategy=Strategy.ROLLING_UPDATE))
    preview = summarize_simulation(told_of(cluster, with_image(cluster.workload, "app:v2")))
    assert facts(preview)["surge pod at most"] == "+1"
    assert facts(preview)["lowest capacity"] == "3 of 3"
    assert preview.steps[-1].text == "ends the surge of a of replica 0"
    assert preview.chart is not None
    # It is there until the end, also while it stands in for one that is replaced.
    assert [row.surge for row in preview.chart.table_rows] == [0, 1, 1, 1, 1, 0]


def test_nothing_to_do_is_said_in_a_sentence() -> None:
    cluster = grouped()
    preview = summarize_simulation(told_of(cluster, cluster.workload))
    assert preview.sentence == "No pod is created or deleted."
    assert (preview.stats, preview.chart, preview.steps) == ((), None, ())


def test_a_stuck_rollout_says_why_and_how_it_was_without_the_change() -> None:
    cluster = grouped()
    changed = with_image(cluster.workload, "app:v2")
    broken = replace(QUICK, never_ready=frozenset({"w-0-a-0"}))
    told = told_of(cluster, changed, broken)
    preview = summarize_simulation(told)
    assert preview.is_problem
    assert preview.sentence == "The rollout gets stuck."
    assert any("not Ready" in sentence for wait in preview.waits for sentence in wait.sentences)
    # How long nothing happens is no duration.
    assert not any(figure.startswith("≈") for figure in facts(preview).values())
    compared = replace(told, former=build_baseline(run(cluster, changed)))
    assert summarize_simulation(compared).sentence == (
        "The rollout gets stuck. With the present strategy it completes."
    )


def test_a_long_rollout_is_folded_after_a_few_lines() -> None:
    cluster = settled(workload(clique("a", 1), replicas=40))
    preview = summarize_simulation(told_of(cluster, with_image(cluster.workload, "app:v2")))
    assert (len(preview.steps), bool(preview.more_steps)) == (8, True)
    assert preview.omitted_steps > 0


def test_what_was_not_followed_to_its_end_is_not_compared() -> None:
    cluster = grouped()
    changed = with_image(cluster.workload, "app:v2")
    told = replace(told_of(cluster, changed), former=build_baseline(run(cluster, cluster.workload)))
    assert "steps, was 0" in facts(summarize_simulation(told))
    unfinished = summarize_simulation(replace(told, end=SimulationEnd.UNFINISHED))
    assert "steps so far" in facts(unfinished)
    assert (
        unfinished.sentence
        == "The workload is large: only the first 64 s were simulated. Availability does not fall below the floor."
    )


def test_what_was_followed_in_part_is_not_said_to_go_well_below_the_floor() -> None:
    cluster = grouped()
    told = replace(told_of(cluster, with_image(cluster.workload, "app:v2")), end=SimulationEnd.UNFINISHED)
    below = replace(told, pods=replace(told.pods, floor=told.pods.lowest + 1))
    assert summarize_simulation(below).sentence.endswith("were simulated. Availability falls below the floor.")
    # Scaled out, it has not been there yet.
    more = replace(told_of(cluster, replace(cluster.workload, replicas=9)), end=SimulationEnd.UNFINISHED)
    assert more.pods.lowest < more.pods.floor
    assert summarize_simulation(more).sentence.endswith("were simulated.")


# ---- the diff


def diff(changes: list[Change], manifest: dict[str, Any] | None = None) -> list[str]:
    """Return the lines of a diff."""
    return [line.text for line in render_manifest_diff(changes, manifest or {})]


def test_a_diff_leads_to_each_change_and_tells_the_plain_fields_beside_it() -> None:
    group = {"name": "prefill", "updateStrategy": {"maxUnavailable": 1, "maxSurge": 0}}
    manifest = {"spec": {"template": {"podCliqueScalingGroups": [group]}}}
    field = "spec.template.podCliqueScalingGroups[0].updateStrategy.maxUnavailable"
    assert diff([Change(field, 1, "50%")], manifest) == [
        "  spec:",
        "    template:",
        "      podCliqueScalingGroups:",
        "        - name: prefill",
        "          updateStrategy:",
        "-           maxUnavailable: 1",
        "+           maxUnavailable: 50%",
        "            maxSurge: 0",
    ]


def test_two_changes_share_the_way_to_them() -> None:
    changes = [Change("spec.replicas", 1, 2), Change("spec.template.priorityClassName", None, "high")]
    assert diff(changes) == [
        "  spec:",
        "-   replicas: 1",
        "+   replicas: 2",
        "    template:",
        "+     priorityClassName: high",
    ]


def test_what_is_no_field_of_the_set_stands_by_itself() -> None:
    assert diff([Change("PodClique w-0-a: spec.replicas", 4, 6)]) == [
        "  PodClique w-0-a",
        "  spec:",
        "-   replicas: 4",
        "+   replicas: 6",
    ]


def test_the_fields_beside_a_change_are_masked() -> None:
    env = [{"name": "API_TOKEN", "value": "hunter2"}]
    manifest = {"spec": {"template": {"cliques": [{"name": "a", "spec": {"podSpec": {"containers": [{"env": env}]}}}]}}}
    field = "spec.template.cliques[0].spec.podSpec.containers[0].env[0].name"
    lines = diff([Change(field, "API_TOKEN", "TOKEN")], manifest)
    assert not any("hunter2" in line for line in lines)


def test_a_very_long_diff_is_cut_and_says_so() -> None:
    lines = diff([Change("spec.template", None, {f"field{number}": number for number in range(1000)})])
    assert lines[-1] == "… and 602 more lines"
