"""How many streams and different parts an account may have open at once."""

import gc
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.test import Client
from redis import Redis

from rollouts import models
from rollouts.live.sse import MAX_PARTS_PER_ACCOUNT
from rollouts.models import User
from tests.live.streams import LIST, Stream, open_stream, watch

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick_streams")]


def test_an_account_has_so_many_streams_at_once_and_can_open_another_when_one_is_closed(
    viewer: Client, row: models.Cluster, redis: Redis, settings: Any
) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, stream_limit=1)
    elsewhere = Client()
    elsewhere.force_login(User.objects.get(username="vera"))
    feed_of_account = partial(elsewhere.get, "/api/v1/feed/", headers={"Accept": "text/event-stream"})

    async def then(stream: Stream) -> None:
        await stream.wait_for("current")
        for open_another in (partial(open_stream, elsewhere, f"- {LIST} workload"), feed_of_account):
            refused = await sync_to_async(open_another)()
            assert (refused.status_code, refused["Retry-After"]) == (429, "30")
            assert b"Your account has 1 live pages and feeds open" in refused.content

    watch(viewer, f"- {LIST} workload", then=then)
    assert feed_of_account().status_code == 200


def test_an_account_has_so_many_different_parts_open_at_once_over_all_its_streams(
    viewer: Client, row: models.Cluster, redis: Redis
) -> None:
    def parts(first: int, how_many: int) -> list[str]:
        return [f"- {LIST} workload every:{seconds}" for seconds in range(first, first + how_many)]

    pages = [parts(first, 16) for first in range(10, 10 + 6 * 16, 16)]
    first, *others = [Stream(open_stream(viewer, *shown)) for shown in pages]
    for shown in (*pages, parts(600, MAX_PARTS_PER_ACCOUNT - 6 * 16)):
        assert open_stream(viewer, *shown).status_code == 200  # up to the limit; a part of several pages counts once
        gc.collect()
    refused = open_stream(viewer, *parts(600, MAX_PARTS_PER_ACCOUNT - 6 * 16 + 1))
    assert (refused.status_code, refused["Retry-After"]) == (429, "30")
    assert f"{MAX_PARTS_PER_ACCOUNT} different live parts".encode() in refused.content
    other = Client()
    account = User.objects.create_user("olga")
    account.groups.add(Group.objects.get(name="viewer"))
    other.force_login(account)
    assert open_stream(other, *parts(600, 16)).status_code == 200
    del first
    gc.collect()
    assert open_stream(viewer, *parts(600, 16)).status_code == 200
    assert others


def test_a_stream_that_is_never_read_is_not_counted_for_ever(
    viewer: Client, row: models.Cluster, redis: Redis, settings: Any
) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, stream_limit=1)
    for _ in range(3):
        assert open_stream(viewer, f"- {LIST} workload").status_code == 200
        gc.collect()


def test_a_page_with_more_parts_than_any_is_refused(viewer: Client) -> None:
    shown = [f"- {LIST} workload every:{seconds}" for seconds in range(10, 27)]
    refused = open_stream(viewer, *shown)
    assert refused.status_code == 400
    assert b"at most 16 live parts" in refused.content
