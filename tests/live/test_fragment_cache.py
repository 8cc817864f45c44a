"""The fragment cache: one rendering for all callers, never older than the question, 304 for a known ETag."""

import asyncio
import gzip
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from rollouts.live.fragment_cache import FragmentCache
from rollouts.live.fragments import Fragment, FragmentSource

VIEWERS = 20
SECONDS = 60  # a limit for broken code only


@pytest.fixture
def cache() -> FragmentCache:
    """An empty cache."""
    return FragmentCache()


@pytest.fixture
def ask(cache: FragmentCache) -> Callable[..., HttpResponse]:
    """Return a function that requests a fragment."""

    def ask(key: object, render: Callable[[], str], **headers: str) -> HttpResponse:
        return cache.response(RequestFactory().get("/", headers=headers), Fragment(key, render))

    return ask


def test_those_who_ask_while_it_is_rendered_share_the_next_rendering(ask: Callable[..., HttpResponse]) -> None:
    numbers = count(1)
    first_began, asking = threading.Event(), threading.Semaphore(0)

    def render() -> str:
        number = next(numbers)
        if number == 1:
            first_began.set()
            assert all(asking.acquire(timeout=SECONDS) for _ in range(VIEWERS))
        return f"rendering {number}"

    def ask_after_the_first() -> bytes:
        asking.release()
        return ask("shared", render).content

    with ThreadPoolExecutor(VIEWERS + 1) as pool:
        first = pool.submit(lambda: ask("shared", render).content)
        assert first_began.wait(SECONDS)
        others = [pool.submit(ask_after_the_first) for _ in range(VIEWERS)]
        assert first.result() == b"rendering 1"
        answers = {one.result() for one in others}
    # All share one rendering, or two if a thread was late: never one each, and never the one that began too early.
    assert answers <= {b"rendering 2", b"rendering 3"}


def test_an_answer_is_never_older_than_the_question(ask: Callable[..., HttpResponse]) -> None:
    told = ["before"]
    assert ask("fresh", lambda: told[-1]).content == b"before"
    told.append("after")
    assert ask("fresh", lambda: told[-1]).content == b"after"


def test_what_somebody_has_is_not_sent_again(ask: Callable[..., HttpResponse]) -> None:
    first = ask("known", lambda: "the same")
    again = ask("known", lambda: "the same", if_none_match=f'"other", {first["ETag"]}')
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert ask("known", lambda: "the same", if_none_match=f"W/{first['ETag']}").status_code == 304
    assert ask("known", lambda: "another", if_none_match=first["ETag"]).status_code == 200


def test_fragments_of_other_keys_are_other_fragments(ask: Callable[..., HttpResponse]) -> None:
    assert ask(("list", "a"), lambda: "a").content == b"a"
    assert ask(("list", "b"), lambda: "b").content == b"b"


