"""The state of live pages in this process: open streams, cached fragments, and one hub for each event loop.

`LIVE` is the only instance in the product. The only other state of `rollouts.live` in a process is whether
`change_feed` has logged an outage of Redis. The views take a stream slot and fragments from `LIVE`; the async
generators of `stream` and `api.feed` take the state of their event loop.
"""

import asyncio
import weakref
from dataclasses import dataclass
from typing import Final

from rollouts.live.fragment_cache import FragmentCache
from rollouts.live.hub import Hub, shut_down_on_signal
from rollouts.live.sse import StreamLimits
from rollouts.live.subscriptions import Subscriptions


@dataclass(frozen=True, slots=True)
class LoopState:
    """What the streams in one event loop share."""

    hub: Hub
    subscriptions: Subscriptions


class LiveRegistry:
    """Owns the stream limits, the fragment cache and the state of each event loop."""

    def __init__(self) -> None:
        self.streams = StreamLimits()
        self.fragments = FragmentCache()
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopState] = weakref.WeakKeyDictionary()

    def for_running_loop(self) -> LoopState:
        """Return the state of the running event loop, which lives as long as the loop."""
        loop = asyncio.get_running_loop()
        state = self._loops.get(loop)
        if state is None:
            hub = Hub()
            state = self._loops[loop] = LoopState(hub, Subscriptions(hub, self.fragments))
            shut_down_on_signal(loop, hub)
        return state


LIVE: Final = LiveRegistry()
