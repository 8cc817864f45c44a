"""Real Celery workers on a real Redis: killed, doubled, with an emptied Redis, over their time limit."""

import os
import signal
import subprocess

import pytest

from tests.project.running import wait_until
from tests.queue.claim_history import ClaimHistory, claim_history
from tests.queue.conftest import SECONDS_TO_ANSWER, Installation
from tests.queue.delaying import delay

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# Of a pass, and of its time limits: so long that nothing but lost leases can end one in these tests.
LONG_LEASE_SECONDS = 350


def _add_workload(installation: Installation, name: str) -> str:
    """Add a workload to the mirror as if the watcher had stored it, and enqueue nothing."""
    installation.manage(
        "shell",
        "--no-imports",
        "-c",
        "from rollouts.models import Cluster, Workload\n"
        "cluster, _ = Cluster.objects.get_or_create(name='sandbox')\n"
        f"Workload.objects.create(cluster=cluster, namespace='default', name='{name}', uid='{name}',"
        " resource_version=1, created=0, manifest={})",
    )
    return f"sandbox/default/{name}"


def _wake(installation: Installation, *keys: str) -> None:
    installation.send(*installation.queue.add(keys))


def _begin_a_pass(installation: Installation, key: str) -> int:
    """Start a pass that does not end before it is released, and return the process."""
    _wake(installation, key)
    wait_until(lambda: installation.begun(key) == 1, SECONDS_TO_ANSWER)
    return installation.worker_of(key)


def test_a_worker_killed_in_a_pass_leaves_it_to_another_long_before_a_pass_must_end(
    installation: Installation,
) -> None:
    key = "sandbox/default/waits-for-us"
    workers = [installation.start_worker(LONG_LEASE_SECONDS) for _ in range(2)]
    installation.start_beat()
    with claim_history(installation.server.url) as history:
        child = _begin_a_pass(installation, key)
        installation.kill(next(one for one in workers if child in _children(one.pid)))
        history.wait_for_the_next_claim(key, history.now()).assert_is_short()
    wait_until(lambda: installation.ended(key) == 1, SECONDS_TO_ANSWER)
    assert installation.begun(key) == 2
    wait_until(lambda: installation.queue.depth().processing == 0, SECONDS_TO_ANSWER)


def test_the_parent_of_a_child_killed_in_a_pass_gives_its_claim_back_and_waits_for_no_lease(
    installation: Installation,
) -> None:
    key = "sandbox/default/waits-for-us"
    installation.start_worker(LONG_LEASE_SECONDS)
    child = _begin_a_pass(installation, key)
    os.kill(child, signal.SIGKILL)
    # Without beat there is no sweep, so a lease that is over is not found.
    wait_until(lambda: installation.queue.depth().ready == 1, SECONDS_TO_ANSWER)
    assert installation.queue.depth().processing == 0
    installation.start_beat()
    wait_until(lambda: installation.ended(key) == 1, SECONDS_TO_ANSWER)
    assert installation.begun(key) == 2


def test_a_child_frozen_in_a_pass_leaves_it_to_the_others_and_writes_nothing_when_it_wakes_up(
    installation: Installation,
) -> None:
    key = "sandbox/default/waits-for-us"
    installation.start_worker(LONG_LEASE_SECONDS)
    installation.start_beat()
    with claim_history(installation.server.url) as history:
        child = _begin_a_pass(installation, key)
        _freeze_until_the_next_claim(history, key, [child])
    _assert_it_is_fenced_after_a_freeze(installation, key, child, [child])


def test_a_worker_frozen_in_a_pass_leaves_it_to_another_and_writes_nothing_when_it_wakes_up(
    installation: Installation,
) -> None:
    key = "sandbox/default/waits-for-us"
    workers = [installation.start_worker(LONG_LEASE_SECONDS) for _ in range(2)]
    installation.start_beat()
    with claim_history(installation.server.url) as history:
        child = _begin_a_pass(installation, key)
        (frozen,) = ([one.pid, *children] for one in workers if child in (children := _children(one.pid)))
        _freeze_until_the_next_claim(history, key, frozen)
    _assert_it_is_fenced_after_a_freeze(installation, key, child, frozen)


