"""Requests made up from the API's own description, sent to the running product: every answer is as described.

An admin, an operator with a grant and a viewer send them, so that refusals are tried as well as what is allowed.

No 5xx, no status, content type, header or body that the description does not have; what breaks the description is
refused, what it allows is not. `EXAMPLES_TIMES=10` tries ten times as many; the seed is printed and can be set again
with `API_SEED`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests import data_folders
from tests.api.conftest import Installation
from tests.project.running import ROOT
from tests.thoroughness import examples

pytestmark = [pytest.mark.slow, pytest.mark.database, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
SEED = int(os.environ.get("API_SEED", "20261116"))
# How many examples an operation, and in which phases. The others go through the same code, but for their refusals.
ALL_PHASES = "examples,coverage,fuzzing"
BY_ROLE = {
    "admin": (examples(5), ALL_PHASES),
    "operator": (examples(2), "fuzzing"),
    "viewer": (examples(2), "fuzzing"),
}

MAKE_PEOPLE = """
from django.contrib.auth.models import Group
from rollouts.models import ApiToken, NamespaceGrant, User
from rollouts.accounts.tokens import digest_of
for role in ("operator", "viewer"):
    user, _ = User.objects.get_or_create(username=role)
    user.groups.set([Group.objects.get(name=role)])
    ApiToken.objects.get_or_create(user=user, name=role, digest=digest_of(f"grove_{role}-for-the-tests-0123456789"))
NamespaceGrant.objects.get_or_create(user=User.objects.get(username="operator"), cluster="sandbox", namespace="default")
"""


@pytest.fixture(scope="module")
def tokens(installation: Installation) -> dict[str, str]:
    """A token of an account of each role; that of the admin belongs to the first account."""
    folder = installation.product.data_dir
    environment = {**os.environ, **data_folders.database_of(folder), "DATA_DIR": str(folder)}
    subprocess.run([sys.executable, "manage.py", "shell", "-c", MAKE_PEOPLE], cwd=ROOT, env=environment, check=True)
    others = {role: f"grove_{role}-for-the-tests-0123456789" for role in ("operator", "viewer")}
    return {"admin": installation.token, **others}


@pytest.mark.parametrize("role", BY_ROLE)
def test_every_answer_is_as_the_description_says(
    role: str, tokens: dict[str, str], installation: Installation, tmp_path: Path
) -> None:
    answer = requests.get(f"{installation.api}/me/", headers={"Authorization": f"Bearer {tokens[role]}"}, timeout=20)
    assert answer.json()["username"] == role, "the requests would be refused for another reason"
    said = _try_everything(installation, tmp_path, tokens[role], *BY_ROLE[role])
    print(f"API_SEED={SEED} repeats this run")  # noqa: T201 (pytest shows it with a failure)
    # What follows the failures is advice about links between operations.
    failures = said.stdout.partition("FAILURES ===")[2].partition("WARNINGS ===")[0] or said.stdout
    assert said.returncode == 0, f"{failures}\n{installation.product.output[-5_000:]}"


def _try_everything(
    installation: Installation, folder: Path, token: str, most: int, phases: str
) -> "subprocess.CompletedProcess[str]":
    if "DATABASE_URL" in os.environ:
        phases = "fuzzing"  # the second time, on PostgreSQL: what its columns do not take
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml")),
        *("run", f"{installation.api}/schema/?format=json", "--no-color"),
        *("--seed", str(SEED), "--max-examples", str(most), "--phases", phases),
    ]
    environment = {**os.environ, "GROVE_TOKEN": token}
    return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)
