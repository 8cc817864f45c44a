"""Requests made up from the API's own description, sent to the running product: every answer is as described.

No 5xx, no status, content type, header or body that the description does not have; what breaks the description is
refused, what it allows is not. `EXAMPLES_TIMES=10` tries ten times as many; the seed is printed and can be set again
with `API_SEED`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.conftest import Installation

pytestmark = [pytest.mark.slow, pytest.mark.database, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
SEED = int(os.environ.get("API_SEED", "20261116"))
EXAMPLES = 10 * int(os.environ.get("EXAMPLES_TIMES", "1"))  # an operation


def test_every_answer_is_as_the_description_says(installation: Installation, tmp_path: Path) -> None:
    said = _try_everything(installation, tmp_path)
    print(f"API_SEED={SEED} repeats this run")  # noqa: T201 (pytest shows it with a failure)
    assert said.returncode == 0, said.stdout[-30_000:]


def _try_everything(installation: Installation, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml")),
        *("run", f"{installation.api}/schema/?format=json", "--no-color"),
        *("--seed", str(SEED), "--max-examples", str(EXAMPLES)),
    ]
    environment = {**os.environ, "GROVE_TOKEN": installation.token}
    return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)
