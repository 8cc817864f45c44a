"""A cluster in the test's own process, with a clock that the test sets: no test here sleeps."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollouts.sandbox.cluster.pod_lifecycle import KubeletTimings
from tests.sandbox.cluster.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """An empty cluster: namespaces and nothing else. Its pods take exactly as long as their annotation says."""
    made = Cluster(tmp_path / "sandbox.sqlite3", KubeletTimings())
    yield made
    made.close()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[[KubeletTimings], Cluster]]:
    """Clusters with other timings."""
    made: list[Cluster] = []

    def make(pace: KubeletTimings) -> Cluster:
        made.append(Cluster(tmp_path / f"sandbox-{len(made)}.sqlite3", pace))
        return made[-1]

    yield make
    for each in made:
        each.close()
