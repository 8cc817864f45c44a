"""Trust and permissions on a real API server: TLS, wrong credentials, missing permissions, a pod's service account."""

from pathlib import Path

import pytest
import yaml

from rollouts.cluster import (
    ClusterClient,
    ConnectionLost,
    Forbidden,
    RetryPolicy,
    Unauthorized,
    Unavailable,
    Watch,
    in_cluster,
    kubeconfig,
)
from rollouts.cluster.resources import NAMESPACES, PODS
from tests.apiserver import ApiServer
from tests.builtin_resources import CONFIGMAPS
from tests.servers import find_apiserver

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def apiserver() -> ApiServer:
    """A real API server."""
    return find_apiserver()


def test_the_administrator_may_do_everything(apiserver: ApiServer) -> None:
    names = {
        item["metadata"]["name"] for item in ClusterClient(kubeconfig(apiserver.kubeconfig)).list(NAMESPACES).items
    }
    assert "default" in names


def test_what_no_role_allows_is_forbidden(apiserver: ApiServer) -> None:
    cluster = ClusterClient(kubeconfig(apiserver.kubeconfig, "restricted"))
    with pytest.raises(Forbidden, match='User "restricted" cannot list resource "pods"'):
        cluster.list(PODS)
    with pytest.raises(Forbidden, match='cannot create resource "configmaps"'):
        cluster.create(CONFIGMAPS, {"metadata": {"name": "a", "namespace": "default"}})
    lost = next(iter(Watch(cluster, PODS)))
    assert isinstance(lost, ConnectionLost)
    assert isinstance(lost.error, Forbidden)


def test_a_token_that_nobody_knows_is_unauthorized(apiserver: ApiServer, tmp_path: Path) -> None:
    config = yaml.safe_load(apiserver.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "stranger"}
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(Unauthorized):
        ClusterClient(kubeconfig(path)).list(PODS)


def test_a_server_that_is_not_trusted_gets_no_request(apiserver: ApiServer, tmp_path: Path) -> None:
    config = yaml.safe_load(apiserver.kubeconfig.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority"]
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    cluster = ClusterClient(kubeconfig(path), retry_policy=RetryPolicy(connect_timeout=30.0))
    with pytest.raises(Unavailable, match="the TLS handshake failed"):
        cluster.version(retry=False)


def test_a_server_whose_certificate_is_not_verified_is_known_as_such_and_no_request_warns_of_it(
    apiserver: ApiServer, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    config = yaml.safe_load(apiserver.kubeconfig.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority"]
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    cluster = ClusterClient(kubeconfig(path))
    for _ in range(3):
        cluster.list(NAMESPACES)
    assert [str(one.message) for one in recwarn] == []
    assert not cluster.is_verified
    assert ClusterClient(kubeconfig(apiserver.kubeconfig)).is_verified


def test_a_pod_speaks_with_its_own_account(apiserver: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(apiserver.admin_token)
    (tmp_path / "ca.crt").write_bytes(apiserver.ca_file.read_bytes())
    host, port = apiserver.url.removeprefix("https://").split(":")
    cluster = ClusterClient(in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}))
    assert cluster.list(NAMESPACES).items
