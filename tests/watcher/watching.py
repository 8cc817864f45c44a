"""Watchers for tests: they run in this process, and everything that they notify is recorded."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import yaml
from redis import Redis

from rollouts import models
from rollouts.cluster import ClusterClient
from rollouts.live.change_feed import Change
from rollouts.watcher import Watcher
from tests.apiserver import free_port

SECONDS = 120.0  # generous: only reached when something is broken
# Nothing of a test depends on a lease that runs out. Where everything is slow, one of a few seconds does so by itself,
# and then all workloads are enqueued once more.
LEASE_SECONDS = 600.0


@dataclass
class Heard:
    """What a watcher has notified."""

    woken: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    is_redis_away: bool = False
    refused: int = 0  # calls while Redis was down
    failures: list[Exception] = field(default_factory=list)  # to be met by those who publish, one each

    def wake(self, keys: Iterable[str]) -> bool:
        """Accept keys as the queue does."""
        if self.is_redis_away:
            self.refused += 1
            return False
        self.woken += keys
        return True

    def publish(self, changes: Sequence[Change]) -> None:
        """Accept changes as the feed does."""
        if self.failures:
            raise self.failures.pop()
        self.changes += changes


@contextlib.contextmanager
def watching(name: str, connect: Callable[[], ClusterClient], redis: Redis) -> Iterator[Heard]:
    """Run a watcher of a cluster in threads of this process."""
    heard = Heard()
    watcher = Watcher(name, connect, redis, enqueue=heard.wake, publish=heard.publish, lease_seconds=LEASE_SECONDS)
    thread = threading.Thread(target=watcher.run)
    thread.start()
    try:
        yield heard
    finally:
        watcher.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


def is_complete(name: str) -> bool:
    """Return whether a cluster is mirrored."""
    return models.Cluster.objects.filter(name=name, complete=True).exists()


def trouble(name: str) -> tuple[str, str]:
    """Return code and sentence of a cluster's problem."""
    row = models.Cluster.objects.filter(name=name).first()
    return (row.trouble_code, row.trouble) if row else ("", "")


def kubeconfig_to_nowhere(context: str = "away") -> str:
    """Return a kubeconfig with a port on which nothing listens."""
    address = f"http://127.0.0.1:{free_port()}"
    return yaml.safe_dump(
        {
            "current-context": context,
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "clusters": [{"name": context, "cluster": {"server": address}}],
            "users": [{"name": context, "user": {}}],
        }
    )
