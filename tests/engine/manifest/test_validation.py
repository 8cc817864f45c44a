"""The findings about a set that is to be created: field, rule and sentence, and no other finding.

The cases of `tests.deploy.test_refusals` run here, too: what the definitions refuse at the API server, this code
refuses with the same sentence. Below are the rules that only this code has.
"""

import doctest
import re
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
from tests.deploy.test_refusals import ACCEPTED, REFUSED, Refused
from tests.engine.manifest.planted import (
    BUDGET,
    CLIQUES,
    DECODE,
    EVERYWHERE,
    FRONT_FIELD,
    FRONT_POD,
    FRONTEND,
    GROUPS,
    LEADER,
    NEIGHBOURS,
    PLANTED,
    Planted,
)
from tests.engine.manifests import JSON, complete, damaged, pod, small, valid

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
    """Return the findings about a case of the definitions, cached."""
    return validate_create(complete(next(case.edits for case in REFUSED if case.name == name)))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_the_definitions_refuse_is_refused_in_the_same_words(case: Refused) -> None:
    expect_the_refusal_of_the_definitions(case, refusal(case.name))


@pytest.mark.parametrize("edits", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_the_definitions_accept_is_accepted(edits: Edits) -> None:
    assert validate_create(complete(edits)).errors == ()


@pytest.mark.parametrize("path", [*SAMPLES, *GROVE], ids=lambda path: path.stem)
def test_manifests_that_are_applied_elsewhere_are_accepted(path: Any) -> None:
    assert not validate_create(load(path)).errors


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.name)
def test_a_planted_mistake_is_the_one_thing_found(case: Planted) -> None:
    report = validate_create(small(case.edits))
    assert found(report) == [(case.field, case.code)]
    assert case.says in report.errors[0].message


@pytest.mark.parametrize("edits", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_what_comes_close_to_a_mistake_is_accepted(edits: Edits) -> None:
    assert validate_create(small(edits)).errors == ()


@pytest.mark.parametrize("type_", ["RollingRecreate", "OnDelete"])
def test_budgets_that_a_strategy_does_not_use_are_named_with_the_one_that_would(type_: str) -> None:
    strategy = {"type": type_, "rollingUpdate": {"maxUnavailable": 2}}
    budgets: Edits = {f"{FRONTEND}.updateStrategy": {"maxSurge": 1}, f"{DECODE}.updateStrategy": {"maxSurge": 1}}
    report = validate_create(small({"spec.updateStrategy": strategy} | budgets))
    assert not report.errors
    assert {(warning.field, warning.message) for warning in report.warnings} == {
        (BUDGET, f"{type_} does not use maxUnavailable and maxSurge of the set; ReplicaRecreate would"),
        (f"{CLIQUES}[0].updateStrategy", f"{type_} does not use updateStrategy of a clique; RollingUpdate would"),
        (f"{GROUPS}[0].updateStrategy", f"{type_} does not use updateStrategy of a scaling group; RollingUpdate would"),
    }


@pytest.mark.parametrize("budget", [{"maxUnavailable": 1, "maxSurge": 0}, {"maxUnavailable": 1}, {"maxSurge": 0}])
def test_a_budget_that_says_what_happens_anyway_is_accepted_with_a_warning(budget: Obj) -> None:
    report = validate_create(small({"spec.updateStrategy": {"type": "RollingUpdate", "rollingUpdate": budget}}))
    assert not report.errors
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
    assert not report.errors
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
    if not validate_create(manifest).errors:
        assert isinstance(parse_workload(manifest), Workload)


@given(valid())
def test_a_valid_set_is_accepted(manifest: Obj) -> None:
    assert validate_create(manifest).errors == ()


@given(valid(), st.sampled_from(EVERYWHERE))
def test_one_mistake_in_any_valid_set_is_the_one_thing_found(manifest: Obj, mistake: Planted) -> None:
    assert found(validate_create(edited(manifest, mistake.edits))) == [(mistake.field, mistake.code)]
