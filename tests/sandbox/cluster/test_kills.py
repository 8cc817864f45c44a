"""A kill after each write in turn: the end state is always the same.

A subscriber that raises right after a write was stored has the effect of `kill -9` at that line: the file has the
write, the memory is lost. The test runs a sequence once undisturbed and then once for each of its writes.
"""

from collections.abc import Callable

import pytest

from rollouts.sandbox.apiserver.storage import StorageChange
from rollouts.sandbox.cluster.cache import is_finished
from rollouts.sandbox.cluster.pod_lifecycle import KubeletTimings
from tests.sandbox.cluster.cluster import Cluster

End = dict[str, tuple[str | None, str | None]]


class Killed(BaseException):
    """A kill; no Exception, so that nothing in the sandbox catches it."""


def kill_after(cluster: Cluster, writes: int) -> None:
    left = [writes]

    def listener(_change: StorageChange) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    cluster.store.subscribe(listener)


def live(cluster: Cluster, kill: int | None) -> End:
    """Start a gang, lose a node, delete an owner with its dependents; with `kill`, be killed after so many writes."""

    def advance(seconds: float) -> None:
        end = cluster.now.timestamp() + seconds
        try:
            cluster.advance(seconds)
        except Killed:
            cluster.restart()
            cluster.advance(max(0.0, end - cluster.now.timestamp()))

    configs = cluster.registry.kind("configmaps")
    cluster.add_node("n1", gpus=2)
    cluster.add_node("n2", gpus=3)
    root = cluster.verbs.create(configs, "default", {"metadata": {"name": "root"}})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": root["metadata"]["uid"]}
    cluster.add_pod("owned", owner={**owner, "blockOwnerDeletion": True})
    for name in ("a1", "a2", "a3"):
        cluster.add_pod(name, gpus=1, gang="my-0")
    cluster.put_gang("my-0", a=(3, ["a1", "a2", "a3"]))
    cluster.add_pod("lone", gpus=2)
    cluster.add_pod("late", gpus=1)
    if kill is not None:
        kill_after(cluster, kill)
    advance(5)
    for kind, namespace, name in ((configs, "default", "root"), (cluster.nodes, None, "n1")):
        try:
            cluster.verbs.delete(kind, namespace, name, propagation="Foreground")
        except Killed:
            cluster.restart()
    advance(5)
    advance(30)
    assert cluster.store.get(configs, "default", "root") is None
    return {
        name: (node, cluster.condition(cluster.pod(name), "Ready"))
        for name, node in cluster.placement().items()
        if not is_finished(cluster.pod(name))
    }


@pytest.mark.slow
def test_a_kill_after_any_write_changes_nothing_about_the_end(
    make_cluster: Callable[[KubeletTimings], Cluster],
) -> None:
    undisturbed = make_cluster(KubeletTimings())
    end = live(undisturbed, None)
    writes = undisturbed.simulation.client.write_counts.total()
    assert end
    for number in range(1, writes + 1):
        assert live(make_cluster(KubeletTimings()), number) == end, f"killed after write {number}"
