"""The configuration of a cluster: kubeconfig files, plugins, service accounts, and errors in them."""

import stat
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from rollouts.cluster import ClusterClient, Misconfigured, in_cluster, kubeconfig
from tests.cluster.faults import FaultServer, json, write_kubeconfig

SECRET = "s3cret-token"
VERSION = {"gitVersion": "v1.36.0"}


def _authorization(server: FaultServer, cluster: ClusterClient) -> str | None:
    """Make a call and return the credentials that came with it."""
    server.answers(json(200, VERSION))
    cluster.version()
    return server.requests[-1].headers.get("Authorization")


def _plugin(path: Path, output: str) -> Path:
    """Write a credential plugin that prints this text, and counts its runs in a file beside it."""
    runs = path.with_suffix(".runs")
    path.write_text(f"#!{sys.executable}\nopen({str(runs)!r}, 'a').write('.')\nprint({output!r})\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _exec(command: Path) -> dict[str, Any]:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(command)}}


def _credential(**status: str) -> str:
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return orjson.dumps(credential).decode()


def test_the_current_context_is_used_unless_another_is_named(server: FaultServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"token": "unused"})
    config = yaml.safe_load(path.read_text())
    config["clusters"].append({"name": "other", "cluster": {"server": server.url}})
    config["users"].append({"name": "other", "user": {"token": SECRET}})
    config["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "other"}})
    path.write_text(yaml.safe_dump(config))
    assert ClusterClient(kubeconfig(path)).url == "http://127.0.0.1:1"
    other = ClusterClient(kubeconfig(path, "other"))
    assert other.url == server.url
    assert _authorization(server, other) == f"Bearer {SECRET}"


def test_several_files_are_merged_as_kubectl_does(server: FaultServer, tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text(yaml.safe_dump({"kind": "Config", "apiVersion": "v1", "current-context": "x"}))
    second = write_kubeconfig(tmp_path / "second", server.url, {"token": SECRET})
    assert ClusterClient(kubeconfig(f"{first}:{second}:{tmp_path / 'absent'}")).url == server.url


def test_nobody_connects_because_of_the_environment(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "config", server.url)))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Misconfigured, match="does not exist"):
        ClusterClient(kubeconfig(tmp_path / "absent"))
    with pytest.raises(Misconfigured, match="does not run in a cluster"):
        ClusterClient(in_cluster(tmp_path, {}))
    assert server.connections == 0


