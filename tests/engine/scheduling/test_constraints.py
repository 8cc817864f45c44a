"""Node selectors, affinity and taints, one rule a test."""

from collections.abc import Mapping
from typing import Any

import pytest

from rollouts.engine.scheduling.constraints import (
    NODE_AFFINITY_UNMET,
    NODE_CORDONED,
    Taint,
    compute_toleration_seconds,
    find_unmet_constraint,
    parse_constraints,
)
from rollouts.engine.simulation.scheduler import SimulatedNode


def a_node(*taints: Taint, labels: Mapping[str, str] | None = None, cordoned: bool = False) -> SimulatedNode:
    return SimulatedNode("n1", labels=labels or {}, taints=taints, cordoned=cordoned)


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def obstacle(spec: dict[str, Any], node: SimulatedNode) -> str | None:
    return find_unmet_constraint(parse_constraints(spec), node)


def test_a_node_selector_needs_every_label() -> None:
    node = a_node(labels={"zone": "a", "disk": "ssd"})
    assert obstacle({"nodeSelector": {"zone": "a", "disk": "ssd"}}, node) is None
    assert obstacle({"nodeSelector": {"zone": "a", "disk": "hdd"}}, node) == NODE_AFFINITY_UNMET


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "b"), False),
        (expression("zone", "NotIn", "b"), True),
        (expression("zone", "NotIn", "a"), False),
        (expression("absent", "NotIn", "a"), True),
        (expression("absent", "In", "a"), False),
        (expression("zone", "Exists"), True),
        (expression("absent", "Exists"), False),
        (expression("zone", "DoesNotExist"), False),
        (expression("absent", "DoesNotExist"), True),
        (expression("cores", "Gt", "8"), True),
        (expression("cores", "Gt", "16"), False),
        (expression("cores", "Lt", "17"), True),
        (expression("cores", "Lt", "16"), False),
        (expression("zone", "Gt", "1"), False),
        (expression("absent", "Lt", "1"), False),
        (expression("zone", "Resembles", "a"), False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}, False),
        ({}, False),
    ],
)
def test_each_affinity_operator_decides_as_documented(term: dict[str, Any], *, matches: bool) -> None:
    node = a_node(labels={"zone": "a", "cores": "16"})
    assert (obstacle(affinity(term), node) is None) is matches


def test_one_matching_term_is_enough_but_no_term_matches_nothing() -> None:
    node = a_node(labels={"zone": "a"})
    assert obstacle(affinity(expression("zone", "In", "b"), expression("zone", "Exists")), node) is None
    assert obstacle(affinity(), node) == NODE_AFFINITY_UNMET


def test_all_expressions_of_a_term_must_hold() -> None:
    term = {
        "matchExpressions": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["gpu-node"]},
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["failed-node-1"]},
        ]
    }
    healthy = {"node.kubernetes.io/instance-type": "gpu-node", "kubernetes.io/hostname": "gpu-node-1"}
    assert obstacle(affinity(term), a_node(labels=healthy)) is None
    failed = {**healthy, "kubernetes.io/hostname": "failed-node-1"}
    assert obstacle(affinity(term), a_node(labels=failed)) == NODE_AFFINITY_UNMET


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_taint_keeps_out_whoever_does_not_tolerate_it(toleration: dict[str, Any], *, tolerated: bool) -> None:
    reason = obstacle({"tolerations": [toleration]}, a_node(Taint("gpu", "yes", "NoSchedule")))
    assert reason == (None if tolerated else "node(s) had untolerated taint {gpu: yes}")


def test_a_preference_against_a_node_does_not_keep_a_pod_out() -> None:
    assert obstacle({}, a_node(Taint("gpu", "yes", "PreferNoSchedule"))) is None


def test_a_cordoned_node_is_closed_except_to_pods_that_tolerate_it() -> None:
    assert obstacle({}, a_node(cordoned=True)) == NODE_CORDONED
    anything = {"tolerations": [{"operator": "Exists"}]}
    assert obstacle(anything, a_node(cordoned=True)) is None


def test_a_pod_stays_under_a_no_execute_taint_as_long_as_it_tolerates_it() -> None:
    def stay(*tolerations: dict[str, Any], effect: str = "NoExecute") -> float | None:
        parsed = parse_constraints({"tolerations": list(tolerations)}).tolerations
        return compute_toleration_seconds(parsed, Taint("down", "", effect))

    assert stay() == 0
    assert stay({"key": "down", "operator": "Exists"}) is None
    assert stay({"key": "down", "operator": "Exists", "tolerationSeconds": 5}) == 5
    assert stay(effect="NoSchedule") is None
