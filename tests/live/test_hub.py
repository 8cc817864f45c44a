"""The hub: waiting for events, and cancellation."""

import asyncio
from typing import Any

import pytest

from rollouts.live import change_feed
from rollouts.live.change_feed import FIRST_ID, ReadResult
from rollouts.live.hub import FeedSubscriber, Hub, wait_for_event

SECONDS = 60  # a limit for broken code only


def test_who_is_cancelled_at_the_moment_of_the_event_is_cancelled_nevertheless() -> None:
    async def scene() -> None:
        event = asyncio.Event()
        waiting = asyncio.create_task(wait_for_event(event, 60))
        await asyncio.sleep(0)
        event.set()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scene())


def test_an_event_is_waited_for_and_not_longer_than_asked() -> None:
    async def scene() -> tuple[bool, bool]:
        event = asyncio.Event()
        without = await wait_for_event(event, 0.01)
        waiting = asyncio.create_task(wait_for_event(event, None))
        await asyncio.sleep(0)
        event.set()
        return without, await waiting

    assert asyncio.run(scene()) == (False, True)


def test_a_reader_that_nobody_wants_ends_though_the_client_hides_that_it_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def find_end(_: Any) -> str:
        return FIRST_ID

    async def read_and_hide(*_: Any, **__: Any) -> ReadResult:
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError:
            return ReadResult((), has_gap=False)
        raise AssertionError("nobody has cancelled it")

    monkeypatch.setattr(change_feed, "latest_id", find_end)
    monkeypatch.setattr(change_feed, "read", read_and_hide)

    async def scene() -> bool:
        hub, viewer = Hub(), FeedSubscriber(lambda _: True)
        hub.subscribe(viewer)
        await hub.wait_until_ready()
        await asyncio.sleep(0)
        reader = hub._reader
        assert reader is not None
        hub.unsubscribe(viewer)
        await asyncio.wait({reader}, timeout=SECONDS)
        return reader.cancelled()

    assert asyncio.run(scene())
