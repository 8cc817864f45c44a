"""The process pool of a Celery worker, which notices when one of its processes dies in the middle of a pass.

Celery starts it (CELERY_WORKER_POOL) and replaces processes that died. This module adds one thing: the parent process
releases the claims of the dead one at once (`dispatch.release_claims`), and the next sweep sends their messages. If the
parent cannot do that, since it is gone or Redis does not answer, the leases of the claims run out within seconds.
"""

import logging
from typing import Any

from celery.concurrency import prefork
from redis import RedisError

logger = logging.getLogger(__name__)


class TaskPool(prefork.TaskPool):
    """Celery's pool of processes, whose parent releases the claims of a dead process."""

    _pool: Any

    def register_with_event_loop(self, loop: Any) -> None:
        """Let Celery install its callbacks, then call ours after the one for a process that ended."""
        super().register_with_event_loop(loop)
        pool = self._pool
        forget = pool.on_process_down

        def on_process_down(process: Any) -> None:
            forget(process)
            _release_claims(process.pid)

        pool.on_process_down = on_process_down


def _release_claims(pid: int) -> None:
    # Imported here: Celery imports this module before Django is set up.
    from rollouts.queue import dispatch  # noqa: PLC0415

    try:
        keys = dispatch.release_claims(pid)
    except RedisError as error:
        logger.warning(
            "Process %d has ended; its claims end with their leases, since Redis does not answer (%s)",
            pid,
            type(error).__name__,
        )
        return
    for key in keys:
        logger.warning("%s: process %d ended in the middle of a pass; another process continues", key, pid)
