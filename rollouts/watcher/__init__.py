"""Keeps the mirror of one cluster current while this watcher is the leader.

Before it: `leader_election`, which decides which watcher leads, and `runtime.connections`, which makes the client.
After it: `session`, which watches the cluster and writes rows, `notifier`, which enqueues workloads and publishes
changes, and `cluster_status`, which reports the state of the connection.

`Watcher.run` is a loop with a turn every half second that only checks: the lease, the session, the database. It solves
every problem in the same way: it ends the session and begins another one, which lists everything again. If the cluster
cannot be used or the database does not answer, it tries again after growing pauses; watchers of other clusters are not
affected.
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
_COUNT_SECONDS: Final = 15.0  # between two comparisons of the number of rows with the number of objects
_PURGE_SECONDS: Final = 60.0
_TOMBSTONE_SECONDS: Final = 600.0  # far longer than a report can be delayed
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
        self._has_warned = False  # logged that the certificate of the cluster is not verified
        self._failures = 0  # sessions in a row that did not begin or did not become complete
        self._not_before = 0.0  # monotonic: when the next session may begin
        self._last_runs = dict.fromkeys(_PERIODS, 0.0)  # monotonic
        self._suspect: frozenset[Resource] = frozenset()  # kinds with too few rows at the last comparison
        self._stopped = threading.Event()

    def run(self) -> None:
        """Watch until `stop` is called."""
        self._notifier.start()
        try:
            while not self._stopped.is_set():
                try:
                    self._tick()
                except Exception:
                    logger.exception("The watcher of cluster %s failed; trying again", self._name)
                    self._back_off("the watcher failed")
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
                # Redis has lost the lease during the session, and perhaps more: keys of the queue for example.
                self._notifier.enqueue_all()
            if self._session is not None:
                self._check_session(self._session)
        except DatabaseError as error:
            # A running session waits for the database by itself.
            self._back_off(f"the database does not answer ({type(error).__name__})")
        finally:
            # Other processes need the connection. And a deleted database file stays open in a process that has it open:
            # only a new connection shows that the database is another one.
            connection.close()

    # Sessions

    def _begin_session(self) -> None:
        row = mirror.ensure_cluster(self._name, self._source)
        try:
            cluster = self._connect()
        except Misconfigured as error:
            self._status_reporter.publish(row, HealthIssue(models.Trouble.MISCONFIGURED, str(error)), None)
            self._back_off(str(error))
            # Another watcher may have a valid configuration.
            self._leader_election.release()
            return
        self._warn_if_unverified(cluster)
        self._session = WatchSession(row, cluster, self._notifier, self._on_batch)
        self._session.start()
        self._suspect = frozenset()

    def _warn_if_unverified(self, cluster: ClusterClient) -> None:
        """Log once, not with every session, that the certificate of the server is not verified."""
        if cluster.is_verified or self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "The certificate of cluster %s at %s is not verified (insecure-skip-tls-verify): others on the network can"
            " read and change the traffic. Put certificate-authority into the kubeconfig instead.",
            self._name,
            cluster.url,
        )

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def _back_off(self, why: str) -> None:
        """Postpone the next session, longer each time."""
        pause = compute_backoff(_RETRY_POLICY, self._failures)
        if self._failures == 0:
            logger.warning("Cluster %s is not watched: %s", self._name, why)
        self._failures += 1
        self._not_before = time.monotonic() + pause

    # Checks

    def _check_session(self, session: WatchSession) -> None:
        snapshot = session.watch_state.snapshot()
        issue = find_health_issue(snapshot.failures)
        # Until all is listed the mirror is as old as before the session, and the heartbeat must not show it as fresh.
        if issue is not None or session.is_complete:
            self._status_reporter.publish(session.row, issue, snapshot)
        if session.is_complete:
            self._failures = 0
        if session.is_obsolete or self._is_mirror_lost(session, snapshot):
            self._end_session()
            self._back_off("its mirror must be listed again")
        if self._is_due("purge"):
            mirror.delete_tombstones(before=time.time() - _TOMBSTONE_SECONDS)

    def _is_mirror_lost(self, session: WatchSession, snapshot: WatchSnapshot) -> bool:
        """Return whether the database has lost what the session wrote: it was created again, or rows were deleted."""
        expected = session.is_complete
        # By its name too: in a database that was created again the key may be another cluster's.
        rows = models.Cluster.objects.filter(pk=session.row.pk, name=session.row.name)
        row = rows.values_list("complete", flat=True).first()
        if row is None or (expected and not row):
            return True
        if not expected or not self._is_due("count"):
            return False
        # A change may not be written yet: only a kind with too few rows twice has lost some.
        missing = frozenset(
            resource for resource, count in snapshot.counts.items() if _count_rows(session, resource) < count
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
    """Count the rows of a kind, tombstones too: a worker may store an end before the watch reports it."""
    return mirror.MIRRORED[resource].model.everything.filter(cluster=session.row).count()
