"""What may be changed in a stored PodCliqueSet and what may not.

The set of `complete.yaml` is stored once for each server; every case is an update of it by one edit, as a dry run.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.deploy.conftest import Server
from tests.deploy.manifests import REMOVED, Edits, complete, edited, rules_of_sets
from tests.deploy.sets import Sets, causes
from tests.deploy.test_refusals import (
    BUDGET,
    CLIQUES,
    DECODE,
    FRONTEND,
    GROUPS,
    LEADER,
    NO_COMPONENTS,
    REFUSED,
    STORE,
    STRATEGY,
    TEMPLATE,
    WORKER,
    Refused,
)

SECOND_POD = {"name": "second", "spec": {"podSpec": {"containers": [{"name": "main", "image": "app:v1"}]}}}
RECREATE = NO_COMPONENTS | {f"{STRATEGY}.type": "ReplicaRecreate"}


def _complete_cliques() -> list[Any]:
    cliques: list[Any] = complete()["spec"]["template"]["cliques"]
    return cliques


FROZEN = [
    Refused("clique-added", {f"{CLIQUES}.4": SECOND_POD}, CLIQUES, "cliques cannot be added", with_others=True),
    Refused(
        "clique-renamed",
        {f"{CLIQUES}.3.name": "cash", f"{STORE}.cliqueNames": ["cash"]},
        CLIQUES,
        "cliques cannot be added",
        with_others=True,
    ),
    Refused(
        "cliques-in-another-order",
        {CLIQUES: _complete_cliques()[::-1]},
        CLIQUES,
        "the order of the cliques",
    ),
    Refused("role", {f"{LEADER}.spec.roleName": "head"}, f"{CLIQUES}[1].spec.roleName", "roleName cannot be changed"),
    Refused("role-removed", {f"{LEADER}.spec.roleName": REMOVED}, f"{CLIQUES}[1].spec.roleName", "roleName cannot"),
    Refused(
        "minimum",
        {f"{FRONTEND}.spec.minAvailable": 1},
        f"{CLIQUES}[0].spec.minAvailable",
        "minAvailable cannot be changed; restore the former value",
    ),
    Refused(
        "minimum-said-for-the-first-time",
        {f"{WORKER}.spec.minAvailable": 1},
        f"{CLIQUES}[2].spec.minAvailable",
        "minAvailable cannot be changed; restore the former value",
    ),
    Refused(
        "start-order",
        {f"{WORKER}.spec.startsAfter": ["frontend"]},
        f"{CLIQUES}[2].spec.startsAfter",
        "startsAfter cannot be changed",
    ),
    Refused(
        "start-order-added",
        {f"{CLIQUES}.3.spec.startsAfter": ["frontend"]},
        f"{CLIQUES}[3].spec.startsAfter",
        "startsAfter cannot be changed",
    ),
    Refused(
        "scheduler-removed",
        {f"{WORKER}.spec.podSpec.schedulerName": REMOVED},
        f"{CLIQUES}[2].spec.podSpec.schedulerName",
        "schedulerName cannot be changed",
    ),
    Refused(
        "start-up-type",
        {f"{TEMPLATE}.cliqueStartupType": "CliqueStartupTypeInOrder"},
        f"{TEMPLATE}.cliqueStartupType",
        "cliqueStartupType cannot be changed",
    ),
    Refused(
        "group-added",
        {f"{GROUPS}.2": {"name": "web", "cliqueNames": ["frontend"]}},
        GROUPS,
        "scaling groups cannot be",
        with_others=True,
    ),
    Refused("group-renamed", {f"{STORE}.name": "shop"}, GROUPS, "scaling groups cannot be added"),
    Refused("groups-removed", {GROUPS: REMOVED}, GROUPS, "scaling groups cannot be added"),
    Refused(
        "members",
        {f"{DECODE}.cliqueNames": ["leader"]},
        f"{GROUPS}[0].cliqueNames",
        "cliqueNames cannot be changed",
    ),
    Refused(
        "members-in-another-order",
        {f"{DECODE}.cliqueNames": ["worker", "leader"]},
        f"{GROUPS}[0].cliqueNames",
        "cliqueNames cannot",
    ),
    Refused(
        "minimum-of-a-group",
        {f"{DECODE}.minAvailable": 1},
        f"{GROUPS}[0].minAvailable",
        "minAvailable cannot be changed; restore the former value",
    ),
    Refused(
        "claims",
        {f"{TEMPLATE}.resourceClaimTemplates": REMOVED},
        f"{TEMPLATE}.resourceClaimTemplates",
        "resourceClaimTemplates cannot be changed",
    ),
    Refused(
        "unknown-field-of-a-claim",
        {f"{TEMPLATE}.resourceClaimTemplates.0.templateSpec.spec.devices.requests.0.name": "other"},
        f"{TEMPLATE}.resourceClaimTemplates",
        "resourceClaimTemplates cannot be changed",
    ),
    Refused(
        "sharing-of-the-set",
        {f"{TEMPLATE}.resourceSharing": REMOVED},
        f"{TEMPLATE}.resourceSharing",
        "resourceSharing cannot be changed",
    ),
    Refused(
        "sharing-of-a-clique",
        {f"{FRONTEND}.resourceSharing.0.scope": "AllReplicas"},
        f"{CLIQUES}[0].resourceSharing",
        "resourceSharing cannot",
    ),
    Refused(
        "sharing-of-a-group",
        {f"{DECODE}.resourceSharing": []},
        f"{GROUPS}[0].resourceSharing",
        "resourceSharing cannot",
    ),
    Refused(
        "topology-removed",
        {f"{TEMPLATE}.topologyConstraint": REMOVED},
        f"{TEMPLATE}.topologyConstraint",
        "topologyConstraint cannot be changed",
    ),
    Refused(
        "topology-added",
        {f"{LEADER}.topologyConstraint": {"pack": {"required": "host"}}},
        f"{CLIQUES}[1].topologyConstraint",
        "topologyConstraint cannot",
    ),
    Refused(
        "topology-name",
        {f"{FRONTEND}.topologyConstraint.topologyName": "other"},
        f"{CLIQUES}[0].topologyConstraint.topologyName",
        "topologyConstraint cannot",
    ),
    Refused(
        "required-domain",
        {f"{FRONTEND}.topologyConstraint.pack.required": "rack"},
        f"{CLIQUES}[0].topologyConstraint.pack",
        "topologyConstraint cannot",
    ),
    Refused(
        "preferred-domain",
        {f"{DECODE}.topologyConstraint.pack.preferred": "host"},
        f"{GROUPS}[0].topologyConstraint.pack",
        "topologyConstraint cannot",
    ),
    Refused(
        "unavailable-over-the-replicas-of-the-set",
        RECREATE | {f"{BUDGET}.maxUnavailable": 4},
        f"{BUDGET}.maxUnavailable",
        "may not exceed replicas",
    ),
]

FREE: dict[str, Edits] = {
    "replicas-of-the-set": {"spec.replicas": 7},
    "strategy": {f"{STRATEGY}.type": "OnDelete"},
    "strategy-removed": {STRATEGY: REMOVED},
    "budget-of-a-clique": {f"{FRONTEND}.updateStrategy": {"maxUnavailable": 2}},
    "budget-of-a-clique-removed": {f"{FRONTEND}.updateStrategy": REMOVED},
    "every-replica-of-the-set-at-once": RECREATE | {f"{BUDGET}.maxUnavailable": 3},
    "image": {f"{FRONTEND}.spec.podSpec.containers.0.image": "ghcr.io/example/app:v2"},
    "labels": {f"{FRONTEND}.labels": {"tier": "edge"}},
    "annotations": {f"{FRONTEND}.annotations": REMOVED},
    "priority": {f"{TEMPLATE}.priorityClassName": "low"},
    "delay": {f"{TEMPLATE}.terminationDelay": "10s"},
    "headless-service": {f"{TEMPLATE}.headlessServiceConfig.publishNotReadyAddresses": True},
    "autoscaling": {f"{FRONTEND}.spec.autoScalingConfig.maxReplicas": 20},
    "replicas-of-a-clique": {f"{FRONTEND}.spec.replicas": 6},
    "replicas-of-a-clique-without-a-minimum-raised": {f"{WORKER}.spec.replicas": 3},
    "replicas-of-a-clique-without-a-minimum-lowered": {f"{WORKER}.spec.replicas": 1},
    "replicas-of-a-clique-with-its-former-minimum": {f"{WORKER}.spec.replicas": 3, f"{WORKER}.spec.minAvailable": 2},
    "minimum-written-out": {f"{WORKER}.spec.minAvailable": 2},
    "replicas-of-a-group": {f"{DECODE}.replicas": 5},
    "groups-in-another-order": {GROUPS: complete()["spec"]["template"]["podCliqueScalingGroups"][::-1]},
}


@dataclass(frozen=True, slots=True)
class Stored:
    """The complete set as a server holds it."""

    sets: Sets

    def with_edits(self, edits: Edits) -> dict[str, Any]:
        """Return an update of the stored set."""
        live = self.sets.get("complete")
        wanted = complete(edits)
        wanted["metadata"] |= {"resourceVersion": live["metadata"]["resourceVersion"]}
        return wanted


@pytest.fixture(scope="module")
def stored(server: Server) -> Stored:
    """The complete set, stored on the server."""
    sets = Sets.in_new_namespace(server.raw, "changes")
    _ = sets.create(complete(), dry_run=False).obj
    return Stored(sets)


@pytest.mark.parametrize("edits", FREE.values(), ids=FREE.keys())
def test_a_field_that_may_change_changes(stored: Stored, edits: Edits) -> None:
    assert stored.sets.update(stored.with_edits(edits)).obj["metadata"]["generation"] == 2


@pytest.mark.parametrize("case", FROZEN, ids=lambda case: case.name)
def test_a_field_that_may_not_change_is_refused_with_the_way_out(stored: Stored, case: Refused) -> None:
    found = causes(stored.sets.update(stored.with_edits(case.edits)))
    expected = [cause for cause in found if cause.field == case.field and case.says in cause.message]
    assert expected, found
    assert case.with_others or expected == found, found


def test_cliques_that_start_in_any_order_may_be_listed_in_any_order(sets: Sets) -> None:
    any_order = complete({f"{TEMPLATE}.cliqueStartupType": "CliqueStartupTypeAnyOrder"})
    stored = sets.create(any_order, dry_run=False).obj
    assert sets.update(edited(stored, {CLIQUES: stored["spec"]["template"]["cliques"][::-1]})).code == 200


def test_replicas_may_be_raised_above_the_floor_of_autoscaling_where_the_minimum_is_left_out(sets: Sets) -> None:
    scaling = {"minReplicas": 3, "maxReplicas": 10}
    left_out = {f"{FRONTEND}.spec.minAvailable": REMOVED, f"{FRONTEND}.spec.replicas": 3}
    stored = sets.create(complete({**left_out, f"{FRONTEND}.spec.autoScalingConfig": scaling}), dry_run=False).obj
    raised = edited(stored, {f"{FRONTEND}.spec.replicas": 5})
    assert sets.update(raised).code == 200
    over = edited(raised, {f"{FRONTEND}.spec.replicas": 11})
    assert [cause.field for cause in causes(sets.update(over))] == [f"{CLIQUES}[0].spec.autoScalingConfig.maxReplicas"]


def test_the_former_name_of_a_domain_may_be_replaced_by_the_new_one(sets: Sets) -> None:
    former = complete({f"{FRONTEND}.topologyConstraint": {"packDomain": "host"}})
    stored = sets.create(former, dry_run=False).obj
    renamed = edited(stored, {f"{FRONTEND}.topologyConstraint": {"pack": {"required": "host"}}})
    assert sets.update(renamed).code == 200
    moved = edited(stored, {f"{FRONTEND}.topologyConstraint": {"pack": {"required": "rack"}}})
    assert [cause.field for cause in causes(sets.update(moved))] == [f"{CLIQUES}[0].topologyConstraint.pack"]


@pytest.mark.parametrize("replicas", [0, 1, 100])
def test_scaling_is_never_refused_on_account_of_the_update_budget(sets: Sets, replicas: int) -> None:
    _ = sets.create(complete(RECREATE | {f"{BUDGET}.maxUnavailable": 3}), dry_run=False).obj
    assert sets.scale("complete", replicas).obj["spec"].get("replicas", 0) == replicas


def test_a_budget_that_scaling_left_too_large_does_not_block_other_changes(sets: Sets) -> None:
    _ = sets.create(complete(RECREATE | {f"{BUDGET}.maxUnavailable": 3}), dry_run=False).obj
    _ = sets.scale("complete", 1, dry_run=False).obj
    scaled = sets.get("complete")
    other_image = edited(scaled, {f"{FRONTEND}.spec.podSpec.containers.0.image": "ghcr.io/example/app:v2"})
    assert sets.update(other_image).code == 200
    other_budget = edited(scaled, {f"{BUDGET}.maxUnavailable": 2})
    assert [cause.field for cause in causes(sets.update(other_budget))] == [f"{BUDGET}.maxUnavailable"]


def test_every_rule_of_the_definition_has_a_case_that_it_refuses() -> None:
    cases = [*REFUSED, *FROZEN]
    untried = [rule["message"] for rule in rules_of_sets() if not any(case.says in rule["message"] for case in cases)]
    assert untried == []
