"""The description of the API: valid, complete, and what is really answered."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client

from rollouts.api.field_help import FIELD_HELP
from rollouts.api.schema import make_schema
from tests.api.endpoints import described, endpoints

OPERATIONS = [
    (path, method, operation)
    for path, item in make_schema()["paths"].items()
    for method, operation in item.items()
    if method in {"get", "post", "put", "patch", "delete"}
]


def test_it_is_valid_and_nothing_had_to_be_guessed(tmp_path: Path) -> None:
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(tmp_path / "schema.yaml"))


def test_every_endpoint_is_described_but_those_of_the_description_itself() -> None:
    assert endpoints() - described(make_schema()) == {("GET", "schema/"), ("GET", "docs/")}


def test_its_version_is_that_of_the_product() -> None:
    project = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["project"]
    assert make_schema()["info"]["version"] == project["version"]


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS, ids=lambda value: str(value)[:60])
def test_every_operation_says_what_it_does_and_how_it_fails(path: str, method: str, operation: dict[str, Any]) -> None:
    assert operation["operationId"]
    assert operation["summary"]
    assert operation["description"]
    assert {"400", "401", "403", "429"} <= operation["responses"].keys()
    assert ("404" in operation["responses"]) or "{" not in path
    problem = operation["responses"]["401"]["content"]["application/problem+json"]["schema"]
    assert problem == {"$ref": "#/components/schemas/Problem"}


def test_operations_have_ids_of_their_own() -> None:
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(ids) == len(set(ids))


def test_every_reference_leads_somewhere() -> None:
    schema = make_schema()
    known = {f"#/components/schemas/{name}" for name in schema["components"]["schemas"]}
    assert set(_references(schema)) <= known


def test_what_a_field_means_stands_beside_it() -> None:
    schemas = make_schema()["components"]["schemas"]
    shown = {
        (name, field): property_.get("description", "")
        for name, schema in schemas.items()
        for field, property_ in schema.get("properties", {}).items()
    }
    meant = {(name, field): words for name, fields in FIELD_HELP.items() for field, words in fields.items()}
    assert {
        where: shown.get(where) for where, words in meant.items() if not shown.get(where, "").startswith(words)
    } == {}


def test_what_a_class_extends_lends_it_its_sentences() -> None:
    properties = make_schema()["components"]["schemas"]["WorkloadDetail"]["properties"]
    assert "If-Match" in properties["version"]["description"]


def test_the_description_of_read_only_says_that_the_controller_continues() -> None:
    words = make_schema()["components"]["schemas"]["MeAnswer"]["properties"]["read_only"]["description"]
    assert "The controller still creates and deletes pods. OBSERVE=1 stops that." in words


@pytest.mark.database
@pytest.mark.django_db
def test_it_can_be_had_as_json_and_as_yaml_by_who_is_signed_in(
    client: Client, django_user_model: Any, redis: Any
) -> None:
    assert client.get("/api/v1/schema/").status_code == 401
    client.force_login(django_user_model.objects.create_user("nora"))
    answer = client.get("/api/v1/schema/")
    assert json.loads(answer.content)["openapi"].startswith("3.")
    yaml = client.get("/api/v1/schema/", headers={"Accept": "application/vnd.oai.openapi"})
    assert yaml.content.startswith(b"openapi: 3.")


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for member in value.values():
            yield from _references(member)
    elif isinstance(value, list):
        for member in value:
            yield from _references(member)
