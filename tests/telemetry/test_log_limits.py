"""Clients and outages cannot fill the log: equal lines are limited, and the log says how many were omitted."""

import io
import logging
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import Client

from rollouts.telemetry.log_limits import WINDOW_SECONDS, BoundedFilter, Formatter


class Clock:
    """A clock that tests advance."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class Log:
    """A handler with the filter and formatter of the product."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(Formatter("%(levelname)-7s %(name)s: %(message)s"))
        self.handler.addFilter(BoundedFilter(self.clock))

    @property
    def lines(self) -> list[str]:
        """The lines so far."""
        return self._stream.getvalue().splitlines()


@pytest.fixture
def log() -> Iterator[Log]:
    """A log apart from that of the test run."""
    made = Log()
    logging.getLogger().addHandler(made.handler)
    yield made
    logging.getLogger().removeHandler(made.handler)


def test_hosts_that_are_not_ours_are_a_line_each_and_soon_none(client: Client, log: Log) -> None:
    for _ in range(200):
        assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    assert len(log.lines) == 5
    assert all("Invalid HTTP_HOST header" in line and "Traceback" not in line for line in log.lines)


def test_another_host_each_time_makes_no_more_lines_than_the_same_one(client: Client, log: Log) -> None:
    for number in range(300):
        assert client.get("/", headers={"host": f"{number:03}.evil.example"}).status_code == 400
        assert client.get("/", headers={"host": f"{number:03}_evil/example"}).status_code == 400
    assert len(log.lines) == 5
    log.clock.now += WINDOW_SECONDS
    assert client.get("/", headers={"host": "one-more.example"}).status_code == 400
    assert log.lines[-1].endswith("(595 more like this were omitted)")


def test_another_origin_each_time_makes_no_more_lines_than_the_same_one(log: Log) -> None:
    client = Client(enforce_csrf_checks=True)
    for number in range(50):
        answer = client.post("/sign-in/", headers={"origin": f"https://{number:03}.evil.example"})
        assert answer.status_code == 403
    assert len(log.lines) == 5


def test_forms_without_a_cookie_are_few_lines(log: Log) -> None:
    client = Client(enforce_csrf_checks=True)
    for number in range(50):
        assert client.post(f"/sign-in/?{number}").status_code == 403
    assert len(log.lines) <= 5


def test_an_outage_that_a_library_tells_of_every_second_is_a_line_that_names_it(log: Log) -> None:
    logger = logging.getLogger("celery.beat")
    for _ in range(100):
        error = ConnectionError("no space left\nand more")
        logger.error("Message Error: %s\n%s", error, "stack", exc_info=error)
    assert log.lines == ["ERROR   celery.beat: Message Error: no space left (ConnectionError: no space left)"] * 5


def test_how_many_were_left_out_is_told_with_the_next(log: Log) -> None:
    logger = logging.getLogger("kombu.connection")
    for _ in range(8):
        logger.warning("away")
    log.clock.now += WINDOW_SECONDS
    logger.warning("away")
    assert log.lines[-1] == "WARNING kombu.connection: away (3 more like this were omitted)"


def test_lines_of_our_own_keep_their_traceback_and_are_bounded_too(log: Log) -> None:
    logger = logging.getLogger("rollouts.controller.reconciler")
    logger.error("A pass failed", exc_info=ValueError("why"))
    assert log.lines[-1] == "ValueError: why"
    for number in range(500):
        logger.warning("Workload %s", number)
    assert sum("Workload" in line for line in log.lines) == 60


def test_what_is_said_by_different_values_of_one_thing_does_not_silence_another(log: Log) -> None:
    for number in range(100):
        logging.getLogger("rollouts.one").warning("Workload %s", number)
    logging.getLogger("rollouts.one").warning("Something else")
    assert log.lines[-1] == "WARNING rollouts.one: Something else"


def test_the_product_logs_by_these_rules() -> None:
    assert settings.LOGGING["handlers"]["stderr"]["filters"] == ["bounded"]
    assert settings.LOGGING["formatters"]["line"]["()"] == "rollouts.telemetry.log_limits.Formatter"