def _freeze_until_the_next_claim(history: ClaimHistory, key: str, pids: list[int]) -> None:
    """Freeze processes, and wait until another one has claimed the workload."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    history.wait_for_the_next_claim(key, history.now()).assert_is_short()


def _assert_it_is_fenced_after_a_freeze(installation: Installation, key: str, child: int, frozen: list[int]) -> None:
    wait_until(lambda: installation.ended(key) == 1, SECONDS_TO_ANSWER)
    assert child not in installation.wrote(key)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    installation.release(key)
    wait_until(lambda: installation.fenced(key) == [child], SECONDS_TO_ANSWER)
    # The worker continues with other workloads.
    other = "sandbox/default/other"
    _wake(installation, other)
    wait_until(lambda: installation.ended(other) == 1, SECONDS_TO_ANSWER)


def test_the_children_of_a_frozen_parent_bring_their_passes_to_an_end(installation: Installation) -> None:
    key = "sandbox/default/waits-for-us"
    worker = installation.start_worker(LONG_LEASE_SECONDS)
    child = _begin_a_pass(installation, key)
    os.kill(worker.pid, signal.SIGSTOP)
    installation.release(key)
    wait_until(lambda: installation.ended(key) == 1, SECONDS_TO_ANSWER)
    assert (installation.wrote(key), installation.fenced(key)) == ([child], [])
    os.kill(worker.pid, signal.SIGCONT)


def test_doubled_messages_never_run_two_passes_at_once(installation: Installation) -> None:
    waiting, other = "sandbox/default/waits-for-us", "sandbox/default/other"
    installation.start_worker(lease_seconds=120)
    _wake(installation, waiting)
    wait_until(lambda: installation.begun(waiting) == 1, SECONDS_TO_ANSWER)
    installation.send(*[waiting] * 20)
    _wake(installation, waiting)  # while it is processed: another pass must follow
    _wake(installation, other)
    wait_until(lambda: installation.ended(other) == 1, SECONDS_TO_ANSWER)  # so the twenty before it were taken
    installation.release(waiting)
    wait_until(lambda: installation.ended(waiting) == 2, SECONDS_TO_ANSWER)
    wait_until(lambda: installation.redis.llen("reconcile") == 0, SECONDS_TO_ANSWER)
    assert (installation.begun(waiting), installation.clashed(waiting)) == (2, 0)


def test_a_lost_message_costs_seconds_and_not_the_workload(installation: Installation) -> None:
    key = "sandbox/default/plain"
    installation.start_worker()
    installation.start_beat()
    assert installation.queue.add([key]) == [key]
    wait_until(lambda: installation.ended(key) == 1, SECONDS_TO_ANSWER)


def test_a_redis_that_comes_back_empty_has_every_workload_looked_at_again(installation: Installation) -> None:
    keys = [_add_workload(installation, name) for name in ("plain-0", "plain-1")]
    installation.start_worker()
    installation.start_beat()
    wait_until(lambda: all(installation.ended(key) for key in keys), SECONDS_TO_ANSWER)
    installation.server.kill()
    installation.server.forget()
    installation.server.start()
    wait_until(lambda: all(installation.ended(key) for key in keys), SECONDS_TO_ANSWER)


def test_a_redis_that_restarts_during_a_pass_costs_seconds_and_not_the_lease(installation: Installation) -> None:
    key = "sandbox/default/waits-for-us"
    installation.start_worker(lease_seconds=1200)
    installation.start_beat()
    _wake(installation, key)
    wait_until(lambda: installation.begun(key) == 1, SECONDS_TO_ANSWER)
    installation.server.kill()
    installation.server.start()
    installation.release(key)  # it may have noticed nothing
    wait_until(lambda: installation.ended(key) == 1, SECONDS_TO_ANSWER)
    wait_until(lambda: installation.queue.depth().processing == 0, SECONDS_TO_ANSWER)


def test_a_pass_over_its_time_limit_ends_and_is_tried_again(installation: Installation) -> None:
    key = "sandbox/default/hangs-once"
    # Of which a sixth, two seconds, is between the limit that a pass can act on and its end by force.
    installation.start_worker(lease_seconds=12)
    installation.start_beat()
    _wake(installation, key)
    wait_until(lambda: installation.ended(key) == 1, SECONDS_TO_ANSWER)
    assert (installation.begun(key), installation.clashed(key)) == (2, 0)


def test_a_poisoned_workload_is_retried_and_the_others_go_on(installation: Installation) -> None:
    poisoned, healthy = "sandbox/default/raises-twice", "sandbox/default/plain"
    installation.start_worker()
    installation.start_beat()
    _wake(installation, poisoned, healthy)
    wait_until(lambda: installation.ended(healthy) == 1, SECONDS_TO_ANSWER)
    wait_until(lambda: installation.ended(poisoned) == 1, SECONDS_TO_ANSWER)
    assert installation.begun(poisoned) == 3


def test_a_backlog_does_not_keep_the_sweep_waiting(installation: Installation) -> None:
    backlog = [f"sandbox/default/slow-{number}" for number in range(1_000)]  # a minute's work, however late beat comes
    installation.start_worker(lease_seconds=120)
    installation.start_beat()
    _wake(installation, *backlog)
    delay(installation.queue, "sandbox/default/later", 1)
    wait_until(lambda: installation.queue.depth().delayed == 0, SECONDS_TO_ANSWER)
    assert installation.queue.depth().ready > 1


def test_a_worker_that_is_busy_takes_no_message_which_another_worker_could_process(
    installation: Installation,
) -> None:
    busy = ["sandbox/default/waits-for-us-0", "sandbox/default/waits-for-us-1"]
    for _ in busy:
        installation.start_worker(LONG_LEASE_SECONDS, processes=1)
    _wake(installation, *busy)
    wait_until(lambda: all(installation.begun(key) == 1 for key in busy), SECONDS_TO_ANSWER)
    others = [f"sandbox/default/plain-{number}" for number in range(20)]
    _wake(installation, *others)
    installation.release(busy[0])
    # Without beat there is no sweep, which would send a message again that waits in the busy worker.
    wait_until(lambda: all(installation.ended(key) == 1 for key in others), SECONDS_TO_ANSWER)
    assert installation.ended(busy[1]) == 0


def test_workloads_that_never_rest_leave_the_others_their_turn(installation: Installation) -> None:
    restless = [f"sandbox/default/slow-{number}-for-ever" for number in range(2)]
    quiet = "sandbox/default/plain"
    installation.start_worker(lease_seconds=120)
    installation.start_beat()
    _wake(installation, *restless)
    wait_until(lambda: all(installation.ended(key) for key in restless), SECONDS_TO_ANSWER)
    _wake(installation, quiet)
    wait_until(lambda: installation.ended(quiet) == 1, SECONDS_TO_ANSWER)
    reached = [installation.ended(key) for key in restless]
    wait_until(
        lambda: all(installation.ended(key) > before for key, before in zip(restless, reached, strict=True)),
        SECONDS_TO_ANSWER,
    )


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]
