"""The stream of a page: it sends the parts that the page shows when they change, and only to viewers."""

import asyncio
import contextlib
import gc
import json
import threading
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlencode

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.contrib.sessions.models import Session
from django.db import connections
from django.test import Client
from django.urls import reverse
from redis import Redis

from rollouts import models
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import NotFound
from rollouts.live import change_feed
from rollouts.live.change_feed import Change
from rollouts.live.fragments import Fragment
from rollouts.live.registry import LIVE, LiveRegistry
from rollouts.live.sse import MAX_PARTS_PER_ACCOUNT
from rollouts.live.stream import PageSubscriber, parse_shown_part
from rollouts.live.subscriptions import LivePart
from rollouts.models import AuditEntry, User
from rollouts.selectors.events import EventList
from rollouts.selectors.workloads import WorkloadPage, workload_list
from rollouts.services.audit import Caller, Source, record
from tests.api.read import fleet

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 60.0  # a limit for broken code only
LIST = "/live/workloads/"
OVERRIDES = "/live/overrides/"
CHAT = "sandbox/default/chat"


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event."""

    name: str
    data: Any


@pytest.fixture(autouse=True)
def _quick(settings: Any) -> None:
    settings.FEED_HEARTBEAT_SECONDS = 0.3
    settings.FEED_RECHECK_SECONDS = 0.2


class Stream:
    """An open response, read event by event."""

    def __init__(self, answer: Any) -> None:
        self.events: list[Event] = []
        self._rest = b""
        self._chunks: AsyncIterator[bytes] = aiter(answer.streaming_content)

    @property
    def news(self) -> list[Event]:
        """All events but heartbeats, which a slow server may send at any moment."""
        return [event for event in self.events if event.name != "heartbeat"]

    async def wait_for(self, name: str, **about: str) -> Event:
        """Return the next event with this name and data."""
        async with asyncio.timeout(SECONDS):
            while True:
                event = await self.next()
                if event.name == name and about.items() <= event.data.items():
                    return event

    async def next(self) -> Event:
        """Return the next event; raises StopAsyncIteration at the end."""
        while b"\n\n" not in self._rest:
            self._rest += await anext(self._chunks)
        block, _, self._rest = self._rest.partition(b"\n\n")
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
        if b"event" not in fields:
            return await self.next()
        self.events.append(Event(fields[b"event"].decode(), json.loads(fields[b"data"])))
        return self.events[-1]


def open_stream(client: Client, *shown: str, **headers: str) -> Any:
    """Request the stream of a page that shows these parts."""
    return client.get(f"/live/stream/?{urlencode({'show': shown}, doseq=True)}", headers=headers)


def watch(client: Client, *shown: str, then: Callable[[Stream], Awaitable[None]]) -> Stream:
    """Open the stream of a page and run a scene while it is open."""
    answer = open_stream(client, *shown)
    assert answer.status_code == 200, answer.content
    stream = Stream(answer)

    async def run() -> None:
        await then(stream)
        await stream._chunks.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())
    return stream


def read_part(text: str) -> LivePart:
    """Parse the description of a part."""
    shown = parse_shown_part(text)
    assert shown is not None
    return shown[0]


async def in_thread(act: Callable[[], object]) -> None:
    """Change the database in a thread and connection of its own, like another process."""

    def commit() -> None:
        act()
        connections.close_all()

    await sync_to_async(commit, thread_sensitive=False)()


def test_a_page_is_brought_what_it_shows_and_then_told_that_it_is_current(viewer: Client, row: models.Cluster) -> None:
    fleet.store_fleet(row, 3)

    async def then(stream: Stream) -> None:
        await stream.wait_for("current")

    stream = watch(viewer, f"- {LIST} workload", f"- {OVERRIDES} override", then=then)
    assert [event.name for event in stream.news] == ["fragment", "fragment", "current"]
    brought = {event.data["src"]: event.data for event in stream.news[:2]}
    asked = viewer.get(LIST)
    assert brought[LIST]["html"] == asked.content.decode()
    assert brought[LIST]["etag"] == asked["ETag"]


def test_what_a_page_has_is_not_brought_again(viewer: Client, row: models.Cluster) -> None:
    etag = viewer.get(LIST)["ETag"]

    async def then(stream: Stream) -> None:
        await stream.wait_for("current")

    assert [event.name for event in watch(viewer, f"{etag} {LIST} workload", then=then).news] == ["current"]


def test_a_change_brings_the_part_that_depends_on_it_and_no_other(
    viewer: Client, row: models.Cluster, redis: Redis
) -> None:
    async def then(stream: Stream) -> None:
        await stream.wait_for("current")
        await in_thread(lambda: fleet.store_fleet(row, 1))
        change_feed.publish(redis, [Change("sandbox", "workload", CHAT, ("set",))])
        assert "w-0" in (await stream.wait_for("fragment", src=LIST)).data["html"]
        await stream.wait_for("heartbeat")

    stream = watch(viewer, f"- {LIST} workload#set", f"- {OVERRIDES} override", then=then)
    assert [event.data.get("src") for event in stream.news[3:]] == [LIST]


@pytest.mark.parametrize(
    ("words", "is_brought"),
    [
        ("workload", True),
        ("workload:sandbox%2Fdefault%2Fchat", True),
        ("override workload#gangs,pods", True),
        ("workload:sandbox%2Fdefault%2Fother", False),
        ("workload#gangs", False),
        ("override every:30", False),
        ("", False),
    ],
)
def test_a_part_depends_on_what_its_words_name(words: str, is_brought: bool) -> None:
    assert read_part(f"- {LIST} {words}").depends_on(Change("sandbox", "workload", CHAT, ("pods", "set"))) == is_brought


def test_a_change_after_which_a_part_looks_the_same_sends_nothing(
    viewer: Client, row: models.Cluster, redis: Redis
) -> None:
    async def then(stream: Stream) -> None:
        await stream.wait_for("current")
        change_feed.publish(redis, [Change("sandbox", "workload", CHAT)])
        await stream.wait_for("heartbeat")
        await stream.wait_for("heartbeat")

    stream = watch(viewer, f"- {LIST} workload", then=then)
    assert [event.name for event in stream.news] == ["fragment", "current"]


def test_a_change_is_rendered_once_for_those_who_were_told_at_once_however_late_they_come(
    viewer: Client, row: models.Cluster, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def look(*given: Any) -> WorkloadPage:
        looks.append(given)
        return workload_list(*given)

    monkeypatch.setattr("rollouts.web.workloads.workload_list", look)
    other = Stream(open_stream(viewer, f"- {LIST} workload"))

    async def then(stream: Stream) -> None:
        await asyncio.gather(stream.wait_for("current"), other.wait_for("current"))
        looks.clear()
        await in_thread(lambda: fleet.store_fleet(row, 1))
        change_feed.publish(redis, [Change("sandbox", "workload", CHAT)])
        brought = await stream.wait_for("fragment", src=LIST)
        assert await other.wait_for("fragment", src=LIST) == brought, "asked for only now"
        assert len(looks) == 1

    watch(viewer, f"- {LIST} workload", then=then)


def test_a_part_is_followed_once_for_all_who_have_it_open_and_for_nobody_not_at_all(redis: Redis) -> None:
    part = LivePart("/", (), 0.0, Fragment(("followed once", object()), lambda: "one"))

    async def scene() -> None:
        state = LiveRegistry().for_running_loop()
        channels = []
        with contextlib.ExitStack() as pages:
            for _ in range(3):
                page = PageSubscriber({part: ""}, state)
                pages.enter_context(page.subscribed())
                brought, current = await page.wait(SECONDS) or ()
                assert (b"one" in brought.plain, b"current" in current.plain) == (True, True)
                channels.append([*state.subscriptions.channels.values()])
        assert channels == [channels[0]] * 3, "the same one"
        assert not state.subscriptions.channels

    asyncio.run(scene())


def test_what_changes_with_time_is_brought_though_nothing_is_told(
    viewer: Client, row: models.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollouts.live.stream._MIN_POLL_SECONDS", 1)

    async def then(stream: Stream) -> None:
        await stream.wait_for("current")
        await in_thread(
            lambda: models.Cluster.objects.filter(pk=row.pk).update(trouble_code="Unreachable", trouble="is silent.")
        )
        assert "is silent." in (await stream.wait_for("fragment")).data["html"]

    watch(viewer, "- /live/clusters/ cluster every:1", then=then)


@pytest.mark.parametrize(
    ("src", "words", "seconds"),
    [
        (LIST, "every:1", 5.0),
        (LIST, "every:30", 30.0),
        (LIST, "every:-1 every:x", 0.0),
        ("/workloads/sandbox/default/chat/events/card/", "every:5", 20.0),
    ],
)
def test_nobody_has_the_server_or_a_cluster_looked_at_all_the_time(src: str, words: str, seconds: float) -> None:
    assert read_part(f"- {src} {words}").poll_seconds == seconds


def test_an_account_has_so_many_streams_at_once_and_can_open_another_when_one_is_closed(
    viewer: Client, row: models.Cluster, redis: Redis, settings: Any
) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, stream_limit=1)
    elsewhere = Client()
    elsewhere.force_login(User.objects.get(username="vera"))
    feed_of_account = partial(elsewhere.get, "/api/v1/feed/", headers={"Accept": "text/event-stream"})

    async def then(stream: Stream) -> None:
        await stream.wait_for("current")
        for open_another in (partial(open_stream, elsewhere, f"- {LIST} workload"), feed_of_account):
            refused = await sync_to_async(open_another)()
            assert (refused.status_code, refused["Retry-After"]) == (429, "30")
            assert b"Your account has 1 live pages and feeds open" in refused.content

    watch(viewer, f"- {LIST} workload", then=then)
    assert feed_of_account().status_code == 200


def test_an_account_has_so_many_different_parts_open_at_once_over_all_its_streams(
    viewer: Client, row: models.Cluster, redis: Redis
) -> None:
    def parts(first: int, how_many: int) -> list[str]:
        return [f"- {LIST} workload every:{seconds}" for seconds in range(first, first + how_many)]

    pages = [parts(first, 16) for first in range(10, 10 + 6 * 16, 16)]
    first, *others = [Stream(open_stream(viewer, *shown)) for shown in pages]
    for shown in (*pages, parts(600, MAX_PARTS_PER_ACCOUNT - 6 * 16)):
        assert open_stream(viewer, *shown).status_code == 200  # up to the limit; a part of several pages counts once
        gc.collect()
    refused = open_stream(viewer, *parts(600, MAX_PARTS_PER_ACCOUNT - 6 * 16 + 1))
    assert (refused.status_code, refused["Retry-After"]) == (429, "30")
    assert f"{MAX_PARTS_PER_ACCOUNT} different live parts".encode() in refused.content
    other = Client()
    account = User.objects.create_user("olga")
    account.groups.add(Group.objects.get(name="viewer"))
    other.force_login(account)
    assert open_stream(other, *parts(600, 16)).status_code == 200
    del first
    gc.collect()
    assert open_stream(viewer, *parts(600, 16)).status_code == 200
    assert others


def test_a_stream_that_is_never_read_is_not_counted_for_ever(
    viewer: Client, row: models.Cluster, redis: Redis, settings: Any
) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, stream_limit=1)
    for _ in range(3):
        assert open_stream(viewer, f"- {LIST} workload").status_code == 200
        gc.collect()


def test_a_page_with_more_parts_than_any_is_refused(viewer: Client) -> None:
    shown = [f"- {LIST} workload every:{seconds}" for seconds in range(10, 27)]
    refused = open_stream(viewer, *shown)
    assert refused.status_code == 400
    assert b"at most 16 live parts" in refused.content


def test_what_is_no_part_of_a_page_is_to_be_fetched(viewer: Client) -> None:
    addresses = ["/help/", "/nowhere/", "/api/v1/workloads/", "/live/stream/"]

    async def then(stream: Stream) -> None:
        await stream.wait_for("current")

    events = watch(viewer, *(f"- {src} workload" for src in addresses), then=then).news
    assert [(event.name, event.data["src"]) for event in events[:-1]] == [("fetch", src) for src in addresses]


def test_a_part_of_a_workload_that_is_not_there_is_gone(viewer: Client, row: models.Cluster) -> None:
    src = f"/workloads/{CHAT}/parts/head/"

    async def then(stream: Stream) -> None:
        await stream.wait_for("gone", src=src)

    watch(viewer, f"- {src} workload", then=then)


def test_what_was_gone_and_comes_back_is_brought_however_it_looked_before(
    viewer: Client, row: models.Cluster, redis: Redis
) -> None:
    fleet.store_fleet(row, 1)
    src, change = "/workloads/sandbox/team-0/w-0000/parts/head/", Change("sandbox", "workload", CHAT)

    def rename(before: str, after: str) -> None:
        models.Workload.objects.filter(name=before).update(name=after)
        change_feed.publish(redis, [change])

    async def then(stream: Stream) -> None:
        first = await stream.wait_for("fragment")
        await in_thread(lambda: rename("w-0000", "elsewhere"))
        await stream.wait_for("gone", src=src)
        await in_thread(lambda: rename("elsewhere", "w-0000"))
        assert (await stream.wait_for("fragment")).data["etag"] == first.data["etag"]

    watch(viewer, f"- {src} workload", then=then)


def test_a_cluster_may_be_called_almost_anything() -> None:
    name = "größe 100%"
    part = read_part(f"- {reverse('workload-part', args=[name, 'default', 'chat', 'head'])} workload")
    assert part.fragment is not None
    assert WorkloadRef(name, "default", "chat") in part.fragment.key  # type: ignore[operator]


def test_what_failed_before_the_question_is_no_answer_to_it() -> None:
    is_there = False
    began, go_on = threading.Event(), threading.Event()

    def render() -> str:
        found = is_there
        began.set()
        assert go_on.wait(SECONDS)
        if not found:
            raise NotFound("Not yet.")
        return "here"

    async def ask() -> None:
        nonlocal is_there
        fragment = Fragment(("a test of what failed before", object()), render)
        first = asyncio.create_task(LIVE.fragments.render_since(fragment, time.monotonic()))
        await asyncio.to_thread(began.wait, SECONDS)
        is_there = True
        later = asyncio.create_task(LIVE.fragments.render_since(fragment, time.monotonic()))
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(NotFound):
            await first
        assert (await later).body == b"here"

    asyncio.run(ask())


def test_what_nobody_can_read_is_passed_over(viewer: Client) -> None:
    async def then(stream: Stream) -> None:
        await stream.wait_for("current")

    events = watch(viewer, "", "-", "- ", "- elsewhere workload", "- //other.example/ x", then=then).news
    assert [event.name for event in events] == ["current"]


def test_after_something_may_have_been_missed_everything_is_looked_at_again(
    viewer: Client, row: models.Cluster, redis: Redis
) -> None:
    async def then(stream: Stream) -> None:
        await stream.wait_for("current")
        await in_thread(lambda: fleet.store_fleet(row, 1))
        redis.xadd("grove:feed", {"change": "nonsense"})
        assert "w-0" in (await stream.wait_for("fragment")).data["html"]
        await stream.wait_for("current")

    watch(viewer, f"- {LIST} override", then=then)


def test_a_part_that_takes_long_holds_up_no_other_and_comes_when_it_is_there(
    viewer: Client, row: models.Cluster, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.store_fleet(row, 1)
    is_answering = threading.Event()

    def wait_for_the_cluster(place: WorkloadRef, most: int) -> EventList:
        assert is_answering.wait(SECONDS)
        return EventList((), 0, is_partial=False, problem="Here at last.")

    monkeypatch.setattr("rollouts.web.events.event_list", wait_for_the_cluster)
    slow = "/workloads/sandbox/team-0/w-0000/events/card/"

    async def then(stream: Stream) -> None:
        await stream.wait_for("current")
        assert [event.data.get("src") for event in stream.news] == [LIST, None]
        await in_thread(lambda: fleet.store_fleet(row, 2))
        change_feed.publish(redis, [Change("sandbox", "workload", CHAT)])
        assert "w-0001" in (await stream.wait_for("fragment", src=LIST)).data["html"]
        is_answering.set()
        assert "Here at last." in (await stream.wait_for("fragment", src=slow)).data["html"]

    watch(viewer, f"- {LIST} workload", f"- {slow} every:20", then=then)


def test_a_page_that_takes_its_time_is_brought_how_each_part_looks_then(
    viewer: Client, row: models.Cluster, redis: Redis
) -> None:
    other = Stream(open_stream(viewer, f"- {LIST} workload"))

    async def then(slow: Stream) -> None:
        await asyncio.gather(slow.wait_for("current"), other.wait_for("current"))
        for number in (1, 2, 3):
            await in_thread(lambda number=number: fleet.store_fleet(row, number))  # type: ignore[misc]
            change_feed.publish(redis, [Change("sandbox", "workload", CHAT)])
            last = await other.wait_for("fragment", src=LIST)
            assert f"w-000{number - 1}" in last.data["html"]
        brought = await slow.wait_for("fragment", src=LIST)
        assert brought.data["etag"] == last.data["etag"], "and not what came before it"
        await slow.wait_for("heartbeat")
        assert [event.name for event in slow.news] == ["fragment", "current", "fragment"]

    watch(viewer, f"- {LIST} workload", then=then)


def test_a_page_that_has_its_cluster_part_yet_to_come_is_brought_it_also_when_others_have_it_already(
    viewer: Client, row: models.Cluster, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.store_fleet(row, 1)
    answers = threading.Semaphore(1)

    def wait_for_the_cluster(place: WorkloadRef, most: int) -> EventList:
        assert answers.acquire(timeout=SECONDS)
        return EventList((), 0, is_partial=False, problem="Always the same.")

    monkeypatch.setattr("rollouts.web.events.event_list", wait_for_the_cluster)
    slow = "/workloads/sandbox/team-0/w-0000/events/card/"
    newcomer = Stream(open_stream(viewer, f"- {slow} every:20"))

    async def then(stream: Stream) -> None:
        first = await stream.wait_for("fragment", src=slow)
        await newcomer.wait_for("current")
        answers.release()
        assert await newcomer.wait_for("fragment", src=slow) == first
        await newcomer._chunks.aclose()  # type: ignore[attr-defined]

    watch(viewer, f"- {slow} every:20", then=then)


def test_a_part_that_is_slow_and_changes_all_the_time_is_brought_nevertheless(
    viewer: Client, row: models.Cluster, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count(1)

    def render_slowly(place: WorkloadRef, most: int) -> EventList:
        time.sleep(1.5)  # longer than the batch time of events
        return EventList((), 0, is_partial=False, problem=f"Look {next(numbers)}.")

    monkeypatch.setattr("rollouts.web.events.event_list", render_slowly)
    slow = "/workloads/sandbox/team-0/w-0000/events/card/"

    async def then(stream: Stream) -> None:
        changes = asyncio.create_task(_change_all_the_time(redis))
        for number in (1, 2, 3):
            assert f"Look {number}." in (await stream.wait_for("fragment", src=slow)).data["html"]
        changes.cancel()

    watch(viewer, f"- {slow} workload", then=then)


def test_a_page_is_told_that_it_is_current_though_a_slow_part_changes_all_the_time(
    viewer: Client, row: models.Cluster, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_slowly(*given: Any) -> WorkloadPage:
        time.sleep(1.5)  # longer than the batch time of events
        return workload_list(*given)

    monkeypatch.setattr("rollouts.web.workloads.workload_list", look_slowly)

    async def then(stream: Stream) -> None:
        changes = asyncio.create_task(_change_all_the_time(redis))
        await stream.wait_for("current")
        changes.cancel()

    watch(viewer, f"- {LIST} workload", then=then)


async def _change_all_the_time(redis: Redis) -> None:
    while True:
        await asyncio.to_thread(change_feed.publish, redis, [Change("sandbox", "workload", CHAT)])
        await asyncio.sleep(0.1)


def test_a_command_that_is_put_on_record_is_brought_to_the_audit(
    viewer: Client, row: models.Cluster, redis: Redis
) -> None:
    caller = Caller(None, "ana", None, "request-1", Source.API)

    async def then(stream: Stream) -> None:
        await stream.wait_for("current")
        await in_thread(lambda: record(caller, Command.SCALE_WORKLOAD, WorkloadRef(), AuditEntry.Result.DONE))
        assert "<b>ana</b>" in (await stream.wait_for("fragment")).data["html"]

    watch(viewer, "- /live/audit/ audit", then=then)


@pytest.mark.parametrize(
    "end",
    [
        lambda: User.objects.filter(username="vera").update(is_active=False),
        lambda: Session.objects.all().delete(),
    ],
    ids=["barred", "signed out"],
)
def test_who_may_not_see_any_more_is_brought_nothing_more(
    viewer: Client, row: models.Cluster, redis: Redis, end: Callable[[], object]
) -> None:
    async def then(stream: Stream) -> None:
        await stream.wait_for("current")
        await in_thread(end)
        with pytest.raises(StopAsyncIteration):
            await stream.wait_for("never")

    watch(viewer, f"- {LIST} workload", then=then)


def test_strangers_and_people_without_a_role_are_brought_nothing(client: Client, redis: Redis) -> None:
    assert open_stream(client, f"- {LIST} workload").status_code == 302
    client.force_login(User.objects.create_user("newcomer"))
    refused = open_stream(client, f"- {LIST} workload")
    assert (refused.status_code, refused.streaming) == (403, False)
    account = User.objects.get(username="newcomer")
    account.groups.add(Group.objects.get(name="viewer"))
    assert open_stream(client, f"- {LIST} workload").streaming


def test_pieces_that_are_packed_once_for_everybody_make_a_stream_that_anybody_can_unpack(
    viewer: Client, row: models.Cluster, redis: Redis
) -> None:
    fleet.store_fleet(row, 20)
    answer = open_stream(viewer, f"- {LIST} workload", f"- {OVERRIDES} override", accept_encoding="br, gzip")
    assert answer["Content-Encoding"] == "gzip"

    async def read() -> bytes:
        unpacker, text = zlib.decompressobj(16 + zlib.MAX_WBITS), b""
        async for piece in answer.streaming_content:
            text += unpacker.decompress(piece)
            if text.partition(b"event: current")[2].count(b"event: heartbeat") > 1:
                return text
        return text

    text = asyncio.run(asyncio.wait_for(read(), SECONDS)).decode()
    names = [line.removeprefix("event: ") for line in text.split("\n") if line.startswith("event: ")]
    assert names[-3:] == ["current", "heartbeat", "heartbeat"]
    assert [name for name in names if name != "heartbeat"] == ["fragment", "fragment", "current"]
    assert "w-0019" in text
