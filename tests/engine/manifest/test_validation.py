"""What is found about a set that is to be created: the field, the rule and the sentence, and nothing beside it.

The cases of `tests.deploy.test_refusals` are tried here too: what the definitions refuse at the API server, this code
refuses with the same sentence. Below stand the rules that only this code knows.
"""

import doctest
import re
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.engine.manifest.findings import Finding, FindingCode, ValidationReport
from rollouts.engine.manifest.parsing import parse_workload
from rollouts.engine.manifest.validation import startup, validate_create
from rollouts.engine.model.workload import Workload
from tests.deploy.manifests import GROVE, REMOVED, SAMPLES, Edits, Obj, edited, load, rules_of_sets
from tests.deploy.test_refusals import ACCEPTED, NO_COMPONENTS, REFUSED, Refused
from tests.engine.manifests import JSON, complete, damaged, pod, small, valid

CLIQUES = "spec.template.cliques"
GROUPS = "spec.template.podCliqueScalingGroups"
FRONTEND = f"{CLIQUES}.0"
LEADER = f"{CLIQUES}.1"
WORKER = f"{CLIQUES}.2"
DECODE = f"{GROUPS}.0"
RECREATE = NO_COMPONENTS | {"spec.updateStrategy.type": "ReplicaRecreate"}
BUDGET = "spec.updateStrategy.rollingUpdate"

SENTENCES = [" ".join(rule["message"].split()) for rule in rules_of_sets()]
# Edits of the definitions' tests that break a rule besides which the definitions do not know.
FURTHER = {"no-clique": {FindingCode.UNKNOWN_GROUP}, "groups-removed": {FindingCode.UNKNOWN_GROUP}}


def found(report: ValidationReport) -> list[tuple[str, FindingCode]]:
    return [(finding.field, finding.code) for finding in report.errors]


def warned(report: ValidationReport) -> list[tuple[str, FindingCode]]:
    return [(finding.field, finding.code) for finding in report.warnings]


def expect_the_refusal_of_the_definitions(case: Refused, report: ValidationReport) -> None:
    """Look for the finding of a case, on the field or inside it, in the definition's words if it has its own."""
    errors = [error for error in report.errors if error.code not in FURTHER.get(case.name, ())]
    sentences = [sentence for sentence in SENTENCES if case.says in sentence]
    matching = [
        error
        for error in errors
        if error.field.startswith(case.field) and (not sentences or error.message in sentences)
    ]
    assert matching, report
    assert case.with_others or matching == errors, report
    assert case.with_others or len(errors) == 1, report


@cache
def refusal(name: str) -> ValidationReport:
    """Return what is found about a case of the definitions; more than one test looks at it."""
    return validate_create(complete(next(case.edits for case in REFUSED if case.name == name)))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_the_definitions_refuse_is_refused_in_the_same_words(case: Refused) -> None:
    expect_the_refusal_of_the_definitions(case, refusal(case.name))


