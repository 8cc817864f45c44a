"""For every suite: a real Redis where the settings expect it, and one line for each part that tests were skipped for.

Django and the product are imported inside the fixtures: the engine's tests run without them.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redis import Redis


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leave out, in this process, what takes its time and is done for each account and each client of a test.

    The products that tests start as processes of their own do all of it.
    """
    if config.pluginmanager.hasplugin("django"):
        from django.conf import settings

        # To hash a password takes half a second, as it is meant to.
        settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
        # A new handler of requests looks at every static file there is; now it looks for those that are asked for.
        settings.SERVESTATIC_AUTOREFRESH = True
        settings.SERVESTATIC_USE_MANIFEST = False


@pytest.fixture(scope="session")
def redis_server() -> Iterator[None]:
    """Run a real Redis server where the settings expect it."""
    from django.conf import settings

    from tests.redis_process import running_redis

    with running_redis(settings.REDIS_SOCKET, settings.DATA_DIR / "redis"):
        yield


@pytest.fixture
def redis(redis_server: None) -> Iterator["Redis"]:
    """Give a client of an empty Redis."""
    from django.conf import settings
    from redis import Redis

    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()
        yield client


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once for each reason how many tests were skipped."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"skipped {number}: {reason}")
