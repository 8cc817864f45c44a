"""A part of a page as the tiles in it and the frame that holds them: of many tiles only those are brought that changed.

Between `fragments`, which renders a part whole, and `stream`, which brings it. A tile is an element that begins with
`data-tile` and an id. In the frame an empty element stands for it; live-updates.js puts there what it was brought, or
leaves what it shows. So tiles that come, go or move need no words of their own: the frame has all, in their order.

The invariant: the frame with all tiles put back is the part, to the letter. Tiles stand side by side, with nothing but
blanks between them, and what comes from outside has no bare "<" by which it could pass for one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_TILE_START: Final = re.compile(r'<(\w+)\s+data-tile\s+id="([^"<>]+)"')


@dataclass(frozen=True, slots=True)
class TiledHtml:
    """A part of a page, taken apart."""

    frame: str  # with a place for each tile
    tiles: Mapping[str, str]  # by id; empty: it has none

    def list_changed(self, former: "TiledHtml | None") -> dict[str, str]:
        """Return the tiles that look different from before, or were not there."""
        known = former.tiles if former else {}
        return {name: tile for name, tile in self.tiles.items() if known.get(name) != tile}


def split_tiles(html: str) -> TiledHtml:
    """Take a part of a page apart; the last tile stays in the frame, as where it ends can only be guessed.

    >>> split_tiles('<p><b data-tile id="x">1</b><b data-tile id="y">2</b></p>').frame
    '<p><b id="x" data-unchanged></b><b data-tile id="y">2</b></p>'
    """
    found = list(_TILE_START.finditer(html))
    tiles, frame = {}, [html[: found[0].start()] if found else html]
    for one, following in pairwise(found):
        text = html[one.start() : following.start()]
        tiles[one[2]] = tile = text.rstrip()
        frame.append(f'<{one[1]} id="{one[2]}" data-unchanged></{one[1]}>{text[len(tile) :]}')
    if len(tiles) < len(found) - 1:  # two of one name: nobody could tell which is meant
        return TiledHtml(html, {})
    return TiledHtml("".join([*frame, html[found[-1].start() :] if found else ""]), tiles)
