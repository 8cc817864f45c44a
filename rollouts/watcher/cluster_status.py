"""Reports the state of the connection to a cluster: on its row, in Redis, in the log and in the change feed.

Before it: the watcher, which passes the state in every turn of its loop. This module decides what is written: a problem
when it begins, changes or ends, and every few seconds that the cluster sends events. When a problem ends every workload
is enqueued, since passes may have failed because of it.
"""

import logging
import time
from datetime import UTC, datetime
from typing import Final

from redis import Redis, RedisError

from rollouts import models
from rollouts.telemetry import heartbeats
from rollouts.watcher.health import HealthIssue
from rollouts.watcher.notifier import Notifier
from rollouts.watcher.watch_state import WatchSnapshot

logger = logging.getLogger(__name__)

_HEARD_AT_INTERVAL_SECONDS: Final = 5.0  # between two writes of the time of the last event


class ClusterStatusReporter:
    """Reports the state of one cluster, and remembers what it has reported."""

    def __init__(self, name: str, redis: Redis, notifier: Notifier) -> None:
        self._name = name
        self._redis = redis
        self._notifier = notifier
        self._last_logged: HealthIssue | None = None
        self._last_in_redis: tuple[HealthIssue | None, int] | None = None  # problem and number of events
        self._last_on_row: tuple[int, HealthIssue | None] | None = None  # key of the row, and problem
        self._last_event_count = 0  # as last written on the row
        self._event_count_written_at = float("-inf")  # monotonic

    def publish(self, row: models.Cluster, issue: HealthIssue | None, snapshot: WatchSnapshot | None) -> None:
        """Write what has changed; raise errors of the database, try Redis again in the next turn."""
        self._log(issue)
        self._write_redis(issue, snapshot)
        self._write_row(row, issue, snapshot)

    def publish_again(self) -> None:
        """Write everything again: Redis may have lost it, or another watcher may have written something else."""
        self._last_in_redis = None
        self._last_on_row = None

    def _log(self, issue: HealthIssue | None) -> None:
        if issue and (self._last_logged is None or issue.code != self._last_logged.code):
            logger.warning("Cluster %s cannot be mirrored: %s", self._name, issue)
        elif self._last_logged and not issue:
            logger.info("Cluster %s can be mirrored again", self._name)
            self._notifier.enqueue_all()
        self._last_logged = issue

    def _write_redis(self, issue: HealthIssue | None, snapshot: WatchSnapshot | None) -> None:
        now = (issue, snapshot.event_count if snapshot else 0)
        if now == self._last_in_redis or (issue is None and not now[1]):
            return
        try:
            if issue:
                heartbeats.record_cluster_trouble(self._redis, self._name, str(issue))
            elif snapshot:
                counts = {resource.plural: count for resource, count in snapshot.counts.items()}
                heartbeats.record_cluster_heartbeat(self._redis, self._name, counts)
            self._last_in_redis = now
        except RedisError as error:
            if self._last_in_redis is not None:
                logger.warning("Redis does not answer (%s); trying again", type(error).__name__)
            self._last_in_redis = None

    def _write_row(self, row: models.Cluster, issue: HealthIssue | None, snapshot: WatchSnapshot | None) -> None:
        if (row.pk, issue) != self._last_on_row:
            self._write_trouble(row, issue)
            self._last_on_row = (row.pk, issue)
            self._notifier.notify_cluster()
        event_count = snapshot.event_count if snapshot else 0
        if (
            event_count != self._last_event_count
            and time.monotonic() - self._event_count_written_at >= _HEARD_AT_INTERVAL_SECONDS
        ):
            models.Cluster.objects.filter(pk=row.pk).update(heard_at=datetime.now(UTC))
            self._last_event_count, self._event_count_written_at = event_count, time.monotonic()

    @staticmethod
    def _write_trouble(row: models.Cluster, issue: HealthIssue | None) -> None:
        """Write the problem to the row; its start stays while the code is the same."""
        code, sentence = (issue.code, issue.message) if issue else ("", "")
        rows = models.Cluster.objects.filter(pk=row.pk)
        rows.exclude(trouble_code=code).update(trouble_since=datetime.now(UTC) if issue else None)
        rows.update(trouble_code=code, trouble=sentence)
