"""What the definitions reject when a PodCliqueSet is created, on which field and with which message.

Every case is the accepted set of `complete.yaml` and one edit. Beside the rejected edits are the closest accepted ones,
so that a rule can be neither too loose nor too strict.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.deploy.manifests import REMOVED, Edits, complete
from tests.deploy.sets import Sets, causes

STRATEGY = "spec.updateStrategy"
BUDGET = "spec.updateStrategy.rollingUpdate"
TEMPLATE = "spec.template"
CLIQUES = "spec.template.cliques"
FRONTEND = "spec.template.cliques.0"
LEADER = "spec.template.cliques.1"
WORKER = "spec.template.cliques.2"
GROUPS = "spec.template.podCliqueScalingGroups"
DECODE = "spec.template.podCliqueScalingGroups.0"
STORE = "spec.template.podCliqueScalingGroups.1"

# Edits that leave out every component's strategy, so that the strategy of the set can be anything.
NO_COMPONENTS: Edits = {f"{FRONTEND}.updateStrategy": REMOVED, f"{DECODE}.updateStrategy": REMOVED}


@dataclass(frozen=True, slots=True)
class Refused:
    """An edit that is rejected, the field that the error names, and its message."""

    name: str
    edits: Edits
    field: str
    says: str
    with_others: bool = False  # the edit breaks further rules besides


def _budget(name: str, field: str, value: Any, says: str) -> list[Refused]:
    """A budget that is wrong at each of the three levels."""
    of_set = NO_COMPONENTS | {f"{STRATEGY}.type": "ReplicaRecreate", f"{BUDGET}.{field}": value}
    return [
        Refused(f"{name}-of-the-set", of_set, f"{BUDGET}.{field}", says),
        Refused(
            f"{name}-of-a-clique",
            {f"{FRONTEND}.updateStrategy.{field}": value},
            f"{CLIQUES}[0].updateStrategy.{field}",
            says,
        ),
        Refused(
            f"{name}-of-a-group",
            {f"{DECODE}.updateStrategy.{field}": value},
            f"{GROUPS}[0].updateStrategy.{field}",
            says,
        ),
    ]


BUDGETS = [
    *_budget("negative-unavailable", "maxUnavailable", -1, 'from "0%" to "100%"'),
    *_budget("unavailable-over-all", "maxUnavailable", "101%", 'from "0%" to "100%"'),
    *_budget("unavailable-without-sign", "maxUnavailable", "1", 'from "0%" to "100%"'),
    *_budget("negative-surge", "maxSurge", -1, 'a percentage such as "25%"'),
    *_budget("surge-in-words", "maxSurge", "half", 'a percentage such as "25%"'),
    *_budget("broken-surge", "maxSurge", "2.5%", 'a percentage such as "25%"'),
    Refused(
        "both-zero-of-the-set",
        NO_COMPONENTS | {f"{STRATEGY}.type": "ReplicaRecreate", BUDGET: {"maxUnavailable": 0, "maxSurge": "0%"}},
        BUDGET,
        "may not both be 0",
    ),
    Refused(
        "both-zero-of-a-clique",
        {f"{FRONTEND}.updateStrategy": {"maxUnavailable": "0%", "maxSurge": 0}},
        f"{CLIQUES}[0].updateStrategy",
        "may not both be 0",
    ),
    Refused(
        "both-zero-of-a-group-as-surge-is-left-out",
        {f"{DECODE}.updateStrategy": {"maxUnavailable": 0}},
        f"{GROUPS}[0].updateStrategy",
        "may not both be 0",
    ),
    Refused(
        "unavailable-over-the-replicas-of-a-clique",
        {f"{FRONTEND}.updateStrategy.maxUnavailable": 5},
        f"{CLIQUES}[0].updateStrategy.maxUnavailable",
        "may not exceed replicas",
    ),
    Refused(
        "unavailable-over-the-replicas-of-a-group",
        {f"{DECODE}.updateStrategy.maxUnavailable": 4},
        f"{GROUPS}[0].updateStrategy.maxUnavailable",
        "may not exceed replicas",
    ),
]

STRATEGIES = [
    Refused("unknown-type", {f"{STRATEGY}.type": "BlueGreen"}, f"{STRATEGY}.type", '"RollingRecreate"'),
    Refused("rolling-update-of-two", {f"{BUDGET}.maxUnavailable": 2}, BUDGET, "one replica of the set at a time"),
    Refused("rolling-update-with-surge", {f"{BUDGET}.maxSurge": 1}, BUDGET, "one replica of the set at a time"),
    Refused(
        "rolling-update-by-a-clique-alone",
        {f"{STRATEGY}.type": REMOVED, f"{DECODE}.updateStrategy": REMOVED, f"{BUDGET}.maxUnavailable": 2},
        BUDGET,
        "one replica of the set at a time",
    ),
    Refused(
        "rolling-update-by-a-group-alone",
        {f"{STRATEGY}.type": REMOVED, f"{FRONTEND}.updateStrategy": REMOVED, f"{BUDGET}.maxSurge": "10%"},
        BUDGET,
        "one replica of the set at a time",
    ),
    Refused(
        "recreate-with-strategy-of-a-clique",
        {f"{STRATEGY}.type": "ReplicaRecreate", f"{DECODE}.updateStrategy": REMOVED},
        CLIQUES,
        "updateStrategy of a clique does not apply",
    ),
    Refused(
        "recreate-with-strategy-of-a-group",
        {f"{STRATEGY}.type": "ReplicaRecreate", f"{FRONTEND}.updateStrategy": REMOVED},
        GROUPS,
        "updateStrategy of a scaling group does not apply",
    ),
    Refused("member-with-strategy", {f"{LEADER}.updateStrategy": {"maxSurge": 1}}, CLIQUES, "set it on the group"),
    Refused("no-deadline", {"spec.progressDeadlineSeconds": 0}, "spec.progressDeadlineSeconds", "greater than"),
    Refused("negative-history", {"spec.revisionHistoryLimit": -1}, "spec.revisionHistoryLimit", "greater than"),
    Refused("negative-partition", {f"{BUDGET}.partition": -1}, f"{BUDGET}.partition", "greater than"),
    Refused("paused-in-words", {"spec.paused": "yes"}, "spec.paused", "boolean"),
]

NAMES = [
    Refused("dotted-set", {"metadata.name": "chat.prod"}, "metadata.name", "only lower-case letters"),
    Refused(
        "upper-case-clique",
        {f"{CLIQUES}.3.name": "Cache", f"{STORE}.cliqueNames": ["Cache"]},
        f"{CLIQUES}[3].name",
        "only lower-case",
    ),
    Refused(
        "empty-clique-name",
        {f"{CLIQUES}.3.name": "", f"{STORE}.cliqueNames": [""]},
        f"{CLIQUES}[3].name",
        "only lower-case",
    ),
    Refused("hyphen-at-the-end-of-a-group", {f"{STORE}.name": "store-"}, f"{GROUPS}[1].name", "only lower-case"),
    Refused("long-clique", {"metadata.name": "s" * 38}, CLIQUES, "at most 45 characters together", with_others=True),
    Refused("long-group", {f"{STORE}.name": "g" * 33}, GROUPS, "at most 45 characters together"),
    Refused(
        "same-clique-twice",
        {f"{CLIQUES}.4": {"name": "cache", "spec": {"podSpec": {"containers": [{"name": "m"}]}}}},
        f"{CLIQUES}[4]",
        "Duplicate value",
    ),
    Refused(
        "same-group-twice",
        {f"{GROUPS}.2": {"name": "store", "cliqueNames": ["frontend"]}},
        f"{GROUPS}[2]",
        "Duplicate value",
        with_others=True,
    ),
    Refused("same-role-twice", {f"{LEADER}.spec.roleName": "worker"}, CLIQUES, "the same spec.roleName"),
    Refused(
        "same-claim-twice",
        {f"{TEMPLATE}.resourceClaimTemplates.1": {"name": "gpus", "templateSpec": {}}},
        f"{TEMPLATE}.resourceClaimTemplates",
        "have the same name",
    ),
]

NUMBERS = [
    Refused("negative-replicas", {"spec.replicas": -1}, "spec.replicas", "greater than", with_others=True),
    Refused("no-clique", {CLIQUES: [], GROUPS: REMOVED}, CLIQUES, "at least 1"),
    Refused(
        "no-pods", {f"{FRONTEND}.spec.replicas": 0}, f"{CLIQUES}[0].spec.replicas", "greater than", with_others=True
    ),
    Refused("no-minimum", {f"{FRONTEND}.spec.minAvailable": 0}, f"{CLIQUES}[0].spec.minAvailable", "greater than"),
    Refused(
        "minimum-over-pods",
        {f"{WORKER}.spec.minAvailable": 3},
        f"{CLIQUES}[2].spec.minAvailable",
        "may not exceed replicas",
    ),
    Refused("no-group-replicas", {f"{DECODE}.replicas": 0}, f"{GROUPS}[0].replicas", "greater than", with_others=True),
    Refused("no-group-minimum", {f"{DECODE}.minAvailable": 0}, f"{GROUPS}[0].minAvailable", "greater than"),
    Refused("minimum-over-group", {f"{STORE}.minAvailable": 2}, f"{GROUPS}[1].minAvailable", "may not exceed replicas"),
    Refused(
        "scale-below-pods",
        {f"{FRONTEND}.spec.autoScalingConfig.maxReplicas": 3},
        f"{CLIQUES}[0].spec.autoScalingConfig.maxReplicas",
        "may not be below replicas",
    ),
    Refused(
        "scale-below-minimum",
        {f"{FRONTEND}.spec.autoScalingConfig.minReplicas": 1},
        f"{CLIQUES}[0].spec.autoScalingConfig.minReplicas",
        "may not be below minAvailable; raise it",
    ),
    Refused(
        "scale-below-a-minimum-that-is-left-out",
        {f"{FRONTEND}.spec.minAvailable": REMOVED, f"{FRONTEND}.spec.autoScalingConfig.minReplicas": 1},
        f"{CLIQUES}[0].spec.autoScalingConfig.minReplicas",
        "may not be below replicas where minAvailable is left out; raise it",
    ),
    Refused(
        "scale-floor-over-ceiling",
        {f"{FRONTEND}.spec.autoScalingConfig.minReplicas": 9},
        f"{CLIQUES}[0].spec.autoScalingConfig.minReplicas",
        "may not exceed maxReplicas",
    ),
    Refused(
        "group-scale-below-replicas",
        {f"{DECODE}.scaleConfig.maxReplicas": 2},
        f"{GROUPS}[0].scaleConfig.maxReplicas",
        "may not be below replicas",
    ),
    Refused(
        "group-scale-below-minimum",
        {f"{DECODE}.scaleConfig.minReplicas": 1},
        f"{GROUPS}[0].scaleConfig.minReplicas",
        "may not be below minAvailable; raise it",
    ),
    Refused(
        "group-scale-floor-over-ceiling",
        {f"{DECODE}.scaleConfig.minReplicas": 7},
        f"{GROUPS}[0].scaleConfig.minReplicas",
        "may not exceed maxReplicas",
    ),
    Refused("no-delay", {f"{TEMPLATE}.terminationDelay": "0s"}, f"{TEMPLATE}.terminationDelay", "longer than 0"),
    Refused("negative-delay", {f"{TEMPLATE}.terminationDelay": "-1h"}, f"{TEMPLATE}.terminationDelay", "longer than 0"),
    Refused("delay-in-days", {f"{TEMPLATE}.terminationDelay": "1d"}, f"{TEMPLATE}.terminationDelay", "longer than 0"),
]

GROUPINGS = [
    Refused("empty-group", {f"{STORE}.cliqueNames": []}, f"{GROUPS}[1].cliqueNames", "at least 1"),
    Refused("unknown-member", {f"{STORE}.cliqueNames": ["cash"]}, GROUPS, "correct the name"),
    Refused("member-of-two", {f"{STORE}.cliqueNames": ["cache", "worker"]}, GROUPS, "one scaling group only"),
    Refused(
        "member-twice", {f"{STORE}.cliqueNames": ["cache", "cache"]}, f"{GROUPS}[1].cliqueNames", "names a clique twice"
    ),
    Refused(
        "member-with-autoscaling",
        {f"{LEADER}.spec.autoScalingConfig": {"maxReplicas": 3}},
        CLIQUES,
        "use scaleConfig of the group",
    ),
]

START_UP = [
    Refused(
        "unknown-start-up",
        {f"{TEMPLATE}.cliqueStartupType": "Random"},
        f"{TEMPLATE}.cliqueStartupType",
        "CliqueStartupTypeInOrder",
    ),
    Refused(
        "after-itself",
        {f"{LEADER}.spec.startsAfter": ["leader"]},
        f"{CLIQUES}[1].spec.startsAfter",
        "cannot start after itself",
    ),
    Refused("after-unknown", {f"{LEADER}.spec.startsAfter": ["front"]}, CLIQUES, "startsAfter may only name cliques"),
    Refused(
        "after-one-twice",
        {f"{LEADER}.spec.startsAfter": ["frontend", "frontend"]},
        f"{CLIQUES}[1].spec.startsAfter",
        "startsAfter names a clique twice",
    ),
]

PODS = [
    Refused(
        "on-a-node",
        {f"{FRONTEND}.spec.podSpec.nodeName": "node-1"},
        f"{CLIQUES}[0].spec.podSpec.nodeName",
        "use nodeSelector or affinity",
    ),
    Refused(
        "spread",
        {f"{FRONTEND}.spec.podSpec.topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}]},
        f"{CLIQUES}[0].spec.podSpec.topologySpreadConstraints",
        "use topologyConstraint of the clique",
    ),
    Refused(
        "two-schedulers",
        {f"{FRONTEND}.spec.podSpec.schedulerName": "default-scheduler"},
        CLIQUES,
        "the same podSpec.schedulerName",
    ),
    Refused("no-pod-spec", {f"{FRONTEND}.spec.podSpec": REMOVED}, f"{CLIQUES}[0].spec.podSpec", "Required value"),
    Refused(
        "no-containers",
        {f"{FRONTEND}.spec.podSpec.containers": []},
        f"{CLIQUES}[0].spec.podSpec.containers",
        "at least 1",
    ),
    Refused(
        "same-variable-twice",
        {f"{FRONTEND}.spec.podSpec.containers.0.env.1": {"name": "LEVEL"}},
        f"{CLIQUES}[0].spec.podSpec.containers[0].env[1]",
        "Duplicate value",
    ),
]

TOPOLOGY = [
    Refused(
        "no-domain",
        {f"{TEMPLATE}.topologyConstraint": {"topologyName": "cluster"}},
        f"{TEMPLATE}.topologyConstraint",
        "needs a domain; set pack.required",
    ),
    Refused(
        "empty-pack",
        {f"{FRONTEND}.topologyConstraint.pack": {}},
        f"{CLIQUES}[0].topologyConstraint.pack",
        "pack needs a domain",
    ),
    Refused(
        "domain-twice",
        {f"{FRONTEND}.topologyConstraint.packDomain": "host"},
        f"{CLIQUES}[0].topologyConstraint.packDomain",
        "remove packDomain",
    ),
    Refused(
        "domain-in-capitals",
        {f"{DECODE}.topologyConstraint.pack.preferred": "Rack"},
        f"{GROUPS}[0].topologyConstraint.pack.preferred",
        "should match",
    ),
    Refused(
        "unknown-scope",
        {f"{TEMPLATE}.resourceSharing.0.scope": "Some"},
        f"{TEMPLATE}.resourceSharing[0].scope",
        '"PerReplica"',
    ),
]

REFUSED = [*BUDGETS, *STRATEGIES, *NAMES, *NUMBERS, *GROUPINGS, *START_UP, *PODS, *TOPOLOGY]

ACCEPTED: dict[str, Edits] = {
    "as-it-is": {},
    "without-strategy": NO_COMPONENTS | {STRATEGY: REMOVED},
    "budgets-that-say-what-happens-anyway": {BUDGET: {"maxUnavailable": 1}},
    "type-left-out-beside-components": {f"{STRATEGY}.type": REMOVED},
    "type-left-out-without-components": NO_COMPONENTS | {STRATEGY: {"rollingUpdate": {"maxUnavailable": 2}}},
    "recreate-with-surge": NO_COMPONENTS
    | {STRATEGY: {"type": "ReplicaRecreate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}},
    "recreate-with-percentages": NO_COMPONENTS
    | {STRATEGY: {"type": "ReplicaRecreate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": "150%"}}},
    "on-delete-with-budgets-it-does-not-use": {STRATEGY: {"type": "OnDelete", "rollingUpdate": {"maxUnavailable": 2}}},
    "recreate-one-by-one-with-budgets-it-does-not-use": {
        f"{STRATEGY}.type": "RollingRecreate",
        f"{BUDGET}.maxSurge": 1,
    },
    "all-pods-of-a-clique-at-once": {f"{FRONTEND}.updateStrategy": {"maxUnavailable": 4}},
    "all-replicas-of-a-group-at-once": {f"{DECODE}.updateStrategy": {"maxUnavailable": "100%"}},
    "surge-alone": {f"{FRONTEND}.updateStrategy": {"maxSurge": "25%"}},
    "no-replicas": {"spec.replicas": 0},
    "names-of-45-characters": {"metadata.name": "s" * 33},
    "unknown-start-of-a-type-that-ignores-it": {
        f"{TEMPLATE}.cliqueStartupType": "CliqueStartupTypeAnyOrder",
        f"{LEADER}.spec.startsAfter": ["nobody"],
    },
    "role-left-out": {f"{LEADER}.spec.roleName": REMOVED, f"{WORKER}.spec.roleName": REMOVED},
    "scheduler-left-out-of-one": {f"{WORKER}.spec.podSpec.schedulerName": REMOVED},
    "node-name-empty": {
        f"{FRONTEND}.spec.podSpec.nodeName": "",
        f"{FRONTEND}.spec.podSpec.topologySpreadConstraints": [],
    },
    "minimum-left-out": {f"{FRONTEND}.spec.minAvailable": REMOVED, f"{FRONTEND}.spec.autoScalingConfig.minReplicas": 4},
    "autoscaling-bounds-that-meet": {f"{FRONTEND}.spec.autoScalingConfig": {"minReplicas": 4, "maxReplicas": 4}},
    "delay-in-fractions": {f"{TEMPLATE}.terminationDelay": "1.5h"},
    "unknown-fields-of-a-pod": {
        f"{FRONTEND}.spec.podSpec.containers.0.lifecycle": {"preStop": {"sleep": {"seconds": 5}}}
    },
    "nothing-behind-a-field-name": {f"{DECODE}.topologyConstraint": None, f"{FRONTEND}.labels": None},
    "former-name-of-the-domain": {f"{FRONTEND}.topologyConstraint": {"packDomain": "host"}},
}


@pytest.mark.parametrize("edits", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_set_within_the_rules_is_accepted(sets: Sets, edits: Edits) -> None:
    assert sets.create(complete(edits)).obj["kind"] == "PodCliqueSet"


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_set_against_the_rules_is_refused_on_the_field_and_with_the_reason(sets: Sets, case: Refused) -> None:
    found = causes(sets.create(complete(case.edits)))
    expected = [cause for cause in found if cause.field == case.field and case.says in cause.message]
    assert expected, found
    assert case.with_others or expected == found, found