@pytest.mark.parametrize("edits", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_the_definitions_accept_is_accepted(edits: Edits) -> None:
    assert validate_create(complete(edits)).errors == ()


@pytest.mark.parametrize("path", [*SAMPLES, *GROVE], ids=lambda path: path.stem)
def test_manifests_that_are_applied_elsewhere_are_accepted(path: Any) -> None:
    assert validate_create(load(path)).is_accepted


@dataclass(frozen=True, slots=True)
class Planted:
    """An edit of the small set, and the one thing that is found then."""

    name: str
    edits: Edits
    field: str
    code: FindingCode
    says: str


def _levels(name: str, budget: Any, field: str, code: FindingCode, says: str) -> list[Planted]:
    """A budget that is wrong for 2 replicas of the set, 3 of the clique and 4 of the group."""
    recreate: Edits = {"spec.updateStrategy": {"type": "ReplicaRecreate", "rollingUpdate": budget}}
    return [
        Planted(f"{name}-of-the-set", recreate, f"{BUDGET}{field}", code, says),
        Planted(
            f"{name}-of-a-clique",
            {f"{FRONTEND}.updateStrategy": budget},
            f"{CLIQUES}[0].updateStrategy{field}",
            code,
            says,
        ),
        Planted(
            f"{name}-of-a-group",
            {f"{DECODE}.updateStrategy": budget},
            f"{GROUPS}[0].updateStrategy{field}",
            code,
            says,
        ),
    ]


STRATEGIES = [
    *_levels(
        "too-many-missing", {"maxUnavailable": 5}, ".maxUnavailable", FindingCode.BUDGET_OVER_REPLICAS, "lower it"
    ),
    *_levels("too-few-percent", {"maxUnavailable": "20%"}, "", FindingCode.BUDGET_RESOLVES_TO_ZERO, "rounded down"),
    *_levels(
        "nothing-as-surge",
        {"maxUnavailable": "5%", "maxSurge": "0%"},
        "",
        FindingCode.BUDGET_RESOLVES_TO_ZERO,
        "resolve to 0",
    ),
    *_levels("both-zero", {"maxUnavailable": 0, "maxSurge": 0}, "", FindingCode.BUDGET_ZERO, "may not both be 0"),
    *_levels("spaces", {"maxUnavailable": " 5 %"}, ".maxUnavailable", FindingCode.INVALID_BUDGET, "percentage from"),
    *_levels("over-all", {"maxUnavailable": "150%"}, ".maxUnavailable", FindingCode.INVALID_BUDGET, "percentage from"),
    *_levels("letters", {"maxSurge": "x%"}, ".maxSurge", FindingCode.INVALID_BUDGET, "percentage such as"),
    *_levels(
        "zero-and-nonsense", {"maxUnavailable": 0, "maxSurge": "x"}, ".maxSurge", FindingCode.INVALID_BUDGET, "such as"
    ),
]

NAMES = [
    Planted(
        "clique-named-like-a-member",
        {f"{FRONTEND}.name": "decode-0-leader"},
        f"{CLIQUES}[0].name",
        FindingCode.NAME_COLLISION,
        "in the scaling group decode; rename one of them",
    ),
    Planted(
        "clique-named-like-a-member-of-a-late-replica",
        {f"{FRONTEND}.name": "decode-17-worker"},
        f"{CLIQUES}[0].name",
        FindingCode.NAME_COLLISION,
        "in the scaling group decode; rename one of them",
    ),
    Planted(
        "members-of-two-groups-that-meet",
        {
            f"{LEADER}.name": "1-worker",
            GROUPS: [{"name": "a", "cliqueNames": ["1-worker"]}, {"name": "a-0", "cliqueNames": ["worker"]}],
        },
        f"{CLIQUES}[2].name",
        FindingCode.NAME_COLLISION,
        "those of 1-worker in the scaling group a;",
    ),
    Planted(
        "autoscalers-of-one-name",
        {
            f"{FRONTEND}.name": "decode",
            f"{FRONTEND}.spec.autoScalingConfig": {"maxReplicas": 9},
            f"{DECODE}.scaleConfig": {"maxReplicas": 9},
        },
        f"{GROUPS}[0].name",
        FindingCode.NAME_COLLISION,
        "autoscalers",
    ),
    Planted(
        "long-name-of-a-member",
        {"metadata.name": "s" * 34},
        f"{GROUPS}[0].name",
        FindingCode.NAMES_TOO_LONG,
        "at most 45 characters",
    ),
    Planted("too-many-pods", {"spec.replicas": 20_000}, "spec.replicas", FindingCode.TOO_MANY_PODS, "300000 pods"),
    Planted(
        "too-many-pods-in-a-replica",
        {f"{DECODE}.replicas": 50_000},
        "spec.replicas",
        FindingCode.TOO_MANY_PODS,
        "lower replicas",
    ),
]

EXPLICIT: Edits = {"spec.template.cliqueStartupType": "CliqueStartupTypeExplicit"}
START_UP = [
    Planted(
        "two-that-wait-for-each-other",
        EXPLICIT | {f"{LEADER}.spec.startsAfter": ["worker"], f"{WORKER}.spec.startsAfter": ["leader"]},
        f"{CLIQUES}[1].spec.startsAfter",
        FindingCode.STARTUP_CYCLE,
        "leader after worker after leader",
    ),
    Planted(
        "three-in-a-circle",
        EXPLICIT
        | {
            f"{FRONTEND}.spec.startsAfter": ["leader"],
            f"{LEADER}.spec.startsAfter": ["worker"],
            f"{WORKER}.spec.startsAfter": ["frontend"],
        },
        f"{CLIQUES}[0].spec.startsAfter",
        FindingCode.STARTUP_CYCLE,
        "frontend after leader after worker after frontend",
    ),
    Planted(
        "one-that-waits-for-a-circle",
        EXPLICIT
        | {
            f"{FRONTEND}.spec.startsAfter": ["leader"],
            f"{LEADER}.spec.startsAfter": ["worker"],
            f"{WORKER}.spec.startsAfter": ["leader"],
        },
        f"{CLIQUES}[1].spec.startsAfter",
        FindingCode.STARTUP_CYCLE,
        "none of these could ever start",
    ),
    Planted(
        "itself",
        EXPLICIT | {f"{LEADER}.spec.startsAfter": ["leader"]},
        f"{CLIQUES}[1].spec.startsAfter[0]",
        FindingCode.STARTS_AFTER_ITSELF,
        "its own name",
    ),
]

FRONT_POD = f"{FRONTEND}.spec.podSpec"
FRONT_FIELD = f"{CLIQUES}[0].spec.podSpec"
PODS = [
    Planted(
        "label-key",
        {f"{FRONTEND}.labels": {"a b": "c"}},
        f"{CLIQUES}[0].labels",
        FindingCode.INVALID_LABEL,
        "'a b' is not a valid key",
    ),
    Planted(
        "label-prefix",
        {f"{FRONTEND}.labels": {"A/b": "c"}},
        f"{CLIQUES}[0].labels",
        FindingCode.INVALID_LABEL,
        "lower case",
    ),
    Planted(
        "label-without-name",
        {f"{FRONTEND}.labels": {"a/": "c"}},
        f"{CLIQUES}[0].labels",
        FindingCode.INVALID_LABEL,
        "name",
    ),
    Planted(
        "label-value",
        {f"{FRONTEND}.labels": {"a": "-"}},
        f"{CLIQUES}[0].labels",
        FindingCode.INVALID_LABEL,
        "label value",
    ),
    Planted(
        "long-label-value",
        {f"{FRONTEND}.labels": {"a": "b" * 64}},
        f"{CLIQUES}[0].labels",
        FindingCode.INVALID_LABEL,
        "at most 63",
    ),
    Planted(
        "annotation-key",
        {f"{FRONTEND}.annotations": {"": "c"}},
        f"{CLIQUES}[0].annotations",
        FindingCode.INVALID_ANNOTATION,
        "is not a valid key",
    ),
    Planted(
        "annotation-key-of-a-group",
        {f"{DECODE}.annotations": {"a//b": "c"}},
        f"{GROUPS}[0].annotations",
        FindingCode.INVALID_ANNOTATION,
        "is not a valid key",
    ),
    Planted(
        "long-annotations",
        {f"{FRONTEND}.annotations": {"a": "b" * 300_000}},
        f"{CLIQUES}[0].annotations",
        FindingCode.TOO_LONG,
        "256 KiB",
    ),
    Planted(
        "container-in-capitals",
        {f"{FRONT_POD}.containers.0.name": "Main"},
        f"{FRONT_FIELD}.containers[0].name",
        FindingCode.INVALID_NAME,
        "rename it",
    ),
    Planted(
        "init-container-named-like-a-container",
        {f"{FRONT_POD}.initContainers": [{"name": "main"}]},
        f"{FRONT_FIELD}.containers[0].name",
        FindingCode.DUPLICATE_NAME,
        "an init container have the same name",
    ),
    Planted(
        "variable-with-equals",
        {f"{FRONT_POD}.containers.0.env": [{"name": "A=B"}]},
        f"{FRONT_FIELD}.containers[0].env[0].name",
        FindingCode.INVALID_ENV_NAME,
        "except =",
    ),
    Planted(
        "variable-of-an-init-container",
        {f"{FRONT_POD}.initContainers": [{"name": "first", "env": [{"name": "A\n"}]}]},
        f"{FRONT_FIELD}.initContainers[0].env[0].name",
        FindingCode.INVALID_ENV_NAME,
        "printable",
    ),
    Planted(
        "restart-policy",
        {f"{FRONT_POD}.restartPolicy": "Sometimes"},
        f"{FRONT_FIELD}.restartPolicy",
        FindingCode.UNKNOWN_VALUE,
        "Always, OnFailure, Never",
    ),
    Planted(
        "negative-grace",
        {f"{FRONT_POD}.terminationGracePeriodSeconds": -1},
        f"{FRONT_FIELD}.terminationGracePeriodSeconds",
        FindingCode.OUT_OF_RANGE,
        "0 or more",
    ),
    Planted(
        "same-mount-twice",
        {f"{FRONT_POD}.containers.0.volumeMounts": [{"mountPath": "/a"}, {"mountPath": "/a"}]},
        f"{FRONT_FIELD}.containers[0].volumeMounts[1].mountPath",
        FindingCode.DUPLICATE_NAME,
        "have the same mountPath",
    ),
]


def _shared(**members: Any) -> list[Obj]:
    return [{"name": "gpus", "scope": "PerReplica", **members}]


SHARING = [
    Planted(
        "unknown-clique-in-a-filter",
        {"spec.template.resourceSharing": _shared(filter={"childCliqueNames": ["leader", "nobody"]})},
        "spec.template.resourceSharing[0].filter.childCliqueNames[1]",
        FindingCode.UNKNOWN_CLIQUE,
        "correct the name",
    ),
    Planted(
        "unknown-group-in-a-filter",
        {"spec.template.resourceSharing": _shared(filter={"childScalingGroupNames": ["frontend"]})},
        "spec.template.resourceSharing[0].filter.childScalingGroupNames[0]",
        FindingCode.UNKNOWN_GROUP,
        "scaling groups of this set",
    ),
    Planted(
        "clique-of-elsewhere-in-the-filter-of-a-group",
        {f"{DECODE}.resourceSharing": _shared(filter={"childCliqueNames": ["frontend"]})},
        f"{GROUPS}[0].resourceSharing[0].filter.childCliqueNames[0]",
        FindingCode.UNKNOWN_CLIQUE,
        "below this level",
    ),
    Planted(
        "groups-in-the-filter-of-a-group",
        {f"{DECODE}.resourceSharing": _shared(filter={"childScalingGroupNames": ["decode"]})},
        f"{GROUPS}[0].resourceSharing[0].filter.childScalingGroupNames",
        FindingCode.FILTER_NOT_ALLOWED,
        "remove them",
    ),
    Planted(
        "filter-of-a-clique",
        {f"{FRONTEND}.resourceSharing": _shared(filter={"childCliqueNames": ["frontend"]})},
        f"{CLIQUES}[0].resourceSharing[0].filter.childCliqueNames",
        FindingCode.FILTER_NOT_ALLOWED,
        "remove them",
    ),
    Planted(
        "claim-without-name",
        {f"{FRONTEND}.resourceSharing": [{"scope": "PerReplica"}]},
        f"{CLIQUES}[0].resourceSharing[0].name",
        FindingCode.FIELD_MISSING,
        "add it",
    ),
    Planted(
        "domain-of-the-wrong-type",
        {f"{FRONTEND}.topologyConstraint": {"pack": "host"}},
        f"{CLIQUES}[0].topologyConstraint.pack",
        FindingCode.WRONG_TYPE,
        "must be an object",
    ),
]

SIZES = [
    Planted(
        "too-many-cliques",
        {CLIQUES: [{"name": f"c{n}", "spec": {"podSpec": pod()}} for n in range(65)], GROUPS: REMOVED},
        CLIQUES,
        FindingCode.TOO_MANY,
        "at most 64",
    ),
    Planted(
        "replicas-in-words",
        {f"{FRONTEND}.spec.replicas": "three"},
        f"{CLIQUES}[0].spec.replicas",
        FindingCode.WRONG_TYPE,
        "whole number",
    ),
    Planted(
        "replicas-beyond-32-bits",
        {f"{DECODE}.replicas": 2**31},
        f"{GROUPS}[0].replicas",
        FindingCode.OUT_OF_RANGE,
        "at most 2147483647",
    ),
    Planted(
        "replicas-below-a-minimum",
        {f"{FRONTEND}.spec.minAvailable": 4},
        f"{CLIQUES}[0].spec.minAvailable",
        FindingCode.MIN_AVAILABLE_OVER_REPLICAS,
        "raise replicas",
    ),
    Planted(
        "ceiling-below-replicas-and-the-floor-that-follows-them",
        {f"{FRONTEND}.spec.autoScalingConfig": {"maxReplicas": 2}},
        f"{CLIQUES}[0].spec.autoScalingConfig.maxReplicas",
        FindingCode.MAX_REPLICAS_UNDER_REPLICAS,
        "raise it",
    ),
    Planted(
        "no-ceiling",
        {f"{DECODE}.scaleConfig": {}},
        f"{GROUPS}[0].scaleConfig.maxReplicas",
        FindingCode.FIELD_MISSING,
        "add it",
    ),
]

PLANTED = [*STRATEGIES, *NAMES, *START_UP, *PODS, *SHARING, *SIZES]


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.name)
def test_a_planted_mistake_is_the_one_thing_found(case: Planted) -> None:
    report = validate_create(small(case.edits))
    assert found(report) == [(case.field, case.code)]
    assert case.says in report.errors[0].message


