"""CSS, JavaScript and templates agree: no tool of ours lints CSS, and such mistakes show nowhere else."""

import re
from pathlib import Path

from tests.project.running import ROOT

STATIC = ROOT / "static"
# Classes of the admin theme and of Swagger UI, which their own templates use.
FOREIGN = {"bg-primary-600", "inline-group", "lg", "tabular"}


def read(*folders: str, kinds: tuple[str, ...]) -> str:
    """Return all files of some kinds as one text."""
    paths = (path for folder in folders for path in Path(ROOT, folder).rglob("*") if path.suffix in kinds)
    return "\n".join(path.read_text() for path in paths)


def stylesheets() -> str:
    """Return our stylesheets without comments; that of the API page names the classes of Swagger UI."""
    text = "\n".join(path.read_text() for path in STATIC.glob("*.css") if path.name != "api-docs.css")
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def test_each_class_of_the_stylesheets_is_used() -> None:
    selectors = " ".join(re.findall(r"([^{}]+){", stylesheets()))
    used = read("templates", "rollouts", kinds=(".html", ".py")) + read("static", kinds=(".js",))
    names = {*re.findall(r"\.([A-Za-z][\w-]*)", selectors)} - FOREIGN
    assert len(names) > 100
    assert [name for name in sorted(names) if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", used)] == []


def test_each_variable_of_the_stylesheets_is_defined() -> None:
    defined = {*re.findall(r"(--[\w-]+)\s*:", stylesheets())}
    assert {*re.findall(r"var\((--[\w-]+)", stylesheets())} <= defined


def test_each_static_file_that_a_template_names_exists() -> None:
    named = {*re.findall(r"{% static '([^']+)' %}", read("templates", kinds=(".html",)))}
    ours = {name for name in named if "/" not in name}
    assert ours
    assert {*ours} <= {path.name for path in STATIC.iterdir()}
