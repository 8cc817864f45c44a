"""Forms of pages as a browser without scripts knows them: what they hold, and what they say."""

import html
import re
from html.parser import HTMLParser
from typing import Any


class Fields(HTMLParser):
    """Collects what a browser would send of a form as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self.disabled = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a field."""
        given = dict(attrs)
        self.disabled += tag == "fieldset" and "disabled" in given
        is_on = given.get("type") not in ("checkbox", "radio") or "checked" in given
        if tag == "input" and given.get("name") and is_on:
            self.values[str(given["name"])] = given.get("value") or ""


def read_fields(page: str) -> dict[str, str]:
    """Return the fields of the form on a page."""
    parser = Fields()
    parser.feed(page[page.index('<form id="desk"') :])
    return {name: value for name, value in parser.values.items() if name != "csrfmiddlewaretoken"}


def say(answer: Any, place: str = "") -> str:
    """Return the words of an answer, or of one element in it."""
    page = answer.content.decode()
    if place:
        found = re.search(rf'<(\w+)[^>]* id="{re.escape(place)}".*?</\1>', page, re.DOTALL)
        assert found, place
        page = found[0]
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))).strip()
