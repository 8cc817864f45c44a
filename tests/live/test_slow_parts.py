"""Parts that take long to render delay no other part, and are sent when they are ready."""

import asyncio
import threading
import time
from itertools import count
from typing import Any

import pytest
from django.test import Client
from redis import Redis

from rollouts import models
from rollouts.accounts.commands import WorkloadRef
from rollouts.live import change_feed
from rollouts.live.change_feed import Change
from rollouts.selectors.events import EventList
from rollouts.selectors.workloads import WorkloadPage, workload_list
from tests.api.read import fleet
from tests.live.streams import CHAT, LIST, SECONDS, Stream, in_thread, open_stream, watch

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick_streams")]


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
