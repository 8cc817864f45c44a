"""What an address asks a page for, read leniently, and written again.

The API refuses a parameter that it cannot use; a page takes it for the default, as whoever mistyped an address wants to
see something. What comes out can be handed to the database.
"""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils.dateparse import parse_date

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_MAX_LENGTH: Final = 200  # characters of a value
_MAX_PAGE: Final = 100_000


def parse_text(given: QueryDict, name: str) -> str:
    """Return a text; empty when it is not given or holds what no name holds."""
    value = given.get(name, "").strip()[:_MAX_LENGTH]
    return value if value.isprintable() else ""


def parse_choice(given: QueryDict, name: str, known: Iterable[str]) -> str:
    """Return one of some words, or nothing."""
    value = given.get(name, "")
    return value if value in {str(word) for word in known} else ""


def parse_page_number(given: QueryDict, name: str) -> int:
    """Return a number from 1 on, as pages are counted."""
    value = given.get(name, "")
    is_number = value.isascii() and value.isdecimal() and len(value) <= len(str(_MAX_PAGE))
    return min(max(int(value), 1), _MAX_PAGE) if is_number else 1


def parse_day(given: QueryDict, name: str) -> datetime | None:
    """Return the beginning of a day."""
    try:
        day = parse_date(given.get(name, ""))
    except ValueError:  # well-formed, but there is no such day
        return None
    is_usable = day is not None and date.min < day < date.max  # there is a day before it and one after it
    return datetime(day.year, day.month, day.day, tzinfo=UTC) if day and is_usable else None


def render_query(choice: "DataclassInstance", bare: "DataclassInstance") -> str:
    """Return what an address ends with to mean a choice; what is as in the bare address is left out."""
    usual = asdict(bare)
    given = {name: value for name, value in asdict(choice).items() if value != usual[name]}
    return f"?{urlencode(given)}" if given else ""
