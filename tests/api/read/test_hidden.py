"""What an account is shown of a template: all but secrets where it may apply one, and elsewhere no command at all.

The same rule holds for the API and the pages. What is shown to all alike, such as the audit, follows the stricter part.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from rollouts import models
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.manifests.masking import HIDDEN, MARK, make_workload_reader, mask_manifest
from rollouts.models import AuditEntry, NamespaceGrant, User
from rollouts.services.audit import Caller, Result, Source, record
from rollouts.services.tokens import token_create
from tests.accounts.conftest import bearing, give_token
from tests.api.read import fleet

pytestmark = [pytest.mark.database, pytest.mark.django_db]

PLACE = WorkloadRef("sandbox", "default", "chat")
BASE = "workloads/sandbox/default/chat/"
# Planted where only those who may apply here see them, and where nobody does.
ARGUMENT, VARIABLE, SECRET = "positional-argument", "variable-of-a-setting", "the-secret-itself"

SignIn = Callable[[str], Client]


@pytest.fixture(scope="module", autouse=True)
def _static_files(static_files: None) -> None:
    """Pages name static files by what is in them."""


@pytest.fixture
def row(redis: Any) -> models.Cluster:
    row = fleet.make_cluster()
    manifests = [_manifest("1"), _manifest("2")]
    fleet.store_parts(row, manifests[-1])
    for number, manifest in enumerate(manifests, 1):
        models.Revision.objects.create(
            cluster=PLACE.cluster,
            namespace=PLACE.namespace,
            name=PLACE.name,
            workload_uid="uid-chat",
            number=number,
            generation_hash=f"hash-{number}",
            template=manifest["spec"]["template"],
            created=timezone.now(),
        )
    return row


def _manifest(version: str) -> Any:
    manifest = fleet.podcliqueset("chat", cliques=[fleet.clique("router", 1)])
    container = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
    container["args"] = ["serve", f"{ARGUMENT}-{version}"]
    container["env"] = [
        {"name": "LOG_LEVEL", "value": f"{VARIABLE}-{version}"},
        {"name": "TOKEN", "value": f"{SECRET}-{version}"},
    ]
    return manifest


@pytest.fixture
def sign_in(row: models.Cluster) -> SignIn:
    """Sign an account in."""

    def make(who: str) -> Client:
        user = _make_user(who)
        client = Client()
        client.force_login(user)
        return client

    return make


def _make_user(who: str) -> User:
    if who == "admin":
        return User.objects.create_superuser("ada")
    role, _, namespace = who.partition(" of ")
    user = User.objects.create_user(role)
    user.groups.set(Group.objects.filter(name=role))
    if namespace:
        NamespaceGrant.objects.create(user=user, cluster=PLACE.cluster, namespace=namespace)
    return user


WHERE = [
    *(f"/api/v1/{BASE}{path}" for path in ("manifest/", "revisions/2/", "revisions/2/diff/")),
    *(f"/{BASE}{path}" for path in ("manifest/", "revisions/2/", "apply/", "roll-back/1/")),
]


def _everywhere(client: Client) -> dict[str, str]:
    found = {}
    for path in WHERE:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.content)
        found[path] = answer.content.decode()
    return found


@pytest.mark.parametrize("who", ["viewer", "operator", "operator of other"])
def test_who_may_not_apply_here_sees_no_command_no_variable_and_no_digest(who: str, sign_in: SignIn) -> None:
    for path, text in _everywhere(sign_in(who)).items():
        assert ARGUMENT not in text, path
        assert VARIABLE not in text, path
        assert SECRET not in text, path
        assert {*MARK.findall(text)} <= {HIDDEN}, path


@pytest.mark.parametrize("who", ["operator of default", "admin"])
def test_who_may_apply_here_sees_all_but_secrets_and_which_of_these_changed(who: str, sign_in: SignIn) -> None:
    texts = _everywhere(sign_in(who))
    for path, text in texts.items():
        assert ARGUMENT in text, path
        assert VARIABLE in text, path
        assert SECRET not in text, path
    diff = json.loads(texts[f"/api/v1/{BASE}revisions/2/diff/"])
    assert len({*MARK.findall(diff["text"])} - {HIDDEN}) == 2
    assert diff["is_hidden"] is False


def test_a_difference_that_is_hidden_is_told_as_such(sign_in: SignIn) -> None:
    viewer = sign_in("viewer")
    diff = json.loads(viewer.get(f"/api/v1/{BASE}revisions/2/diff/").content)
    assert (diff["changed_cliques"], diff["text"], diff["is_hidden"]) == (["router"], "", True)
    assert "They differ in values that your account may not see" in viewer.get(f"/{BASE}revisions/2/").content.decode()


@pytest.mark.parametrize("who", ["viewer", "admin"])
def test_an_annotation_that_is_left_out_elsewhere_is_part_of_a_diff(who: str, sign_in: SignIn) -> None:
    reading = sign_in(who)
    newest = models.Revision.objects.get(number=2)
    newest.template["cliques"][0]["annotations"] = {"example.com/applied": SECRET}
    newest.save()
    diff = json.loads(reading.get(f"/api/v1/{BASE}revisions/2/diff/").content)
    assert re.search(r"\+ *example.com/applied: ‹hidden", diff["text"])
    assert SECRET not in diff["text"]
    revision = reading.get(f"/api/v1/{BASE}revisions/2/").content.decode()
    assert "example.com/applied" not in revision


def test_reading_is_not_narrowed_by_an_installation_that_is_read_only(sign_in: SignIn, settings: Any) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, observe=True, read_only=True)
    assert ARGUMENT in sign_in("operator of default").get(f"/api/v1/{BASE}manifest/").content.decode()


@pytest.mark.parametrize(
    ("scope", "is_shown"),
    [
        ({}, True),
        ({"read_only": True}, True),
        ({"namespaces": [{"cluster": "sandbox", "namespace": "default"}]}, True),
        ({"namespaces": [{"cluster": "sandbox", "namespace": "other"}]}, False),
        ({"commands": ["scale_workload"]}, False),
    ],
)
def test_the_scope_of_a_token_narrows_what_it_is_shown(
    scope: dict[str, Any], is_shown: bool, row: models.Cluster
) -> None:
    _, text = give_token(_make_user("admin"), **scope)
    answer = bearing(text).get(f"/api/v1/{BASE}manifest/")
    told = answer.content.decode()
    assert answer.status_code == 200
    assert (ARGUMENT in told) == is_shown
    assert SECRET not in told


# ---- on record


@pytest.fixture
def recorded(row: models.Cluster) -> AuditEntry:
    """An entry as an earlier version wrote it, with marks that were the same everywhere."""
    base = "spec.template.cliques[0].spec.podSpec.containers[0]"
    fields = {
        f"{base}.args[1]": ARGUMENT,
        f"{base}.env[0].value": VARIABLE,
        f"{base}.env[1].value": "‹hidden 0a1b2c3d›",
        "spec.replicas": 3,
    }
    place = {"cluster": PLACE.cluster, "namespace": PLACE.namespace, "name": PLACE.name}
    return AuditEntry.objects.create(
        actor="ana", via="api", command="apply_workload", result="Done", after={"fields": fields}, **place
    )


@pytest.mark.parametrize("who", ["viewer", "operator of default"])
def test_the_audit_shows_everybody_which_fields_changed_and_no_command(
    who: str, recorded: AuditEntry, sign_in: SignIn
) -> None:
    client = sign_in(who)
    for path in ("/api/v1/audit/", f"/api/v1/{BASE}audit/", "/audit/"):
        text = client.get(path).content.decode()
        assert "containers[0].args[1]" in text, path
        assert ARGUMENT not in text, path
        assert VARIABLE not in text, path
        assert {*MARK.findall(text)} == {HIDDEN}, path


def test_the_export_and_the_admin_site_show_the_same(recorded: AuditEntry, sign_in: SignIn) -> None:
    ada = sign_in("admin")
    admin = ada.get(f"/admin/rollouts/auditentry/{recorded.pk}/change/")
    for text in (admin.content.decode(), _export(ada)):
        assert "args[1]" in text
        assert ARGUMENT not in text
        assert {*MARK.findall(text)} == {HIDDEN}


def _export(client: Client) -> str:
    answer: Any = client.get("/api/v1/audit/export/")

    async def read() -> bytes:
        return b"".join([part async for part in answer])

    return async_to_sync(read)().decode()


def test_nobody_has_a_mark_made_of_what_they_type(row: models.Cluster) -> None:
    vera = _make_user("viewer")
    caller = Caller(user=vera, name="viewer", source_ip=None, request_id="r", source=Source.API)
    token_create(caller, f"PASSWORD={SECRET}", timezone.now() + timedelta(days=1))
    record(caller, Command.SIGN_IN, WorkloadRef(), Result.DONE, after={"reason": f"TOKEN={SECRET}", "password": SECRET})
    written = str([(entry.before, entry.after) for entry in AuditEntry.objects.all()])
    assert HIDDEN in written
    assert not re.search("‹hidden [0-9a-f]", written)


def test_a_guess_in_ones_own_namespace_tells_nothing_of_another(row: models.Cluster) -> None:
    def marks(workload: str) -> set[str]:
        return {*MARK.findall(str(mask_manifest(_manifest("1"), make_workload_reader(workload))))}

    assert marks("sandbox/team-a/chat").isdisjoint(marks("sandbox/team-b/chat"))
