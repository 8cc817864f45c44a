"""Writing to a server that does not answer, is slow, throttles or fails: sent exactly once, and the error is raised."""

import threading
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from rollouts.cluster import (
    ClusterClient,
    ClusterError,
    Conflict,
    Invalid,
    RetryPolicy,
    Throttled,
    TooLarge,
    Unauthorized,
    Unavailable,
    kubeconfig,
)
from rollouts.cluster.resources import NODES, PODS
from tests.cluster import faults
from tests.cluster.faults import Answer, FaultServer, Handler, failure, json, text, write_kubeconfig

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n"}}
Write = Callable[[ClusterClient], object]

WRITES: dict[str, Write] = {
    "create": lambda cluster: cluster.create(PODS, POD),
    "update": lambda cluster: cluster.update(PODS, POD),
    "merge patch": lambda cluster: cluster.patch_merge(PODS, "a", {}, namespace="n"),
    "JSON patch": lambda cluster: cluster.patch_json(PODS, "a", [], namespace="n"),
    "apply": lambda cluster: cluster.apply(PODS, POD),
    "delete": lambda cluster: cluster.delete(PODS, "a", namespace="n"),
    "evict": lambda cluster: cluster.evict("a", namespace="n"),
}
EACH_WRITE = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())

FAULTS: dict[str, tuple[Answer, type[ClusterError]]] = {
    "500": (failure(500, "InternalError"), Unavailable),
    "503": (failure(503, "ServiceUnavailable"), Unavailable),
    "429": (failure(429, "TooManyRequests", details={"retryAfterSeconds": 0}), Throttled),
    "409": (failure(409, "Conflict"), Conflict),
    "413": (text(413, b"too large"), TooLarge),
    "a cut connection": (faults.cut, Unavailable),
    "half an answer": (faults.truncated, Unavailable),
    "not JSON": (text(200, b"<html>welcome</html>"), Unavailable),
}


@EACH_WRITE
@pytest.mark.parametrize("fault", FAULTS.keys())
def test_a_write_that_fails_is_sent_once_and_reported(
    cluster: ClusterClient, server: FaultServer, write: Write, fault: str
) -> None:
    answer, expected = FAULTS[fault]
    server.answers(answer)
    with pytest.raises(expected):
        write(cluster)
    assert len(server.requests) == 1


@EACH_WRITE
@pytest.mark.parametrize("fault", [faults.hang, faults.dripping], ids=["no answer", "an endless answer"])
def test_a_write_whose_answer_does_not_come_is_sent_once_and_given_up(
    hurried: ClusterClient, server: FaultServer, write: Write, fault: Answer
) -> None:
    server.answers(fault)
    with pytest.raises(Unavailable):
        write(hurried)
    server.wait_for_request()
    assert len(server.requests) == 1


@EACH_WRITE
def test_a_write_on_a_connection_that_was_closed_meanwhile_is_not_lost(
    cluster: ClusterClient, server: FaultServer, write: Write
) -> None:
    closed = threading.Event()

    def answer_and_close(handler: Handler) -> None:
        json(200, POD)(handler)
        handler.drop()
        closed.set()

    server.answers(answer_and_close, json(200, POD))
    write(cluster)
    assert closed.wait(30)
    write(cluster)
    assert len(server.requests) == 2


def test_writes_say_who_writes_and_who_asks(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(json(200, POD))
    cluster.create(PODS, POD)
    (request,) = server.requests
    assert request.query == {"fieldManager": ["grove-ui"]}
    assert request.headers["User-Agent"] == "grove-ui"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Authorization"] == "Bearer s3cret-token"


def test_preconditions_go_with_a_delete(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(json(200, POD))
    cluster.delete(PODS, "a", namespace="n", uid="u", resource_version="7", grace_seconds=0, propagation="Foreground")
    assert orjson.loads(server.requests[0].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }


def test_many_threads_write_at_once(server: FaultServer, config_file: Path) -> None:
    everybody_is_here = threading.Barrier(8)

    def answer(handler: Handler) -> None:
        # Answers only when all eight requests have arrived.
        everybody_is_here.wait(30)
        json(200, POD)(handler)

    server.answers(answer)
    cluster = ClusterClient(kubeconfig(config_file), retry_policy=RetryPolicy())
    threads = [threading.Thread(target=cluster.create, args=(PODS, POD)) for _ in range(8)]
    for _ in range(2):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        threads = [threading.Thread(target=cluster.create, args=(PODS, POD)) for _ in range(8)]
    assert len(server.requests) == 16
    assert server.connections == 8


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../nodes", "a%2fb"])
def test_a_name_that_would_lead_elsewhere_never_leaves_the_house(
    cluster: ClusterClient, server: FaultServer, name: str
) -> None:
    server.answers(json(200, POD))
    with pytest.raises(Invalid) as refusal:
        cluster.delete(PODS, name, namespace="n")
    assert refusal.value.causes[0].field == "metadata.name"
    with pytest.raises(Invalid):
        cluster.list(PODS, namespace=name)
    assert server.requests == []


def test_a_name_is_quoted(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(json(200, POD))
    cluster.get(NODES, "a?watch=true#x y")
    assert server.requests[0].path == "/api/v1/nodes/a%3Fwatch%3Dtrue%23x%20y"
    assert server.requests[0].query == {}


def test_a_call_that_forgets_the_namespace_is_a_mistake_of_ours(cluster: ClusterClient) -> None:
    with pytest.raises(ValueError, match="no namespace was given"):
        cluster.delete(PODS, "a")
    with pytest.raises(ValueError, match="names no namespace"):
        cluster.create(PODS, {"metadata": {"name": "a"}})
    with pytest.raises(ValueError, match="are not namespaced"):
        cluster.get(NODES, "a", namespace="n")


def _expect(token: str) -> Answer:
    def answer(handler: Handler) -> None:
        known = handler.headers["Authorization"] == f"Bearer {token}"
        (json(200, POD) if known else failure(401, "Unauthorized"))(handler)

    return answer


@EACH_WRITE
def test_new_credentials_are_tried_once_when_the_old_are_refused(
    cluster: ClusterClient, server: FaultServer, config_file: Path, write: Write
) -> None:
    server.answers(_expect("fresh"))
    write_kubeconfig(config_file, server.url, {"token": "fresh"})
    write(cluster)
    write(cluster)
    assert [one.headers["Authorization"] for one in server.requests] == [
        "Bearer s3cret-token",
        "Bearer fresh",
        "Bearer fresh",
    ]


def test_refused_credentials_without_new_ones_are_reported(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(_expect("fresh"))
    for _ in range(2):
        with pytest.raises(Unauthorized):
            cluster.create(PODS, POD)
    assert len(server.requests) == 2


def test_credentials_that_cannot_be_loaded_again_leave_the_refusal(
    cluster: ClusterClient, server: FaultServer, config_file: Path
) -> None:
    server.answers(_expect("fresh"))
    config_file.unlink()
    with pytest.raises(Unauthorized):
        cluster.create(PODS, POD)