def test_a_proxy_of_the_environment_is_not_used_for_loopback(
    server: FaultServer, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert _authorization(server, ClusterClient(kubeconfig(config_file))) == f"Bearer {SECRET}"


def test_the_path_of_the_server_is_kept(server: FaultServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", f"{server.url}/clusters/one/")
    cluster = ClusterClient(kubeconfig(path))
    _authorization(server, cluster)
    assert server.requests[0].path == "/clusters/one/version"
    assert cluster.url == f"{server.url}/clusters/one"


def test_a_token_file_is_read(server: FaultServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    path = write_kubeconfig(tmp_path / "config", server.url, {"tokenFile": "token"})
    assert _authorization(server, ClusterClient(kubeconfig(path))) == f"Bearer {SECRET}"


def test_a_token_that_no_header_can_hold_is_reported_unseen(server: FaultServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", server.url, {"token": f"{SECRET}\nX-Evil: 1"})
    with pytest.raises(Misconfigured, match="an HTTP header cannot hold") as refusal:
        ClusterClient(kubeconfig(path))
    assert SECRET not in repr(refusal.value)


def test_name_and_password_are_sent(server: FaultServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", server.url, {"username": "u", "password": "p"})
    assert _authorization(server, ClusterClient(kubeconfig(path))) == "Basic dTpw"


def test_no_credentials_are_no_header(server: FaultServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", server.url)
    assert _authorization(server, ClusterClient(kubeconfig(path))) is None


def test_a_plugin_is_run_for_its_token(server: FaultServer, tmp_path: Path) -> None:
    plugin = _plugin(tmp_path / "plugin", _credential(token=SECRET, expirationTimestamp="2999-01-01T00:00:00Z"))
    cluster = ClusterClient(kubeconfig(write_kubeconfig(tmp_path / "config", server.url, _exec(plugin))))
    assert _authorization(server, cluster) == f"Bearer {SECRET}"
    assert _authorization(server, cluster) == f"Bearer {SECRET}"
    assert plugin.with_suffix(".runs").read_text() == "."


def test_a_plugin_is_run_again_when_its_token_has_run_out(server: FaultServer, tmp_path: Path) -> None:
    plugin = _plugin(tmp_path / "plugin", _credential(token="old", expirationTimestamp="2001-01-01T00:00:00Z"))
    cluster = ClusterClient(kubeconfig(write_kubeconfig(tmp_path / "config", server.url, _exec(plugin))))
    _plugin(plugin, _credential(token="new", expirationTimestamp="2999-01-01T00:00:00Z"))
    assert _authorization(server, cluster) == "Bearer new"


@pytest.mark.parametrize("output", ["nonsense", "{}", "[]"])
def test_a_plugin_without_credentials_is_reported(server: FaultServer, tmp_path: Path, output: str) -> None:
    plugin = _plugin(tmp_path / "plugin", output)
    path = write_kubeconfig(tmp_path / "config", server.url, _exec(plugin))
    with pytest.raises(Misconfigured, match="returned no credentials"):
        ClusterClient(kubeconfig(path))


def test_a_plugin_that_is_missing_is_reported(server: FaultServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", server.url, _exec(tmp_path / "absent"))
    with pytest.raises(Misconfigured, match="returned no credentials"):
        ClusterClient(kubeconfig(path))


def test_a_kubeconfig_is_never_written(server: FaultServer, tmp_path: Path) -> None:
    plugin = _plugin(tmp_path / "plugin", _credential(token=SECRET, expirationTimestamp="2001-01-01T00:00:00Z"))
    path = write_kubeconfig(tmp_path / "config", server.url, _exec(plugin))
    before = path.read_bytes()
    _authorization(server, ClusterClient(kubeconfig(path)))
    assert path.read_bytes() == before


def _broken(**changes: Any) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return yaml.safe_dump(config | changes)


CA_FILE = [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority": "absent.crt"}}]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is not a kubeconfig"),
        (f"token: {SECRET}\n  - {SECRET}: [", "is not valid YAML"),
        (f"- {SECRET}", "is not a kubeconfig"),
        (f'"{SECRET}"', "is not a kubeconfig"),
        ("\x00\x01", "is not valid YAML"),
        (_broken(**{"current-context": None}), "has no current context; choose one of: x"),
        (_broken(**{"current-context": "y"}), "has no context 'y'; it has: x"),
        (_broken(contexts=None), "has no context 'x'; it has: none"),
        (_broken(contexts=SECRET), "is not a kubeconfig"),
        (_broken(clusters=[]), "cannot be used"),
        (_broken(clusters=[{"name": "c"}]), "cannot be used"),
        (_broken(clusters=CA_FILE), "File does not exist: .*absent.crt"),
        (_broken(users=[{"name": "u", "extra": SECRET}]), "cannot be used"),
        (_broken(users=[{"name": "u", "user": {"auth-provider": {"name": "gcp"}, "x": SECRET}}]), "cannot be used"),
        (_broken(users=[{"name": "u", "user": {"exec": {"env": SECRET}}}]), "returned no credentials"),
    ],
)
def test_a_broken_kubeconfig_gets_one_sentence_without_secrets(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(Misconfigured, match=says) as refusal:
        ClusterClient(kubeconfig(path))
    told = f"{refusal.value!r} {refusal.value.__cause__!r}"
    assert str(path) in told
    assert SECRET not in told


def test_a_kubeconfig_that_is_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be read: Is a directory"):
        ClusterClient(kubeconfig(tmp_path))


def test_nothing_shows_the_credentials(server: FaultServer, tmp_path: Path) -> None:
    url = server.url.replace("http://", "http://user:hidden@")
    path = write_kubeconfig(tmp_path / "config", url, {"token": SECRET})
    cluster = ClusterClient(kubeconfig(path))
    shown = f"{cluster!r} {cluster} {cluster.url} {vars(cluster)}"
    assert SECRET not in shown
    assert "hidden" not in shown


@pytest.fixture
def pod_folder(tmp_path: Path) -> Path:
    """The files of a pod's service account."""
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----")
    return tmp_path


def test_a_pod_uses_its_service_account(pod_folder: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert ClusterClient(in_cluster(pod_folder, environment)).url == "https://[::1]:443"


@pytest.mark.parametrize("lacking", ["token", "ca.crt"])
def test_a_pod_without_a_service_account_is_told_so(pod_folder: Path, lacking: str) -> None:
    (pod_folder / lacking).unlink()
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(Misconfigured, match="or its pod has no service account"):
        ClusterClient(in_cluster(pod_folder, environment))
