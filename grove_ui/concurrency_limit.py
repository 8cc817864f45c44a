"""Limits how many requests Django processes at the same time; the others wait in the order of their arrival.

Before it: `request_limits` has read the body, and `probes` and `static_responses` answer what needs no Django. After
it: Django uses a thread for each request, and for most of them a connection to the database, so a thousand concurrent
requests would use a thousand of both.

A request whose client disconnects leaves the line. A request gives its slot back when its response starts: from then on
the client sets the pace, and a stream may stay open for days.

The invariant: Django processes at most MAX_CONCURRENT_REQUESTS requests at a time, however many arrive (docs/adr/0029).
"""

import asyncio
from typing import Final

from grove_ui.request_limits import Application, Message, Receive, Scope, Send, replay

# More than the pages of many people request at the same moment, with room for commands that wait for a cluster.
MAX_CONCURRENT_REQUESTS: Final = 32


class ConcurrencyLimit:
    """ASGI middleware that passes on a limited number of requests at a time."""

    def __init__(self, app: Application, max_requests: int = MAX_CONCURRENT_REQUESTS) -> None:
        self._app = app
        self._slots = asyncio.Semaphore(max_requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on as soon as a slot is free."""
        if self._slots.locked():
            body = await receive()  # one message, as `request_limits` has read the whole body
            if not await self._acquire_slot(receive):
                return
            receive = replay(body, receive)
        else:
            await self._slots.acquire()
        has_slot = True

        def release_slot() -> None:
            nonlocal has_slot
            if has_slot:
                has_slot = False
                self._slots.release()

        async def sending(message: Message) -> None:
            release_slot()
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            release_slot()

    async def _acquire_slot(self, receive: Receive) -> bool:
        """Wait for a slot; return False, without a slot, if the client disconnects first."""
        acquiring = asyncio.ensure_future(self._slots.acquire())
        disconnecting = asyncio.ensure_future(receive())
        has_slot = False
        try:
            await asyncio.wait((acquiring, disconnecting), return_when=asyncio.FIRST_COMPLETED)
            has_slot = acquiring.done() and not disconnecting.done()
            return has_slot
        finally:
            disconnecting.cancel()
            if not has_slot and not acquiring.cancel():
                self._slots.release()
