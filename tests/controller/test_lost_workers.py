"""Workers that are killed or frozen in the middle of a pass over a real rollout: it goes on, and nothing is done twice.

The lease of the settings, which bounds a pass, is five minutes here, and the limits that follow from it are as long:
only a lease that was not renewed, or a claim that was given back, lets another worker go on. A worker is caught in a
pass by being frozen while the queue says that it has the workload. Celery, Redis and the cluster are real. How long the
workload is without a worker is measured by Redis's clock, so a slow test does not count.
"""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from redis import Redis

from tests.controlling import WORKER, Controller, Running, running_controller
from tests.project.running import wait_until
from tests.queue.claim_history import ClaimHistory, claim_history
from tests.scenarios.running_clusters import TargetCluster
from tests.scenarios.scene import Scene
from tests.scenarios.stage import Stage, clique, podcliqueset, staged

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

LONGEST_PASS = "300"  # the highest value that is accepted
# Only reached when something is broken. A rollout ends before the hard limit of a pass could end a frozen one.
SECONDS_TO_START = 400.0
SECONDS = 190.0
PODS = 6
NAME = "w"
CLAIMS = "grove:queue:reconcile:claims"


@dataclass(frozen=True, slots=True)
class Caught:
    """A worker process that was frozen in the middle of a pass."""

    epoch: int  # of its claim
    pid: int
    worker: Running


@dataclass
class Ground:
    """A controller with two workers, and a workload that it has deployed."""

    controller: Controller
    stage: Stage
    redis: Redis
    history: ClaimHistory

    def catch_in_a_pass(self, after: int = 0) -> Caught:
        """Freeze a process that has a claim on the workload, a later one than the given claim."""
        caught: list[Caught] = []

        def try_once() -> bool:
            claim = self._claim()
            if claim is None or claim[0] <= after:
                return False
            os.kill(claim[1], signal.SIGSTOP)
            # Asked twice: Redis may not have read yet what the process had sent before.
            if self._claim() != claim or self._claim() != claim:
                os.kill(claim[1], signal.SIGCONT)
                return False
            workers = self.controller.of(WORKER)
            caught.append(Caught(*claim, next(one for one in workers if claim[1] in one.processes())))
            return True

        while not try_once():
            assert not self.is_updated(), "the rollout was over before a worker was caught"
        return caught[0]

    def freeze_in_a_pass(self, frozen: str) -> tuple[Caught, list[int], float]:
        """Freeze a process in a pass, or its whole worker; return it, all frozen pids, and when it was frozen.

        Not while one of them writes to SQLite: nobody else can write until such a process wakes up.
        """
        while True:
            caught = self.catch_in_a_pass()
            pids = [caught.pid] if frozen == "child" else caught.worker.processes()
            lost_at = self.history.now()
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            if self._can_write():
                return caught, pids, lost_at
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def _can_write(self) -> bool:
        with closing(sqlite3.connect(self.controller.folder / "grove.sqlite3", timeout=1.0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.rollback()
            return True

    def assert_next_claim_is_soon(self, lost_at: float) -> None:
        """Assert that another process claims the workload within a lease and a sweep."""
        self.history.wait_for_the_next_claim(self._key, lost_at).assert_is_short()

    @property
    def _key(self) -> str:
        return f"sandbox/{self.stage.namespace}/{NAME}"

    def _claim(self) -> tuple[int, int] | None:
        """Return the epoch and the process of the claim on the workload."""
        held = self.redis.hget(CLAIMS, self._key)
        if held is None:
            return None
        epoch, _, _, owner = str(held).split(":", 3)
        return int(epoch), int(owner.partition("/")[2])

    def is_updated(self) -> bool:
        """Return whether the rollout has ended."""
        scene = self.stage.witness.scene()
        return scene.is_complete(NAME) and scene.is_updated(NAME)

    def settle_updated(self) -> Scene:
        """Wait until the rollout has ended."""
        return self.stage.settle_updated(NAME, SECONDS)


@pytest.fixture
def ground(sandbox_with_nodes: TargetCluster, tmp_path: Path) -> Iterator[Ground]:
    target = sandbox_with_nodes
    folder = tmp_path / "controller"
    with (
        running_controller(folder, target.kubeconfig, workers=2, RECONCILE_LEASE_SECONDS=LONGEST_PASS) as controller,
        staged(target, tmp_path.name) as stage,
        Redis.from_url(controller.redis.url, decode_responses=True) as redis,
        claim_history(controller.redis.url) as history,
    ):
        stage.nodes(2)
        stage.settle(stage.create(podcliqueset(clique("a", PODS, 1), name=NAME)), SECONDS_TO_START)
        yield Ground(controller, stage, redis, history)


def test_a_rollout_goes_on_when_processes_of_workers_are_killed_in_its_passes(ground: Ground) -> None:
    ground.stage.change(NAME)
    epochs = [0]
    for _ in range(3):
        caught = ground.catch_in_a_pass(after=epochs[-1])
        epochs.append(caught.epoch)
        lost_at = ground.history.now()
        os.kill(caught.pid, signal.SIGKILL)
        ground.assert_next_claim_is_soon(lost_at)
    ground.settle_updated()
    assert all(before < after for before, after in pairwise(epochs))


def test_a_rollout_goes_on_when_a_whole_worker_is_killed_in_its_pass(ground: Ground) -> None:
    ground.stage.change(NAME)
    caught = ground.catch_in_a_pass()
    lost_at = ground.history.now()
    caught.worker.kill()
    ground.assert_next_claim_is_soon(lost_at)
    ground.settle_updated()


@pytest.mark.parametrize("frozen", ["child", "worker"])
def test_a_rollout_goes_on_while_its_worker_is_frozen_which_then_does_no_harm(ground: Ground, frozen: str) -> None:
    ground.stage.change(NAME)
    caught, pids, lost_at = ground.freeze_in_a_pass(frozen)
    ground.assert_next_claim_is_soon(lost_at)
    after = ground.settle_updated()
    pods = {pod["metadata"]["uid"] for pod in after.pods(NAME)}
    log = caught.worker.log
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    # Whatever it was about to do: it says that the workload is another worker's now.
    wait_until(lambda: "another worker may have" in log.read_text() or "outlived its lease" in log.read_text(), SECONDS)
    assert {pod["metadata"]["uid"] for pod in ground.stage.witness.scene().pods(NAME)} == pods
    ground.stage.change(NAME)
    ground.settle_updated()
