"""Sessions end, and their rows do not stay."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from rollouts import tasks

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def test_sessions_that_are_over_are_dropped_and_others_stay(redis: Any) -> None:
    for key, hours in (("over", -1), ("open", 1)):
        Session.objects.create(session_key=key, session_data="", expire_date=timezone.now() + timedelta(hours=hours))
    tasks.resync()
    assert list(Session.objects.values_list("session_key", flat=True)) == ["open"]
