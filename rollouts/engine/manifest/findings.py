"""Findings: errors and warnings about a manifest, each with a field, a rule and a sentence that says how to fix it.

`schema`, `validation` and `parsing` make findings; the admission webhook, the REST API, the forms and the sandbox show
them. The definitions in `deploy/crds` have the same sentences, so that a user reads the same words everywhere.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class FindingCode(StrEnum):
    """The rule that a finding is about; pages, API and logs show this word."""

    # One value by itself
    FIELD_MISSING = "FieldMissing"
    WRONG_TYPE = "WrongType"
    OUT_OF_RANGE = "OutOfRange"
    UNKNOWN_VALUE = "UnknownValue"
    TOO_FEW = "TooFew"
    TOO_MANY = "TooMany"
    TOO_LONG = "TooLong"
    TOO_DEEP = "TooDeep"
    INVALID_NAME = "InvalidName"
    INVALID_BUDGET = "InvalidBudget"
    INVALID_DURATION = "InvalidDuration"
    INVALID_DOMAIN = "InvalidDomain"
    INVALID_LABEL = "InvalidLabel"
    INVALID_ANNOTATION = "InvalidAnnotation"
    INVALID_ENV_NAME = "InvalidEnvName"
    # Names and references
    DUPLICATE_NAME = "DuplicateName"
    UNKNOWN_CLIQUE = "UnknownClique"
    UNKNOWN_GROUP = "UnknownGroup"
    CLIQUE_IN_TWO_GROUPS = "CliqueInTwoGroups"
    NAMES_TOO_LONG = "NamesTooLong"
    NAME_COLLISION = "NameCollision"
    # Numbers that depend on each other
    MIN_AVAILABLE_OVER_REPLICAS = "MinAvailableOverReplicas"
    MIN_REPLICAS_UNDER_MIN_AVAILABLE = "MinReplicasUnderMinAvailable"
    MIN_REPLICAS_UNDER_REPLICAS = "MinReplicasUnderReplicas"
    MIN_REPLICAS_OVER_MAX_REPLICAS = "MinReplicasOverMaxReplicas"
    MAX_REPLICAS_UNDER_REPLICAS = "MaxReplicasUnderReplicas"
    TOO_MANY_PODS = "TooManyPods"
    # Members of scaling groups
    MEMBER_AUTOSCALED = "MemberAutoscaled"
    MEMBER_HAS_STRATEGY = "MemberHasStrategy"
    # Start-up order
    STARTS_AFTER_ITSELF = "StartsAfterItself"
    STARTUP_CYCLE = "StartupCycle"
    # Pods
    NODE_NAME_SET = "NodeNameSet"
    SPREAD_CONSTRAINTS_SET = "SpreadConstraintsSet"
    SEVERAL_SCHEDULERS = "SeveralSchedulers"
    RESTART_POLICY_NOT_ALWAYS = "RestartPolicyNotAlways"
    PRIORITY_CLASS_OVERRIDDEN = "PriorityClassOverridden"
    RESERVED_LABEL = "ReservedLabel"
    # Topology and shared claims
    DOMAIN_MISSING = "DomainMissing"
    DOMAIN_TWICE = "DomainTwice"
    FILTER_NOT_ALLOWED = "FilterNotAllowed"
    # Strategy
    BUDGET_ZERO = "BudgetZero"
    BUDGET_RESOLVES_TO_ZERO = "BudgetResolvesToZero"
    BUDGET_OVER_REPLICAS = "BudgetOverReplicas"
    SET_BUDGET_NOT_ALLOWED = "SetBudgetNotAllowed"
    SET_BUDGET_REDUNDANT = "SetBudgetRedundant"
    COMPONENT_BUDGET_NOT_ALLOWED = "ComponentBudgetNotAllowed"
    BUDGET_UNUSED = "BudgetUnused"
    # Updates
    IMMUTABLE = "Immutable"
    # Accepted without effect
    UNSUPPORTED = "Unsupported"
    # Commands
    UNKNOWN_CONTAINER = "UnknownContainer"
    UNKNOWN_COMPONENT = "UnknownComponent"
    INVALID_IMAGE = "InvalidImage"
    REFUSED_BY_CLUSTER = "RefusedByCluster"
    FIELD_HELD = "FieldHeld"
    FIELD_NOT_APPLIED = "FieldNotApplied"
    OUTDATED_PODS = "OutdatedPods"
    LEFT_ALONE = "LeftAlone"
    # Pod Security Standards
    POD_SECURITY = "PodSecurity"
    # Strategy overrides
    SETS_NOTHING = "SetsNothing"
    HITS_NOTHING = "HitsNothing"
    REFUSED_EVERYWHERE = "RefusedEverywhere"
    OUTRANKED = "Outranked"
    PUSHED_OUT = "PushedOut"


@dataclass(frozen=True, slots=True)
class Finding:
    """One error or warning."""

    field: str  # as Kubernetes writes it: spec.template.cliques[1].updateStrategy.maxSurge; empty: the whole manifest
    code: FindingCode
    message: str  # one sentence that says how to fix it


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """All findings about a manifest."""

    errors: tuple[Finding, ...]  # the manifest is refused if there are any
    warnings: tuple[Finding, ...] = ()  # shown; they refuse nothing

    @classmethod
    def of(cls, errors: Iterable[Finding], warnings: Iterable[Finding] = ()) -> Self:
        """Return a report of distinct findings in the order of their fields: cliques[2] comes before cliques[10]."""
        return cls(_sort_findings(errors), _sort_findings(warnings))


def _sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(
        sorted(set(findings), key=lambda finding: (_natural_sort_key(finding.field), finding.code, finding.message))
    )


def _natural_sort_key(path: str) -> list[str | int]:
    # Texts and numbers take turns, so that two paths never compare a text with a number.
    return [int(part) if index % 2 else part for index, part in enumerate(re.split("([0-9]+)", path))]
