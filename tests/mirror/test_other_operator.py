"""How Grove UI finds Grove's own operator: by CRDs that are not ours, and by its lease."""

import time
from types import SimpleNamespace

import pytest
import yaml

from rollouts import mirror
from rollouts.cluster import ClusterClient, kubeconfig
from rollouts.cluster.resources import CUSTOMRESOURCEDEFINITIONS, LEASES
from rollouts.mirror import other_operator
from rollouts.mirror.other_operator import GROVE_LEASE, OperatorCheck
from tests import groves_operator
from tests.apiserver import DEFINITIONS, ApiServer
from tests.groves_operator import GROVES_DEFINITIONS, apply_definition, mark_definition, renew_lease

pytestmark = [pytest.mark.apiserver, pytest.mark.django_db(transaction=True)]

server, admin = groves_operator.server, groves_operator.admin


@pytest.fixture
def check(admin: ClusterClient) -> OperatorCheck:
    """A new check, which has not run yet."""
    return OperatorCheck(admin, mirror.ensure_cluster("real").pk)


def test_nobody_else_is_there_with_our_definitions_and_no_lease(check: OperatorCheck) -> None:
    assert check.check_now() == ""


EACH_DEFINITION = pytest.mark.parametrize("name", sorted(path.stem for path in DEFINITIONS.glob("*.yaml")))


@EACH_DEFINITION
def test_a_definition_without_our_mark_is_somebody_elses(admin: ClusterClient, check: OperatorCheck, name: str) -> None:
    group, plural = name.split("_")
    mark_definition(admin, None, f"{plural}.{group}")
    assert f"The definition of {plural}.{group} in this cluster is not Grove UI's" in check.check_now()


@EACH_DEFINITION
def test_a_schema_that_was_applied_over_ours_is_somebody_elses_although_our_mark_stays(
    admin: ClusterClient, check: OperatorCheck, name: str
) -> None:
    """The fields of one field manager stay when another one applies the rest."""
    group, plural = name.split("_")
    applied = apply_definition(admin, GROVES_DEFINITIONS / f"{name}.yaml", "crd-installer")
    assert other_operator.DEFINITION_ANNOTATION in applied["metadata"]["annotations"]
    assert f"The definition of {plural}.{group} in this cluster is not Grove UI's" in check.check_now()
    apply_definition(admin, DEFINITIONS / f"{name}.yaml", "kubectl")
    assert check.check_now() == ""


def test_a_version_of_somebody_else_beside_ours_is_served_by_somebody_else(
    admin: ClusterClient, check: OperatorCheck
) -> None:
    definition = yaml.safe_load((DEFINITIONS / "grove.io_podcliques.yaml").read_text())
    theirs = yaml.safe_load((GROVES_DEFINITIONS / "grove.io_podcliques.yaml").read_text())["spec"]["versions"][0]
    definition["spec"]["versions"].append({**theirs, "name": "v1beta1", "storage": False})
    admin.apply(CUSTOMRESOURCEDEFINITIONS, definition, field_manager="crd-installer", force=True)
    assert "The definition of podcliques.grove.io in this cluster is not Grove UI's" in check.check_now()


def test_a_lease_that_was_renewed_within_a_minute_is_held(admin: ClusterClient, check: OperatorCheck) -> None:
    renew_lease(admin, ago=30)
    assert "renews the lease kube-system/grove-operator-leader-election" in check.check_now()
    assert "Stop it, then take its workloads over" in check.check_now()


def look_after(check: OperatorCheck, monkeypatch: pytest.MonkeyPatch, seconds: float) -> str:
    """Check again, some seconds later by the monotonic clock."""
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + seconds, time=time.time)
    monkeypatch.setattr(other_operator, "time", later)
    return check.check_now()


def test_a_lease_that_nobody_renews_any_more_is_none(
    admin: ClusterClient, check: OperatorCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This takes as long as the lease lasts: its time may come from another clock than ours."""
    renew_lease(admin, ago=70)
    assert "has not watched the lease kube-system/grove-operator-leader-election for 15 s" in check.check_now()
    assert "has not watched the lease" in look_after(check, monkeypatch, 14)
    assert look_after(check, monkeypatch, 30) == ""


def test_a_lease_that_lasts_longer_is_watched_for_longer(
    admin: ClusterClient, check: OperatorCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew_lease(admin, ago=70)
    admin.patch_merge(LEASES, GROVE_LEASE, {"spec": {"leaseDurationSeconds": 60}}, namespace="kube-system")
    check.check_now()
    assert "for 60 s" in look_after(check, monkeypatch, 50)
    assert look_after(check, monkeypatch, 70) == ""


def test_a_lease_that_was_given_up_or_is_days_old_delays_no_start(admin: ClusterClient, check: OperatorCheck) -> None:
    renew_lease(admin, ago=2 * 86_400)
    assert check.check_now() == ""
    renew_lease(admin, ago=0)
    admin.patch_merge(LEASES, GROVE_LEASE, {"spec": {"holderIdentity": ""}}, namespace="kube-system")
    assert check.check_now() == ""


@pytest.mark.parametrize("ahead", [120, 3_600, 14 * 3_600])
def test_a_lease_that_moves_on_is_held_whatever_our_clock_says(
    admin: ClusterClient, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    check = OperatorCheck(admin, mirror.ensure_cluster("real").pk, clock=lambda: time.time() + ahead)
    renew_lease(admin, ago=10)
    assert "has not watched the lease" in check.check_now()
    renew_lease(admin, ago=0)
    assert "renews the lease" in look_after(check, monkeypatch, 20)
    assert "renews the lease" in look_after(check, monkeypatch, 30)
    assert look_after(check, monkeypatch, 40) == ""


def test_a_lease_that_moves_on_is_held_although_our_clock_is_days_ahead(admin: ClusterClient) -> None:
    check = OperatorCheck(admin, mirror.ensure_cluster("real").pk, clock=lambda: time.time() + 2 * 86_400)
    renew_lease(admin, ago=10)
    check.check_now()
    renew_lease(admin, ago=0)
    assert ["renews the lease" in check.check_now() for _ in range(2)] == [True, True]


def test_who_may_not_look_writes_nothing(server: ApiServer, admin: ClusterClient) -> None:
    restricted = ClusterClient(kubeconfig(server.kubeconfig, "restricted"))
    row = mirror.ensure_cluster("real").pk
    assert "Grove UI's account may not get customresourcedefinitions" in OperatorCheck(restricted, row).check_now()


def test_one_check_sees_a_mark_come_and_go(
    admin: ClusterClient, check: OperatorCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 11))
    monkeypatch.setattr(other_operator, "time", SimpleNamespace(monotonic=lambda: float(next(clock)), time=time.time))
    assert check.check() == ""
    mark_definition(admin, None)
    assert "is not Grove UI's" in check.check()
    mark_definition(admin, "v1alpha1")
    assert check.check() == ""
    renew_lease(admin, ago=0)
    assert "renews the lease" in check.check()
    admin.delete(LEASES, GROVE_LEASE, namespace="kube-system")
    assert check.check() == ""
