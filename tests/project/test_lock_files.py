"""Every package that is installed is pinned by its hash (docs/adr/0028)."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK_FILES = sorted(ROOT.glob("requirements*.txt"))
PIN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[\w,-]+\])?==\S+")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


def requirements(path: Path) -> Iterator[list[str]]:
    """Yield the lines of each requirement: its pin, and the indented lines below."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    starts = [number for number, line in enumerate(lines) if line and not line.startswith(" ")]
    assert starts[:1] == [0], f"{path.name} begins with something else than a requirement"
    for start, end in pairwise([*starts, len(lines)]):
        yield lines[start:end]


def faults(path: Path) -> list[str]:
    """Return the requirements that pip could install from a file without a known hash."""
    return [
        lines[0]
        for lines in requirements(path)
        if not PIN.match(lines[0]) or len(lines) < 2 or not all(map(HASH.fullmatch, lines[1:]))
    ]


def test_the_lock_files_are_those_of_the_makefile() -> None:
    assert [path.stem for path in LOCK_FILES] == [path.stem for path in sorted(ROOT.glob("requirements*.in"))]
    assert len(LOCK_FILES) == 4


@pytest.mark.parametrize("path", LOCK_FILES, ids=lambda path: path.name)
def test_every_pin_has_a_hash(path: Path) -> None:
    assert list(requirements(path))
    assert faults(path) == []


@pytest.mark.parametrize(
    "line", ["one==1.0", "one>=1.0 \\\n    --hash=sha256:" + "a" * 64, "one==1.0 \\\n    --hash=md5:abc"]
)
def test_a_pin_without_a_hash_is_found(line: str, tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(
        f"# A comment\ntwo==2 ; python_version < '4' \\\n    --hash=sha256:{'b' * 64}\n    # via one\n{line}\n"
    )
    assert faults(path) == [line.partition("\n")[0]]


def test_the_makefile_installs_nothing_without_hashes() -> None:
    installs = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pip install" in line]
    assert installs
    assert [line for line in installs if "--require-hashes -r requirements" not in line] == []
