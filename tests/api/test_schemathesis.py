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
from tests.thoroughness import examples

pytestmark = [pytest.mark.slow, pytest.mark.database, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
SEED = int(os.environ.get("API_SEED", "20261116"))
EXAMPLES = examples(5)  # an operation


def test_every_answer_is_as_the_description_says(installation: Installation, tmp_path: Path) -> None:
    said = _try_everything(installation, tmp_path)
    print(f"API_SEED={SEED} repeats this run")  # noqa: T201 (pytest shows it with a failure)
    # What follows the failures is advice about links between operations.
    failures = said.stdout.partition("FAILURES ===")[2].partition("WARNINGS ===")[0] or said.stdout
    assert said.returncode == 0, f"{failures}\n{installation.product.output[-5_000:]}"


def _try_everything(installation: Installation, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml")),
        *("run", f"{installation.api}/schema/?format=json", "--no-color"),
        *("--seed", str(SEED), "--max-examples", str(EXAMPLES)),
    ]
    if "DATABASE_URL" in os.environ:
        command += ["--phases", "fuzzing"]  # the second time, on PostgreSQL: what its columns do not take
    environment = {**os.environ, "GROVE_TOKEN": installation.token}
    return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)
