"""Forms as people fill them in: opened, changed in some fields, tried or sent."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, cast

from django.http import HttpResponse
from django.test import Client

from rollouts.models import AuditEntry
from tests.commands.stage import Stage

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
            self._is_inside = given.get("id") == "desk"
        elif self._is_inside and tag == "select":
            self._select = name
            self.fields[name] = ""
        elif self._is_inside and tag == "textarea":
            self._text_of = name
            self.fields[name] = ""
        elif self._is_inside and tag == "input" and name:
            self._take_input(name, value, given)

    def _take_input(self, name: str, value: str, given: dict[str, str | None]) -> None:
        if given.get("type") not in ("checkbox", "radio"):
            self.fields[name] = value
        elif "checked" in given:
            self.fields.setdefault(name, []).append(value)

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


def said_beside(page: str, field: str) -> str:
    """Return what a page says is wrong with a field."""
    found = re.search(rf'id="wrong-{re.escape(field)}"[^>]*>([^<]*)<', page)
    assert found, f"nothing can be said beside {field}"
    return found[1]


@dataclass(slots=True)
class Desk:
    """Somebody in front of the forms of one workload."""

    client: Client
    stage: Stage

    def address(self, form: str) -> str:
        """Return where a form is."""
        place = self.stage.place
        return f"/workloads/{place.cluster}/{place.namespace}/{place.name}/{form}/"

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
        answer = self.client.post(f"{self.address(form)}trial/", fields)
        assert answer.status_code == 200, answer.content
        return answer.content.decode()

    def commands(self) -> list[tuple[str, str]]:
        """Return what is on record: commands and what came of them, the oldest first."""
        return list(AuditEntry.objects.order_by("id").values_list("command", "result"))
