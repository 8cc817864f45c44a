"""How many requests Django answers at the same time; the others wait for their turn, in the order in which they came.

Before it: `request_limits`, which has read the body. After it: Django, which gives each request a thread and most of
them a connection to the database, so a thousand that come at once would be a thousand of both.

Who leaves meanwhile waits no longer. A turn ends when the answer begins: from then on the client is waited for, and an
answer may stay open for days. Probes wait for nobody.

The invariant: no more than AT_ONCE requests are worked on, however many have come (docs/adr/0029).
"""

import asyncio
from typing import Final

from grove_ui.request_limits import PROBES, Application, Message, Receive, Scope, Send, replay

# Above what the pages of many people ask for at the same moment, and enough for commands that wait for their cluster.
AT_ONCE: Final = 32


class Turns:
    """An ASGI application that hands on so many requests at once."""

    def __init__(self, app: Application, at_once: int = AT_ONCE) -> None:
        self._app = app
        self._free = asyncio.Semaphore(at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on when it is its turn."""
        if scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        if self._free.locked():
            whole = await receive()  # there is no more of it: `request_limits` has read the body
            if not await self._wait_for_turn(receive):
                return
            receive = replay(whole, receive)
        else:
            await self._free.acquire()
        has_turn = True

        def end_turn() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                self._free.release()

        async def sending(message: Message) -> None:
            end_turn()
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            end_turn()

    async def _wait_for_turn(self, receive: Receive) -> bool:
        """Return whether it is the turn of a request; if not, its client has gone, and nobody waits for an answer."""
        acquiring = asyncio.ensure_future(self._free.acquire())
        leaving = asyncio.ensure_future(receive())
        has_turn = False
        try:
            await asyncio.wait((acquiring, leaving), return_when=asyncio.FIRST_COMPLETED)
            has_turn = acquiring.done() and not leaving.done()
            return has_turn
        finally:
            leaving.cancel()
            if not has_turn and not acquiring.cancel():
                self._free.release()
