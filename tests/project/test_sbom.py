"""`make sbom` writes the bill of materials of the product: every pinned package, with its hashes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.parts import missing
from tests.project.test_lock_files import LOCK_FILES, PIN, ROOT, requirements

pytestmark = pytest.mark.slow  # installs the tool anew

# What pip says where it reaches no package index.
NO_INDEX: Final = ("No matching distribution found", "Could not find a version")


@pytest.fixture
def bill(tmp_path: Path) -> Any:
    """What `make sbom` writes, run on a copy: it must not disturb what is beside the sources."""
    for path in (ROOT / "Makefile", ROOT / "pyproject.toml", *LOCK_FILES):
        shutil.copy(path, tmp_path)
    # Not those of a `make test` around it.
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--silent", "sbom", f"PYTHON={sys.executable}"]
    made = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    if any(words in made.stderr for words in NO_INDEX):
        missing("a package index", "connect to one, or name one to pip")
    assert made.returncode == 0, made.stderr
    assert not (tmp_path / ".venv-sbom").exists()
    return json.loads((tmp_path / "sbom.json").read_text())


def test_the_bill_of_materials_has_every_package_of_the_product(bill: Any) -> None:
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "grove-ui")
    pins = [PIN.match(lines[0]) for lines in requirements(ROOT / "requirements.txt")]
    wanted = sorted(f"pkg:pypi/{pin['name'].lower()}@{pin['version']}" for pin in pins if pin)
    assert len(wanted) > 50
    assert sorted(one["purl"] for one in bill["components"]) == wanted
    assert [one["name"] for one in bill["components"] if not one["externalReferences"][0]["hashes"]] == []
