"""The page of rules, `docs/semantics.md`, agrees with the code: its tables, its numbers, its sections."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from rollouts.engine.model.actions import Kind
from rollouts.engine.model.budget import parse_budget, resolve_budget
from rollouts.engine.model.workload import BudgetSpec, IntOrPercent, Strategy
from rollouts.engine.plan.wait_codes import WaitCode
from rollouts.engine.rollout.levels import LevelKind, list_levels
from tests.engine.simulated import Cluster, clique, group, settled, workload
from tests.engine.test_sequences import (
    a_pods,
    g_replicas,
    on_delete,
    replica_recreate,
    rolling_update_of_group,
    set_replicas,
    surge_of_one_pod,
)

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "semantics.md").read_text()
SECTIONS: Final = {int(number): text for number, text in re.findall(r"^## (\d+) (.*?)(?=^## |\Z)", PAGE, re.M | re.S)}


def rows(section: int) -> list[list[str]]:
    """Return the cells of the first table of a section, without its head."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def written(cell: str) -> IntOrPercent | None:
    return None if cell == "left out" else parse_budget(cell)


@pytest.mark.parametrize("row", rows(3), ids=" ".join)
def test_the_table_of_budgets_holds(row: list[str]) -> None:
    replicas, unavailable, surge, *resolved = row
    budget = resolve_budget(BudgetSpec(written(unavailable), written(surge)), int(replicas.split()[0]))
    assert [budget.max_unavailable, budget.max_surge] == [int(number.strip("*")) for number in resolved]


@pytest.mark.parametrize("row", rows(5), ids=lambda row: row[0])
def test_the_table_of_strategies_says_which_budgets_are_used(row: list[str]) -> None:
    strategy, _, of_set, of_components = row
    parts = (clique("a", 3), clique("l", 1), group("g", ("l",), 2))
    levels = list_levels(workload(*parts, strategy=Strategy(strategy)))
    for level in levels:
        cell = of_set if level.kind is LevelKind.SET else of_components
        assert level.is_used == (cell == "used")
        assert (level.budget is not None) == (cell in {"used", "not used: 1 / 0"})


def sequence(number: int) -> list[str]:
    """Return the states of a row of the acceptance sequences; `…` stands for states that are left out."""
    cell = rows(14)[number][2].partition(";")[0]
    return [state.strip().strip("`").replace("nothing", "") for state in cell.split("→")]


def superseded() -> Cluster:
    """Return pods whose update is interrupted by a third template."""
    cluster = surge_of_one_pod().run_until(lambda cluster: a_pods(cluster.view) == "0? 1* 2* 3s")
    return cluster.update("app:v3")


def one_deleted_by_hand() -> list[str]:
    """Return the states of three pods under OnDelete, of which pod 1 is deleted."""
    cluster = on_delete()
    before = cluster.states(a_pods)
    delete_pod(cluster, 1)
    return [*before, *cluster.states(a_pods)]


def scaled_in() -> Cluster:
    """Return the same pods when one of them is to go."""
    cluster = on_delete().settle()
    delete_pod(cluster, 1)
    cluster.settle().world.scale(Kind.CLIQUE, "w-0-a", 2)
    return cluster


def switched() -> Cluster:
    """Return the two pods that are left when the strategy becomes an automatic one."""
    return scaled_in().settle().edit(strategy=Strategy.ROLLING_RECREATE)


def switched_back() -> Cluster:
    """Return the two updated pods when the strategy becomes OnDelete again, with a third template."""
    return switched().settle().edit(strategy=Strategy.ON_DELETE).update("app:v3")


def delete_pod(cluster: Cluster, index: int) -> None:
    cluster.world.delete(Kind.POD, cluster.live_pods()[index].name)


def one_replica_after_the_other() -> Cluster:
    parts = (clique("a", 2, 1), clique("l", 1), group("g", ("l",), 2))
    return settled(workload(*parts, replicas=3)).update()


@pytest.mark.parametrize(
    ("number", "states"),
    [
        (0, lambda: surge_of_one_pod().states(a_pods)),
        (0, lambda: rolling_update_of_group(3, 3, (0, 1)).states(g_replicas)),
        (0, lambda: rolling_update_of_group(3, 2, (0, 1)).states(g_replicas)),
        (0, lambda: replica_recreate(3, (0, 1)).states(set_replicas)),
        (1, lambda: settled(workload(clique("a", 3))).update().states(a_pods)),
        (3, lambda: rolling_update_of_group(4, 1, (2, 0)).states(g_replicas)),
        (4, lambda: one_replica_after_the_other().states(set_replicas)),
        (5, lambda: replica_recreate(2, (0, 1)).states(set_replicas)),
        (6, lambda: replica_recreate(2, (2, 0)).states(set_replicas)),
        (7, lambda: replica_recreate(2, (1, 0)).states(set_replicas)),
        (8, lambda: replica_recreate(5, (2, 1)).states(set_replicas)),
        (9, lambda: superseded().states(a_pods)),
        (10, one_deleted_by_hand),
        (11, lambda: scaled_in().states(a_pods)),
        (12, lambda: switched().states(a_pods)),
        (13, lambda: switched_back().states(a_pods)),
    ],
)
def test_the_acceptance_sequences_hold(number: int, states: Callable[[], list[str]]) -> None:
    expected, found = sequence(number), states()
    if "…" in expected:
        gap = expected.index("…")
        found = [*found[:gap], "…", *found[len(found) - (len(expected) - gap - 1) :]]
    assert found == expected


def test_the_table_of_waits_has_every_code() -> None:
    codes = {code.strip() for cell, _ in rows(12) for code in cell.split(",")}
    assert codes == {str(code) for code in WaitCode}


def test_every_citation_of_a_section_has_its_section() -> None:
    assert list(SECTIONS) == list(range(1, 16))
    sources = [*(ROOT / "rollouts").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    cited = {int(number) for path in sources for number in re.findall(r"semantics\.md` (\d+)", path.read_text())}
    assert cited
    assert cited <= SECTIONS.keys()
