"""The test of a connection against real servers: one that is well, one that refuses us, one without our kinds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings
from django.test import override_settings
from redis import Redis

from rollouts.cluster import ClusterClient, kubeconfig
from rollouts.services.audit import Caller
from rollouts.services.connection_test import ClusterTest, cluster_test
from tests.apiserver import ApiServer, install_definitions, missing_binaries, running_apiserver
from tests.overrides.conftest import make_caller
from tests.parts import missing
from tests.scenarios.running_clusters import running_sandbox_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """A real API server that knows no kinds of Grove's at first."""
    if missing_binaries():
        missing("kube-apiserver", "set KUBEBUILDER_ASSETS (see tests/apiserver.py)")
    with running_apiserver() as running:
        yield running


@pytest.fixture
def ada(db: None, redis: Redis) -> Caller:
    """An account with the permission."""
    return make_caller("ada", "admin")


def _test(caller: Caller, name: str, **environment: object) -> ClusterTest:
    with override_settings(ENVIRONMENT=replace(settings.ENVIRONMENT, **environment)):  # type: ignore[arg-type]
        return cluster_test(caller, name)


def _answers(found: ClusterTest) -> dict[str, bool | None]:
    return {line.name: line.ok for line in found.lines}


def test_the_sandbox_is_well_and_says_nothing_of_permissions(tmp_path: Path, ada: Caller) -> None:
    with running_sandbox_cluster(tmp_path):
        found = _test(ada, "sandbox", data_dir=tmp_path)
    assert found.ok
    assert _answers(found) == {
        "Reach": True,
        "Definitions": True,
        "Reading": True,
        "Rolling out": None,
        "Commands": None,
    }


@pytest.mark.apiserver
def test_a_real_server_is_asked_for_kinds_and_permissions(server: ApiServer, ada: Caller) -> None:
    chosen = {"clusters": ("kubeconfig",), "kubeconfig": server.kubeconfig}
    without = _test(ada, "admin", **chosen, kube_contexts=("admin",))
    lines = {line.name: line for line in without.lines}
    assert not without.ok
    assert lines["Definitions"].ok is False
    assert "podcliquesets.grove.io" in lines["Definitions"].sentence
    assert "Apply deploy/crds" in lines["Definitions"].sentence
    install_definitions(ClusterClient(kubeconfig(server.kubeconfig, "admin")))
    assert _answers(_test(ada, "admin", **chosen, kube_contexts=("admin",))) == dict.fromkeys(
        ["Reach", "Definitions", "Reading", "Rolling out", "Commands"], True
    )
    refused = _test(ada, "restricted", **chosen, kube_contexts=("restricted",))
    assert _answers(refused) == {
        "Reach": True,
        "Definitions": True,
        "Reading": False,
        "Rolling out": False,
        "Commands": False,
    }
    sentences = {line.name: line.sentence for line in refused.lines}
    assert "create pods/eviction" in sentences["Commands"]
    assert "Bind it to the roles in deploy/rbac" in sentences["Rolling out"]
    assert server.restricted_token not in str(refused)
