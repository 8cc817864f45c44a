"""The registry of live pages: one state for each event loop, and limits for each account."""

import asyncio
from dataclasses import replace

import pytest
from pytest_django.fixtures import Settings

from rollouts.live.registry import LiveRegistry, LoopState
from rollouts.live.sse import StreamLimits, TooManyStreams


def test_an_event_loop_has_one_state_and_another_loop_another_one() -> None:
    registry = LiveRegistry()

    async def ask_twice() -> tuple[LoopState, LoopState]:
        return registry.for_running_loop(), registry.for_running_loop()

    first, again = asyncio.run(ask_twice())
    other, _ = asyncio.run(ask_twice())
    assert first is again
    assert other.hub is not first.hub
    assert other.subscriptions is not first.subscriptions


def test_a_slot_counts_for_its_account_until_it_is_released_and_only_once(settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, stream_limit=2)
    limits = StreamLimits()
    first, _ = limits.open(1), limits.open(1)
    with pytest.raises(TooManyStreams, match="has 2 live pages and feeds open"):
        limits.open(1)
    limits.open(2)
    first.release()
    first.release()
    limits.open(1)
    with pytest.raises(TooManyStreams):
        limits.open(1)
