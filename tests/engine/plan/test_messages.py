"""Each template of a sentence is used, and each use of it fills just its fields."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from rollouts.engine.plan import messages
from rollouts.engine.plan.messages import Subject, count, name_all, render_list

PLAN = Path(messages.__file__).parent
TEMPLATES = {name: text for name, text in vars(messages).items() if name.isupper() and isinstance(text, str)}
TABLES = ("CONTAINER_FAULTS",)


def fields_of(template: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(template) if field}


def filled_templates() -> Iterator[tuple[str, set[str]]]:
    """Yield each `messages.NAME.format(...)`, be it of a table, with the fields that it fills."""
    for path in PLAN.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
                keywords = {str(keyword.arg) for keyword in node.keywords}
                template = node.func.value.value if isinstance(node.func.value, ast.Subscript) else node.func.value
                for name in ast.walk(template):
                    if isinstance(name, ast.Attribute):
                        yield name.attr, keywords


def test_each_use_of_a_template_fills_just_its_fields() -> None:
    uses = list(filled_templates())
    assert len(uses) > len(TEMPLATES) // 2
    for name, keywords in uses:
        texts = list(vars(messages)[name].values()) if name in TABLES else [TEMPLATES[name]]
        assert all(fields_of(text) == keywords for text in texts), name


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_template_is_used(name: str) -> None:
    sources = [path.read_text() for path in PLAN.glob("*.py") if path.name != "messages.py"]
    assert any(f"messages.{name}" in source for source in sources)


def test_a_verb_fits_its_subject() -> None:
    template = "{pods} {pods:is|are} late"
    assert template.format(pods=name_all(("a",))) == "a is late"
    assert template.format(pods=name_all(("a", "b"), "Surge ")) == "Surge a and b are late"
    assert template.format(pods=count(1, "pod")) == "1 pod is late"
    assert template.format(pods=count(0, "pod")) == "0 pods are late"
    assert template.format(pods=Subject("1", is_one=True)) == template.format(pods=count(1))


def test_of_many_names_only_the_first_few_are_listed() -> None:
    assert render_list(["a", "b", "c", "d"]) == "a, b, c and d"
    assert render_list(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
