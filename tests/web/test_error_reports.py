"""A debug page shows no setting and no secret."""

import sys
from types import TracebackType
from typing import Any

import pytest
from django.test import Client, RequestFactory
from django.views.debug import technical_500_response

SECRET = "planted-in-the-settings"


@pytest.fixture
def debugging(settings: Any) -> None:
    settings.DEBUG = True
    settings.REDIS_URL = f"redis://:{SECRET}@10.0.0.1/0"
    settings.CELERY_BROKER_URL = f"redis://:{SECRET}@10.0.0.1/0"
    settings.CACHES = {"default": {"LOCATION": f"redis://me:{SECRET}@10.0.0.1/0"}}
    settings.SOMETHING_NEW = {"address": [f"amqp://me:{SECRET}@10.0.0.1"]}


def test_a_debug_page_for_a_foreign_host_shows_no_setting(debugging: None) -> None:
    answer = Client(raise_request_exception=False).get("/", headers={"Host": "evil.example"})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert "DisallowedHost" in page, "this is the debug page"
    assert SECRET not in page
    assert "CELERY_BROKER_URL" not in page


def test_a_traceback_shows_neither_what_is_named_like_a_secret_nor_the_user_of_an_address(debugging: None) -> None:
    request = RequestFactory().get("/", headers={"Cookie": f"sessionid={SECRET}"})
    try:
        fail(f"redis://me:{SECRET}@10.0.0.1/0", SECRET, {"urls": [f"https://{SECRET}@host/"]})
    except ValueError:
        page = technical_500_response(request, *found()).content.decode()
    assert "10.0.0.1" in page
    assert SECRET not in page


def found() -> tuple[type[BaseException], BaseException, TracebackType]:
    kind, error, trace = sys.exc_info()
    assert kind is not None
    assert error is not None
    assert trace is not None
    return kind, error, trace


def fail(address: str, password: str, about: Any) -> None:
    raise ValueError("no way")
