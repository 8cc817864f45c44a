"""Alpine makes functions of attributes: no text that people or clusters write may get into one (docs/adr/0017)."""

from html.parser import HTMLParser
from typing import Any

import pytest
from django.db.models import CharField, Field, TextField, Value
from django.db.models.functions import Cast, Concat
from django.test import Client

from rollouts import models
from rollouts.admin.site import site
from tests.admin.tables import TABLES

pytestmark = [pytest.mark.database, pytest.mark.django_db]

PLANTED = "zq');hit()//"
# What the product itself chooses from a list.
_CHOSEN = {"strategy", "result", "command", "reason", "phase", "outcome", "state"}


class _Attributes(HTMLParser):
    """Gathers the attributes that Alpine reads, and whether planted text is on the page at all."""

    def __init__(self) -> None:
        super().__init__()
        self.read_by_alpine: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.read_by_alpine += [(name, value or "") for name, value in attrs if name.startswith(("x-", "@", ":"))]


def _attributes(text: str) -> list[tuple[str, str]]:
    parser = _Attributes()
    parser.feed(text)
    return parser.read_by_alpine


def _plant(model: Any) -> None:
    """Put hostile text into every column that has room for it."""
    for column in model._meta.fields:
        if type(column) in (CharField, TextField) and _is_free(column):
            hostile = Concat(Value(PLANTED), Cast("pk", CharField()))
            model._base_manager.update(**{column.name: hostile})


def _is_free(column: "Field[Any, Any]") -> bool:
    return not (column.choices or column.primary_key or column.name in _CHOSEN or (column.max_length or 999) < 30)


@pytest.mark.parametrize("table", [name for name in TABLES if name != "rollouts/auditentry"])
def test_what_people_and_clusters_write_gets_into_no_attribute_of_alpine(
    ada: Client, row: models.Cluster, table: str
) -> None:
    TABLES[table](row, 2)
    model = next(one for one in site._registry if f"{one._meta.app_label}/{one._meta.model_name}" == table)
    _plant(model)
    ada.force_login(models.User.objects.order_by("pk").first(), "rollouts.accounts.permissions.AccountBackend")  # type: ignore[arg-type]
    newest = model._default_manager.order_by("-pk").first()
    assert newest is not None
    pages = [f"/admin/{table}/", f"/admin/{table}/{newest.pk}/change/", f"/admin/{table}/?q={PLANTED}"]
    texts = [ada.get(page).content.decode() for page in pages]
    assert all("zq" in text for text in texts), "the planted text is shown, or nothing is proven"
    found = [one for text in texts for one in _attributes(text)]
    assert found, "the pages live by Alpine"
    assert [one for one in found if "zq" in one[1]] == []


def test_what_is_on_record_gets_into_no_attribute_of_alpine(ada: Client, row: models.Cluster) -> None:
    words = dict.fromkeys(("actor", "name", "namespace", "cluster", "detail", "token"), PLANTED)
    entry = models.AuditEntry.objects.create(command=PLANTED, result="Done", before={PLANTED: PLANTED}, **words)
    pages = ["", f"rollouts/auditentry/{entry.pk}/change/", f"rollouts/auditentry/?actor={PLANTED}"]
    for page in pages:
        text = ada.get(f"/admin/{page}").content.decode()
        assert "zq" in text
        assert [one for one in _attributes(text) if "zq" in one[1]] == []
