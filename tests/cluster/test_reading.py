"""Reading from a server that does not answer, is slow, throttles or fails: repeated up to the deadline."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rollouts.cluster import (
    BadRequest,
    ClusterClient,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
    UnknownResource,
    Unsupported,
    kubeconfig,
)
from rollouts.cluster.resources import PODS
from tests.cluster import faults
from tests.cluster.conftest import STEADY
from tests.cluster.faults import Answer, FaultServer, failure, json, text

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n", "resourceVersion": "3"}}
PODS_LIST = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [POD]}

TRANSIENT = {
    "500": failure(500, "InternalError"),
    "502 from a proxy": text(502, b"<html>bad gateway</html>"),
    "503": failure(503, "ServiceUnavailable"),
    "504": failure(504, "Timeout"),
    "429 with a wait": json(429, {"kind": "Status", "reason": "TooManyRequests", "code": 429}, wait="0"),
    "429 without one": failure(429, "TooManyRequests"),
    "a cut connection": faults.cut,
    "half an answer": faults.truncated,
    "half a stream": faults.truncated_chunks,
    "not JSON": text(200, b"<html>welcome</html>"),
    "JSON that is no object": json(200, [1, 2]),
}
TRANSIENTLY = pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT.keys())
FRUITLESS = TRANSIENT | {"no answer": faults.hang}


def _get(cluster: ClusterClient) -> object:
    return cluster.get(PODS, "a", namespace="n")


def _list(cluster: ClusterClient) -> object:
    return cluster.list(PODS, namespace="n")


EACH_READ = pytest.mark.parametrize(("read", "body"), [(_get, POD), (_list, PODS_LIST)], ids=["get", "list"])


@TRANSIENTLY
@EACH_READ
def test_a_read_is_repeated_until_it_is_answered(
    cluster: ClusterClient, server: FaultServer, fault: Answer, read: Callable[[ClusterClient], object], body: object
) -> None:
    server.answers(fault, fault, json(200, body))
    assert read(cluster)
    assert len(server.requests) == 3


@EACH_READ
def test_a_read_that_meets_with_silence_is_repeated_until_it_is_answered(
    impatient: ClusterClient, server: FaultServer, read: Callable[[ClusterClient], object], body: object
) -> None:
    server.answers(faults.hang, faults.hang, json(200, body))
    assert read(impatient)
    assert len(server.requests) >= 3


@pytest.mark.parametrize("fault", FRUITLESS.values(), ids=FRUITLESS.keys())
def test_a_read_gives_up_in_the_end(hurried: ClusterClient, server: FaultServer, fault: Answer) -> None:
    server.answers(fault)
    with pytest.raises((Unavailable, Throttled), match="get pods n/a: "):
        _get(hurried)
    server.wait_for_request()


def test_an_answer_that_never_ends_is_given_up(hurried: ClusterClient, server: FaultServer) -> None:
    server.answers(faults.dripping)
    # A drop that is late is taken for silence.
    with pytest.raises(Unavailable, match=r"not complete after|no answer within"):
        _get(hurried)


def test_an_answer_without_end_is_no_silence(server: FaultServer, config_file: Path) -> None:
    server.answers(faults.dripping)
    cluster = ClusterClient(kubeconfig(config_file), retry_policy=replace(STEADY, deadline=0.4))
    # With a write: the timeout of a read is cut to what is left until its deadline.
    with pytest.raises(Unavailable, match="not complete after"):
        cluster.create(PODS, POD)


def test_a_server_that_is_away_is_unavailable(hurried: ClusterClient, server: FaultServer) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(Unavailable, match="the API server cannot be reached"):
        hurried.version()


def test_a_wait_that_the_server_asks_for_is_kept(cluster: ClusterClient, server: FaultServer) -> None:
    # Longer than our patience: reported at once instead of waited for.
    server.answers(json(429, {"kind": "Status", "reason": "TooManyRequests", "code": 429}, wait="300"))
    with pytest.raises(Throttled) as refusal:
        _get(cluster)
    assert refusal.value.retry_after == 300
    assert len(server.requests) == 1


def test_the_wait_may_stand_in_the_status(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(failure(429, "TooManyRequests", details={"retryAfterSeconds": 200}))
    with pytest.raises(Throttled) as refusal:
        _get(cluster)
    assert refusal.value.retry_after == 200


def test_a_wait_given_as_a_date_is_left_to_our_own_back_off(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(json(503, {"kind": "Status"}, wait="Fri, 31 Dec 1999 23:59:59 GMT"), json(200, POD))
    assert _get(cluster) == POD


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (failure(400, "BadRequest"), BadRequest),
        (failure(401, "Unauthorized"), Unauthorized),
        (failure(403, "Forbidden"), Forbidden),
        (failure(404, "NotFound", details={"name": "a", "kind": "pods"}), NotFound),
        (failure(404, "NotFound", details={}), UnknownResource),
        (text(404, b"404 page not found\n"), UnknownResource),
        (text(404, b"<html>lost?</html>"), UnknownResource),
        (failure(405, "MethodNotAllowed"), Unsupported),
        (failure(406, "NotAcceptable"), Unsupported),
        (failure(409, "Conflict"), Conflict),
        (failure(410, "Expired"), Expired),
        (failure(422, "Invalid"), Invalid),
        (text(302, b""), ClusterError),
        (text(418, b"teapot"), ClusterError),
        (json(403, "a string"), Forbidden),
        (json(403, {"kind": "Status", "details": "odd", "message": 7}), Forbidden),
    ],
)
def test_a_refusal_is_not_asked_for_twice(
    cluster: ClusterClient, server: FaultServer, answer: Answer, expected: type[ClusterError]
) -> None:
    server.answers(answer)
    with pytest.raises(ClusterError) as refusal:
        _get(cluster)
    assert type(refusal.value) is expected
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"items": [POD]},
        {"metadata": {}, "items": {}},
        {"metadata": [], "items": []},
        {"metadata": {}, "items": [POD, "nonsense"]},
        {"metadata": {}, "items": [{"metadata": {"name": "a"}}]},
        {"kind": "Status"},
    ],
    ids=str,
)
def test_an_answer_that_is_no_list_is_an_error(cluster: ClusterClient, server: FaultServer, body: object) -> None:
    server.answers(json(200, body))
    with pytest.raises(Unavailable, match="not a list of objects"):
        _list(cluster)


def test_a_list_without_items_is_empty(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(json(200, {"metadata": {"resourceVersion": "1"}, "items": None}))
    assert list(cluster.list(PODS).items) == []


def test_a_list_whose_pages_expire_is_read_once_more_in_one_piece(cluster: ClusterClient, server: FaultServer) -> None:
    first = PODS_LIST | {"metadata": {"resourceVersion": "7", "continue": "more"}}
    server.answers(json(200, first), failure(410, "Expired"), json(200, PODS_LIST))
    assert list(cluster.list(PODS).items) == [POD]
    assert ["limit" in request.query for request in server.requests] == [True, True, False]


def test_connections_are_kept_for_the_next_call(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(json(200, POD))
    for _ in range(5):
        _get(cluster)
    assert server.connections == 1
