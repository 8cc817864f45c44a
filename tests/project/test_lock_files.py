"""Every package that is installed is pinned by its hash (docs/adr/0028)."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK_FILES = sorted(ROOT.glob("requirements*.txt"))
PIN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[\w,-]+\])?==(?P<version>\S+)")
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


# What could install packages of Python: what a machine runs, by what the paths look like.
SCRIPTS = ("Makefile", "*.mk", "*.sh", ".ci/*", ".github/**/*", "**/*Dockerfile*", "**/*Containerfile*")
INSTALL = re.compile(
    r"\b(?:pip[0-9.]*|pipx|uv|easy_install|poetry|conda|pdm)\b(?!\S*/)[^|&;#]*?\b(?:install|sync|add|run|inject)\b.*"
)


def installs(text: str) -> list[str]:
    """Return the commands of a script that install packages; lines that go on are one."""
    lines = text.replace("\\\n", " ").splitlines()
    return [found[0] for line in lines if not line.lstrip().startswith("#") and (found := INSTALL.search(line))]


def unhashed(text: str) -> list[str]:
    """Return those that do not demand a hash for each package."""
    return [command for command in installs(text) if "--require-hashes -r requirements" not in command]


def test_no_script_installs_anything_without_hashes() -> None:
    paths = {path for pattern in SCRIPTS for path in ROOT.glob(pattern) if path.is_file() and ".venv" not in path.parts}
    assert {ROOT / "Makefile", ROOT / ".ci" / "run"} <= paths
    assert len(installs((ROOT / "Makefile").read_text())) == 4
    assert {str(path): found for path in paths if (found := unhashed(path.read_text(errors="replace")))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "pip install uvicorn",
        "RUN python3 -m pip install --no-cache-dir \\\n  -r requirements.txt",
        ".venv/bin/pip3 install -r requirements.txt",
        "uv pip install -r requirements.txt",
        "uv sync --frozen",
        "pipx run cyclonedx-py",
    ],
)
def test_an_installation_without_hashes_is_found(line: str) -> None:
    harmless = "# pip install x\napt-get install -y python3-pip\nuv pip compile -q a.in -o a.txt\npip check\n"
    good = "pip install --quiet --require-hashes -r requirements.txt\n"
    assert len(unhashed(f"{harmless}{good}{line}\n")) == 1
