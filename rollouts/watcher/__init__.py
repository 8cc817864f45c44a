"""Keeps the mirror of one cluster current, as long as it is this watcher's turn.

Before it: `leader_election`, which says whose turn it is, and `connections`, which knows the way to the cluster. After
it: `session`, which listens and writes rows, `notifier`, which wakes and publishes, and `cluster_status`, which tells
how we stand with the cluster.

`Watcher.run` is a loop with a turn every half second that only ever looks: at the lease, at the session, at the
database. Whatever it finds wrong it mends by ending the session and beginning another one, which lists everything
anew. A cluster that cannot be used, or a database that is away, is tried again with growing pauses; watchers of other
clusters know nothing of it.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from django.db import DatabaseError, connection
from redis import Redis

from rollouts import mirror, models
from rollouts.cluster import ClusterClient, Misconfigured, Resource, RetryPolicy
from rollouts.cluster.retry_policy import compute_backoff
from rollouts.watcher.cluster_status import ClusterStatusReporter
from rollouts.watcher.health import HealthIssue, find_health_issue
from rollouts.watcher.leader_election import LEASE_SECONDS, LeaderElection, LeaderState
from rollouts.watcher.notifier import Enqueue, Notifier, Publish
from rollouts.watcher.session import WatchSession
from rollouts.watcher.watch_state import WatchSnapshot

__all__ = ["Watcher"]

logger = logging.getLogger(__name__)

_TICK_SECONDS: Final = 0.5
_COUNT_SECONDS: Final = 15.0  # between two comparisons of all rows with what was heard
_PURGE_SECONDS: Final = 60.0
_TOMBSTONE_SECONDS: Final = 600.0  # far longer than news can be on its way
_RETRY_POLICY: Final = RetryPolicy(initial_backoff=0.5, max_backoff=15.0)


class Watcher:
    """Watches one cluster until it is stopped."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], ClusterClient],
        redis: Redis,
        *,
        enqueue: Enqueue,
        publish: Publish,
        source: str = "",
        on_batch: Callable[[float], None] = lambda _: None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._name = name
        self._source = source
        self._connect = connect
        self._on_batch = on_batch
        self._leader_election = LeaderElection(redis, name, lease_seconds)
        self._notifier = Notifier(name, enqueue, publish)
        self._status_reporter = ClusterStatusReporter(name, redis, self._notifier)
        self._session: WatchSession | None = None
        self._has_warned = False  # that the cluster's certificate is not verified
        self._failures = 0  # sessions in a row that did not begin, or did not last
        self._not_before = 0.0  # monotonic: when the next session may begin
        self._last_runs = dict.fromkeys(_PERIODS, 0.0)  # monotonic: when each was last taken
        self._suspect: frozenset[Resource] = frozenset()  # kinds that had too few rows at the last comparison
        self._stopped = threading.Event()

    def run(self) -> None:
        """Watch until `stop` is called."""
        self._notifier.start()
        try:
            while not self._stopped.is_set():
                try:
                    self._tick()
                except Exception:
                    logger.exception("The watcher of %s has failed; trying again", self._name)
                    self._back_off("it has failed")
                self._stopped.wait(_TICK_SECONDS)
        finally:
            self._end_session()
            self._notifier.stop()
            self._leader_election.release()
            connection.close()

    def stop(self) -> None:
        """End `run`; callable from any thread and from a signal handler."""
        self._stopped.set()

    def _tick(self) -> None:
        if self._session is None and time.monotonic() < self._not_before:
            return
        leader_state = self._leader_election.acquire_or_renew()
        if leader_state is LeaderState.STANDBY:
            self._end_session()
            self._status_reporter.publish_again()
            return
        if leader_state is LeaderState.ACQUIRED:
            self._status_reporter.publish_again()
        try:
            if self._session is None and leader_state is not LeaderState.UNKNOWN:
                self._begin_session()
            elif leader_state is LeaderState.ACQUIRED:
                # The lease was lost under us: by a Redis that has lost more than that, wake-ups for example.
                self._notifier.enqueue_all()
            if self._session is not None:
                self._check_session(self._session)
        except DatabaseError as error:
            # A session that is at work waits for the database itself.
            self._back_off(f"the database does not answer ({type(error).__name__})")
        finally:
            # Others need it meanwhile. And a file that was deleted stays open for those who have it open: only by
            # opening it again do we see that the database is another one.
            connection.close()

    # Sessions

    def _begin_session(self) -> None:
        row = mirror.ensure_cluster(self._name, self._source)
        try:
            cluster = self._connect()
        except Misconfigured as error:
            self._status_reporter.publish(row, HealthIssue(models.Trouble.MISCONFIGURED, str(error)), None)
            self._back_off(str(error))
            # Another watcher may have a configuration that can be used.
            self._leader_election.release()
            return
        self._warn_if_unverified(cluster)
        self._session = WatchSession(row, cluster, self._notifier, self._on_batch)
        self._session.start()
        self._suspect = frozenset()

    def _warn_if_unverified(self, cluster: ClusterClient) -> None:
        """Say once, and not with every session, that the server could be anybody."""
        if cluster.is_verified or self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "The certificate of cluster %s at %s is not verified (insecure-skip-tls-verify): anyone on the way can read"
            " and change what is sent. Put certificate-authority into the kubeconfig instead.",
            self._name,
            cluster.url,
        )

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def _back_off(self, why: str) -> None:
        """Wait longer each time before the next session."""
        pause = compute_backoff(_RETRY_POLICY, self._failures)
        if self._failures == 0:
            logger.warning("Cluster %s is not watched: %s", self._name, why)
        self._failures += 1
        self._not_before = time.monotonic() + pause

    # What is looked at

    def _check_session(self, session: WatchSession) -> None:
        snapshot = session.watch_state.snapshot()
        issue = find_health_issue(snapshot.failures)
        # Before everything is listed the mirror is as old as the silence was: nobody may take it for news yet.
        if issue is not None or session.is_complete:
            self._status_reporter.publish(session.row, issue, snapshot)
        if session.is_complete:
            self._failures = 0
        if session.is_obsolete or self._is_mirror_lost(session, snapshot):
            self._end_session()
            self._back_off("its mirror has to be made anew")
        if self._is_due("purge"):
            mirror.delete_tombstones(before=time.time() - _TOMBSTONE_SECONDS)

    def _is_mirror_lost(self, session: WatchSession, snapshot: WatchSnapshot) -> bool:
        """Say whether the database no longer has what was written: it was made anew, or rows were dropped."""
        expected = session.is_complete
        # By its name too: in a database that was made anew the number may be another cluster's.
        rows = models.Cluster.objects.filter(pk=session.row.pk, name=session.row.name)
        row = rows.values_list("complete", flat=True).first()
        if row is None or (expected and not row):
            return True
        if not expected or not self._is_due("count"):
            return False
        # News may be on its way: only what is missing twice is missing.
        missing = frozenset(
            resource for resource, heard in snapshot.counts.items() if _count_rows(session, resource) < heard
        )
        lost, self._suspect = missing & self._suspect, missing
        return bool(lost)

    def _is_due(self, task: str) -> bool:
        now = time.monotonic()
        if now - self._last_runs[task] < _PERIODS[task]:
            return False
        self._last_runs[task] = now
        return True


_PERIODS: Final = {"count": _COUNT_SECONDS, "purge": _PURGE_SECONDS}


def _count_rows(session: WatchSession, resource: Resource) -> int:
    """Count the rows of a kind, tombstones too: a worker may have heard of an end before we do."""
    return mirror.MIRRORED[resource].model.everything.filter(cluster=session.row).count()
