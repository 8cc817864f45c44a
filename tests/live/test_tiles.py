"""Frames and tiles: splitting loses no byte, and the stream sends only the tiles that changed."""

import asyncio
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client
from redis import Redis

from rollouts import models
from rollouts.live import change_feed
from rollouts.live.change_feed import Change
from rollouts.live.tiles import TiledHtml, split_tiles
from tests.api.read import fleet
from tests.live.streams import Stream, in_thread, watch

pytestmark = [pytest.mark.django_db(transaction=True)]

REPLICAS = 15
BIG = "/workloads/sandbox/default/big/"
PICTURE = f"{BIG}parts/pod-grid/"
SHOW = f"{PICTURE} workload:sandbox%2Fdefault%2Fbig"
CHANGE = Change("sandbox", "workload", "sandbox/default/big", ("pods",))


def put_together(frame: str, tiles: Mapping[str, str]) -> str:
    """Put the tiles into the frame, like live-updates.js."""
    return re.sub(r'<(\w+) id="([^"]+)" data-unchanged></\1>', lambda place: tiles.get(place[2], place[0]), frame)


def tile(name: str, text: str = "") -> str:
    """Return the HTML of a tile."""
    return f'<div data-tile id="{name}" class="tile">{text}</div>'


def tiled(*tiles: str) -> TiledHtml:
    """Split a part with these tiles."""
    return split_tiles(f'<section id="pod-grid">{" ".join([*tiles, tile("last")])}</section>')


class Outline(HTMLParser):
    """Counts the top-level elements of a text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.depth = self.count = 0
        self.beside = ""  # text outside of elements
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "input":
            self.count += self.depth == 0
            self.depth += 1

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1

    def handle_data(self, data: str) -> None:
        self.beside += "" if self.depth else data


@pytest.mark.parametrize("pods", [20 * REPLICAS, 20 * 3], ids=["as tiles", "at length"])
@pytest.mark.parametrize(
    "address", [PICTURE, f"{PICTURE}?by=node", f"{BIG}pods/pod-grid/", f"{BIG}pods/pod-grid/?by=node"]
)
def test_a_picture_is_taken_apart_into_whole_elements_and_put_together_to_the_letter(
    viewer: Client, row: models.Cluster, address: str, pods: int
) -> None:
    fleet.store_nodes(row, 30)
    fleet.store_parts(row, fleet.big_workload(pods=pods), outdated=[1])
    html = viewer.get(address).content.decode()
    apart = split_tiles(html)
    assert len(apart.tiles) == len(re.findall(r"\sdata-tile\s", html)) - 1 > 0
    assert put_together(apart.frame, apart.tiles) == html
    for text in apart.tiles.values():
        outline = Outline(text)
        assert (outline.count, outline.depth, outline.beside) == (1, 0, ""), text


def test_tiles_are_new_that_look_different_or_were_not_there() -> None:
    before = tiled(tile("a", "1"), tile("b", "1"), tile("c", "1"))
    after = tiled(tile("d", "1"), tile("c", "1"), tile("b", "2"))
    assert set(after.list_changed(before)) == {"d", "b"}
    assert set(after.list_changed(None)) == {"d", "c", "b"}
    assert after.list_changed(after) == {}
    assert re.findall(r'id="(\w+)" data-unchanged', after.frame) == ["d", "c", "b"], "all of them, in their order"


def test_what_comes_from_outside_does_not_pass_for_a_tile(viewer: Client, row: models.Cluster) -> None:
    fleet.store_parts(row, fleet.big_workload(pods=20 * REPLICAS))
    models.Pod.objects.filter(name__startswith="big-3-").update(node='"><div data-tile id="forged">')
    html = viewer.get(PICTURE).content.decode()
    assert "forged" in html
    assert [name for name in split_tiles(html).tiles if not name.startswith("replica-")] == []


def test_tiles_of_one_name_are_left_where_they_are() -> None:
    assert tiled(tile("a", "1"), tile("a", "2")).tiles == {}
    assert "data-unchanged" not in tiled(tile("a", "1"), tile("a", "2")).frame


def test_of_many_tiles_those_are_brought_that_changed(viewer: Client, row: models.Cluster, redis: Redis) -> None:
    fleet.store_parts(row, fleet.big_workload(pods=20 * REPLICAS))

    async def then(stream: Stream) -> None:
        whole = (await stream.wait_for("fragment")).data
        assert whole["base"] == ""
        assert len(whole["tiles"]) == REPLICAS - 1
        await _fail_pods(redis, "big-3-")
        news = (await stream.wait_for("fragment")).data
        assert (news["base"], set(news["tiles"])) == (whole["etag"], {"replica-3"})
        shown = put_together(news["html"], {**whole["tiles"], **news["tiles"]})
        asked = await asyncio.to_thread(viewer.get, PICTURE)
        assert (shown, news["etag"]) == (asked.content.decode(), asked["ETag"])

    watch(viewer, f"- {SHOW}", then=then)


def test_whoever_missed_a_rendering_is_brought_all_tiles_and_whoever_has_it_only_the_news(
    viewer: Client, row: models.Cluster, redis: Redis
) -> None:
    fleet.store_parts(row, fleet.big_workload(pods=20 * REPLICAS))
    first = viewer.get(PICTURE)["ETag"]
    models.Pod.objects.filter(name__startswith="big-3-").update(ready=False)
    second = viewer.get(PICTURE)["ETag"]

    async def miss(stream: Stream) -> None:
        event = await stream.wait_for("fragment")
        assert (event.data["base"], event.data["etag"], len(event.data["tiles"])) == ("", second, REPLICAS - 1)

    async def know(stream: Stream) -> None:
        await stream.wait_for("current")
        await _fail_pods(redis, "big-4-")
        event = await stream.wait_for("fragment")
        assert (event.data["base"], set(event.data["tiles"])) == (second, {"replica-4"})

    watch(viewer, f"{first} {SHOW}", then=miss)
    watch(viewer, f"{second} {SHOW}", then=know)


async def _fail_pods(redis: Redis, beginning: str) -> None:
    """Make pods of the workload unready, and publish the change."""

    def fail() -> Any:
        models.Pod.objects.filter(name__startswith=beginning).update(ready=False)

    await in_thread(fail)
    change_feed.publish(redis, [CHANGE])
