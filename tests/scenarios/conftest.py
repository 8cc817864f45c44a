"""One cluster and one controller for all selected scenarios, and a pool that plays them side by side."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.controlling import Controller, running_controller
from tests.scenarios.doubling import doubled_messages
from tests.scenarios.register import SCENARIOS
from tests.scenarios.running_clusters import TargetCluster, running_real_cluster, running_sandbox_cluster
from tests.scenarios.stage import staged

SIDE_BY_SIDE = 4


class Playing:
    """The scenarios that are being played on one cluster."""

    def __init__(
        self, target: TargetCluster, controller: Controller, titles: list[str], pool: ThreadPoolExecutor
    ) -> None:
        self._target = target
        self._controller = controller
        self._over = threading.Event()
        self._plays: dict[str, Future[None]] = {title: pool.submit(self._play, title) for title in titles}

    def _play(self, title: str) -> None:
        if self._over.is_set():
            return
        with staged(self._target, title) as stage:
            SCENARIOS[title].play(stage)

    def result(self, title: str) -> None:
        """Wait for a scenario, and raise its failure."""
        try:
            self._plays[title].result()
        except BaseException:
            print(self._controller.last_words())  # noqa: T201 (pytest shows it with the failure)
            raise

    def stop(self) -> None:
        """Start no further scenario."""
        self._over.set()


@pytest.fixture(scope="session")
def on_a_real_api_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playing]:
    """Play on a real API server."""
    folder = tmp_path_factory.mktemp("real")
    with (
        running_real_cluster() as target,
        running_controller(folder, target.kubeconfig) as controller,
    ):
        yield from _playing(target, controller, _titles(request, "test_on_a_real_api_server"))


@pytest.fixture(scope="session")
def on_the_sandbox(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playing]:
    """Play on the sandbox, with two of each process and every message doubled."""
    folder = tmp_path_factory.mktemp("doubled")
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(running_sandbox_cluster(folder / "sandbox"))
        controller = stack.enter_context(
            running_controller(folder / "controller", target.kubeconfig, workers=2, beats=2, watchers=2)
        )
        stack.enter_context(doubled_messages(target, controller.redis.url))
        yield from _playing(target, controller, _titles(request, "test_on_the_sandbox_with_everything_doubled"))


def _playing(target: TargetCluster, controller: Controller, titles: list[str]) -> Iterator[Playing]:
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        playing = Playing(target, controller, titles, pool)
        try:
            yield playing
        finally:
            playing.stop()


def _titles(request: pytest.FixtureRequest, test: str) -> list[str]:
    """Return the scenarios of the tests that will run, in their order."""
    tests = [item for item in request.session.items if isinstance(item, pytest.Function)]
    return [str(item.callspec.params["title"]) for item in tests if item.originalname == test]
