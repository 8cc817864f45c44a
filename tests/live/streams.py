"""The stream of a page as a test reads it: opened, followed event by event, and closed."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.db import connections
from django.test import Client

from rollouts.live.stream import parse_shown_part
from rollouts.live.subscriptions import LivePart

SECONDS = 60.0  # a limit for broken code only
LIST = "/live/workloads/"
OVERRIDES = "/live/overrides/"
CHAT = "sandbox/default/chat"


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event."""

    name: str
    data: Any


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
