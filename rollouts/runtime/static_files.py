"""Collects the static files when the product starts, unless the last start has left nothing to do.

To collect and compress them takes two seconds of a start that takes eight. What was collected stays right as long as
the files that it was made of are the same, so a fingerprint of these is kept in the data folder. It is written last: a
start that was killed half-way collects again.
"""

import hashlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command

_MANIFEST: Final = "staticfiles.json"
# Whose other version might make other files of the same sources.
_PACKAGES: Final = ("django", "servestatic")


def collect_static_files() -> bool:
    """Collect the static files if they are missing or outdated; say whether they were."""
    stamp = Path(settings.DATA_DIR) / "static.sha256"
    fingerprint = _compute_fingerprint()
    if (Path(settings.STATIC_ROOT) / _MANIFEST).exists() and _read_text(stamp) == fingerprint:
        return False
    call_command("collectstatic", verbosity=0, interactive=False)
    stamp.write_text(fingerprint)
    return True


def _compute_fingerprint() -> str:
    """Return a digest that is another one as soon as a source file or the way to collect it is."""
    return hashlib.sha256("\n".join(sorted(_describe_sources())).encode()).hexdigest()


def _describe_sources() -> Iterator[str]:
    yield str(settings.STORAGES)
    for package in _PACKAGES:
        yield f"{package} {version(package)}"
    for finder in get_finders():
        for name, storage in finder.list([]):
            stat = Path(storage.path(name)).stat()
            yield f"{name} {stat.st_size} {stat.st_mtime_ns}"


def _read_text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
