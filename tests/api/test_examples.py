"""The examples of docs/api.md, run in their order against what `make run` starts; their answers must be as shown."""

import os
import shutil

import pytest

from tests.api.conftest import Installation
from tests.api.documented import Example, Ran, find_difference, read_examples, run_examples
from tests.parts import missing

pytestmark = pytest.mark.slow

EXAMPLES = read_examples()


@pytest.fixture(scope="module")
def ran(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Ran]:
    """Run all examples once."""
    if shutil.which("curl") is None:
        missing("curl", "install it (Debian: apt-get install curl)")
    theirs = {"GROVE_URL": installation.product.url, "GROVE_TOKEN": installation.token}
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **theirs}
    return run_examples(EXAMPLES, tmp_path_factory.mktemp("examples"), environment)


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.title for example in EXAMPLES])
def test_an_example_answers_as_the_document_shows(
    example: Example, ran: dict[int, Ran], installation: Installation
) -> None:
    result = ran.get(example.number)
    assert result is not None, "not run, since one before it failed"
    assert result.finished, f"{example.script}\n--- failed with\n{result.output}\n{result.errors}"
    difference = find_difference(example, result.output) if example.shown else None
    assert difference is None, f"{example.script}\n--- {difference}; it says\n{result.output}"


def test_the_document_shows_what_it_promises() -> None:
    scripts = "\n".join(example.script for example in EXAMPLES)
    commands = ("apply/", "images/", "strategy/", "pods/delete/", "rollback/", "simulation/", "overrides/")
    for part in (*commands, "feed/", "events/", "surge/delete/", "pods/let-go/"):
        assert part in scripts