def test_a_long_fragment_is_compressed_for_those_who_can_read_it(ask: Callable[..., HttpResponse]) -> None:
    text = "row " * 1000
    packed = ask("long", lambda: text, accept_encoding="gzip, br")
    assert packed["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content).decode() == text
    assert ask("long", lambda: text).content.decode() == text


def test_what_fails_is_tried_again_by_the_next(ask: Callable[..., HttpResponse]) -> None:
    def fail() -> str:
        raise LookupError

    with pytest.raises(LookupError):
        ask("failing", fail)
    assert ask("failing", lambda: "well").content == b"well"


def test_pages_that_wait_for_the_same_part_wait_together(cache: FragmentCache) -> None:
    numbers = count(1)
    fragment = Fragment("together", lambda: f"rendering {next(numbers)}")

    async def wait() -> set[bytes]:
        asked = time.monotonic()
        found = await asyncio.gather(*(cache.render_since(fragment, asked) for _ in range(10 * VIEWERS)))
        return {one.body for one in found}

    assert asyncio.run(wait()) == {b"rendering 1"}
    assert asyncio.run(wait()) == {b"rendering 2"}, "another question, later"


def test_a_part_that_is_recent_enough_is_not_rendered_again(cache: FragmentCache) -> None:
    numbers = count(1)
    fragment = Fragment("recent", lambda: f"rendering {next(numbers)}")

    async def wait(since: float) -> bytes:
        return (await cache.render_since(fragment, since)).body

    began = time.monotonic()
    assert asyncio.run(wait(began)) == b"rendering 1"
    assert asyncio.run(wait(began)) == b"rendering 1"
    assert asyncio.run(wait(time.monotonic())) == b"rendering 2"


def test_a_page_that_is_left_takes_the_rendering_from_nobody(cache: FragmentCache) -> None:
    began, is_let = threading.Event(), threading.Event()

    def render() -> str:
        began.set()
        assert is_let.wait(SECONDS)
        return "whole"

    async def scene() -> bytes:
        asked = time.monotonic()
        pages = [asyncio.create_task(cache.render_since(Fragment("left", render), asked)) for _ in range(2)]
        await asyncio.to_thread(began.wait, SECONDS)
        pages[0].cancel()
        is_let.set()
        return (await pages[1]).body

    assert asyncio.run(scene()) == b"whole"


def test_what_cannot_be_rendered_fails_for_all_who_wait_and_is_tried_again_for_the_next(cache: FragmentCache) -> None:
    numbers = count(1)

    def render() -> str:
        if next(numbers) == 1:
            raise LookupError
        return "well"

    async def wait() -> list[object]:
        asked = time.monotonic()
        pages = (cache.render_since(Fragment("once", render), asked) for _ in range(VIEWERS))
        return list(await asyncio.gather(*pages, return_exceptions=True))

    assert {type(one) for one in asyncio.run(wait())} == {LookupError}
    assert {one.body for one in asyncio.run(wait())} == {b"well"}  # type: ignore[attr-defined]


def test_parts_that_are_made_of_the_same_look_at_it_once(cache: FragmentCache) -> None:
    numbers = count(1)
    source = FragmentSource("a thing", lambda: next(numbers))
    parts = [Fragment(("part", name), lambda look: f"look {look}", source) for name in "abc"]

    async def wait(since: float) -> set[bytes]:
        return {one.body for one in await asyncio.gather(*(cache.render_since(part, since) for part in parts))}

    asked = time.monotonic()
    assert asyncio.run(wait(asked)) == {b"look 1"}
    assert asyncio.run(wait(asked)) == {b"look 1"}
    assert asyncio.run(wait(time.monotonic())) == {b"look 2"}, "another question, later"


def test_parts_of_a_slow_thing_leave_a_thread_for_the_others(cache: FragmentCache) -> None:
    is_let = threading.Event()
    source = FragmentSource("slow", lambda: None)

    def render_slowly(_: None) -> str:
        assert is_let.wait(SECONDS)
        return "late"

    async def scene() -> tuple[bytes, set[bytes]]:
        asked = time.monotonic()
        slow = [Fragment(("slow", number), render_slowly, source) for number in range(VIEWERS)]
        waiting = [asyncio.create_task(cache.render_since(part, asked)) for part in slow]
        quick = await asyncio.wait_for(cache.render_since(Fragment("quick", lambda: "soon"), asked), SECONDS)
        is_let.set()
        return quick.body, {(await one).body for one in waiting}

    assert asyncio.run(scene()) == (b"soon", {b"late"})


def test_of_parts_that_are_made_of_the_same_the_lowest_in_rank_goes_first(cache: FragmentCache) -> None:
    rendered: list[int] = []
    is_let = threading.Event()
    source = FragmentSource("ranked", lambda: None)

    def part(rank: int) -> Fragment:
        def render(_: None) -> str:
            assert is_let.wait(SECONDS)
            rendered.append(rank)
            return str(rank)

        return Fragment(("ranked", rank), render, source, priority=rank)

    async def scene() -> None:
        asked = time.monotonic()
        waiting = [asyncio.create_task(cache.render_since(part(rank), asked)) for rank in (4, 3, 1, 2)]
        for _ in waiting:
            await asyncio.sleep(0.01)
        is_let.set()
        await asyncio.gather(*waiting)

    asyncio.run(scene())
    # The first one may have started before the others were queued.
    assert rendered in ([4, 1, 2, 3], [1, 2, 3, 4])


def test_parts_that_are_made_of_the_same_rest_together(cache: FragmentCache) -> None:
    numbers = count(1)
    source = FragmentSource("resting", lambda: next(numbers))
    parts = [Fragment(("resting", name), lambda look: f"look {look}", source) for name in "ab"]

    async def scene() -> list[bytes]:
        await cache.render_since(parts[0], time.monotonic())
        renderings = (cache.render_since(part, time.monotonic()) for part in parts)
        return [one.body for one in await asyncio.gather(*renderings)]

    assert asyncio.run(scene()) == [b"look 2", b"look 2"]