NEIGHBOURS: dict[str, Edits] = {
    "a-clique-named-almost-like-a-member": {f"{FRONTEND}.name": "decode-x-leader"},
    "a-clique-named-like-a-replica-with-a-leading-zero": {f"{FRONTEND}.name": "decode-00-leader"},
    "a-clique-named-like-a-group": {f"{FRONTEND}.name": "decode"},
    "a-name-of-45-characters": {"metadata.name": "s" * 33},
    "a-line-of-starts": EXPLICIT
    | {f"{LEADER}.spec.startsAfter": ["frontend"], f"{WORKER}.spec.startsAfter": ["leader"]},
    "a-diamond-of-starts": EXPLICIT
    | {f"{LEADER}.spec.startsAfter": ["frontend"], f"{WORKER}.spec.startsAfter": ["leader", "frontend"]},
    "a-circle-that-nobody-looks-at": {
        f"{LEADER}.spec.startsAfter": ["worker"],
        f"{WORKER}.spec.startsAfter": ["leader"],
    },
    "as-many-missing-as-there-are": {f"{FRONTEND}.updateStrategy": {"maxUnavailable": 3}},
    "percent-that-come-to-one": {f"{FRONTEND}.updateStrategy": {"maxUnavailable": "34%"}},
    "percent-that-come-to-nothing-with-surge": {
        f"{FRONTEND}.updateStrategy": {"maxUnavailable": "5%", "maxSurge": "1%"}
    },
    "percent-of-no-replicas": {
        "spec.replicas": 0,
        "spec.updateStrategy": {"type": "ReplicaRecreate", "rollingUpdate": {"maxUnavailable": "50%"}},
    },
    "number-of-no-replicas": {
        "spec.replicas": 0,
        "spec.updateStrategy": {"type": "ReplicaRecreate", "rollingUpdate": {"maxUnavailable": 5}},
    },
    "odd-but-valid-labels": {f"{FRONTEND}.labels": {"a.b_c-D": "", "example.com/x": "1.2_3-4"}},
    "odd-but-valid-variables": {f"{FRONT_POD}.containers.0.env": [{"name": "a.b-c d"}, {"name": "_1"}]},
    "fields-with-nothing-behind-them": {
        "spec.updateStrategy": None,
        f"{FRONTEND}.labels": None,
        f"{FRONTEND}.spec.minAvailable": None,
        f"{FRONT_POD}.restartPolicy": None,
        f"{DECODE}.replicas": None,
    },
}


