"""What README.md and docs/ name exists: links, modules, packages, anchors. The examples in docstrings are true."""

import doctest
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
MODULES_WITH_EXAMPLES: Final = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "rollouts").rglob("*.py")
    if "\n    >>> " in path.read_text()
)

# Folders of the repository, and packages of `rollouts`, by which a path begins.
_FOLDERS: Final = {"rollouts", "tests", "docs", "deploy", "templates", "static", "grove_ui", ".ci"}
_PACKAGES: Final = {
    folder.name for folder in (ROOT / "rollouts").iterdir() if folder.is_dir() and (folder / "__init__.py").exists()
}
# They begin like a path and are keys of the change feed.
_NOT_PATHS: Final = {"cluster/namespace/name", "cluster/node"}
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_CODE: Final = re.compile(r"`([^`\n]+)`")
_PATH: Final = re.compile(r"[\w.*-]+(?:/[\w.*-]+)+/?|rollouts(?:\.\w+)+")
_MODULE_ROW: Final = re.compile(r"^\| `([\w/]+)` \|[^|]+\|([^|]*)\|$", re.MULTILINE)


def test_pages_link_only_what_exists() -> None:
    assert {page.name: list(_broken_links(page)) for page in PAGES if list(_broken_links(page))} == {}


def test_pages_name_only_modules_and_files_that_exist() -> None:
    missing = {page.name: [path for path in _paths(page.read_text()) if not _exists(path)] for page in PAGES}
    assert {name: paths for name, paths in missing.items() if paths} == {}


def test_the_table_of_folders_has_every_package_and_only_modules_that_exist() -> None:
    rows = {folder: _CODE.findall(modules) for folder, modules in _MODULE_ROW.findall(_architecture())}
    packages = {
        str(init.parent.relative_to(ROOT / "rollouts"))
        for init in (ROOT / "rollouts").rglob("__init__.py")
        if init.parent != ROOT / "rollouts"
    }
    assert packages - rows.keys() - {"engine", "management"} == set()
    named = {f"rollouts/{folder}/{module}" for folder, modules in rows.items() for module in modules}
    assert {path for path in named if not _exists(path)} == set()


def test_the_glossary_has_at_most_thirty_words_each_with_a_reason() -> None:
    glossary = _architecture().partition("## Words")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in glossary.splitlines() if line.startswith("| ")][1:]
    # A word that is defined inside a row is emphasized there; it counts too.
    defined_inside = re.findall(r"(?<![*\w])\*\w[^*|]*\*(?!\*)", glossary)
    assert 0 < len(rows) + len(defined_inside) <= 30
    assert [row for row in rows if len(row) != 3 or not all(cell.strip() for cell in row)] == []


@pytest.mark.parametrize("text", ["`rollouts/queue/nothing.py`", "`rollouts.queue.nothing.there`", "`queue/nothing`"])
def test_a_path_that_does_not_exist_is_found(text: str) -> None:
    assert [path for path in _paths(f"See {text} and `queue/workqueue`.") if not _exists(path)] == [text.strip("`")]


@pytest.mark.parametrize("text", ["[page](nothing.md)", "[page](api.md#nothing-there)", '<img src="images/no.webp">'])
def test_a_broken_link_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "api.md").write_text("# A page\n\n## A token\n")
    page = tmp_path / "page.md"
    page.write_text(f"[good](api.md#a-token) {text}\n")
    assert len(list(_broken_links(page))) == 1


@pytest.mark.parametrize("module", MODULES_WITH_EXAMPLES)
def test_the_examples_in_docstrings_are_true(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert (result.attempted > 0, result.failed) == (True, 0)


def _architecture() -> str:
    return (ROOT / "docs" / "architecture.md").read_text()


def _broken_links(page: Path) -> Iterator[str]:
    for markdown, html in _LINK.findall(page.read_text()):
        link = markdown or html
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            yield link


def _anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _paths(text: str) -> Iterator[str]:
    """Yield the words between backticks that begin with a folder of the repository or a package of `rollouts`."""
    for code in _CODE.findall(text):
        for path in _PATH.findall(code):
            first = re.split(r"[./]", path.removeprefix("."))[0]
            begins = first in _FOLDERS or f".{first}" in _FOLDERS or first in _PACKAGES
            if begins and path not in _NOT_PATHS and (path == code or first in _FOLDERS):
                yield path


def _exists(path: str) -> bool:
    """Say whether a path names a file, a folder, a module, or a name in a module."""
    if "*" in path:
        return any(ROOT.glob(path))
    parts = path.rstrip("/") if "/" in path else path.replace(".", "/")
    for root in (ROOT, ROOT / "rollouts", ROOT / "tests"):
        if (root / parts).exists() or (root / f"{parts}.py").exists():
            return True
    module, _, symbol = parts.rpartition("/")
    files = [ROOT / f"{module}.py", ROOT / module / "__init__.py"]
    return "/" not in path and any(re.search(rf"\b{symbol}\b", file.read_text()) for file in files if file.exists())
