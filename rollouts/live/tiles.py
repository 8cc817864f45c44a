"""Split the HTML of a part into tiles and a frame, so that only the tiles that changed are sent.

Before it: `fragment_cache` renders a part as a whole. After it: `stream` sends the part. A tile is an element whose
first attributes are `data-tile` and an id. In the frame an empty element is the placeholder of a tile;
static/live-updates.js replaces it by the tile that was sent, or by the tile that the page already shows. The frame
holds the placeholders of all tiles in order, so tiles that are added, removed or moved need no events of their own.

The invariant: the frame with all tiles put back equals the part, byte for byte. Only white space separates tiles, and
text from outside is escaped, so it holds no bare "<" that could start a tile.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_TILE_START: Final = re.compile(r'<(\w+)\s+data-tile\s+id="([^"<>]+)"')


@dataclass(frozen=True, slots=True)
class TiledHtml:
    """The HTML of a part, split."""

    frame: str  # with a placeholder for each tile
    tiles: Mapping[str, str]  # by id; empty if the part has no tiles

    def list_changed(self, former: "TiledHtml | None") -> dict[str, str]:
        """Return the tiles that are new or differ from the former ones."""
        known = former.tiles if former else {}
        return {name: tile for name, tile in self.tiles.items() if known.get(name) != tile}


def split_tiles(html: str) -> TiledHtml:
    """Split the HTML of a part; the last tile stays in the frame, because its end is not known without parsing.

    >>> split_tiles('<p><b data-tile id="x">1</b><b data-tile id="y">2</b></p>').frame
    '<p><b id="x" data-unchanged></b><b data-tile id="y">2</b></p>'
    """
    found = list(_TILE_START.finditer(html))
    tiles, frame = {}, [html[: found[0].start()] if found else html]
    for one, following in pairwise(found):
        text = html[one.start() : following.start()]
        tiles[one[2]] = tile = text.rstrip()
        frame.append(f'<{one[1]} id="{one[2]}" data-unchanged></{one[1]}>{text[len(tile) :]}')
    if len(tiles) < len(found) - 1:  # two tiles have one id, so a placeholder would be ambiguous
        return TiledHtml(html, {})
    return TiledHtml("".join([*frame, html[found[-1].start() :] if found else ""]), tiles)
