"""Errors as values: which class a Status becomes, what the message says, and that errors can be pickled."""

import pickle

import pytest

from rollouts.cluster import ClusterError, Conflict, Invalid, NotFound, RetryPolicy, StatusCause, Throttled
from rollouts.cluster.errors import from_status, parse_failure
from rollouts.cluster.retry_policy import compute_backoff

CAUSES = [
    {"reason": "FieldValueInvalid", "field": "spec.replicas", "message": "must be 0 or more"},
    {"message": "only a message"},
    "nonsense",
]


def test_an_error_says_what_was_asked_and_what_was_answered() -> None:
    status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": 'pods "a" not found'}
    error = from_status("get pods n/a", status | {"details": {"name": "a"}})
    assert isinstance(error, NotFound)
    assert str(error) == 'get pods n/a: pods "a" not found (404 NotFound)'
    assert (error.code, error.reason) == (404, "NotFound")


def test_the_causes_name_the_fields() -> None:
    error = from_status("create pods n", {"code": 422, "reason": "Invalid", "details": {"causes": CAUSES}})
    assert isinstance(error, Invalid)
    assert error.causes == (
        StatusCause("FieldValueInvalid", "spec.replicas", "must be 0 or more"),
        StatusCause("", "", "only a message"),
    )


def test_another_uid_is_a_conflict_however_the_server_puts_it() -> None:
    cause = {"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "field is immutable"}
    assert type(from_status("x", {"code": 422, "details": {"causes": [cause]}})) is Conflict


def test_an_answer_without_a_status_still_says_its_code() -> None:
    assert str(parse_failure("get version", 418, b"teapot")) == "get version: the server gave no reason (418)"


def test_an_error_can_be_sent_between_processes() -> None:
    error = from_status(
        "x", {"code": 429, "reason": "TooManyRequests", "details": {"causes": CAUSES, "retryAfterSeconds": 3}}
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is Throttled
    assert (str(copy), copy.code, copy.reason) == (str(error), 429, "TooManyRequests")
    assert (copy.causes, copy.retry_after) == (error.causes, 3.0)


def test_every_error_is_a_cluster_error() -> None:
    for code in range(300, 600):
        assert isinstance(parse_failure("x", code, b""), ClusterError)


@pytest.mark.parametrize(
    ("attempt", "low", "high"), [(0, 0.1, 0.2), (1, 0.2, 0.4), (2, 0.4, 0.8), (9, 7.5, 15.0), (10_000, 7.5, 15.0)]
)
def test_pauses_grow_up_to_a_limit_and_vary(attempt: int, low: float, high: float) -> None:
    pauses = {compute_backoff(RetryPolicy(), attempt) for _ in range(200)}
    assert low <= min(pauses) < max(pauses) <= high
    assert len(pauses) > 100


def test_a_pause_is_never_shorter_than_the_server_asked_for() -> None:
    assert compute_backoff(RetryPolicy(), 0, 3.0) == 3.0
    assert compute_backoff(RetryPolicy(), 9, 3.0) >= 7.5
