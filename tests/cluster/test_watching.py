"""Watching a server that cuts, hangs, forgets or sends nonsense: the watch continues, says so, and can be stopped."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import orjson
import pytest

from rollouts.cluster import (
    Bookmark,
    Changed,
    ClusterClient,
    ConnectionLost,
    ConnectionRestored,
    Deleted,
    Forbidden,
    Obj,
    ObjectKey,
    RetryPolicy,
    Synced,
    Throttled,
    Unavailable,
    Watch,
    WatchEvent,
    kubeconfig,
)
from rollouts.cluster.resources import PODS
from tests.cluster import faults
from tests.cluster.conftest import STEADY
from tests.cluster.faults import Answer, FaultServer, Handler, failure, json, text

WAIT_SECONDS = 60.0


def _pod(version: int, name: str = "a", **more: str) -> Obj:
    metadata = {"name": name, "namespace": "n", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | more}


def _list(version: int, *pods: Obj) -> Answer:
    return json(200, {"metadata": {"resourceVersion": str(version)}, "items": pods})


def _line(kind: str, obj: Obj) -> bytes:
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def _stream(*chunks: bytes, then: str = "end") -> Answer:
    """A watch that sends these chunks and then ends properly, breaks off, or hangs."""

    def answer(handler: Handler) -> None:
        handler.begin_stream()
        for chunk in chunks:
            handler.send_chunk(chunk)
        {"end": handler.end_stream, "cut": handler.drop, "hang": handler.hang}[then]()

    return answer


@pytest.fixture
def notes(cluster: ClusterClient) -> Iterator[Iterator[WatchEvent]]:
    """The watch of the server's pods."""
    watch = Watch(cluster, PODS)
    yield iter(watch)
    watch.stop()


def _take(notes: Iterator[WatchEvent], count: int) -> list[WatchEvent]:
    return list(islice(notes, count))


def _watched_from(server: FaultServer) -> list[str]:
    return [one.query["resourceVersion"][0] for one in server.requests if "watch" in one.query]


def test_a_watch_asks_for_bookmarks_and_an_end(server: FaultServer, notes: Iterator[WatchEvent]) -> None:
    server.answers(_list(5, _pod(3)), _stream(_line("MODIFIED", _pod(6)), then="hang"))
    assert _take(notes, 1) == [Changed(_pod(3))]
    synced, changed = _take(notes, 2)
    assert synced == Synced(frozenset({ObjectKey("n", "a", "uid-a")}), "5")
    assert changed == Changed(_pod(6))
    query = server.requests[1].query
    assert (query["resourceVersion"], query["allowWatchBookmarks"]) == (["5"], ["true"])
    assert int(query["timeoutSeconds"][0]) > 0


def test_an_ended_stream_is_resumed_after_the_last_change(server: FaultServer, notes: Iterator[WatchEvent]) -> None:
    server.answers(
        _list(5),
        _stream(_line("ADDED", _pod(6))),
        _stream(_line("MODIFIED", _pod(7))),
        _stream(_line("DELETED", _pod(8)), then="hang"),
    )
    assert _take(notes, 4) == [
        Synced(frozenset(), "5"),
        Changed(_pod(6)),
        Changed(_pod(7)),
        Deleted(_pod(8)),
    ]
    assert _watched_from(server) == ["5", "6", "7"]


def test_a_bookmark_moves_the_point_to_resume_from(server: FaultServer, notes: Iterator[WatchEvent]) -> None:
    mark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "50"}}
    server.answers(_list(5), _stream(_line("BOOKMARK", mark)), _stream(_line("ADDED", _pod(51)), then="hang"))
    assert _take(notes, 3)[1:] == [Bookmark("50"), Changed(_pod(51))]
    assert _watched_from(server) == ["5", "50"]


def test_a_stream_that_is_cut_off_is_told_and_resumed(server: FaultServer, notes: Iterator[WatchEvent]) -> None:
    server.answers(
        _list(5), _stream(_line("ADDED", _pod(6)), then="cut"), _stream(_line("MODIFIED", _pod(7)), then="hang")
    )
    _, added, lost, regained, modified = _take(notes, 5)
    assert (added, modified) == (Changed(_pod(6)), Changed(_pod(7)))
    assert isinstance(lost, ConnectionLost)
    assert isinstance(lost.error, Unavailable)
    assert regained == ConnectionRestored()
    assert _watched_from(server) == ["5", "6"]


