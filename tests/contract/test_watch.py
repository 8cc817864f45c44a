"""Watches: single streams of the API, and the unbroken sequence of changes that the adapter makes of them."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from rollouts.cluster import (
    Bookmark,
    Changed,
    ClusterClient,
    ClusterError,
    ConnectionLost,
    ConnectionRestored,
    Deleted,
    Resource,
    Synced,
    UnknownResource,
    Watch,
    WatchEvent,
    kubeconfig,
)
from rollouts.cluster.resources import PODCLIQUES, PODS
from tests.builtin_resources import CONFIGMAPS
from tests.contract.conftest import PATIENCE, Server
from tests.contract.manifests import config_map, minimal, pod_clique
from tests.contract.raw import Raw
from tests.parts import missing

WAIT_SECONDS = 60.0
BOOKMARK_SECONDS = 240.0  # a kube-apiserver was seen to take from 45 to 90 s until it sent the first one


class Account:
    """A watch that runs in a thread of its own, and the notes it has yielded."""

    def __init__(self, watch: Watch) -> None:
        self._notes: SimpleQueue[WatchEvent] = SimpleQueue()
        self._watch = watch
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def next(self) -> WatchEvent:
        """Return the next note that is neither a bookmark nor about the connection."""
        while True:
            note = self.any()
            if not isinstance(note, Bookmark | ConnectionLost | ConnectionRestored):
                return note

    def any(self) -> WatchEvent:
        """Return the next note."""
        try:
            return self._notes.get(timeout=WAIT_SECONDS)
        except Empty:
            raise AssertionError("the watch told nothing more") from None

    def synced(self) -> tuple[list[str], Synced]:
        """Return the names of a list, and the note that closed it."""
        names = []
        while not isinstance(note := self.next(), Synced):
            assert isinstance(note, Changed)
            names.append(note.obj["metadata"]["name"])
        return names, note

    def stop(self) -> None:
        """Stop the watch, and check that its thread ends."""
        self._watch.stop()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        for note in self._watch:
            self._notes.put(note)


Follow = Callable[..., Account]


@pytest.fixture
def follow(cluster: ClusterClient, namespace: str) -> Iterator[Follow]:
    """Begin a watch in the test's namespace."""
    accounts: list[Account] = []

    def begin(resource: Resource = PODCLIQUES, **scope: Any) -> Account:
        accounts.append(Account(Watch(cluster, resource, **({"namespace": namespace} | scope))))
        return accounts[-1]

    yield begin
    for account in accounts:
        account.stop()


def _path(namespace: str, query: str, *, seconds: int = 30) -> str:
    root = f"/apis/grove.io/v1alpha1/namespaces/{namespace}/podcliques"
    return f"{root}?watch=true&timeoutSeconds={seconds}&{query}"


@pytest.mark.parametrize("resource", [CONFIGMAPS, PODCLIQUES, PODS], ids=str)
def test_a_watch_tells_the_list_and_then_every_change(
    cluster: ClusterClient, namespace: str, follow: Follow, resource: Resource
) -> None:
    first = cluster.create(resource, minimal(resource, namespace, "a"))
    account = follow(resource)
    assert account.next() == Changed(first)
    synced = account.next()
    assert isinstance(synced, Synced)
    assert synced.keys == {(namespace, "a", first["metadata"]["uid"])}
    second = cluster.create(resource, minimal(resource, namespace, "b"))
    assert account.next() == Changed(second)
    patched = cluster.patch_merge(resource, "b", {"metadata": {"labels": {"l": "1"}}}, namespace=namespace)
    assert account.next() == Changed(patched)
    cluster.delete(resource, "b", namespace=namespace)
    deleted = account.next()
    if isinstance(deleted, Changed):
        # A pod is first reported as terminating, even when its grace period is 0.
        assert (resource, "deletionTimestamp" in deleted.obj["metadata"]) == (PODS, True)
        deleted = account.next()
    assert isinstance(deleted, Deleted)
    assert deleted.obj["metadata"]["uid"] == second["metadata"]["uid"]
    assert int(deleted.obj["metadata"]["resourceVersion"]) > int(patched["metadata"]["resourceVersion"])


def test_the_list_of_a_watch_comes_in_pages(cluster: ClusterClient, namespace: str, follow: Follow) -> None:
    for name in "abcde":
        cluster.create(PODCLIQUES, pod_clique(namespace, name))
    names, synced = follow(page_size=2).synced()
    assert names == list("abcde")
    assert len(synced.keys) == 5


def test_a_watch_begins_where_the_listener_left_off(cluster: ClusterClient, namespace: str, follow: Follow) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "before"))
    since = cluster.list(PODCLIQUES, namespace=namespace).resource_version
    missed = cluster.create(PODCLIQUES, pod_clique(namespace, "missed"))
    account = follow(resource_version=since)
    assert account.next() == Changed(missed)
    cluster.delete(PODCLIQUES, "before", namespace=namespace)
    assert isinstance(account.next(), Deleted)


