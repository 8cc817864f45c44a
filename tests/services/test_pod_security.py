"""What an operator may put into a cluster: pods that stay within the Pod Security level of their namespace.

The pods are created with the account of Grove UI, so nobody else asks whether the caller may create them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, Permission
from django.test import override_settings

from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import ValidationFailed
from rollouts.cluster import Obj
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.validation.pod_security import PodSecurityLevel, Violation
from rollouts.models import AuditEntry, NamespaceGrant, NamespacePodSecurity, Revision, User
from rollouts.services.apply import workload_apply
from rollouts.services.audit import Caller
from rollouts.services.changes import Apply, execute
from rollouts.services.edit import EditResult
from rollouts.services.simulation import workload_simulate
from rollouts.services.workload_client import MAX_FINDINGS
from rollouts.services.workloads import (
    edit_strategy,
    restart,
    roll_back,
    scale,
    set_images,
)
from tests.deploy.manifests import REMOVED, edited
from tests.engine.manifests import small
from tests.services.conftest import ONE_REPLICA
from tests.services.stage import Stage

pytestmark = [pytest.mark.django_db(transaction=True)]

POD: Final = "spec.template.cliques.0.spec.podSpec"
PATH: Final = "spec.template.cliques[0].spec.podSpec"
# As the review applied it, in a namespace for which there was a grant: root on the node.
ROOT_ON_THE_NODE: Final = {
    f"{POD}.hostPID": True,
    f"{POD}.hostNetwork": True,
    f"{POD}.hostIPC": True,
    f"{POD}.volumes": [{"name": "root", "hostPath": {"path": "/"}}],
    f"{POD}.containers.0.securityContext": {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}},
}
FIELDS: Final = {
    f"{PATH}.hostPID",
    f"{PATH}.hostNetwork",
    f"{PATH}.hostIPC",
    f"{PATH}.volumes[0].hostPath",
    f"{PATH}.containers[0].securityContext.privileged",
    f"{PATH}.containers[0].securityContext.capabilities.add[0]",
}
HOST_NETWORK: Final = {f"{POD}.hostNetwork": True}


@pytest.fixture
def olga(stage: Stage) -> Caller:
    """Somebody with the role operator and a grant for the namespace."""
    user = User.objects.create(username="olga")
    user.groups.add(Group.objects.get(name="operator"))
    NamespaceGrant.objects.create(user=user, cluster=stage.cluster_name, namespace=stage.namespace)
    return Caller(user=user, name="olga", source_ip="192.0.2.2", request_id="test-request", source="api")


@pytest.fixture
def place(stage: Stage) -> WorkloadRef:
    """The place of a workload that is not there yet."""
    return WorkloadRef(stage.cluster_name, stage.namespace, "fresh")


def manifest(change: dict[str, Any] | None = None, name: str = "fresh") -> Obj:
    """Return a manifest, as people keep it in a file."""
    return small({**ONE_REPLICA, "metadata.name": name, **(change or {})})


def violations(refusal: ValidationFailed) -> set[str]:
    """Return the fields that the Pod Security level forbids."""
    return {one.field for one in refusal.findings if one.code is FindingCode.POD_SECURITY}


def set_level(stage: Stage, level: str, namespace: str | None = None) -> None:
    """Set the level of the namespace of a workload, or of another one."""
    where = stage.namespace if namespace is None else namespace
    NamespacePodSecurity.objects.update_or_create(
        cluster=stage.cluster_name, namespace=where, defaults={"level": level}
    )


# ---- who may


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_operator_does_not_become_root_on_the_nodes(
    stage: Stage, olga: Caller, place: WorkloadRef, *, dry_run: bool
) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        workload_apply(olga, place, manifest(ROOT_ON_THE_NODE), dry_run=dry_run)
    assert violations(refusal.value) == FIELDS
    assert all("level baseline" in one.message for one in refusal.value.findings)
    assert [entry.result for entry in AuditEntry.objects.all()] == [] if dry_run else ["Refused"]
    assert workload_apply(olga, place, manifest()).is_new


def test_nor_by_changing_a_workload_that_is_there(stage: Stage, olga: Caller) -> None:
    before = stage.stored()
    with pytest.raises(ValidationFailed) as refusal:
        workload_apply(olga, stage.place, manifest(ROOT_ON_THE_NODE, "chat"), force=True)
    assert violations(refusal.value) == FIELDS
    assert stage.stored() == before


def test_of_thousands_of_violations_only_those_are_made_that_are_shown(
    stage: Stage, olga: Caller, place: WorkloadRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    to_finding = Violation.to_finding

    def count(self: Violation, level: PodSecurityLevel) -> Finding:
        made.append(self)
        return to_finding(self, level)

    monkeypatch.setattr(Violation, "to_finding", count)
    many = {f"{POD}.containers.0.securityContext.capabilities.add": ["SYS_ADMIN"] * 5000}
    with pytest.raises(ValidationFailed) as refusal:
        workload_apply(olga, place, manifest(many), dry_run=True)
    assert len(made) == MAX_FINDINGS + 1
    assert len(refusal.value.findings) == MAX_FINDINGS + 1
    assert refusal.value.findings[-1].message == "more errors are left out; correct these first"
    assert refusal.value.sentence.endswith("; and many more.")


def test_an_administrator_may(stage: Stage, place: WorkloadRef) -> None:
    user = User.objects.create(username="anna")
    user.groups.add(Group.objects.get(name="admin"))
    anna = Caller(user=user, name="anna", source_ip=None, request_id="", source="api")
    assert workload_apply(anna, place, manifest(ROOT_ON_THE_NODE)).is_new


def test_an_operator_with_the_permission_may_where_granted(stage: Stage, olga: Caller, place: WorkloadRef) -> None:
    assert olga.user is not None
    olga.user.user_permissions.add(Permission.objects.get(codename="apply_privileged"))
    fresh = replace(olga, user=User.objects.get(pk=olga.user.pk))
    assert workload_apply(fresh, place, manifest(ROOT_ON_THE_NODE)).is_new


# ---- which level is in force


def test_the_level_of_the_installation_counts_where_a_namespace_has_none(
    stage: Stage, olga: Caller, place: WorkloadRef
) -> None:
    with override_settings(ENVIRONMENT=replace(settings.ENVIRONMENT, pod_security_level="restricted")):
        with pytest.raises(ValidationFailed) as refusal:
            workload_apply(olga, place, manifest(), dry_run=True)
        assert f"{PATH}.containers[0].securityContext.allowPrivilegeEscalation" in violations(refusal.value)
    with override_settings(ENVIRONMENT=replace(settings.ENVIRONMENT, pod_security_level="privileged")):
        assert workload_apply(olga, place, manifest(ROOT_ON_THE_NODE), dry_run=True).is_new


def test_the_level_of_a_namespace_goes_before_that_of_its_cluster_and_the_installation(
    stage: Stage, olga: Caller, place: WorkloadRef
) -> None:
    set_level(stage, "privileged", namespace="elsewhere")
    with pytest.raises(ValidationFailed):
        workload_apply(olga, place, manifest(HOST_NETWORK), dry_run=True)
    set_level(stage, "privileged", namespace="")
    assert workload_apply(olga, place, manifest(HOST_NETWORK), dry_run=True).is_new
    set_level(stage, "restricted")
    with pytest.raises(ValidationFailed, match="level restricted"):
        workload_apply(olga, place, manifest(), dry_run=True)


# ---- what is there already


@pytest.fixture
def privileged(stage: Stage, caller: Caller) -> Stage:
    """A workload whose pods are root on their nodes, put there by somebody who may, and deployed."""
    workload_apply(caller, stage.place, manifest(ROOT_ON_THE_NODE, "chat"), force=True)
    stage.deploy()
    return stage


COMMANDS: dict[str, Callable[[Caller, WorkloadRef], EditResult]] = {
    "scaled": lambda caller, place: execute(caller, place, scale(2)),
    "scaled in the template": lambda caller, place: execute(caller, place, scale(4, "frontend")),
    "given another image": lambda caller, place: execute(caller, place, set_images([ImageEdit("frontend", "app:v9")])),
    "restarted": lambda caller, place: execute(caller, place, restart(["frontend"])),
    "given another strategy": lambda caller, place: execute(caller, place, edit_strategy({"type": "OnDelete"})),
    "applied with another image": lambda caller, place: workload_apply(
        caller, place, manifest({**ROOT_ON_THE_NODE, f"{POD}.containers.0.image": "app:v9"}, "chat"), force=True
    ),
    "made harmless": lambda caller, place: workload_apply(caller, place, manifest(None, "chat"), force=True),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_what_is_there_already_is_in_nobodys_way(what: str, stage: Stage, caller: Caller, olga: Caller) -> None:
    workload_apply(caller, stage.place, manifest(ROOT_ON_THE_NODE, "chat"), force=True)
    assert COMMANDS[what](olga, stage.place).changes


def test_but_nothing_may_be_added_to_it(stage: Stage, caller: Caller, olga: Caller) -> None:
    workload_apply(caller, stage.place, manifest(HOST_NETWORK, "chat"), force=True)
    with pytest.raises(ValidationFailed) as refusal:
        workload_apply(olga, stage.place, manifest(ROOT_ON_THE_NODE, "chat"), force=True)
    assert violations(refusal.value) == FIELDS - {f"{PATH}.hostNetwork"}


def test_the_way_back_to_it_is_refused(privileged: Stage, caller: Caller, olga: Caller) -> None:
    number = Revision.objects.latest("number").number
    workload_apply(caller, privileged.place, manifest(None, "chat"), force=True)
    privileged.deploy()
    before = privileged.stored()
    with pytest.raises(ValidationFailed) as refusal:
        execute(olga, privileged.place, roll_back(privileged.place, number))
    assert violations(refusal.value) == FIELDS
    assert privileged.stored() == before
    assert execute(caller, privileged.place, roll_back(privileged.place, number)).changes


# ---- previews


def test_a_preview_refuses_what_the_command_would(privileged: Stage, caller: Caller, olga: Caller) -> None:
    number = Revision.objects.latest("number").number
    place = privileged.place
    workload_apply(caller, place, manifest(None, "chat"), force=True)
    privileged.deploy()
    back = roll_back(place, number)
    applied = Apply(manifest(ROOT_ON_THE_NODE, "chat"))
    images = set_images([ImageEdit("frontend", "app:v9")])
    for proposal in (back, applied):
        with pytest.raises(ValidationFailed) as refusal:
            workload_simulate(olga, place, proposal)
        assert violations(refusal.value) == FIELDS
        assert workload_simulate(caller, place, proposal).changed
    assert workload_simulate(olga, place, images).changed


def test_a_preview_of_a_new_workload_refuses_it(stage: Stage, olga: Caller, place: WorkloadRef) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        workload_simulate(olga, place, Apply(manifest(ROOT_ON_THE_NODE)))
    assert violations(refusal.value) == FIELDS
    allowed = edited(manifest(ROOT_ON_THE_NODE), dict.fromkeys(ROOT_ON_THE_NODE, REMOVED))
    assert workload_simulate(olga, place, Apply(allowed)).changed