def test_half_a_line_is_not_told(server: FaultServer, notes: Iterator[WatchEvent]) -> None:
    line = _line("ADDED", _pod(6))
    server.answers(_list(5), _stream(line[:20], then="cut"), _stream(line, then="hang"))
    _, lost, regained, added = _take(notes, 4)
    assert isinstance(lost, ConnectionLost)
    assert (regained, added) == (ConnectionRestored(), Changed(_pod(6)))
    assert _watched_from(server) == ["5", "5"]


def test_lines_are_told_however_they_are_chopped(server: FaultServer, notes: Iterator[WatchEvent]) -> None:
    large = _pod(7, annotation="x" * 200_000)
    data = _line("ADDED", _pod(6)) + _line("MODIFIED", large) + b"\n" + _line("DELETED", _pod(8))
    chunks = [data[start : start + 7000] for start in range(0, len(data), 7000)]
    server.answers(_list(5), _stream(*chunks, then="hang"))
    assert _take(notes, 4)[1:] == [Changed(_pod(6)), Changed(large), Deleted(_pod(8))]


def test_a_quiet_stream_is_opened_anew_without_alarm(server: FaultServer, config_file: Path) -> None:
    server.answers(_list(5), _stream(then="hang"), _stream(_line("ADDED", _pod(6)), then="hang"))
    watch = Watch(ClusterClient(kubeconfig(config_file), retry_policy=replace(STEADY, watch_idle_timeout=0.3)), PODS)
    assert _take(iter(watch), 2) == [Synced(frozenset(), "5"), Changed(_pod(6))]
    watch.stop()
    # More than two if the change itself comes late.
    first, second, *more = _watched_from(server)
    assert {first, second, *more} == {"5"}


@pytest.mark.parametrize(
    "forgotten",
    [
        failure(410, "Expired"),
        _stream(_line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})),
        _stream(_line("ERROR", {"kind": "Status", "code": 410, "reason": "Gone", "message": "too old"})),
    ],
    ids=["answer", "event", "old event"],
)
def test_a_forgotten_version_is_followed_by_a_new_list(
    server: FaultServer, notes: Iterator[WatchEvent], forgotten: Answer
) -> None:
    server.answers(
        _list(5, _pod(3)), forgotten, _list(90, _pod(80, "b")), _stream(_line("ADDED", _pod(91)), then="hang")
    )
    assert _take(notes, 5) == [
        Changed(_pod(3)),
        Synced(frozenset({ObjectKey("n", "a", "uid-a")}), "5"),
        Changed(_pod(80, "b")),
        Synced(frozenset({ObjectKey("n", "b", "uid-b")}), "90"),
        Changed(_pod(91)),
    ]


def test_a_version_that_the_server_has_not_reached_is_followed_by_a_new_list(
    server: FaultServer, notes: Iterator[WatchEvent]
) -> None:
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    ahead = json(504, {"kind": "Status", "code": 504, "reason": "Timeout", "message": "too large", "details": details})
    server.answers(_list(500, _pod(400)), ahead, _list(5, _pod(3, "b")), _stream(then="hang"))
    assert _take(notes, 4)[2:] == [
        Changed(_pod(3, "b")),
        Synced(frozenset({ObjectKey("n", "b", "uid-b")}), "5"),
    ]


def test_a_list_whose_pages_expire_begins_again(server: FaultServer, notes: Iterator[WatchEvent]) -> None:
    first = json(200, {"metadata": {"resourceVersion": "5", "continue": "more"}, "items": [_pod(3)]})
    server.answers(first, failure(410, "Expired"), _list(9, _pod(3)), _stream(then="hang"))
    assert _take(notes, 3) == [
        Changed(_pod(3)),
        Changed(_pod(3)),
        Synced(frozenset({ObjectKey("n", "a", "uid-a")}), "9"),
    ]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (failure(500, "InternalError"), Unavailable),
        (failure(403, "Forbidden"), Forbidden),
        (failure(429, "TooManyRequests"), Throttled),
        (text(200, b"<html>welcome</html>"), Unavailable),
        (faults.cut, Unavailable),
    ],
    ids=["500", "403", "429", "nonsense", "cut"],
)
def test_a_list_that_fails_is_told_and_tried_again(
    server: FaultServer, notes: Iterator[WatchEvent], fault: Answer, expected: type[Exception]
) -> None:
    server.answers(fault, fault, _list(5), _stream(then="hang"))
    first, second, regained, synced = _take(notes, 4)
    assert isinstance(first, ConnectionLost)
    assert isinstance(second, ConnectionLost)
    assert type(first.error) is expected
    assert first.pause > 0
    assert (regained, synced) == (ConnectionRestored(), Synced(frozenset(), "5"))


