"""`make test-times`: where the time of a test run goes, by folder, test and fixture.

A pytest plugin, off unless a run names it (`-p tests.times`). It measures the three phases of each test and each slow
fixture, twice: by the clock, and by the processor time of the test process. The difference is waiting: for servers
that start, for a browser, for other processes. With pytest-xdist the processes measure and the main process prints.

It also counts the assertions that run, so that a faster suite can be compared with the one before. pytest rewrites
each `assert` of a test module; the plugin appends a call to what pytest writes. A module that pytest has rewritten and
cached before has no such call, so `make test-times` uses a cache folder of its own.
"""

import ast
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.assertion import rewrite

from tests.distribution import unit_of

DURATIONS_VARIABLE: Final = "GROVE_TEST_DURATIONS"  # names the file that tests/distribution.py reads
SHORTEST_UNIT: Final = 1.0  # seconds; a unit that takes less can begin at any time
SLOWEST: Final = 25
SHORTEST_FIXTURE: Final = 0.05  # seconds; what takes less is not worth a line
_PROPERTY: Final = "grove_times"  # where a report carries its measurements from a worker to the main process
_CLOCK_TICKS: Final = 100  # of /proc/stat, a second


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of one test."""

    test: str
    when: str
    seconds: float
    processor: float
    assertions: int
    fixtures: tuple[tuple[str, float], ...]

    @property
    def folder(self) -> str:
        """The folder of the test below tests/."""
        return self.test.split("/")[1]


class Recorder:
    """Measures the phases of the tests in this process."""

    def __init__(self) -> None:
        self._assertions = 0
        self._fixtures: list[tuple[str, float]] = []

    def count_assertion(self) -> None:
        """Count one assertion that held."""
        self._assertions += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Measure one fixture; those that it asks for are set up before and measured on their own."""
        started = time.monotonic()
        try:
            return (yield)
        finally:
            seconds = time.monotonic() - started
            if seconds >= SHORTEST_FIXTURE:
                self._fixtures.append((f"{fixturedef.argname} ({fixturedef.scope})", seconds))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measure the set-up."""
        return (yield from self._measure(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measure the test itself."""
        return (yield from self._measure(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measure the tear-down."""
        return (yield from self._measure(item, "teardown"))

    def _measure(self, item: pytest.Item, when: str) -> Generator[None, Any, Any]:
        started, processor, assertions = time.monotonic(), time.process_time(), self._assertions
        self._fixtures.clear()
        try:
            return (yield)
        finally:
            measured = (
                time.monotonic() - started,
                time.process_time() - processor,
                self._assertions - assertions,
                tuple(self._fixtures),
            )
            item.user_properties[:] = [(_PROPERTY, (when, *measured))]


class Collector:
    """Gathers what the processes measured, and prints it when the run ends."""

    def __init__(self) -> None:
        self._phases: list[Phase] = []
        self._started = time.monotonic()
        self._busy = _busy_seconds()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the measurements of one phase."""
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, (list, tuple)) and value[0] == report.when:
                when, seconds, processor, assertions, fixtures = value
                slow = tuple((str(fixture), float(took)) for fixture, took in fixtures)
                self._phases.append(Phase(report.nodeid, when, seconds, processor, assertions, slow))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the tables."""
        wall = time.monotonic() - self._started
        busy = (_busy_seconds() - self._busy) / wall
        terminalreporter.section("times")
        for line in render(self._phases):
            terminalreporter.write_line(line)
        if durations := os.environ.get(DURATIONS_VARIABLE):
            Path(durations).write_text(render_durations(self._phases))
        tests = len({phase.test for phase in self._phases})
        assertions = sum(phase.assertions for phase in self._phases)
        terminalreporter.write_line(
            f"{tests} tests, {assertions} assertions, {wall:.0f} s by the clock, {busy:.2f} processors busy on average"
        )


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each process that runs tests, and gather in the main one."""
    recorder = Recorder()
    config.pluginmanager.register(recorder, "grove-times-recorder")
    _count_assertions(recorder.count_assertion)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Collector(), "grove-times-collector")


def render(phases: Iterable[Phase]) -> Iterable[str]:
    """Return the tables: by folder, the slowest phases, the slowest fixtures."""
    phases = list(phases)
    yield from _render_folders(phases)
    yield f"\nThe {SLOWEST} slowest phases"
    for phase in sorted(phases, key=lambda one: -one.seconds)[:SLOWEST]:
        yield f"{phase.seconds:8.1f} s  {phase.when:8}  {phase.test}"
    yield f"\nThe {SLOWEST} fixtures that took longest in all"
    fixtures: defaultdict[str, list[float]] = defaultdict(list)
    for phase in phases:
        for name, seconds in phase.fixtures:
            fixtures[f"{phase.folder}: {name}"].append(seconds)
    for name, took in sorted(fixtures.items(), key=lambda pair: -sum(pair[1]))[:SLOWEST]:
        yield f"{sum(took):8.1f} s  {len(took):5} times  {name}"


def render_durations(phases: Iterable[Phase]) -> str:
    """Return the seconds of each unit of `tests/distribution.py` as JSON, the longest first."""
    units: defaultdict[str, float] = defaultdict(float)
    for phase in phases:
        units[unit_of(phase.test)] += phase.seconds
    longest = sorted(units.items(), key=lambda pair: -pair[1])
    return json.dumps({unit: round(took) for unit, took in longest if took >= SHORTEST_UNIT}, indent=1) + "\n"


def _render_folders(phases: list[Phase]) -> Iterable[str]:
    yield f"{'folder':14}{'tests':>7}{'set-up':>10}{'call':>10}{'tear-down':>10}{'processor':>11}{'waiting':>9}"
    rows = {folder: [one for one in phases if one.folder == folder] for folder in {one.folder for one in phases}}
    for folder, mine in sorted(rows.items(), key=lambda pair: -_seconds(pair[1])):
        yield _render_row(folder, mine)
    yield _render_row("all", phases)


def _render_row(name: str, phases: list[Phase]) -> str:
    tests = len({phase.test for phase in phases})
    parts = [_seconds(one for one in phases if one.when == when) for when in ("setup", "call", "teardown")]
    processor = sum(phase.processor for phase in phases)
    waiting = 1 - processor / (sum(parts) or 1)
    columns = "".join(f"{part:8.0f} s" for part in parts)
    return f"{name:14}{tests:7}{columns}{processor:9.0f} s{waiting:9.0%}"


def _seconds(phases: Iterable[Phase]) -> float:
    return sum(phase.seconds for phase in phases)


def _count_assertions(count: Callable[[], None]) -> None:
    """Append a call of `count` to the code that pytest makes of an assertion."""
    rewrite._grove_count = count  # type: ignore[attr-defined]
    rewrite_assert = rewrite.AssertionRewriter.visit_Assert

    def rewrite_and_count(self: rewrite.AssertionRewriter, assert_: ast.Assert) -> list[ast.stmt]:
        counting = ast.Expr(self.helper("_grove_count"))
        for part in ast.walk(counting):
            ast.copy_location(part, assert_)
        return [*rewrite_assert(self, assert_), counting]

    rewrite.AssertionRewriter.visit_Assert = rewrite_and_count  # type: ignore[method-assign]


def _busy_seconds() -> float:
    """Return how long all processors of the machine together have been busy; None where the system does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _waiting, *interrupts = map(int, stat.read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(interrupts)) / _CLOCK_TICKS
