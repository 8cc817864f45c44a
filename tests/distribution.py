"""How pytest-xdist distributes the tests over processes: in units.

The tests of one file that need the same server run in one process, one after the other, since they share what is
expensive: a running product, a browser, a sandbox. The longest units begin first. `durations.json` has the seconds that
each unit took once; outdated seconds only cost some waiting. `make test-times` writes the file anew.
"""

import json
import re
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

DURATIONS: Final = Path(__file__).parent / "durations.json"
_COMMANDS_IN_A_BROWSER: Final = ("commands", "pod_deletion", "refused_commands", "strategy", "stuck")
# Files that are one unit, by what their path begins with.
TOGETHER: Final = (
    # They share a running product and a browser.
    *((f"tests/browser/test_{name}.py", "tests/browser: commands") for name in _COMMANDS_IN_A_BROWSER),
    ("tests/browser/", "tests/browser: pages"),
    # They share an API server, and some of the tests compact its history.
    ("tests/contract/", "tests/contract"),
    # They bind roles to the same user of the shared cluster.
    ("tests/services/test_role.py", "roles"),
    ("tests/controller/test_role.py", "roles"),
    ("tests/services/test_events.py", "roles"),
)
# Files in which each function is a unit: its tests run side by side in one process.
_BY_FUNCTION: Final = ("tests/scenarios/test_scenarios.py",)
_SERVER: Final = re.compile(r"[\[-](kube-apiserver|sandbox)[\]-]")
_UNKNOWN_SECONDS: Final = 5.0


def unit_of(test: str) -> str:
    """Return the name of the unit of a test: mostly its file, with the server that it runs on."""
    path, _, name = test.partition("::")
    if path in _BY_FUNCTION:
        return f"{path}::{name.partition('[')[0]}"
    unit = next((together for beginning, together in TOGETHER if path.startswith(beginning)), path)
    server = _SERVER.search(name)
    return f"{unit}@{server[1]}" if server else unit


def sort_longest_first(items: list[pytest.Item]) -> None:
    """Sort the tests by unit, the longest units first."""
    seconds: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    units = {item: unit_of(item.nodeid) for item in items}
    items.sort(key=lambda item: (-seconds.get(units[item], _UNKNOWN_SECONDS), units[item]))


class UnitScheduling(LoadScopeScheduling):
    """Gives each process one unit after the other."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
