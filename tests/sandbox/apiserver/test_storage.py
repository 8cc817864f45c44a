"""The storage keeps objects and revision counter over a kill of the process; the change log is bounded."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.sandbox.apiserver import storage as store_module
from rollouts.sandbox.apiserver.registry import Registry
from rollouts.sandbox.apiserver.storage import Storage, StorageChange, TooOldResourceVersionError
from tests.sandbox.apiserver.conftest import Api
from tests.sandbox.apiserver.objects import pod, widget
from tests.thoroughness import examples


def _put(store: Storage, registry: Registry, name: str, value: str = "") -> None:
    kind = registry.kind("configmaps")
    store.put(kind, {"metadata": {"name": name, "namespace": "default"}, "data": {"v": value}})


def test_a_reopened_store_has_every_object_and_goes_on_counting(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "s.sqlite3"
    first = Storage.open(path)
    _put(first, registry, "a", "1")
    _put(first, registry, "b")
    stored = first.get(registry.kind("configmaps"), "default", "b")
    assert stored is not None
    first.remove(registry.kind("configmaps"), stored.obj)
    revision = first.revision
    first.close()

    again = Storage.open(path)
    assert [one.obj["metadata"]["name"] for one in again.list(registry.kind("configmaps"))] == ["a"]
    assert again.revision == revision
    _put(again, registry, "c")
    assert again.revision == revision + 1
    again.close()


def test_a_killed_process_loses_nothing_it_has_acknowledged(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "s.sqlite3"
    script = (
        "import sys\n"
        "from rollouts.sandbox.apiserver.registry import Registry\n"
        "from rollouts.sandbox.apiserver.storage import Storage\n"
        "store, kind = Storage.open(sys.argv[1]), Registry.load().kind('configmaps')\n"
        "for n in range(1_000_000):\n"
        "    metadata = {'name': f'n{n % 7}', 'namespace': 'default'}\n"
        "    obj = store.put(kind, {'metadata': metadata, 'data': {'n': str(n)}})\n"
        "    if n % 5 == 4:\n"
        "        store.remove(kind, obj)\n"
        "    print(n, store.revision, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    heard = [process.stdout.readline() for _ in range(200)]
    os.kill(process.pid, signal.SIGKILL)
    heard += process.stdout.readlines()
    process.wait()
    last, revision = map(int, next(line for line in reversed(heard) if line.endswith("\n")).split())

    reopened = Storage.open(path)
    kind = registry.kind("configmaps")
    assert reopened.revision >= revision
    survivor = next(n for n in (last, last - 1) if n % 5 != 4)
    stored = reopened.get(kind, "default", f"n{survivor % 7}")
    assert stored is not None
    assert int(stored.obj["data"]["n"]) >= survivor
    reopened.close()


def test_changes_are_read_on_from_any_revision_in_the_log(api: Api) -> None:
    start = api.store.revision
    api.verbs.create(api.widgets, "default", widget("a"))
    middle = api.store.revision
    api.verbs.create(api.widgets, "default", widget("b"))
    api.verbs.delete(api.widgets, "default", "a")

    def seen(since: int) -> list[tuple[str, str]]:
        return [(one.type, one.obj["metadata"]["name"]) for one in api.store.changes(api.widgets, since)]

    assert seen(start) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert seen(middle) == [("ADDED", "b"), ("DELETED", "a")]
    assert seen(api.store.revision) == []


def test_a_reader_behind_the_log_is_told_so(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "WATCH_CACHE_SIZE", 5)
    start = api.store.revision
    for n in range(12):
        api.verbs.create(api.pods, "default", pod(f"p{n}"))
    with pytest.raises(TooOldResourceVersionError) as raised:
        api.store.changes(api.pods, start)
    kept = api.store.changes(api.pods, raised.value.oldest - 1)
    assert 5 <= len(kept) < 10


def test_changes_from_before_a_restart_are_gone(tmp_path: Path, registry: Registry) -> None:
    first = Storage.open(tmp_path / "s.sqlite3")
    _put(first, registry, "a")
    before = first.revision
    _put(first, registry, "b")
    first.close()
    again = Storage.open(tmp_path / "s.sqlite3")
    with pytest.raises(TooOldResourceVersionError):
        again.changes(registry.kind("configmaps"), before)
    assert not again.changes(registry.kind("configmaps"), again.revision)
    again.close()


def test_listeners_hear_writes_in_order_even_when_one_of_them_writes(api: Api) -> None:
    heard: list[tuple[str, str]] = []

    def answer(change: StorageChange) -> None:
        if change.kind is api.pods and change.type == "ADDED" and change.obj["metadata"]["name"] == "a":
            api.verbs.create(api.pods, "default", pod("b"))

    def note(change: StorageChange) -> None:
        heard.append((change.type, change.obj["metadata"]["name"]))

    api.store.subscribe(answer)
    unlisten = api.store.subscribe(note)
    api.verbs.create(api.pods, "default", pod("a"))
    assert heard == [("ADDED", "a"), ("ADDED", "b")]
    unlisten()
    api.verbs.delete(api.pods, "default", "a")
    assert len(heard) == 2


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["put", "remove"])), max_size=30), st.data())
def test_replaying_the_log_over_an_old_list_gives_the_new_list(
    registry: Registry, writes: list[tuple[str, str]], data: st.DataObject
) -> None:
    store, kind = Storage.open(":memory:"), registry.kind("configmaps")
    cut = data.draw(st.integers(0, len(writes)))
    mirror: dict[str, dict[str, object]] = {}
    since = 0
    for number, (name, action) in enumerate(writes):
        if number == cut:
            mirror = {one.obj["metadata"]["name"]: one.obj for one in store.list(kind)}
            since = store.revision
        found = store.get(kind, "default", name)
        if action == "put":
            _put(store, registry, name, str(number))
        elif found is not None:
            store.remove(kind, found.obj)
    if cut == len(writes):
        mirror = {one.obj["metadata"]["name"]: one.obj for one in store.list(kind)}
        since = store.revision
    for change in store.changes(kind, since):
        name = change.obj["metadata"]["name"]
        if change.type == "DELETED":
            del mirror[name]
        else:
            assert (change.type == "ADDED") == (name not in mirror)
            mirror[name] = change.obj
    assert mirror == {one.obj["metadata"]["name"]: one.obj for one in store.list(kind)}
    store.close()
