"""The import contracts hold, and each of them fails when a violation is planted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINTER = Path(sys.executable).with_name("lint-imports")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the code and its contracts to plant violations in."""
    for name in ("rollouts", "grove_ui", "tests/architecture"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests" / "__init__.py").touch()
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(LINTER), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _plant(folder: Path, module: str, line: str) -> None:
    path = folder / module
    path.write_text(f"{path.read_text() if path.exists() else ''}\n{line}\n")


def test_the_contracts_hold(copy: Path) -> None:
    result = _lint(copy)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("rollouts/engine/planted.py", "import yaml", "The engine imports only the standard library"),
        ("rollouts/engine/planted.py", "import rollouts.cluster", "A lower layer does not import a higher one"),
        (
            "rollouts/engine/tree/planted.py",
            "import rollouts.engine.plan.desired",
            "A lower layer of the engine does not import a higher one",
        ),
        ("rollouts/sandbox/planted.py", "import kubernetes", "Only rollouts.cluster talks to the Kubernetes API"),
        ("rollouts/web/planted.py", "import kubernetes.client", "Only rollouts.cluster talks to the Kubernetes API"),
        ("rollouts/sandbox/planted.py", "import django.conf", "do not import Django"),
        ("rollouts/cluster/planted.py", "import celery", "do not import Django"),
        ("rollouts/sandbox/planted.py", "import rollouts.cluster", "The sandbox shares only the engine"),
        (
            "rollouts/sandbox/apiserver/storage.py",
            "import rollouts.sandbox.cluster.node_info",
            "does not know the controllers behind it",
        ),
        ("rollouts/models/planted.py", "import rollouts.services", "A lower layer does not import a higher one"),
        (
            "rollouts/services/tokens.py",
            "import rollouts.web.page_layout",
            "A lower layer does not import a higher one",
        ),
        ("rollouts/planted.py", "", "A lower layer does not import a higher one"),
        ("rollouts/selectors/overview.py", "import grove_ui.settings", "does not import its settings"),
    ],
)
def test_a_planted_violation_breaks_its_contract(copy: Path, module: str, line: str, contract: str) -> None:
    _plant(copy, module, line)
    result = _lint(copy)
    broken = [row for row in result.stdout.splitlines() if "BROKEN" in row]
    assert result.returncode != 0
    assert any(contract in row for row in broken), result.stdout