def test_a_stream_resumes_where_an_ended_one_stopped(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    since = f"resourceVersion={created['metadata']['resourceVersion']}"
    with raw.watch(_path(namespace, since, seconds=1)) as events:
        assert list(events) == []
    patched = cluster.patch_merge(PODCLIQUES, "a", {"spec": {"replicas": 3}}, namespace=namespace)
    with raw.watch(_path(namespace, since)) as events:
        assert next(events) == {"type": "MODIFIED", "object": patched}


def test_a_watch_outlives_the_streams_it_is_made_of(server: Server, namespace: str) -> None:
    # The server ends each stream after a second; the watch goes on.
    short = ClusterClient(kubeconfig(server.kubeconfig), retry_policy=replace(PATIENCE, watch_timeout=1))
    account = Account(Watch(short, PODCLIQUES, namespace=namespace))
    account.synced()
    for replicas in range(3):
        manifest = pod_clique(namespace, f"n{replicas}")
        created = short.create(PODCLIQUES, manifest)
        assert account.next() == Changed(created)
        with short.open_watch(PODCLIQUES, created["metadata"]["resourceVersion"], namespace=namespace) as stream:
            assert [line for line in stream.lines() if b"BOOKMARK" not in line] == []
    account.stop()


def test_a_watch_that_the_server_has_forgotten_lists_again(
    cluster: ClusterClient, server: Server, namespace: str, follow: Follow
) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    server.forget()
    account = follow(resource_version="1")
    names, synced = account.synced()
    assert names == ["a"]
    assert {key.uid for key in synced.keys} == {created["metadata"]["uid"]}
    second = cluster.create(PODCLIQUES, pod_clique(namespace, "b"))
    assert account.next() == Changed(second)


def test_a_stream_from_a_forgotten_version_says_410(
    cluster: ClusterClient, server: Server, raw: Raw, namespace: str
) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    server.forget()
    with raw.watch(_path(namespace, "resourceVersion=1")) as events:
        event = next(events)
    assert event["type"] == "ERROR"
    assert (event["object"]["kind"], event["object"]["code"]) == ("Status", 410)
    assert event["object"]["reason"] in {"Expired", "Gone"}


def test_a_watch_sees_what_starts_and_stops_to_match_its_selector(
    cluster: ClusterClient, namespace: str, follow: Follow
) -> None:
    account = follow(labels="colour=red")
    account.synced()
    cluster.create(PODCLIQUES, pod_clique(namespace, "blue", labels={"colour": "blue"}))
    red = cluster.create(PODCLIQUES, pod_clique(namespace, "a", labels={"colour": "red"}))
    assert account.next() == Changed(red)
    paint = {"metadata": {"labels": {"colour": "blue"}}}
    cluster.patch_merge(PODCLIQUES, "a", paint, namespace=namespace)
    gone = account.next()
    assert isinstance(gone, Deleted)
    assert gone.obj["metadata"]["name"] == "a"
    back = cluster.patch_merge(PODCLIQUES, "a", {"metadata": {"labels": {"colour": "red"}}}, namespace=namespace)
    assert account.next() == Changed(back)


def test_a_watch_of_one_object_hears_of_no_other(cluster: ClusterClient, namespace: str, follow: Follow) -> None:
    account = follow(fields="metadata.name=a")
    account.synced()
    cluster.create(PODCLIQUES, pod_clique(namespace, "b"))
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    assert account.next() == Changed(created)


def test_a_watch_of_all_namespaces_hears_of_each(cluster: ClusterClient, namespace: str, follow: Follow) -> None:
    account = follow(CONFIGMAPS, namespace=None, labels=f"in={namespace}")
    account.synced()
    here = cluster.create(CONFIGMAPS, config_map(namespace, "a", labels={"in": namespace}))
    assert account.next() == Changed(here)
    there = cluster.create(CONFIGMAPS, config_map("default", namespace, labels={"in": namespace}))
    assert account.next() == Changed(there)


def test_status_writes_and_held_deletions_are_changes(cluster: ClusterClient, namespace: str, follow: Follow) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a", finalizers=["example.com/held"]))
    account = follow()
    account.synced()
    status = {"status": {"replicas": 1}}
    patched = cluster.patch_merge(PODCLIQUES, "a", status, namespace=namespace, subresource="status")
    assert account.next() == Changed(patched)
    leaving = cluster.delete(PODCLIQUES, "a", namespace=namespace)
    assert account.next() == Changed(leaving)
    cluster.patch_merge(PODCLIQUES, "a", {"metadata": {"finalizers": None}}, namespace=namespace)
    assert isinstance(account.next(), Deleted)


def test_a_write_that_changes_nothing_is_not_told(cluster: ClusterClient, namespace: str, follow: Follow) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    account = follow()
    account.synced()
    cluster.update(PODCLIQUES, created)
    cluster.patch_merge(PODCLIQUES, "a", {"spec": {"replicas": 5}}, namespace=namespace, dry_run=True)
    patched = cluster.patch_merge(PODCLIQUES, "a", {"spec": {"replicas": 3}}, namespace=namespace)
    assert account.next() == Changed(patched)


def test_changes_of_many_writers_come_in_the_order_of_their_versions(
    cluster: ClusterClient, namespace: str, follow: Follow
) -> None:
    account = follow(CONFIGMAPS)
    account.synced()

    def write(writer: int) -> None:
        for number in range(10):
            cluster.create(CONFIGMAPS, config_map(namespace, f"w{writer}-{number}"))

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in writers:
        thread.start()
    versions = []
    for _ in range(40):
        note = account.next()
        assert isinstance(note, Changed)
        versions.append(int(note.obj["metadata"]["resourceVersion"]))
    for thread in writers:
        thread.join()
    assert versions == sorted(set(versions))


def test_a_bookmark_comes_before_the_end_of_a_quiet_stream(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    query = f"resourceVersion={created['metadata']['resourceVersion']}&allowWatchBookmarks=true"
    # The change is in another namespace, so only a bookmark can show that the stream has got that far.
    elsewhere = cluster.create(PODCLIQUES, pod_clique("default", namespace))
    told: list[dict[str, Any]] = []
    deadline = time.monotonic() + BOOKMARK_SECONDS
    while not told and time.monotonic() < deadline:
        # It is due two seconds before the end. A kube-apiserver that has just loaded the kind skips it for a while.
        with raw.watch(_path(namespace, query, seconds=5)) as events:
            told = list(events)
    cluster.delete(PODCLIQUES, namespace, namespace="default")
    assert {event["type"] for event in told} == {"BOOKMARK"}
    mark = told[-1]["object"]
    assert (mark["kind"], mark["apiVersion"]) == ("PodClique", "grove.io/v1alpha1")
    assert int(mark["metadata"]["resourceVersion"]) >= int(elsewhere["metadata"]["resourceVersion"])


def test_a_connection_outlasts_a_pause_between_two_requests(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    since = cluster.list(PODCLIQUES, namespace=namespace).resource_version
    with raw.connection() as get:
        assert get("/version") == 200
        with raw.watch(_path(namespace, f"resourceVersion={since}", seconds=6)) as events:
            assert list(events) == []
        assert get("/version") == 200


def test_a_stream_without_bookmarks_gets_none(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    since = cluster.list(PODCLIQUES, namespace=namespace).resource_version
    with raw.watch(_path(namespace, f"resourceVersion={since}", seconds=3)) as events:
        cluster.create(PODCLIQUES, pod_clique("default", namespace))
        assert list(events) == []
    cluster.delete(PODCLIQUES, namespace, namespace="default")


def test_a_stream_from_no_version_begins_with_what_is_there(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    for query in ("resourceVersion=0", "resourceVersion="):
        with raw.watch(_path(namespace, query)) as events:
            assert next(events) == {"type": "ADDED", "object": created}


def test_initial_events_end_with_a_bookmark_that_says_so(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    for name in ("a", "b"):
        cluster.create(PODCLIQUES, pod_clique(namespace, name))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with raw.watch(_path(namespace, query)) as events:
        first = [next(events)]
        if first[0]["type"] == "ERROR" and "RequestWatchProgress" in first[0]["object"]["message"]:
            missing("An etcd that can report progress", "put etcd 3.5.13 or newer into KUBEBUILDER_ASSETS")
        first += [next(events) for _ in range(2)]
        assert [event["type"] for event in first] == ["ADDED", "ADDED", "BOOKMARK"]
        assert first[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        created = cluster.create(PODCLIQUES, pod_clique(namespace, "c"))
        assert next(events) == {"type": "ADDED", "object": created}


def test_initial_events_need_a_version_match(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    answer = raw.call("GET", _path(namespace, "sendInitialEvents=true&allowWatchBookmarks=true"))
    assert answer.code == 422
    assert answer.status["reason"] == "Invalid"


def test_a_watch_from_nonsense_is_refused(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(ClusterError, match="nonsense"):
        cluster.open_watch(PODCLIQUES, "nonsense", namespace=namespace)


def test_a_watch_of_an_unknown_kind_says_why_it_hears_nothing(cluster: ClusterClient) -> None:
    account = Account(Watch(cluster, Resource("grove.io", "v1alpha1", "widgets", "Widget")))
    lost = account.any()
    account.stop()
    assert isinstance(lost, ConnectionLost)
    assert isinstance(lost.error, UnknownResource)


def test_a_watch_stops_at_once_while_nothing_happens(follow: Follow) -> None:
    account = follow()
    account.synced()
    account.stop()
