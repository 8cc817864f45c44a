"""A workload deleted: with everything that belongs to it, only the one that was looked at, and on record."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, Permission
from django.test import override_settings

from rollouts import models
from rollouts.accounts import errors
from rollouts.cluster import ClusterClient, NotFound, Obj
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESETS, PODGANGS, SERVICES
from rollouts.engine.model.names import PART_OF
from rollouts.models import AuditEntry, NamespaceGrant, User
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.workload_deletion import workload_delete
from rollouts.services.workloads import scale
from tests.deploy.manifests import edited
from tests.engine.manifests import small
from tests.project.running import wait_until
from tests.services.conftest import ONE_REPLICA
from tests.services.grove import hand_to_grove
from tests.services.stage import Stage

pytestmark = [pytest.mark.django_db(transaction=True)]

SECONDS: Final = 60.0  # generous: only reached when something is broken
KEEPER: Final = "example.com/keeper"
SECRET: Final = {"name": "API_TOKEN", "value": "s3cret-of-ours"}
FIRST_POD: Final = "spec.template.cliques.0.spec.podSpec.containers.0"


def is_there(stage: Stage) -> bool:
    """Whether the cluster has the set."""
    try:
        stage.stored()
    except NotFound:
        return False
    return True


def parts(stage: Stage) -> list[Obj]:
    """Return all that belongs to the workload."""
    kinds = (PODCLIQUES, PODGANGS, SERVICES)
    listed = [
        obj
        for kind in kinds
        for obj in stage.cluster.list(kind, namespace=stage.namespace, labels=f"{PART_OF}={stage.name}").items
    ]
    return [*listed, *stage.loop.pods()]


def test_a_workload_goes_with_everything_that_belongs_to_it(deployed: Stage, caller: Caller) -> None:
    assert parts(deployed)
    told = workload_delete(caller, deployed.place)
    assert (told.extent.pods, told.extent.gangs) == (6, 1)
    assert not is_there(deployed)
    assert not models.Workload.objects.filter(namespace=deployed.namespace).exists()
    wait_until(lambda: not parts(deployed), SECONDS)


def test_the_audit_keeps_the_manifest_without_what_may_be_secret(stage: Stage, caller: Caller) -> None:
    env = [{"op": "add", "path": "/spec/template/cliques/0/spec/podSpec/containers/0/env", "value": [SECRET]}]
    stage.cluster.patch_json(PODCLIQUESETS, stage.name, env, namespace=stage.namespace)
    workload_delete(caller, stage.place)
    begun, done = AuditEntry.objects.order_by("id")
    assert (begun.command, begun.result, done.result) == ("delete_workload", "Begun", "Done")
    assert begun.detail == "0 pods, 0 gangs"
    assert begun.before is not None
    assert begun.before["fields"]["spec.replicas"] == 1
    assert begun.before["fields"]["spec.template"]["cliques"][0]["name"] == "frontend"
    assert "s3cret" not in str(begun.before)


def test_the_audit_keeps_the_images_of_a_large_manifest(stage: Stage, caller: Caller) -> None:
    args = [{"op": "add", "path": "/spec/template/cliques/0/spec/podSpec/containers/0/args", "value": ["x" * 300_000]}]
    stage.cluster.patch_json(PODCLIQUESETS, stage.name, args, namespace=stage.namespace)
    image = stage.spec()["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"]
    workload_delete(caller, stage.place)
    begun = AuditEntry.objects.earliest("id")
    assert begun.before is not None
    kept = begun.before["fields"]["spec.template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
    assert (kept["image"], kept["args"]) == (image, ["omitted: 300002 bytes"])


def test_a_dry_run_says_what_goes_and_deletes_nothing(deployed: Stage, caller: Caller) -> None:
    before = deployed.stored()
    told = workload_delete(caller, deployed.place, dry_run=True)
    assert (told.extent.pods, told.extent.gangs, told.is_dry_run) == (6, 1, True)
    assert deployed.stored() == before
    assert not AuditEntry.objects.exists()


def test_the_devices_that_its_pods_request_are_counted(stage: Stage, caller: Caller) -> None:
    resources = {f"{FIRST_POD}.resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "1"}}}
    spec = edited(small({**ONE_REPLICA, "metadata.namespace": stage.namespace}), resources)["spec"]
    stage.cluster.patch_merge(PODCLIQUESETS, stage.name, {"spec": spec}, namespace=stage.namespace)
    stage.loop.run(lambda: len(stage.loop.pods()) == 6)
    stage.observe()
    told = workload_delete(caller, stage.place, dry_run=True)
    assert told.extent.resources == {"nvidia.com/gpu": 6}
    assert str(told.extent) == "6 pods, 1 gang, 6 nvidia.com/gpu"
    assert told.extent.is_large


# ---- which one


def test_who_saw_another_state_deletes_nothing(stage: Stage, caller: Caller) -> None:
    seen = stage.version()
    execute(caller, stage.place, scale(3))
    with pytest.raises(errors.VersionConflict) as lost:
        workload_delete(caller, stage.place, expected=seen)
    assert lost.value.changed == ("spec.replicas",)
    assert is_there(stage)
    assert not workload_delete(caller, stage.place, expected=stage.version()).was_leaving
    assert not is_there(stage)


@pytest.mark.parametrize("says", [True, False])
def test_a_status_in_between_is_in_nobodys_way(
    stage: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch, *, says: bool
) -> None:
    seen = stage.version() if says else None
    interrupt(monkeypatch, stage.write_status, times=3)
    workload_delete(caller, stage.place, expected=seen)
    assert not is_there(stage)


def test_an_edit_in_between_saves_it_for_who_said_what_they_saw(
    stage: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stage.version()
    interrupt(monkeypatch, lambda: stage.edit_elsewhere(replicas=7))
    with pytest.raises(errors.VersionConflict):
        workload_delete(caller, stage.place, expected=seen)
    assert stage.spec()["replicas"] == 7
    assert [entry.result for entry in AuditEntry.objects.order_by("id")] == ["Begun", "Refused"]


def test_what_has_taken_its_name_meanwhile_stays(stage: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    former = stage.stored()["metadata"]["uid"]
    manifest = small({**ONE_REPLICA, "metadata.namespace": stage.namespace})
    delete = ClusterClient.delete  # as it is before it is interrupted

    def replace_it() -> None:
        delete(stage.cluster, PODCLIQUESETS, stage.name, namespace=stage.namespace)
        stage.cluster.create(PODCLIQUESETS, manifest)

    interrupt(monkeypatch, replace_it)
    with pytest.raises(errors.VersionConflict, match="created again"):
        workload_delete(caller, stage.place)
    assert stage.stored()["metadata"]["uid"] != former


def interrupt(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], times: int = 1) -> None:
    """Have something happen before each of the first times that a deletion is sent."""
    delete, acts = ClusterClient.delete, [act] * times

    def late(self: ClusterClient, *args: Any, **more: Any) -> Obj:
        if acts:
            acts.pop()()
        return delete(self, *args, **more)

    monkeypatch.setattr(ClusterClient, "delete", late)


def test_what_is_on_its_way_out_is_not_deleted_once_more(stage: Stage, caller: Caller) -> None:
    kept = {"metadata": {"finalizers": [KEEPER]}}
    stage.cluster.patch_merge(PODCLIQUESETS, stage.name, kept, namespace=stage.namespace)
    assert not workload_delete(caller, stage.place).was_leaving
    before = stage.stored()
    assert before["metadata"]["deletionTimestamp"]
    assert workload_delete(caller, stage.place).was_leaving
    assert stage.stored() == before
    assert AuditEntry.objects.latest("id").detail == "Nothing to change."
    stage.cluster.patch_merge(PODCLIQUESETS, stage.name, {"metadata": {"finalizers": None}}, namespace=stage.namespace)
    with pytest.raises(errors.NotFound):
        workload_delete(caller, stage.place)


# ---- who may


def test_a_workload_that_groves_operator_keeps_stays(deployed: Stage, caller: Caller) -> None:
    hand_to_grove(deployed.cluster, deployed.namespace)
    deployed.observe()
    with pytest.raises(errors.InvalidState, match="Grove's own operator"):
        workload_delete(caller, deployed.place)
    assert "deletionTimestamp" not in deployed.stored()["metadata"]


@pytest.mark.parametrize("setting", ["read_only", "observe"])
def test_an_installation_that_takes_no_commands_deletes_nothing(setting: str, stage: Stage, caller: Caller) -> None:
    environment = replace(settings.ENVIRONMENT, read_only=setting == "read_only", observe=setting == "observe")
    with (
        override_settings(ENVIRONMENT=environment),
        pytest.raises(errors.PermissionDenied, match="You may not delete a workload: this installation"),
    ):
        workload_delete(caller, stage.place)
    assert is_there(stage)


def test_it_needs_a_permission_of_its_own(stage: Stage, caller: Caller) -> None:
    user = User.objects.create(username="otto")
    group = Group.objects.create(name="apply only")
    group.permissions.add(Permission.objects.get(codename="apply_workload"))
    user.groups.add(group)
    NamespaceGrant.objects.create(user=user, cluster=stage.cluster_name, namespace=stage.namespace)
    with pytest.raises(errors.PermissionDenied, match="lacks the permission delete_workload"):
        workload_delete(replace(caller, user=user, name="otto"), stage.place)
    assert is_there(stage)
