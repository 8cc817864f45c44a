"""The observer is called for every exchange: with the request, the status of the answer and the duration."""

from pathlib import Path

import pytest

from rollouts.cluster import ClusterClient, Conflict, Forbidden, Unavailable, kubeconfig
from rollouts.cluster.resources import PODCLIQUES, PODS
from tests.cluster.conftest import STEADY
from tests.cluster.faults import FaultServer, cut, failure, json

Exchanges = list[tuple[str, str, int]]


@pytest.fixture
def exchanges() -> Exchanges:
    return []


@pytest.fixture
def observed(config_file: Path, exchanges: Exchanges) -> ClusterClient:
    def observer(verb: str, resource: str, code: int, seconds: float) -> None:
        assert seconds >= 0
        exchanges.append((verb, resource, code))

    return ClusterClient(kubeconfig(config_file), retry_policy=STEADY, observer=observer)


def test_each_try_of_a_read_is_told(server: FaultServer, observed: ClusterClient, exchanges: Exchanges) -> None:
    server.answers(failure(500, "InternalError"), json(200, {"metadata": {"name": "a"}}))
    observed.get(PODS, "a", namespace="default")
    assert exchanges == [("get", "pods", 500), ("get", "pods", 200)]


def test_a_refused_write_is_told_with_its_code(
    server: FaultServer, observed: ClusterClient, exchanges: Exchanges
) -> None:
    server.answers(failure(409, "Conflict"))
    with pytest.raises(Conflict):
        observed.patch_merge(PODCLIQUES, "a", {}, namespace="default", subresource="status")
    assert exchanges == [("patch", "podcliques.grove.io", 409)]


def test_a_write_without_an_answer_is_told_with_code_0(
    server: FaultServer, observed: ClusterClient, exchanges: Exchanges
) -> None:
    server.answers(cut)
    with pytest.raises(Unavailable):
        observed.delete(PODS, "a", namespace="default", uid="1")
    assert exchanges == [("delete", "pods", 0)]


def test_a_watch_that_is_refused_is_told(server: FaultServer, observed: ClusterClient, exchanges: Exchanges) -> None:
    server.answers(failure(403, "Forbidden"))
    with pytest.raises(Forbidden):
        observed.open_watch(PODS, "1")
    assert exchanges == [("watch", "pods", 403)]
