"""Two watchers and a writer store the same past, each at its own pace: the mirror ends as the cluster does.

A watcher stores events in order, in batches, and now and then a whole list. The writer stores late answers to its own
writes, which may be any object of the past, and ends that it has inferred. The call that changes a row always returns
it: so every workload is enqueued.
"""

import threading
from collections.abc import Callable

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts import mirror, models
from rollouts.cluster.resources import PODS
from tests.mirror.history import CHANGES, NAMES, Event, History
from tests.thoroughness import examples

pytestmark = pytest.mark.database

KEY = "east/web/my"

changes = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(CHANGES)), min_size=1, max_size=40)
# Who acts, and how much: a watcher stores so many events, or a list; the writer goes so many events back.
moves = st.lists(
    st.tuples(st.sampled_from(["grow", "a", "b", "list a", "list b", "write", "conclude"]), st.integers(1, 6)),
    max_size=40,
)


def rows() -> dict[str, tuple[str, int, bool, bool]]:
    """Return what the mirror shows: uid, version, ready, leaving."""
    columns = ("name", "uid", "resource_version", "ready", "leaving")
    return {name: tuple(rest) for name, *rest in models.Pod.objects.values_list(*columns)}


class Interleaving:
    """The two watchers and the writer, on their way through one past."""

    def __init__(self, cluster: models.Cluster, past: History) -> None:
        self._cluster = cluster
        self._past = past
        self._now = 0  # events that have happened
        self._heard = {"a": 0, "b": 0}

    def move(self, who: str, amount: int) -> set[str]:
        """Let one of them store something; return which workloads it would enqueue."""
        match who.split():
            case ["grow"]:
                self._now = min(len(self._past.events), self._now + amount)
                return set()
            case ["list", watcher]:
                return self._list(watcher)
            case ["write"]:
                return self._store(self._past.events[max(0, self._now - amount) : self._now][:1], ends=False)
            case ["conclude"]:
                return self._conclude(amount)
            case _:
                return self._advance(who, amount)

    def finish(self) -> None:
        """Let everything that happened be stored."""
        self._now = len(self._past.events)
        for watcher in self._heard:
            self._advance(watcher, self._now)

    def _advance(self, watcher: str, amount: int) -> set[str]:
        start = self._heard[watcher]
        self._heard[watcher] = min(self._now, start + amount)
        return self._store(self._past.events[start : self._heard[watcher]])

    def _list(self, watcher: str) -> set[str]:
        found, version = self._past.listed(self._now)
        self._heard[watcher] = self._now
        keys = {(obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in found}
        woken = mirror.store(self._cluster, PODS, found)
        return woken | mirror.replace(self._cluster, PODS, keys, str(version))

    def _store(self, events: list[Event], *, ends: bool = True) -> set[str]:
        there = [event.obj for event in events if not event.is_end]
        gone = [event.obj for event in events if event.is_end and ends]
        return mirror.store(self._cluster, PODS, there, gone)

    def _conclude(self, amount: int) -> set[str]:
        """End an object of which a call has answered NotFound."""
        dead = [event.obj["metadata"] for event in self._past.events[: self._now] if event.is_death][-amount:][:1]
        bare = [{"metadata": {key: told[key] for key in ("namespace", "name", "uid")}} for told in dead]
        return mirror.store(self._cluster, PODS, [], bare)


@pytest.mark.django_db
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=changes, moves=moves)
def test_however_the_past_is_told_the_mirror_ends_as_the_cluster(
    cluster: models.Cluster, changes: list[tuple[str, str]], moves: list[tuple[str, int]]
) -> None:
    mirror.delete_objects(cluster)
    past = History(changes)
    interleaving = Interleaving(cluster, past)
    for who, amount in moves:
        before = rows()
        woken = interleaving.move(who, amount)
        assert woken == {KEY} or content(before) == content(rows())
    interleaving.finish()
    assert rows() == past.end()


def content(shown: dict[str, tuple[str, int, bool, bool]]) -> dict[str, tuple[str, bool, bool]]:
    """Return what a pass reads: everything except the version."""
    return {name: (uid, ready, leaving) for name, (uid, _, ready, leaving) in shown.items()}


@pytest.mark.django_db(transaction=True)
def test_writers_at_the_same_time_end_at_the_same_state() -> None:
    cluster = mirror.ensure_cluster("east")
    names = [f"p-{number}" for number in range(30)]
    changes = [(names[number * 7 % 30], CHANGES[number * 5 % 7 if number > 30 else 0]) for number in range(900)]
    past = History(changes)
    failures: list[BaseException] = []

    def run(tell: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                tell()
            except BaseException as error:
                failures.append(error)
            finally:
                connection.close()

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    def watch(size: int) -> None:
        for start in range(0, len(past.events), size):
            part = past.events[start : start + size]
            there = [event.obj for event in part if not event.is_end]
            mirror.store(cluster, PODS, there, [event.obj for event in part if event.is_end])

    def write() -> None:
        # Backwards, one by one and in pairs: in another order than the watchers hold their rows.
        for event in reversed(past.events):
            if not event.is_end:
                mirror.store(cluster, PODS, [event.obj])

    for thread in [run(lambda: watch(40)), run(lambda: watch(23)), run(write)]:
        thread.join()
    assert failures == []
    assert rows() == past.end()
