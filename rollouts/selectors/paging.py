"""A part of a long list, and how long the list is.

Every list that can grow is read by pages; a page costs one query to count and one to read, however long the list is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from django.db.models import QuerySet

T = TypeVar("T")

PAGE_SIZE: Final = 100
MAX_PAGE_SIZE: Final = 500


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a list is asked for."""

    number: int = 1  # the first page is 1
    size: int = PAGE_SIZE

    @property
    def span(self) -> slice:
        """Where in the list it is."""
        start = (self.number - 1) * self.size
        return slice(start, start + self.size)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """What was asked for of a list."""

    items: Sequence[T]
    count: int  # of the whole list
    window: Window

    @property
    def has_next(self) -> bool:
        """Whether the list goes on."""
        return self.window.number * self.window.size < self.count


def read_page(rows: "QuerySet[Any, T]", window: Window) -> Page[T]:
    """Read a part of what a query finds."""
    return Page(list(rows[window.span]), rows.count(), window)
