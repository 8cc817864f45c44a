"""What counts as a pod: which pods are live, available and scheduled."""

import pytest

from rollouts.engine.model.observed import Pod


def pod(*, ready: bool = True, leaving: bool = False, phase: str = "Running", node: str = "n-0") -> Pod:
    return Pod("a-0", "uid", "a", 0, "hash", 0.0, node, phase, ready=ready, leaving=leaving, gated=False)


@pytest.mark.parametrize(
    ("one", "live", "available"),
    [
        (pod(), True, True),
        (pod(ready=False), True, False),
        (pod(leaving=True), False, False),
        (pod(phase="Failed", ready=False), False, False),
        # The kubelet takes the Ready condition away with the phase, but a status may be half written.
        (pod(phase="Failed"), False, False),
        (pod(phase="Succeeded"), False, False),
        (pod(phase="Unknown"), True, True),
        (pod(phase="Pending", ready=False, node=""), True, False),
    ],
)
def test_a_pod_is_available_while_it_is_ready_and_neither_terminating_nor_ended(
    one: Pod, live: bool, available: bool
) -> None:
    assert (one.is_live, one.available) == (live, available)


def test_a_pod_is_scheduled_while_it_has_a_node_and_is_live() -> None:
    assert pod(ready=False).scheduled
    assert not pod(node="").scheduled
    assert not pod(leaving=True).scheduled
    assert not pod(phase="Failed").scheduled
