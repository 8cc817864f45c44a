"""Query parameters of pages: parsed leniently, and rendered again.

The API rejects an invalid parameter; a page uses the default, so that a mistyped URL still shows something. Parsed
values are safe to hand to the database.
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
    """Return a text; empty if it is missing or contains a character that no name has."""
    value = given.get(name, "").strip()[:_MAX_LENGTH]
    return value if value.isprintable() else ""


def parse_choice(given: QueryDict, name: str, known: Iterable[str]) -> str:
    """Return one of the allowed values, or an empty text."""
    value = given.get(name, "")
    return value if value in {str(word) for word in known} else ""


def parse_page_number(given: QueryDict, name: str) -> int:
    """Return a page number, from 1."""
    value = given.get(name, "")
    is_number = value.isascii() and value.isdecimal() and len(value) <= len(str(_MAX_PAGE))
    return min(max(int(value), 1), _MAX_PAGE) if is_number else 1


def parse_day(given: QueryDict, name: str) -> datetime | None:
    """Return the start of a day."""
    try:
        day = parse_date(given.get(name, ""))
    except ValueError:  # well-formed, but not a date
        return None
    is_usable = day is not None and date.min < day < date.max  # leaves room for one day more or less
    return datetime(day.year, day.month, day.day, tzinfo=UTC) if day and is_usable else None


def render_query(choice: "DataclassInstance", bare: "DataclassInstance") -> str:
    """Return the query string of a choice, without the values that are defaults."""
    usual = asdict(bare)
    given = {name: value for name, value in asdict(choice).items() if value != usual[name]}
    return f"?{urlencode(given)}" if given else ""
