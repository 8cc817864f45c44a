"""Strict reading of query parameters: an unknown parameter is rejected, since ignoring it would filter nothing.

A view declares its parameters by reading them. `raise_if_invalid` then reports all invalid ones at once, as 400 with a
finding that names each parameter. The values can go straight to the database: no NUL, no number that it cannot hold.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar

from django.http import HttpRequest
from rest_framework.request import Request

from rollouts.api.problems import BadParameter, RequestFinding
from rollouts.engine.manifest.findings import FindingCode
from rollouts.selectors.paging import MAX_PAGE_SIZE, PAGE_SIZE, Page, Window

_E = TypeVar("_E", bound=StrEnum)

_MAX_VALUE_CHARACTERS: Final = 500  # characters of a value
_MAX_VALUES: Final = 50  # of one parameter
_MAX_PAGE: Final = 1_000_000
_MAX_DIGITS: Final = 10


class QueryParams:
    """The query parameters of one request."""

    def __init__(self, request: Request) -> None:
        """Begin with no parameter read."""
        self._given = request.query_params
        self._read: set[str] = set()
        self._flaws: list[RequestFinding] = []

    def texts(self, name: str) -> tuple[str, ...]:
        """Return all values of a parameter that may be repeated."""
        self._read.add(name)
        values = self._given.getlist(name)
        if len(values) > _MAX_VALUES:
            self._add_finding(name, FindingCode.TOO_MANY, f"{name} can be repeated at most {_MAX_VALUES} times.")
            return ()
        return tuple(value for value in values if value and self._is_text(name, value))

    def text(self, name: str) -> str:
        """Return the value of a parameter that cannot be repeated; empty if it is not given."""
        values = self.texts(name)
        if len(values) > 1:
            self._add_finding(name, FindingCode.TOO_MANY, f"{name} can be given only once.")
        return values[0] if values else ""

    def choices(self, name: str, among: type[_E]) -> tuple[_E, ...]:
        """Return the values of a parameter that takes members of an enumeration."""
        known = {str(one): one for one in among}
        return tuple(known[word] for word in self.text_choices(name, known))

    def text_choices(self, name: str, among: Iterable[str]) -> tuple[str, ...]:
        """Return the values of a parameter that takes only these words."""
        allowed = list(among)
        found = self.texts(name)
        for value in found:
            if value not in allowed:
                sentence = f"{name} cannot be {value!r}; use {', '.join(allowed)}."
                self._add_finding(name, FindingCode.UNKNOWN_VALUE, sentence)
        return tuple(value for value in found if value in allowed)

    def number(self, name: str, default: int, *, most: int) -> int:
        """Return a whole number from 1 to `most`, or the default."""
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS and 1 <= int(text) <= most):
            self._add_finding(name, FindingCode.OUT_OF_RANGE, f"{name} must be a whole number from 1 to {most}.")
            return default
        return int(text)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the values of a parameter like `label=tier=gold` as pairs of key and value."""
        pairs = []
        for value in self.texts(name):
            key, sign, rest = value.partition("=")
            if not sign or not key or '"' in value or "\\" in value:
                self._add_finding(
                    name, FindingCode.WRONG_TYPE, f"{name} must have the form key=value, as in {name}=tier=gold."
                )
            else:
                pairs.append((key, rest))
        return tuple(pairs)

    def ordering(self, among: Iterable[str]) -> tuple[str, ...]:
        """Return the fields to order by: separated by commas, with a minus for descending order."""
        words = [word for word in self.text("ordering").split(",") if word]
        allowed = list(among)
        for word in words:
            if word.removeprefix("-") not in allowed:
                sentence = f"ordering cannot be {word!r}; use {', '.join(allowed)}, with a minus for descending order."
                self._add_finding("ordering", FindingCode.UNKNOWN_VALUE, sentence)
        return tuple(word for word in words if word.removeprefix("-") in allowed)

    def window(self) -> Window:
        """Return the requested page."""
        number = self.number("page", 1, most=_MAX_PAGE)
        return Window(number, self.number("page_size", PAGE_SIZE, most=MAX_PAGE_SIZE))

    def raise_if_invalid(self) -> None:
        """Raise BadParameter for all parameters that are unknown or invalid."""
        for name in self._given:
            if name not in self._read:
                known = ", ".join(sorted(self._read)) or "none"
                self._add_finding(
                    name[:_MAX_VALUE_CHARACTERS],
                    FindingCode.UNKNOWN_VALUE,
                    f"Unknown parameter {name[:40]!r}; known parameters: {known}.",
                )
        if self._flaws:
            raise BadParameter(*self._flaws)

    def _is_text(self, name: str, value: str) -> bool:
        if len(value) > _MAX_VALUE_CHARACTERS:
            self._add_finding(
                name, FindingCode.TOO_LONG, f"{name} can have at most {_MAX_VALUE_CHARACTERS} characters."
            )
            return False
        if "\0" in value:
            self._add_finding(name, FindingCode.WRONG_TYPE, f"{name} contains a NUL character.")
            return False
        return True

    def _add_finding(self, name: str, code: FindingCode, message: str) -> None:
        self._flaws.append(RequestFinding(name, code, message))


def reject_parameters(request: Request) -> None:
    """Raise BadParameter if the request has any query parameter."""
    QueryParams(request).raise_if_invalid()


def render_page(request: HttpRequest | Request, page: Page[Any], items: Sequence[Any] | None = None) -> dict[str, Any]:
    """Return a page as the API shows it, with the URLs of the next and the previous page."""
    number = page.window.number
    return {
        "count": page.count,
        "next": _address(request, number + 1) if page.has_next else None,
        "previous": _address(request, number - 1) if number > 1 else None,
        "results": page.items if items is None else items,
    }


def _address(request: Any, number: int) -> str:
    parameters = request.GET.copy()
    parameters["page"] = str(number)
    address: str = request.build_absolute_uri(f"{request.path}?{parameters.urlencode()}")
    return address
