"""Every error of the API is problem+json with the sentence of the error; an unexpected error reveals nothing."""

import logging
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, UnreadablePostError
from django.test import Client, RequestFactory
from redis import Redis
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from rollouts.accounts import errors
from rollouts.api.problems import BadParameter, RequestFinding
from rollouts.engine.manifest.findings import Finding, FindingCode
from tests.accounts.conftest import MakePerson, bearing, give_token

FINDING = Finding("spec.replicas", FindingCode.OUT_OF_RANGE, "Set it to 1 or more.")


class Pod(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=3)


class Order(serializers.Serializer[Any]):
    pods = Pod(many=True)
    count = serializers.IntegerField(min_value=1)


def answer(error: Exception | Callable[[Request], Response], **headers: str) -> tuple[int, dict[str, Any], Any]:
    """Request a view that raises this error or calls this function."""

    class View(APIView):
        permission_classes = ()
        authentication_classes = ()

        def post(self, request: Request) -> Response:
            if isinstance(error, Exception):
                raise error
            return error(request)

    request = RequestFactory().post("/api/v1/x/", data="{}", content_type="application/json", headers=headers)
    request.request_id = "request-1"  # type: ignore[attr-defined]
    response = View.as_view()(request)
    assert response["Content-Type"] == "application/problem+json"
    body = orjson.loads(response.content)
    assert (body["status"], body["instance"], body["request_id"]) == (response.status_code, "/api/v1/x/", "request-1")
    assert body["type"].startswith("urn:grove-ui:problem:")
    return response.status_code, body, response


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.PermissionDenied("No."), 403, "not-allowed"),
        (errors.NotFound("No."), 404, "not-found"),
        (errors.ValidationFailed("No.", [FINDING]), 422, "invalid"),
        (errors.VersionConflict("No.", ["spec.replicas"]), 409, "race-lost"),
        (errors.InvalidState("No."), 409, "conflict"),
        (errors.ClusterUnavailable("No."), 503, "cluster-away"),
    ],
)
def test_what_services_refuse_has_its_status_and_its_sentence(error: Exception, status: int, kind: str) -> None:
    found, body, _ = answer(error)
    assert (found, body["type"], body["detail"]) == (status, f"urn:grove-ui:problem:{kind}", "No.")


def test_findings_of_the_engine_come_with_field_code_and_sentence() -> None:
    _, body, _ = answer(errors.ValidationFailed("No.", [FINDING]))
    assert body["findings"] == [{"field": "spec.replicas", "code": "OutOfRange", "message": "Set it to 1 or more."}]


def test_a_race_lost_on_a_condition_is_another_status_and_says_what_changed() -> None:
    status, body, _ = answer(errors.VersionConflict("No.", ["spec.replicas"]), **{"If-Match": '"1"'})
    assert (status, body["changed"]) == (412, ["spec.replicas"])


def test_a_cluster_that_is_away_says_when_to_come_again() -> None:
    _, _, response = answer(errors.ClusterUnavailable("No.", retry_after=2.2))
    assert response["Retry-After"] == "3"


def test_a_parameter_that_cannot_be_used_is_named() -> None:
    status, body, _ = answer(BadParameter(RequestFinding("page", "OutOfRange", "Set page to 1 or more.")))
    assert (status, body["findings"][0]["field"], body["detail"]) == (400, "page", "Set page to 1 or more.")


def test_fields_of_a_body_are_named_by_their_paths() -> None:
    def check(request: Request) -> Response:
        Order(data={"pods": [{"name": "a"}, {"name": "long"}, {}], "count": 0}).is_valid(raise_exception=True)
        raise AssertionError

    status, body, _ = answer(check)
    assert status == 422
    assert [(finding["field"], finding["code"]) for finding in body["findings"]] == [
        ("pods[1].name", "TooLong"),
        ("pods[2].name", "FieldMissing"),
        ("count", "OutOfRange"),
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Http404("secret words"), 404),
        (PermissionDenied("secret words"), 403),
        (RequestDataTooBig("secret words"), 413),
        (SuspiciousOperation("secret words"), 400),
        (UnreadablePostError("secret words"), 400),
        (exceptions.ParseError("It is no JSON."), 400),
        (exceptions.MethodNotAllowed("POST"), 405),
        (exceptions.NotAcceptable(), 406),
        (exceptions.UnsupportedMediaType("text/csv"), 415),
        (exceptions.Throttled(7.2), 429),
    ],
)
def test_what_the_framework_refuses_has_its_status(error: Exception, status: int) -> None:
    found, body, response = answer(error)
    assert found == status
    assert "secret words" not in str(body)
    assert response.get("Retry-After") == ("8" if status == 429 else None)


def test_what_nobody_expected_is_logged_with_the_request_id_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        status, body, _ = answer(RuntimeError("s3cret words"))
    assert status == 500
    assert "s3cret" not in str(body)
    assert [record.message for record in caplog.records] == ["Request request-1 failed"]


@pytest.mark.parametrize("path", ["/api/", "/api/v1", "/api/v1/nowhere/", "/api/v2/me/", "/api/v1/me", "/api/v1/%00/"])
@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_a_path_that_leads_nowhere_is_no_page_and_no_sign_in(client: Client, path: str, method: str) -> None:
    response = getattr(client, method)(path)
    assert (response.status_code, response["Content-Type"]) == (404, "application/problem+json")


def test_a_path_without_its_slash_is_told_so(client: Client) -> None:
    assert "end in a slash" in client.get("/api/v1/me").json()["detail"]


def test_a_host_that_is_not_ours_is_refused_in_the_words_of_the_api(client: Client) -> None:
    response = client.get("/api/v1/me/", headers={"host": "evil.example"})
    assert (response.status_code, response["Content-Type"]) == (400, "application/problem+json")
    assert "default-src 'none'" in response["Content-Security-Policy"]


def test_pages_keep_their_own_errors(client: Client) -> None:
    assert client.get("/nowhere/")["Content-Type"].startswith("text/html")


@pytest.fixture
def viewer(make_person: MakePerson, redis: Redis) -> Client:
    """A client of a viewer."""
    return bearing(give_token(make_person("ana", "viewer"))[1])


@pytest.mark.database
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("method", "body", "headers", "status"),
    [
        ("put", "{}", {}, 405),
        ("options", "", {}, 405),
        ("post", "{", {}, 400),
        ("post", b"\xff\xfe", {}, 400),
        ("post", "[]", {}, 422),
        ("post", "1", {}, 422),
        ("post", "null", {}, 422),
        ("post", '{"name": "\\u0000"}', {}, 422),
        ("post", "name=x", {"content-type": "application/x-www-form-urlencoded"}, 415),
        ("get", "", {"accept": "text/csv"}, 406),
    ],
)
def test_requests_that_cannot_be_read_are_refused_in_one_shape(
    viewer: Client, method: str, body: str, headers: dict[str, str], status: int
) -> None:
    kind = headers.get("content-type", "application/json")
    response = viewer.generic(method.upper(), "/api/v1/tokens/", body, content_type=kind, headers=headers)
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json"), response.content
