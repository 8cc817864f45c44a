"""Reads the change feed as the hub does, from tests without an event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.asyncio import Redis

from rollouts.live import change_feed
from rollouts.live.change_feed import ReadResult
from rollouts.runtime.connections import async_redis_client

_T = TypeVar("_T")


def read(after_id: str) -> ReadResult:
    """Return the entries after an id."""
    return asyncio.run(_ask(lambda redis: change_feed.read(redis, after_id)))


def latest_id() -> str:
    """Return the id of the newest entry."""
    return asyncio.run(_ask(change_feed.latest_id))


async def _ask(question: Callable[[Redis], Awaitable[_T]]) -> _T:
    async with async_redis_client() as redis:
        return await question(redis)
