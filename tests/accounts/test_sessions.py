"""Sessions expire, their rows are deleted, and the content of a row gives no access."""

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from rollouts import tasks
from rollouts.accounts.sessions import SessionStore
from tests.accounts.conftest import MakePerson

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def test_sessions_that_are_over_are_dropped_and_others_stay(redis: Any) -> None:
    for key, hours in (("over", -1), ("open", 1)):
        Session.objects.create(session_key=key, session_data="", expire_date=timezone.now() + timedelta(hours=hours))
    tasks.resync()
    assert list(Session.objects.values_list("session_key", flat=True)) == ["open"]


def test_what_the_database_has_of_a_session_opens_nothing(make_person: MakePerson) -> None:
    browser = Client()
    browser.force_login(make_person("ana", "viewer"))
    cookie = browser.cookies[settings.SESSION_COOKIE_NAME].value
    (row,) = Session.objects.all()
    assert cookie not in (row.session_key, row.session_data)
    assert browser.get("/tokens/").status_code == 200
    thief = Client()
    thief.cookies[settings.SESSION_COOKIE_NAME] = row.session_key
    assert thief.get("/tokens/").status_code == 302


def test_a_session_of_an_earlier_version_opens_nothing(make_person: MakePerson) -> None:
    browser = Client()
    browser.force_login(make_person("ana", "viewer"))
    cookie = browser.cookies[settings.SESSION_COOKIE_NAME].value
    Session.objects.update(session_key=cookie)  # as Django itself stores it
    assert browser.get("/tokens/").status_code == 302


def test_signing_out_ends_the_row(make_person: MakePerson) -> None:
    browser = Client()
    browser.force_login(make_person("ana", "viewer"))
    browser.post("/sign-out/")
    assert not Session.objects.exists()


def test_a_session_is_changed_kept_and_ended_under_its_key() -> None:
    first = SessionStore()
    first["what"] = "this"
    first.create()
    key = first.session_key
    assert key
    assert first.exists(key)
    again = SessionStore(key)
    assert again["what"] == "this"
    again["what"] = "that"
    again.save()
    assert SessionStore(key)["what"] == "that"
    again.cycle_key()
    assert not first.exists(key)
    assert SessionStore(again.session_key)["what"] == "that"
    SessionStore().delete(again.session_key)
    assert SessionStore(again.session_key).load() == {}


async def _async_round() -> None:
    first = SessionStore()
    await first.acreate()
    await first.aset("what", "this")
    await first.asave()
    again = SessionStore(first.session_key)
    assert await again.aget("what") == "this"
    assert await again.aexists(first.session_key or "")
    await again.adelete()
    assert await SessionStore(first.session_key).aload() == {}


@pytest.mark.django_db(transaction=True)
def test_the_same_holds_where_nothing_waits() -> None:
    async_to_sync(_async_round)()
