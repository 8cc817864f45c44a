"""A key whose pass has ended and that is due again later: the only way into the delayed keys, beside a failure."""

from rollouts.queue.workqueue import FinishResult, WorkQueue


def delay(queue: WorkQueue, key: str, delay_ms: int) -> None:
    """Process a key and make it due again after a delay."""
    queue.add([key])
    claim = queue.claim(key)
    assert claim is not None
    assert queue.requeue_after(claim, delay_ms) is FinishResult.FREE
