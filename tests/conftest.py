"""For every suite: how tests are distributed over processes, what these share, and the summary of skipped tests.

Django and the product are imported inside the functions: the engine's tests run without them.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.shared_servers import SharedServers

if TYPE_CHECKING:
    from redis import Redis

    from tests.scenarios.running_clusters import TargetCluster

_SERVERS = pytest.StashKey[SharedServers]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Offer the shared servers from the main process, and speed up the settings in each process."""
    if not hasattr(config, "workerinput"):
        config.stash[_SERVERS] = SharedServers()
    _leave_out_what_is_slow(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the shared servers."""
    if servers := config.stash.get(_SERVERS, None):
        servers.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Distribute the tests by unit."""
    from tests.distribution import UnitScheduling

    return UnitScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes, sort the tests by unit, unless a random order was asked for."""
    if hasattr(config, "workerinput") and not config.pluginmanager.hasplugin("randomly"):
        from tests.distribution import sort_longest_first

        sort_longest_first(items)


def _leave_out_what_is_slow(config: pytest.Config) -> None:
    """Replace, in this process, the slow steps that every account and every client of a test would repeat.

    The products that tests start as processes of their own keep them.
    """
    if config.pluginmanager.hasplugin("django"):
        from django.conf import settings

        # A real password hash takes half a second, on purpose.
        settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
        # A new request handler scans all static files; this one finds each when it is requested.
        settings.SERVESTATIC_AUTOREFRESH = True
        settings.SERVESTATIC_USE_MANIFEST = False
        # No caches: a test sees its changes at once, and nothing of the test before.
        settings.READINESS_CACHE_SECONDS = 0.0


@pytest.fixture(scope="session")
def sandbox_with_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator["TargetCluster"]:
    """The sandbox of this process: it starts in half a second, and the tests of a process take turns."""
    from tests.scenarios.running_clusters import running_sandbox_cluster
    from tests.servers import make_roomy_nodes

    with running_sandbox_cluster(tmp_path_factory.mktemp("sandbox")) as opened:
        make_roomy_nodes(opened.cluster)
        yield opened


@pytest.fixture(scope="session")
def static_files() -> Iterator[None]:
    """The static files as the product collects them, with hashes in their names; collected once a run."""
    from django.test import override_settings

    from tests.data_folders import find_prepared

    with override_settings(STATIC_ROOT=find_prepared().static):
        yield


@pytest.fixture(scope="session")
def redis_server() -> Iterator[None]:
    """Run a real Redis server where the settings expect it."""
    from django.conf import settings

    from tests.redis_process import running_redis

    with running_redis(settings.REDIS_SOCKET, settings.DATA_DIR / "redis"):
        yield


@pytest.fixture
def redis(redis_server: None) -> Iterator["Redis"]:
    """Return a client of an empty Redis."""
    from django.conf import settings
    from redis import Redis

    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()
        yield client


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print, once for each reason, how many tests were skipped."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"skipped {number}: {reason}")
