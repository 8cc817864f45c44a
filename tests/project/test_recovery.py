"""A product whose database is deleted under it: it makes a new one, fills the mirror, and says what is lost."""

import http.client
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.project.running import SECONDS_TO_START, Product, product, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOKEN = "grove_the-token-of-the-settings-0123456789"


def _get(running: Product, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("localhost", running.port, timeout=60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body.startswith(b"{") else body
    except OSError:
        return 0, None
    finally:
        connection.close()


def _workloads(running: Product) -> list[tuple[str, str, int]]:
    """Return name, state and available replicas of every workload; nothing while they cannot be read."""
    status, body = _get(running, "/api/v1/workloads/?page_size=500")
    if status != 200:
        return []
    return sorted((one["name"], one["state"], one["available_replicas"]) for one in body["results"])


def _is_settled(running: Product) -> bool:
    found = _workloads(running)
    return len(found) > 1 and all(state == "settled" for _, state, _ in found)


def _delete_the_database(running: Product) -> None:
    """Delete it, and wait until the product says that it has made a new one."""
    told = running.output.count("is recreated: ")
    for path in running.data_dir.glob("grove.sqlite3*"):
        path.unlink()
    wait_until(lambda: running.output.count("is recreated: ") > told, SECONDS_TO_START, lambda: running.output)


def test_a_deleted_database_is_made_anew_and_the_mirror_is_complete_again_without_a_restart(tmp_path: Path) -> None:
    with product(tmp_path, DATABASE_URL="", GROVE_ADMIN_TOKEN=TOKEN) as running:
        running.wait_until_it_answers()
        wait_until(lambda: _is_settled(running), SECONDS_TO_START, lambda: running.output)
        before = _workloads(running)
        programs = running.processes().keys()
        first_password = running.password
        for _ in range(2):  # and once more, when all of it is new
            _delete_the_database(running)
            wait_until(lambda: _workloads(running) == before, SECONDS_TO_START, lambda: running.output)
            wait_until(lambda: _get(running, "/readyz")[0] == 200, SECONDS_TO_START, lambda: running.output)
        assert programs <= running.processes().keys(), running.output  # no program was started again
        passwords = re.findall(r"whose password is now (\S+)", running.output)
        assert len({first_password, *passwords}) == 3
        assert "history, overrides, accounts, tokens and audit are lost" in running.output
