"""The stream of a page: it sends the parts that the page shows when they change, and only to viewers."""

import asyncio
import contextlib
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.contrib.sessions.models import Session
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
from rollouts.live.stream import PageSubscriber
from rollouts.live.subscriptions import LivePart
from rollouts.models import AuditEntry, User
from rollouts.selectors.workloads import WorkloadPage, workload_list
from rollouts.services.audit import Caller, Source, record
from tests.api.read import fleet
from tests.live.streams import CHAT, LIST, OVERRIDES, SECONDS, Stream, in_thread, open_stream, read_part, watch

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick_streams")]


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
