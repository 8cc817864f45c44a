"""The roles in deploy/rbac are enough for every command; with the controller's alone a cluster cannot be commanded."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import yaml
from django.conf import settings
from django.test import override_settings

from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import PermissionDenied
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.models import AuditEntry
from rollouts.runtime import connections
from rollouts.services.apply import workload_apply
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.deletion import DeletionResult
from rollouts.services.pods import Selection, pods_delete
from rollouts.services.takeover import workload_take_over
from rollouts.services.workload_deletion import workload_delete
from rollouts.services.workloads import edit_strategy, scale, set_images
from tests.controller.roles import SECONDS, allowed, bound, restricted_user
from tests.engine.manifests import small
from tests.project.running import wait_until
from tests.scenarios.running_clusters import TargetCluster
from tests.services.grove import hand_to_grove
from tests.services.stage import Stage

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("target", [pytest.param("kube-apiserver", marks=pytest.mark.apiserver)], indirect=True),
]

ROLES: Final = {
    name: yaml.safe_load(Path(f"deploy/rbac/{name}.yaml").read_text()) for name in ("controller", "commands")
}


@pytest.fixture
def restricted(target: TargetCluster, stage: Stage) -> Iterator[Stage]:
    """The same workload, commanded by a user who may only do what the controller's role allows."""
    environment = replace(settings.ENVIRONMENT, kube_contexts=("restricted",))
    with (
        override_settings(ENVIRONMENT=environment),
        allowed(target.cluster, restricted_user(target), ROLES["controller"]),
    ):
        connections._shared_cluster.cache_clear()
        yield Stage(stage.cluster, stage.namespace, stage.name, "restricted")
    connections._shared_cluster.cache_clear()


def test_a_cluster_that_takes_no_commands_says_so(restricted: Stage, caller: Caller) -> None:
    before = restricted.stored()
    with pytest.raises(PermissionDenied, match="Grove UI's account lacks a permission"):
        execute(caller, restricted.place, scale(2))
    assert restricted.stored() == before
    assert [entry.result for entry in AuditEntry.objects.order_by("id")] == ["Begun", "Refused"]


def test_both_roles_are_enough_for_every_command(restricted: Stage, caller: Caller) -> None:
    restricted.deploy()
    with bound(restricted.cluster, ROLES["commands"]):
        wait_until(lambda: _is_taken(restricted, caller), SECONDS)
        execute(caller, restricted.place, edit_strategy({"type": "OnDelete"}))
        execute(caller, restricted.place, set_images([ImageEdit("frontend", "app:v2")]))
        restricted.deploy()
        deleted = pods_delete(caller, restricted.place, Selection(component="frontend"))
        assert {one.outcome for one in deleted.outcomes} == {DeletionResult.EVICTED}
        forced = pods_delete(caller, restricted.place, Selection(component="leader"), force=True)
        assert {one.outcome for one in forced.outcomes} == {DeletionResult.DELETED}
        execute(caller, restricted.place, scale(4, "frontend", replica=0))
        hand_to_grove(restricted.cluster, restricted.namespace)
        assert workload_take_over(caller, restricted.place).changed.changes
        place = WorkloadRef(restricted.cluster_name, restricted.namespace, "fresh")
        assert workload_apply(caller, place, small({"metadata.name": "fresh"})).is_new
        assert not workload_delete(caller, restricted.place).was_leaving
    assert restricted.cluster.get(PODCLIQUESETS, "fresh", namespace=restricted.namespace)


def _is_taken(stage: Stage, caller: Caller) -> bool:
    """Say whether the server has taken notice of the role."""
    with contextlib.suppress(PermissionDenied):
        execute(caller, stage.place, scale(1), dry_run=True)
        execute(caller, stage.place, scale(2), dry_run=True)
        return True
    return False
