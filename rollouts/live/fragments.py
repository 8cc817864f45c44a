"""Parts of pages that are rendered again while they change: how a view describes one, and what a rendering holds.

The views of `rollouts.web` describe their parts with these values. `fragment_cache` renders them; `stream` finds the
fragment behind the address of a part by `FragmentView`. A fragment is the same for every viewer: it depends on its
address only, never on the account.
"""

import gzip
import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

from django.http import HttpRequest, HttpResponse

from rollouts.live.tiles import TiledHtml, split_tiles

_MIN_COMPRESSED_BYTES: Final = 200  # as in Django's GZipMiddleware


@dataclass(frozen=True, slots=True)
class FragmentSource:
    """Data from which several fragments are rendered."""

    key: Hashable  # the same for every fragment that uses this source
    open: Callable[[], Any]  # returns an object that reads lazily, when a fragment asks it for something


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a page, the same for every viewer."""

    key: Hashable  # equal keys share one rendering
    render: Callable[..., str]  # called with the opened source, if there is one
    source: FragmentSource | None = None
    headers: Mapping[str, str] = field(default_factory=dict)  # of the response to a request for this fragment alone
    asks_cluster: bool = False  # rendering waits for an API server, which may take any time
    priority: int = 0  # of fragments with the same source, the lowest is rendered first


class FragmentView(Protocol):
    """A view that answers with a fragment, and can name that fragment without a request."""

    find_fragment: Callable[..., Fragment]  # called with the query parameters and the arguments of the URL

    def __call__(self, request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answer with the fragment."""


@dataclass(frozen=True, eq=False)
class Rendering:
    """The HTML of a fragment at one time."""

    started_at: float  # monotonic clock; all data was read at this time or later
    body: bytes
    etag: str

    @classmethod
    def of(cls, started_at: float, body: bytes) -> "Rendering":
        """Return the rendering with the ETag of its body."""
        return cls(started_at, body, f'"{hashlib.sha256(body).hexdigest()[:24]}"')

    @cached_property
    def compressed(self) -> bytes:
        """The body as gzip; empty if the body is too short to gain from it."""
        return gzip.compress(self.body, compresslevel=5, mtime=0) if len(self.body) >= _MIN_COMPRESSED_BYTES else b""

    @cached_property
    def tiled(self) -> TiledHtml:
        """The body as a frame and tiles."""
        return split_tiles(self.body.decode())
