"""`manage.py watch`: the watcher process, which keeps the mirrors of all configured clusters up to date.

Each cluster has a watcher with threads of its own, so a cluster that is down does not affect the others. The command
reads the list of clusters again every few seconds, since a kubeconfig may be written after the start.
"""

import signal
import threading
from contextlib import suppress
from functools import partial
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from rollouts.cluster import Misconfigured
from rollouts.live import change_feed
from rollouts.queue import dispatch
from rollouts.runtime.connections import ClusterEntry, cluster_entries, connect_cluster, redis_client
from rollouts.runtime.gc_tuning import tune_garbage_collector
from rollouts.telemetry import metrics
from rollouts.watcher import Watcher

_FLUSH_SECONDS: Final = 1.0
_FLUSHES_PER_CHECK: Final = 5


class Command(BaseCommand):
    """Watch the clusters."""

    help = "Watch the clusters and keep their mirrors in the database up to date."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Run the watchers until SIGTERM or SIGINT."""
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        try:
            entries = cluster_entries()
        except Misconfigured as error:
            raise CommandError(str(error)) from error
        watchers = _WatcherPool()
        tune_garbage_collector()
        try:
            while not stopped.is_set():
                watchers.sync(entries)
                for _ in range(_FLUSHES_PER_CHECK):
                    stopped.wait(_FLUSH_SECONDS)
                    metrics.flush(redis_client())
                # While the configuration is invalid, the running watchers stay.
                with suppress(Misconfigured):
                    entries = cluster_entries()
        finally:
            watchers.sync(())


class _WatcherPool:
    """The running watchers, by the name of their cluster."""

    def __init__(self) -> None:
        self._watchers: dict[str, tuple[Watcher, threading.Thread]] = {}

    def sync(self, entries: tuple[ClusterEntry, ...]) -> None:
        """Start and stop watchers, so that exactly these clusters have one."""
        wanted = {entry.name: entry for entry in entries}
        dead = {name for name, (_, thread) in self._watchers.items() if not thread.is_alive()}
        stopping = [self._watchers.pop(name) for name in (self._watchers.keys() - wanted.keys()) | dead]
        for watcher, _ in stopping:
            watcher.stop()
        for _, thread in stopping:
            thread.join()
        for name in wanted.keys() - self._watchers.keys():
            watcher = _make_watcher(wanted[name])
            thread = threading.Thread(target=watcher.run, name=name)
            thread.start()
            self._watchers[name] = (watcher, thread)


def _make_watcher(entry: ClusterEntry) -> Watcher:
    redis = redis_client()
    return Watcher(
        entry.name,
        partial(connect_cluster, entry.name),
        redis,
        enqueue=dispatch.enqueue,
        publish=partial(change_feed.publish, redis),
        source=entry.origin,
        on_batch=partial(metrics.observe_watch, entry.name),
    )
