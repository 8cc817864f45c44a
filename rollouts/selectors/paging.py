"""Pages of long lists.

A page costs one query to count and one to read, however long the list is.
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
    """The page of a list to read."""

    number: int = 1  # the first page is 1
    size: int = PAGE_SIZE

    @property
    def span(self) -> slice:
        """The slice of the list."""
        start = (self.number - 1) * self.size
        return slice(start, start + self.size)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list."""

    items: Sequence[T]
    count: int  # of the whole list
    window: Window

    @property
    def has_next(self) -> bool:
        """Whether there is a next page."""
        return self.window.number * self.window.size < self.count


def read_page(rows: "QuerySet[Any, T]", window: Window) -> Page[T]:
    """Read a page of a query."""
    return Page(list(rows[window.span]), rows.count(), window)
