"""Ensures that no other account of the machine can read DATA_DIR.

The environment, `manage.py run` and the sandbox call it before they write to DATA_DIR, which holds the database with
the sessions, the data of Redis and the secret key. Earlier versions created data folders that others can open: such a
folder is closed, with the files in it. Any other folder that others can open is refused with a sentence.

If the path of DATA_DIR is too long for a Unix socket, the sockets lie in a private temporary folder, and a link in
DATA_DIR leads there. The name of the temporary folder is random, so no other account can create it first.
"""

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

UMASK: Final = 0o077
_MODE: Final = 0o700
_OTHERS_MODE: Final = 0o077
# Only the product writes these files: a folder with one of them is a data folder.
_OWN_FILES: Final = frozenset(
    {"run.lock", "sandbox.lock", "secret_key", "static.sha256", "grove.sqlite3", "sandbox.sqlite3"}
)
_IGNORED_FILES: Final = frozenset({"lost+found"})  # in a new volume
_STATIC: Final = "static"  # public files
_LINK: Final = "sockets"


class NotPrivateError(Exception):
    """The folder cannot be used; the message is the sentence to show."""


def ensure_private(folder: Path) -> None:
    """Create a folder that only its owner can open, or close a data folder; raises NotPrivateError."""
    try:
        folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
        found = folder.stat()
        if not found.st_mode & _OTHERS_MODE:
            return
        _require_own_folder(folder, found)
        folder.chmod(_MODE)
        _restrict_files(folder)
    except OSError as error:
        raise NotPrivateError(
            f"DATA_DIR is {folder}, which cannot be used ({error.strerror}); set DATA_DIR to a writable folder"
        ) from error


def ensure_socket_folder(data_dir: Path) -> Path:
    """Return the private folder with a short path, and create it if needed; raises NotPrivateError and OSError."""
    link = data_dir / _LINK
    if (folder := _resolve_private_link(link)) is not None:
        return folder
    ensure_private(data_dir)
    made = Path(tempfile.mkdtemp(prefix="grove-ui-"))
    draft = data_dir / f".{_LINK}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    draft.symlink_to(made)
    try:
        if link.is_symlink():
            link.unlink()  # its target is gone: the system cleans up temporary folders
        os.link(draft, link, follow_symlinks=False)
    except FileExistsError:
        made.rmdir()  # another process was first
    finally:
        draft.unlink(missing_ok=True)
    if (folder := _resolve_private_link(link)) is None:
        raise NotPrivateError(f"{link} leads to a folder that is not private; remove the link and start again")
    return folder


def remove_socket_folder(data_dir: Path) -> None:
    """Remove the private folder if it is empty."""
    with contextlib.suppress(OSError):
        (data_dir / _LINK).readlink().rmdir()
        (data_dir / _LINK).unlink()


def _require_own_folder(folder: Path, found: os.stat_result) -> None:
    """Raise NotPrivateError unless the product may close a folder that others can open."""
    is_open = f"DATA_DIR is {folder}, which other accounts of this machine can open (mode {found.st_mode & 0o7777:04o})"
    if found.st_uid != os.geteuid():
        raise NotPrivateError(
            f"{is_open} and which another account owns; "
            f"set DATA_DIR to a folder of your own, e.g. {folder / 'grove-ui'}"
        )
    names = {path.name for path in folder.iterdir()} - _IGNORED_FILES
    if found.st_mode & stat.S_ISVTX or (names and names.isdisjoint(_OWN_FILES)):
        raise NotPrivateError(
            f"{is_open} and which holds files of other programs; set DATA_DIR to a folder of its own, "
            f"e.g. {folder / 'grove-ui'}, or close it: chmod 700 {folder}"
        )


def _restrict_files(folder: Path) -> None:
    """Remove the permissions of other accounts from all files that earlier versions wrote."""
    for place, folders, files in os.walk(folder):
        if Path(place) == folder and _STATIC in folders:
            folders.remove(_STATIC)
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):  # SQLite deletes its journal files at any time
                _restrict_file(Path(place) / name)


def _restrict_file(path: Path) -> None:
    found = path.lstat()
    if found.st_mode & _OTHERS_MODE and not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS_MODE)


def _resolve_private_link(link: Path) -> Path | None:
    """Return the target of the link, if it is a folder that no other account can open."""
    try:
        folder = link.readlink()
        found = folder.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_MODE
    return folder if is_private else None
