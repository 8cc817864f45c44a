"""The test of a connection, and the audit as a file."""

import csv
import io

import pytest
from django.test import Client

from rollouts import models
from rollouts.models import AuditEntry
from tests.admin.conftest import SignIn
from tests.overrides.streams import read_text

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def test_a_cluster_that_is_away_is_told_line_by_line(ada: Client, row: models.Cluster) -> None:
    text = ada.post(f"/admin/rollouts/cluster/{row.pk}/test/").content.decode()
    assert "The connection has problems." in text
    entry = AuditEntry.objects.get()
    assert (entry.command, entry.cluster, entry.result, entry.via) == ("test_cluster", "sandbox", "Done", "admin")
    assert entry.detail.startswith("Failed: ")


def test_asking_by_a_link_tests_nothing(ada: Client, row: models.Cluster) -> None:
    assert ada.get(f"/admin/rollouts/cluster/{row.pk}/test/").status_code == 302
    assert not AuditEntry.objects.exists()


def test_an_operator_who_is_given_entry_tests_nothing(sign_in: SignIn, row: models.Cluster) -> None:
    olga = sign_in("olga", "operator", is_staff=True)
    page = olga.get(f"/admin/rollouts/cluster/{row.pk}/change/").content.decode()
    assert "Test the connection" not in page
    answer = olga.post(f"/admin/rollouts/cluster/{row.pk}/test/", follow=True)
    assert "You may not test the connection" in answer.content.decode()
    assert AuditEntry.objects.get().result == "Refused"


def test_the_audit_is_exported_as_it_is_filtered(ada: Client) -> None:
    for actor, detail in (("ada", '=cmd("x")'), ("olga", 'fine, "thank" you')):
        AuditEntry.objects.create(
            actor=actor, command="scale_workload", result="Done", detail=detail, after={"replicas": 3}
        )
    begun = AuditEntry.objects.create(actor="ada", command="set_images", result="Begun", before={"image": "v1"})
    AuditEntry.objects.create(actor="ada", command="set_images", result="Done", begun=begun)
    answer = ada.get("/admin/rollouts/auditentry/export/", {"actor__icontains": "ada"})
    assert answer["Content-Disposition"] == 'attachment; filename="grove-audit.csv"'
    lines = list(csv.DictReader(io.StringIO(read_text(answer))))
    assert [(line["command"], line["result"], line["before"]) for line in lines] == [
        ("export_audit", "Done", ""),
        ("set_images", "Done", '{"image":"v1"}'),
        ("scale_workload", "Done", ""),
    ]
    assert lines[2]["detail"] == '\'=cmd("x")'


def test_an_export_is_for_those_who_may(sign_in: SignIn) -> None:
    olga = sign_in("olga", "operator", is_staff=True)
    assert "Export as CSV" not in olga.get("/admin/rollouts/auditentry/").content.decode()
    assert olga.get("/admin/rollouts/auditentry/export/").status_code == 403
    entry = AuditEntry.objects.get()
    assert (entry.command, entry.result) == ("export_audit", "Refused")


def test_a_command_that_only_began_says_that_its_outcome_is_unknown(ada: Client) -> None:
    AuditEntry.objects.create(actor="ada", command="set_images", result="Begun")
    assert "Begun, result unknown" in ada.get("/admin/rollouts/auditentry/").content.decode()
