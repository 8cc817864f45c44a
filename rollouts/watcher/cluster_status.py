"""Tells how we stand with a cluster: on its row, in Redis, in the log, and to the change feed.

The watcher hands in at every turn what the notebook says; here is decided what of it is worth writing. A trouble is
written when it begins, changes or ends; that the cluster speaks is written every few seconds. When a trouble is over
every workload is woken, since passes may have given up on it.
"""

import logging
import time
from datetime import UTC, datetime
from typing import Final

from redis import Redis, RedisError

from rollouts import models
from rollouts.telemetry import heartbeats
from rollouts.watcher.health import Finding
from rollouts.watcher.notifier import Announcer
from rollouts.watcher.watch_state import Account

logger = logging.getLogger(__name__)

_HEARD_SECONDS: Final = 5.0  # between two writes of nothing but that the cluster spoke


class Report:
    """What has been told of one cluster."""

    def __init__(self, name: str, redis: Redis, announcer: Announcer) -> None:
        self._name = name
        self._redis = redis
        self._announcer = announcer
        self._logged: Finding | None = None
        self._in_redis: tuple[Finding | None, int] | None = None  # trouble and words
        self._on_row: tuple[int, Finding | None] | None = None  # whose row, and trouble
        self._heard_words = 0  # as last written on the row
        self._heard_at = float("-inf")  # monotonic: when that was

    def tell(self, row: models.Cluster, finding: Finding | None, account: Account | None) -> None:
        """Write what is new; a database that is away is raised, a Redis that is away is told at the next turn."""
        self._log(finding)
        self._tell_redis(finding, account)
        self._tell_row(row, finding, account)

    def repeat(self) -> None:
        """Tell everything again: Redis may have lost it, another watcher may have told something else meanwhile."""
        self._in_redis = None
        self._on_row = None

    def _log(self, finding: Finding | None) -> None:
        if finding and (self._logged is None or finding.code != self._logged.code):
            logger.warning("Cluster %s cannot be mirrored: %s", self._name, finding)
        elif self._logged and not finding:
            logger.info("Cluster %s is heard again", self._name)
            self._announcer.wake_everything()
        self._logged = finding

    def _tell_redis(self, finding: Finding | None, account: Account | None) -> None:
        now = (finding, account.words if account else 0)
        if now == self._in_redis or (finding is None and not now[1]):
            return
        try:
            if finding:
                heartbeats.record_cluster_trouble(self._redis, self._name, str(finding))
            elif account:
                counts = {resource.plural: count for resource, count in account.counts.items()}
                heartbeats.record_cluster_word(self._redis, self._name, counts)
            self._in_redis = now
        except RedisError as error:
            if self._in_redis is not None:
                logger.warning("Redis does not answer (%s); trying again", type(error).__name__)
            self._in_redis = None

    def _tell_row(self, row: models.Cluster, finding: Finding | None, account: Account | None) -> None:
        if (row.pk, finding) != self._on_row:
            self._write_trouble(row, finding)
            self._on_row = (row.pk, finding)
            self._announcer.tell_of_cluster()
        words = account.words if account else 0
        if words != self._heard_words and time.monotonic() - self._heard_at >= _HEARD_SECONDS:
            models.Cluster.objects.filter(pk=row.pk).update(heard_at=datetime.now(UTC))
            self._heard_words, self._heard_at = words, time.monotonic()

    @staticmethod
    def _write_trouble(row: models.Cluster, finding: Finding | None) -> None:
        """Put the trouble on the row; since when stays as it was while the code is the same."""
        code, sentence = (finding.code, finding.sentence) if finding else ("", "")
        rows = models.Cluster.objects.filter(pk=row.pk)
        rows.exclude(trouble_code=code).update(trouble_since=datetime.now(UTC) if finding else None)
        rows.update(trouble_code=code, trouble=sentence)
