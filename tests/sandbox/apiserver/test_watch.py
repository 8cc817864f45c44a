"""Watches over HTTP: the initial events, the changes, and the end of the stream."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from rollouts.sandbox.apiserver import storage as store_module
from rollouts.sandbox.apiserver.registry import Registry
from tests.sandbox.apiserver.objects import PODS, WIDGETS, pod, widget
from tests.sandbox.apiserver.serving import MERGE, Server, served
from tests.sandbox.apiserver.waiting import PATIENCE_SECONDS

Event = dict[str, Any]


@contextmanager
def watching(server: Server, path: str, accept: str = "application/json") -> Iterator[Iterator[Event]]:
    """An open watch; each event is awaited when asked for."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    with closing(connection):
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        assert response.status == 200
        yield _events(response)


def _events(response: HTTPResponse) -> Iterator[Event]:
    while line := response.readline():
        yield json.loads(line)


def _short(event: Event) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


def test_a_watch_without_a_revision_begins_with_what_there_is(server: Server) -> None:
    server.call("POST", WIDGETS, widget("a"))
    with watching(server, f"{WIDGETS}?watch=true&timeoutSeconds=30") as events:
        assert _short(next(events)) == ("ADDED", "a")
        server.call("POST", WIDGETS, widget("b"))
        assert _short(next(events)) == ("ADDED", "b")
        server.call("DELETE", f"{WIDGETS}/b")
        assert _short(next(events)) == ("DELETED", "b")


def test_a_watch_from_a_revision_misses_nothing_and_repeats_nothing(server: Server) -> None:
    server.call("POST", PODS, pod("a"))
    revision = server.call("GET", PODS).json["metadata"]["resourceVersion"]
    server.call("POST", PODS, pod("b"))
    server.call("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "1"}}}, MERGE)
    with watching(server, f"{PODS}?watch=true&resourceVersion={revision}&timeoutSeconds=30") as events:
        assert [_short(next(events)) for _ in range(2)] == [("ADDED", "b"), ("MODIFIED", "a")]


def test_an_object_that_starts_or_stops_matching_is_added_or_deleted_for_the_watch(server: Server) -> None:
    server.call("POST", PODS, pod("a"))
    with watching(server, f"{PODS}?watch=true&labelSelector=x%3D1&timeoutSeconds=30") as events:
        server.call("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "1"}}}, MERGE)
        assert _short(next(events)) == ("ADDED", "a")
        server.call("PATCH", f"{PODS}/a", {"metadata": {"labels": {"y": "1"}}}, MERGE)
        assert _short(next(events)) == ("MODIFIED", "a")
        server.call("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": None}}}, MERGE)
        assert _short(next(events)) == ("DELETED", "a")


def test_a_watch_sees_its_namespace_and_its_kind_only(server: Server) -> None:
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    with watching(server, f"{PODS}?watch=true&timeoutSeconds=30") as events:
        server.call("POST", PODS.replace("default", "other"), pod("elsewhere"))
        server.call("POST", WIDGETS, widget())
        server.call("POST", PODS, pod("here"))
        assert _short(next(events)) == ("ADDED", "here")


def test_bookmarks_end_the_initial_events_and_close_a_watch(server: Server) -> None:
    server.call("POST", PODS, pod("a"))
    query = "watch=true&allowWatchBookmarks=true&timeoutSeconds=1"
    streaming = f"{query}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    with watching(server, f"{PODS}?{streaming}") as events:
        assert _short(next(events)) == ("ADDED", "a")
        mark = next(events)
        assert mark["type"] == "BOOKMARK"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    with watching(server, f"{PODS}?{query}&resourceVersion={server.store.revision}") as events:
        last = list(events)[-1]
    assert last["type"] == "BOOKMARK"
    assert last["object"]["kind"] == "Pod"
    assert last["object"]["metadata"]["resourceVersion"] == str(server.store.revision)


def test_a_watch_ends_when_its_time_is_up(server: Server) -> None:
    with watching(server, f"{PODS}?watch=true&timeoutSeconds=1&resourceVersion={server.store.revision}") as events:
        assert list(events) == []


def test_a_watch_behind_the_log_gets_a_410_in_the_stream(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "WATCH_CACHE_SIZE", 3)
    start = server.store.revision
    for n in range(8):
        server.call("POST", PODS, pod(f"p{n}"))
    with watching(server, f"{PODS}?watch=true&resourceVersion={start}&timeoutSeconds=30") as events:
        (error,) = list(events)
    assert error["type"] == "ERROR"
    assert (error["object"]["code"], error["object"]["reason"]) == (410, "Expired")


def test_a_watch_from_before_a_restart_gets_a_410(tmp_path: Path, registry: Registry) -> None:
    with served(tmp_path / "s.sqlite3", registry) as first:
        old = first.store.revision
        first.call("POST", PODS, pod("a"))
        now = first.store.revision
    with served(tmp_path / "s.sqlite3", registry) as again:
        with watching(again, f"{PODS}?watch=true&resourceVersion={old}&timeoutSeconds=30") as events:
            assert next(events)["object"]["code"] == 410
        with watching(again, f"{PODS}?watch=true&resourceVersion={now}&timeoutSeconds=30") as events:
            again.call("POST", PODS, pod("b"))
            assert _short(next(events)) == ("ADDED", "b")


def test_a_watch_from_a_revision_of_another_store_is_told_at_once(server: Server) -> None:
    ahead = server.store.revision + 1000
    with watching(server, f"{PODS}?watch=true&resourceVersion={ahead}&timeoutSeconds=30") as events:
        (error,) = list(events)
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 504, "Timeout")


def test_a_table_watch_names_its_columns_once(server: Server) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    server.call("POST", PODS, pod("a"))
    with watching(server, f"{PODS}?watch=true&timeoutSeconds=30", accept) as events:
        first = next(events)["object"]
        server.call("POST", PODS, pod("b"))
        second = next(events)["object"]
    assert first["columnDefinitions"][0]["name"] == "Name"
    assert second["columnDefinitions"] is None
    assert second["rows"][0]["cells"][0] == "b"


def test_many_watches_all_hear_every_write(server: Server) -> None:
    heard: list[list[tuple[str, str]]] = [[] for _ in range(50)]
    ready = threading.Barrier(51)

    def listen(into: list[tuple[str, str]]) -> None:
        with watching(server, f"{PODS}?watch=true&timeoutSeconds=300&resourceVersion={start}") as events:
            ready.wait(PATIENCE_SECONDS)
            into += [_short(next(events)) for _ in range(20)]

    start = server.store.revision
    threads = [threading.Thread(target=listen, args=(one,)) for one in heard]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE_SECONDS)
    for n in range(20):
        server.call("POST", PODS, pod(f"p{n}"))
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert all(one == [("ADDED", f"p{n}") for n in range(20)] for one in heard)


def test_a_client_that_goes_away_is_forgotten(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"GET " + PODS.encode() + b"?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(12) == b"HTTP/1.1 200"
    for n in range(5):
        assert server.call("POST", PODS, pod(f"p{n}")).code == 201
