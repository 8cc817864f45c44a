"""Pod Security levels in the admin site: the permission to set them, the audit, and their effect."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from rollouts.accounts.commands import WorkloadRef
from rollouts.engine.manifest.validation.pod_security import PodSecurityLevel
from rollouts.models import AuditEntry, NamespacePodSecurity, User
from rollouts.services.pod_security import find_pod_security_level
from tests.admin.conftest import SignIn

pytestmark = [pytest.mark.database, pytest.mark.django_db]

TABLE = "/admin/rollouts/namespacepodsecurity/"
TEAM = {"cluster": "sandbox", "namespace": "team-a", "level": "privileged"}
PLACE = WorkloadRef("sandbox", "team-a", "chat")


def last() -> AuditEntry:
    """Return the newest entry."""
    entry: AuditEntry = AuditEntry.objects.latest("id")
    return entry


def test_a_level_is_set_changed_and_taken_away_on_record(ada: Client) -> None:
    assert find_pod_security_level(PLACE) is PodSecurityLevel.BASELINE
    assert ada.post(f"{TABLE}add/", TEAM).status_code == 302
    assert find_pod_security_level(PLACE) is PodSecurityLevel.PRIVILEGED
    row = NamespacePodSecurity.objects.get()
    assert row.author == User.objects.get(username="ada")
    entry = last()
    assert (entry.command, entry.result) == ("change_pod_security", "Done")
    assert (entry.cluster, entry.namespace, entry.after) == ("sandbox", "team-a", TEAM)
    ada.post(f"{TABLE}{row.pk}/change/", {**TEAM, "level": "restricted"})
    assert find_pod_security_level(PLACE) is PodSecurityLevel.RESTRICTED
    assert (last().before, last().after) == (TEAM, {**TEAM, "level": "restricted"})
    ada.post(f"{TABLE}{row.pk}/delete/", {"post": "yes"})
    assert find_pod_security_level(PLACE) is PodSecurityLevel.BASELINE
    assert last().before == {**TEAM, "level": "restricted"}


def test_a_namespace_has_one_level(ada: Client) -> None:
    ada.post(f"{TABLE}add/", TEAM)
    answer = ada.post(f"{TABLE}add/", {**TEAM, "level": "restricted"})
    assert "This namespace has a level already; change that one." in answer.content.decode()
    assert NamespacePodSecurity.objects.get().level == "privileged"


@pytest.mark.parametrize("wrong", [{"cluster": "nowhere"}, {"level": "strict"}, {"cluster": ""}])
def test_what_is_no_cluster_or_no_level_is_refused(ada: Client, wrong: dict[str, str]) -> None:
    assert ada.post(f"{TABLE}add/", {**TEAM, **wrong}).status_code == 200
    assert not NamespacePodSecurity.objects.exists()


def test_it_needs_a_permission_of_its_own(sign_in: SignIn) -> None:
    client = sign_in("otto", "", is_staff=True)
    otto = User.objects.get(username="otto")
    otto.user_permissions.add(Permission.objects.get(codename="change_account"))
    assert client.post(f"{TABLE}add/", TEAM).status_code == 403
    assert not NamespacePodSecurity.objects.exists()
    otto.user_permissions.add(Permission.objects.get(codename="change_pod_security"))
    assert client.post(f"{TABLE}add/", TEAM).status_code == 302