def test_a_list_that_meets_with_silence_is_told_and_tried_again(server: FaultServer, impatient: ClusterClient) -> None:
    server.answers(faults.hang, faults.hang, _list(5), _stream(then="hang"))
    watch = Watch(impatient, PODS)
    told: list[WatchEvent] = []
    for note in watch:
        told.append(note)
        if isinstance(note, Synced):
            watch.stop()
            break
    first, second, *more, regained, synced = told
    for lost in (first, second, *more):
        assert isinstance(lost, ConnectionLost)
        assert type(lost.error) is Unavailable
    assert (regained, synced) == (ConnectionRestored(), Synced(frozenset(), "5"))


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[]\n",
        b"{}\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": {"metadata": {}}}\n',
        b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "6"}}}\n',
        b'{"type": "ERROR", "object": "x"}\n',
        _line("FADED", _pod(6)),
        _line("ERROR", {"kind": "Status", "code": 500, "message": "broken"}),
    ],
    ids=str,
)
def test_a_line_that_is_no_event_is_told_and_the_rest_heard_again(
    server: FaultServer, notes: Iterator[WatchEvent], line: bytes
) -> None:
    server.answers(_list(5), _stream(line, then="hang"), _stream(_line("ADDED", _pod(6)), then="hang"))
    _, lost, regained, added = _take(notes, 4)
    assert isinstance(lost, ConnectionLost)
    assert isinstance(lost.error, Unavailable)
    assert (regained, added) == (ConnectionRestored(), Changed(_pod(6)))


def test_a_server_that_ends_every_stream_at_once_is_asked_with_pauses(
    server: FaultServer, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long a busy machine takes to open and end a stream.
    monkeypatch.setattr("rollouts.cluster.watch._SHORT_STREAM", WAIT_SECONDS)
    server.answers(_list(5), _stream())
    cluster = ClusterClient(kubeconfig(config_file), retry_policy=RetryPolicy(initial_backoff=0.01, max_backoff=0.02))
    watch = Watch(cluster, PODS)
    pauses: list[float] = []

    class Clock(threading.Event):
        """Records how long the watch would wait, and ends it after some pauses."""

        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            if len(pauses) == 6:
                self.set()
            return self.is_set()

    watch._stopped = Clock()
    assert list(watch) == [Synced(frozenset(), "5")]
    assert len(pauses) == 6
    assert all(pause > 0 for pause in pauses)
    assert pauses[-1] > pauses[0]


def test_a_watch_begins_where_it_is_told_to(server: FaultServer, cluster: ClusterClient) -> None:
    server.answers(_stream(_line("ADDED", _pod(43)), then="hang"))
    watch = Watch(cluster, PODS, resource_version="42")
    assert next(iter(watch)) == Changed(_pod(43))
    watch.stop()
    assert _watched_from(server) == ["42"]


@pytest.fixture
def patient(config_file: Path) -> ClusterClient:
    """A client that would wait for minutes."""
    return ClusterClient(
        kubeconfig(config_file),
        retry_policy=RetryPolicy(watch_idle_timeout=600.0, initial_backoff=600.0, max_backoff=600.0),
    )


@pytest.mark.parametrize(
    "answers",
    [(_list(5), _stream(then="hang")), (failure(500, "InternalError"),)],
    ids=["in a silent stream", "in a pause"],
)
def test_a_watch_can_be_stopped_from_another_thread(
    server: FaultServer, patient: ClusterClient, answers: tuple[Answer, ...]
) -> None:
    server.answers(*answers)
    watch = Watch(patient, PODS)
    heard = threading.Event()

    def listen() -> None:
        for _ in watch:
            heard.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert heard.wait(WAIT_SECONDS)
    watch.stop()
    listener.join(WAIT_SECONDS)
    assert not listener.is_alive()


def test_a_stopped_watch_tells_nothing(server: FaultServer, cluster: ClusterClient) -> None:
    server.answers(_list(5))
    watch = Watch(cluster, PODS)
    watch.stop()
    assert list(watch) == []
    assert server.requests == []


def test_a_listener_that_turns_away_frees_the_connection(server: FaultServer, cluster: ClusterClient) -> None:
    server.answers(_list(5), _stream(_line("ADDED", _pod(6)), then="hang"))
    account = iter(Watch(cluster, PODS))
    _take(account, 2)
    account.close()  # type: ignore[attr-defined]
    server.answers(_list(7))
    assert cluster.list(PODS).resource_version == "7"
