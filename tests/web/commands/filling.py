"""Forms as people fill them in: opened, changed in some fields, tried or sent; and what the pages say about them."""

import html
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, cast

from django.http import HttpResponse
from django.test import Client

from rollouts.models import AuditEntry
from tests.markup import compact
from tests.services.stage import Stage

Fields = dict[str, Any]


class _Reader(HTMLParser):
    """Finds what the form of a page would send as it stands."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: Fields = {}
        self._is_inside = False
        self._text_of = ""
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        if tag == "form":
            self._is_inside = given.get("id") == "command-form"
        elif self._is_inside and tag == "select":
            self._select = name
            self.fields[name] = ""
        elif self._is_inside and tag == "textarea":
            self._text_of = name
            self.fields[name] = ""
        elif self._is_inside and tag == "input" and name:
            self._take_input(name, value, given)

    def _take_input(self, name: str, value: str, given: dict[str, str | None]) -> None:
        kind, is_on = given.get("type"), "checked" in given
        if kind == "checkbox" and is_on:
            self.fields.setdefault(name, []).append(value)
        elif kind != "checkbox" and (kind != "radio" or is_on):
            self.fields[name] = value

    def handle_data(self, data: str) -> None:
        if self._text_of:
            self.fields[self._text_of] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # HTML drops the first line break of a text field.
            self.fields[self._text_of] = self.fields[self._text_of].removeprefix("\n")
            self._text_of = ""
        elif tag == "form":
            self._is_inside = False


def fields_of(page: str) -> Fields:
    """Return what the form of a page would send as it stands."""
    reader = _Reader()
    reader.feed(page)
    return reader.fields


def boxes_of(answer: Any, field: str) -> dict[str, str]:
    """Return the boxes that a page has for a field, by value: chosen, free, or off, which cannot be ticked."""
    pattern = rf'<input type="checkbox"[^>]* name="{re.escape(field)}" value="([^"]+)"([^>]*)>'
    found = re.findall(pattern, compact(answer.content.decode()))
    states = ((html.unescape(value), rest.split()) for value, rest in found)
    return {
        value: "off" if "disabled" in state else "chosen" if "checked" in state else "free" for value, state in states
    }


def is_barred(page: str) -> bool:
    """Whether nothing of a form can be filled in, nor is it tried while somebody types."""
    return "<fieldset disabled " in compact(page) and "hx-post" not in page


def say(answer: Any, place: str = "") -> str:
    """Return the words of an answer, or of one element in it."""
    page = answer.content.decode()
    if place:
        found = re.search(rf'<(\w+)[^>]* id="{re.escape(place)}".*?</\1>', page, re.DOTALL)
        assert found, place
        page = found[0]
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))).strip()


def said_beside(page: str, field: str) -> str:
    """Return what a page says is wrong with a field."""
    found = re.search(rf'id="wrong-{re.escape(field)}"[^>]*>([^<]*)<', compact(page))
    assert found, f"nothing can be said beside {field}"
    return found[1]


def address(stage: Stage, form: str) -> str:
    """Return where a form is, or what hangs below it."""
    place = stage.place
    return f"/workloads/{place.cluster}/{place.namespace}/{place.name}/{form}/"


@dataclass(slots=True)
class FormClient:
    """A client that opens, fills in and sends the forms of one workload."""

    client: Client
    stage: Stage

    def address(self, form: str) -> str:
        """Return where a form is."""
        return address(self.stage, form)

    def open(self, form: str) -> Fields:
        """Open a form and return what stands in it."""
        answer = self.client.get(self.address(form))
        assert answer.status_code == 200, answer.content
        return fields_of(answer.content.decode())

    def send(self, form: str, fields: Fields) -> HttpResponse:
        """Send a form."""
        answer = self.client.post(self.address(form), fields)
        self.stage.observe()
        return cast("HttpResponse", answer)

    def change(self, form: str, **fields: Any) -> HttpResponse:
        """Open a form, change some fields, and send it."""
        return self.send(form, {**self.open(form), **fields})

    def try_out(self, form: str, fields: Fields) -> str:
        """Return what the page says beside a form while somebody types."""
        answer = self.client.post(f"{self.address(form)}preview/", fields)
        assert answer.status_code == 200, answer.content
        return compact(answer.content.decode())

    def commands(self) -> list[tuple[str, str]]:
        """Return what is on record: commands and what came of them, the oldest first."""
        return list(AuditEntry.objects.order_by("id").values_list("command", "result"))
