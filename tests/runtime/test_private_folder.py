"""Only the owner can open the data folder and the socket folder, whatever an earlier version left."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from grove_ui.environment import ConfigurationError, ensure_secret_key
from rollouts.runtime.private_folder import NotPrivateError, ensure_private, ensure_socket_folder, remove_socket_folder
from tests.project.running import ROOT


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_folder(path: Path, *names: str) -> Path:
    """Make a folder that everybody can read, with files that everybody can read."""
    path.mkdir()
    path.chmod(0o755)
    for name in names:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("secret")
        (path / name).chmod(0o644)
    return path


def test_a_new_data_folder_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ensure_private(tmp_path / "data")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "data") == 0o700


@pytest.mark.parametrize("name", ["run.lock", "secret_key", "sandbox.lock", "grove.sqlite3"])
def test_a_data_folder_of_an_earlier_version_is_closed_with_its_files(tmp_path: Path, name: str) -> None:
    folder = open_folder(tmp_path / "data", name, "grove.sqlite3-wal", "redis/appendonly.aof")
    (folder / "elsewhere").symlink_to(open_folder(tmp_path / "other", "file") / "file")
    ensure_private(folder)
    assert mode_of(folder) == 0o700
    assert {mode_of(folder / one) for one in (name, "grove.sqlite3-wal", "redis/appendonly.aof")} == {0o600}
    assert mode_of(tmp_path / "other" / "file") == 0o644


def test_an_empty_folder_is_closed(tmp_path: Path) -> None:
    ensure_private(open_folder(tmp_path / "data"))
    assert mode_of(tmp_path / "data") == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_folder_of_other_programs_is_refused_and_left_alone(tmp_path: Path, mode: int) -> None:
    folder = open_folder(tmp_path / "shared", "certificate.pem")
    folder.chmod(mode)
    with pytest.raises(NotPrivateError, match=r"DATA_DIR is .*files of other programs; set DATA_DIR to .*chmod 700"):
        ensure_private(folder)
    assert (mode_of(folder), mode_of(folder / "certificate.pem")) == (mode, 0o644)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_an_open_folder_of_another_account_is_refused(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "theirs", "run.lock")
    os.chown(folder, 65534, 65534)
    with pytest.raises(NotPrivateError, match=r"which another account owns; set DATA_DIR to a folder of your own"):
        ensure_private(folder)
    assert mode_of(folder) == 0o755


def test_the_secret_key_is_kept_in_a_private_folder_only(tmp_path: Path) -> None:
    ensure_secret_key({}, open_folder(tmp_path / "data", "run.lock"))
    assert mode_of(tmp_path / "data") == 0o700
    with pytest.raises(ConfigurationError, match="DATA_DIR is"):
        ensure_secret_key({}, open_folder(tmp_path / "shared", "other"))


# ---- sockets


def test_sockets_have_a_private_folder_with_a_short_path_that_stays_the_same(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 40)
    ensure_private(data)
    folder = ensure_socket_folder(data)
    assert ensure_socket_folder(data) == folder
    assert mode_of(folder) == 0o700
    assert len(str(folder / "redis.sock")) < 100
    remove_socket_folder(data)
    assert not folder.exists()
    assert list(data.iterdir()) == []


def test_a_folder_of_sockets_that_was_emptied_away_is_made_anew(tmp_path: Path) -> None:
    first = ensure_socket_folder(tmp_path)
    first.rmdir()
    second = ensure_socket_folder(tmp_path)
    assert second.is_dir()
    assert second != first
    remove_socket_folder(tmp_path)


def test_a_folder_that_others_took_is_not_used(tmp_path: Path) -> None:
    taken = ensure_socket_folder(tmp_path)
    taken.chmod(0o777)
    other = ensure_socket_folder(tmp_path)
    assert other != taken
    remove_socket_folder(tmp_path)
    taken.rmdir()


def test_the_settings_of_a_long_data_folder_name_a_private_socket(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 40)
    code = "from grove_ui import settings; print(settings.REDIS_SOCKET); print(settings.REDIS_URL)"
    environment = {**os.environ, "DATA_DIR": str(data)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, text=True, capture_output=True, check=True
    )
    socket, url = done.stdout.split()
    assert url == f"unix://{socket}"
    assert mode_of(Path(socket).parent) == 0o700
    remove_socket_folder(data)
