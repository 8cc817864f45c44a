"""The hub's way of waiting."""

import asyncio

import pytest

from rollouts.hub import happens


def test_who_is_cancelled_at_the_moment_of_the_event_is_cancelled_nevertheless() -> None:
    async def scene() -> None:
        event = asyncio.Event()
        waiting = asyncio.create_task(happens(event, 60))
        await asyncio.sleep(0)
        event.set()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scene())


def test_an_event_is_waited_for_and_not_longer_than_asked() -> None:
    async def scene() -> tuple[bool, bool]:
        event = asyncio.Event()
        without = await happens(event, 0.01)
        waiting = asyncio.create_task(happens(event, None))
        await asyncio.sleep(0)
        event.set()
        return without, await waiting

    assert asyncio.run(scene()) == (False, True)
