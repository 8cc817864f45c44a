"""An outage is logged once, and the next outage again."""

import logging

import pytest

from rollouts.telemetry.outage_log import OutageLog


def test_each_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    outage = OutageLog(logging.getLogger("test"), "Redis is down (%s)")
    with caplog.at_level(logging.WARNING):
        outage.succeeded()
        for _ in range(3):
            outage.failed(ConnectionError())
        outage.succeeded()
        outage.failed(TimeoutError())
    assert [record.message for record in caplog.records] == [
        "Redis is down (ConnectionError)",
        "Redis is down (TimeoutError)",
    ]