@pytest.mark.parametrize("edits", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_what_comes_close_to_a_mistake_is_accepted(edits: Edits) -> None:
    assert validate_create(small(edits)).errors == ()


@pytest.mark.parametrize("type_", ["RollingRecreate", "OnDelete"])
def test_budgets_that_a_strategy_does_not_use_are_named_with_the_one_that_would(type_: str) -> None:
    strategy = {"type": type_, "rollingUpdate": {"maxUnavailable": 2}}
    budgets: Edits = {f"{FRONTEND}.updateStrategy": {"maxSurge": 1}, f"{DECODE}.updateStrategy": {"maxSurge": 1}}
    report = validate_create(small({"spec.updateStrategy": strategy} | budgets))
    assert report.is_accepted
    assert {(warning.field, warning.message) for warning in report.warnings} == {
        (BUDGET, f"{type_} does not use maxUnavailable and maxSurge of the set; ReplicaRecreate would"),
        (f"{CLIQUES}[0].updateStrategy", f"{type_} does not use updateStrategy of a clique; RollingUpdate would"),
        (f"{GROUPS}[0].updateStrategy", f"{type_} does not use updateStrategy of a scaling group; RollingUpdate would"),
    }


@pytest.mark.parametrize("budget", [{"maxUnavailable": 1, "maxSurge": 0}, {"maxUnavailable": 1}, {"maxSurge": 0}])
def test_a_budget_that_says_what_happens_anyway_is_accepted_with_a_warning(budget: Obj) -> None:
    report = validate_create(small({"spec.updateStrategy": {"type": "RollingUpdate", "rollingUpdate": budget}}))
    assert report.is_accepted
    assert warned(report) == [(BUDGET, FindingCode.SET_BUDGET_REDUNDANT)]


@pytest.mark.parametrize(
    "budget", [{"maxUnavailable": 2}, {"maxSurge": 1}, {"maxUnavailable": "50%"}, {"maxSurge": "0%"}]
)
def test_any_other_budget_of_the_set_is_refused_under_rolling_update(budget: Obj) -> None:
    report = validate_create(small({"spec.updateStrategy": {"type": "RollingUpdate", "rollingUpdate": budget}}))
    assert found(report) == [(BUDGET, FindingCode.SET_BUDGET_NOT_ALLOWED)]
    assert report.warnings == ()


def test_used_budgets_give_no_warning() -> None:
    used: Edits = {"spec.updateStrategy": {"type": "ReplicaRecreate", "rollingUpdate": {"maxSurge": 1}}}
    assert validate_create(small(used)) == ValidationReport((), ())
    assert validate_create(small({f"{FRONTEND}.updateStrategy": {"maxSurge": 1}})) == ValidationReport((), ())


def test_oddities_of_pods_are_warned_about() -> None:
    odd: Edits = {
        f"{FRONT_POD}.restartPolicy": "Never",
        f"{FRONTEND}.labels": {"grove.io/podclique": "mine"},
        f"{LEADER}.spec.podSpec.priorityClassName": "low",
        "spec.template.priorityClassName": "high",
    }
    report = validate_create(small(odd))
    assert report.is_accepted
    assert warned(report) == [
        (f"{CLIQUES}[0].labels", FindingCode.RESERVED_LABEL),
        (f"{FRONT_FIELD}.restartPolicy", FindingCode.RESTART_POLICY_NOT_ALWAYS),
        (f"{CLIQUES}[1].spec.podSpec.priorityClassName", FindingCode.PRIORITY_CLASS_OVERRIDDEN),
    ]


def test_all_mistakes_are_found_at_once_in_the_order_of_the_fields() -> None:
    many = [{"name": f"c{n}", "spec": {"replicas": 1, "podSpec": pod()}} for n in range(12)]
    for n in (2, 10):
        many[n]["spec"] |= {"minAvailable": 2}  # type: ignore[operator]
    edits: Edits = {CLIQUES: many, GROUPS: REMOVED, "metadata.name": "A", "spec.replicas": -1}
    assert found(validate_create(small(edits))) == [
        ("metadata.name", FindingCode.INVALID_NAME),
        ("spec.replicas", FindingCode.OUT_OF_RANGE),
        (f"{CLIQUES}[2].spec.minAvailable", FindingCode.MIN_AVAILABLE_OVER_REPLICAS),
        (f"{CLIQUES}[10].spec.minAvailable", FindingCode.MIN_AVAILABLE_OVER_REPLICAS),
    ]


def test_the_same_finding_is_reported_once() -> None:
    finding = Finding("spec", FindingCode.WRONG_TYPE, "spec must be an object")
    assert ValidationReport.of([finding, finding]).errors == (finding,)


PARTS = st.lists(st.sampled_from(["0", "1", "a"]), min_size=1, max_size=4).map("-".join)


@given(st.lists(PARTS, min_size=2, max_size=4, unique=True), st.lists(PARTS, min_size=1, max_size=2, unique=True))
def test_a_collision_is_found_if_and_only_if_two_podcliques_get_one_name(names: list[str], groups: list[str]) -> None:
    cliques = [{"name": name, "spec": {"podSpec": pod()}} for name in names]
    grouped = [{"name": group, "cliqueNames": [name]} for group, name in zip(groups, names, strict=False)]
    generated = [*names[len(groups) :]] + [
        f"{group['name']}-{index}-{name}" for group in grouped for index in (0, 1) for name in group["cliqueNames"]
    ]
    report = validate_create(small({CLIQUES: cliques, GROUPS: grouped}))
    collides = len(set(generated)) < len(generated)
    assert {error.code for error in report.errors} == ({FindingCode.NAME_COLLISION} if collides else set())


def test_the_examples_of_circles_hold() -> None:
    assert doctest.testmod(startup) == (0, 2)


def test_every_code_is_the_camel_case_of_its_name_and_has_a_case() -> None:
    for code in FindingCode:
        assert code.value == "".join(part.capitalize() for part in code.name.split("_"))
    reports = [refusal(case.name) for case in REFUSED]
    tried = {case.code for case in PLANTED} | {error.code for report in reports for error in report.errors}
    warnings = {
        FindingCode.BUDGET_UNUSED,
        FindingCode.SET_BUDGET_REDUNDANT,
        FindingCode.RESERVED_LABEL,
        FindingCode.PRIORITY_CLASS_OVERRIDDEN,
    }
    elsewhere = {
        FindingCode.RESTART_POLICY_NOT_ALWAYS,
        FindingCode.IMMUTABLE,
        FindingCode.TOO_DEEP,
        FindingCode.UNSUPPORTED,
    }
    # From there on they are of commands and overrides, which say more than a manifest does.
    of_manifests = set(takewhile(lambda code: code is not FindingCode.UNKNOWN_CONTAINER, FindingCode))
    assert of_manifests - tried == warnings | elsewhere


def test_sentences_are_sentences() -> None:
    reports = [validate_create(small(case.edits)) for case in PLANTED]
    for message in {error.message for report in reports for error in report.errors}:
        assert re.match(r"[a-z0-9A-Z']", message)
        assert not message.endswith(".")
        assert "{" not in message


@given(JSON)
def test_no_value_at_all_raises(value: object) -> None:
    assert isinstance(validate_create(value), ValidationReport)


@given(damaged())
def test_what_is_accepted_becomes_a_workload(manifest: object) -> None:
    if validate_create(manifest).is_accepted:
        assert isinstance(parse_workload(manifest), Workload)


@given(valid())
def test_a_valid_set_is_accepted(manifest: Obj) -> None:
    assert validate_create(manifest).errors == ()


EVERYWHERE = [
    Planted("", {"spec.replicas": -1}, "spec.replicas", FindingCode.OUT_OF_RANGE, ""),
    Planted("", {"metadata.name": "a.b"}, "metadata.name", FindingCode.INVALID_NAME, ""),
    Planted("", {"spec.updateStrategy": []}, "spec.updateStrategy", FindingCode.WRONG_TYPE, ""),
    Planted(
        "", {"spec.template.terminationDelay": "0s"}, "spec.template.terminationDelay", FindingCode.INVALID_DURATION, ""
    ),
    Planted(
        "", {"spec.template.cliqueStartupType": "x"}, "spec.template.cliqueStartupType", FindingCode.UNKNOWN_VALUE, ""
    ),
    Planted("", {f"{FRONTEND}.labels": {"-": ""}}, f"{CLIQUES}[0].labels", FindingCode.INVALID_LABEL, ""),
    Planted("", {f"{FRONT_POD}.nodeName": "n"}, f"{FRONT_FIELD}.nodeName", FindingCode.NODE_NAME_SET, ""),
    Planted("", {f"{FRONT_POD}.containers": []}, f"{FRONT_FIELD}.containers", FindingCode.TOO_FEW, ""),
    Planted(
        "",
        {f"{FRONTEND}.spec.minAvailable": 99},
        f"{CLIQUES}[0].spec.minAvailable",
        FindingCode.MIN_AVAILABLE_OVER_REPLICAS,
        "",
    ),
    Planted(
        "", {f"{FRONTEND}.topologyConstraint": {}}, f"{CLIQUES}[0].topologyConstraint", FindingCode.DOMAIN_MISSING, ""
    ),
    Planted(
        "",
        {f"{FRONTEND}.spec.startsAfter": ["c0"]},
        f"{CLIQUES}[0].spec.startsAfter[0]",
        FindingCode.STARTS_AFTER_ITSELF,
        "",
    ),
]


@given(valid(), st.sampled_from(EVERYWHERE))
def test_one_mistake_in_any_valid_set_is_the_one_thing_found(manifest: Obj, mistake: Planted) -> None:
    assert found(validate_create(edited(manifest, mistake.edits))) == [(mistake.field, mistake.code)]
