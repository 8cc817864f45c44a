"""Planted mistakes for the validation tests: an edit of the small set each, and the only finding that it causes."""

from dataclasses import dataclass
from typing import Any

from rollouts.engine.manifest.findings import FindingCode
from tests.deploy.manifests import REMOVED, Edits, Obj
from tests.deploy.test_refusals import NO_COMPONENTS
from tests.engine.manifests import pod

CLIQUES = "spec.template.cliques"
GROUPS = "spec.template.podCliqueScalingGroups"
FRONTEND = f"{CLIQUES}.0"
LEADER = f"{CLIQUES}.1"
WORKER = f"{CLIQUES}.2"
DECODE = f"{GROUPS}.0"
RECREATE = NO_COMPONENTS | {"spec.updateStrategy.type": "ReplicaRecreate"}
BUDGET = "spec.updateStrategy.rollingUpdate"


@dataclass(frozen=True, slots=True)
class Planted:
    """An edit of the small set, and the only finding about it."""

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
