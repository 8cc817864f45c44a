"""The feed as server-sent events, from a real web process with a real Redis."""

import json

import pytest

from rollouts.live.change_feed import Change
from tests.api.read.watching import STREAM_LIMIT, TOKEN, WebServer
from tests.project.running import wait_until

CHAT = "sandbox/default/chat"
OTHER = "sandbox/default/other"


def changed(key: str, *what: str) -> Change:
    """Return that something of a workload changed."""
    return Change(key.partition("/")[0], "workload", key, what)


def test_a_change_is_told_with_what_to_look_at_and_an_id(server: WebServer) -> None:
    with server.watch() as watch:
        server.publish(changed(CHAT, "pods", "status"))
        event = watch.wait_for_event("change")
    wanted = {"kind": "workload", "cluster": "sandbox", "key": CHAT, "what": ["pods", "status"], "deleted": False}
    assert event.data == wanted
    assert event.id


def test_who_comes_back_with_the_last_id_is_told_what_came_since(server: WebServer) -> None:
    with server.watch() as watch:
        server.publish(changed(CHAT, "pods"))
        watch.wait_for_event("change", CHAT)
        last = watch.last_id
    server.publish(changed(OTHER, "pods"))
    with server.watch(last_id=last) as watch:
        watch.wait_for_event("change", OTHER)
        assert [event.name for event in watch.events] == ["change"]


def test_the_id_to_come_back_with_is_there_before_anything_changes(server: WebServer) -> None:
    server.publish(changed(CHAT))
    with server.watch() as watch:
        first = watch.last_id
    server.publish(changed(OTHER))
    with server.watch(last_id=first) as watch:
        watch.wait_for_event("change", OTHER)
        assert not [event for event in watch.events if event.name == "reset"]


@pytest.mark.parametrize("last_id", ["1-0", "yesterday"])
def test_who_was_away_for_too_long_looks_at_everything_again(server: WebServer, last_id: str) -> None:
    server.publish(changed(CHAT))
    with server.watch(last_id=last_id) as watch:
        watch.wait_for_event("reset")
        server.publish(changed(OTHER))
        watch.wait_for_event("change", OTHER)


def test_a_burst_of_one_thing_becomes_a_few_events_that_name_all_its_parts(server: WebServer) -> None:
    with server.watch() as watch:
        for number in range(300):
            server.publish(changed(CHAT, "pods" if number % 2 else "status"))
        server.publish(changed(OTHER))
        watch.wait_for_event("change", OTHER)
        told = [event for event in watch.events if event.data["key"] == CHAT]
    assert 1 <= len(told) < 60
    assert {part for event in told for part in event.data["what"]} == {"pods", "status"}


def test_only_what_was_asked_for_is_told(server: WebServer) -> None:
    with server.watch(f"?workload={CHAT}") as one, server.watch("?namespace=team") as team:
        trouble = Change("sandbox", "cluster", "sandbox", ("state",))
        server.publish(changed(OTHER), changed("sandbox/team/x"), Change("sandbox", "node", "sandbox/n1"), trouble)
        server.publish(changed(CHAT), changed("sandbox/team/last"))
        one.wait_for_event("change", CHAT)
        team.wait_for_event("change", "sandbox/team/last")
        assert {event.data["key"] for event in one.events} == {CHAT, "sandbox"}
        assert {event.data["key"] for event in team.events} == {"sandbox/team/x", "sandbox/team/last", "sandbox"}


def test_an_entry_that_nobody_can_read_makes_everybody_look_again(server: WebServer) -> None:
    with server.watch() as watch:
        server.redis.xadd("grove:feed", {"change": "nonsense"})
        watch.wait_for_event("reset")
        server.publish(changed(OTHER))
        watch.wait_for_event("change", OTHER)


def test_while_nothing_changes_a_sign_of_life_comes(server: WebServer) -> None:
    with server.watch() as watch:
        watch.wait_for(lambda lines: sum(line == "event: heartbeat" for line in lines) > 2)
        assert watch.events == []


def test_what_waits_for_a_slow_reader_is_bounded(own_server: WebServer) -> None:
    answer = own_server.request("feed/", Authorization=f"Bearer {TOKEN}")
    for start in range(0, 20_000, 1000):
        own_server.publish(*(changed(f"sandbox/default/{'w' * 200}-{start + number}") for number in range(1000)))
    names = []
    while b"reset" not in names:
        line = answer.readline()
        assert line, "it ended without a reset"
        names += [line.split()[1]] if line.startswith(b"event:") else []
    assert len(names) < 10_000
    answer.close()


def test_an_account_watches_so_many_times_at_once_and_no_thread_is_kept_for_it(own_server: WebServer) -> None:
    before = own_server.threads
    answers = [own_server.request("feed/", Authorization=f"Bearer {TOKEN}") for _ in range(STREAM_LIMIT)]
    assert {answer.status for answer in answers} == {200}
    for answer in answers:
        assert answer.readline().startswith(b"retry:")
    wait_until(lambda: own_server.threads < before + STREAM_LIMIT // 2, 60, lambda: f"{own_server.threads} threads")
    refused = own_server.request("feed/", Authorization=f"Bearer {TOKEN}")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "30")
    assert f"has {STREAM_LIMIT} live pages and feeds open" in json.loads(refused.read())["detail"]
    for answer in answers:
        answer.close()
    wait_until(lambda: own_server.request("feed/", Authorization=f"Bearer {TOKEN}").status == 200, 60)


def test_a_revoked_token_ends_it(own_server: WebServer) -> None:
    with own_server.watch() as watch:
        own_server.execute("UPDATE rollouts_apitoken SET revoked_at = '2026-01-01 00:00:00'")
        watch.wait_for_end()
    assert own_server.request("feed/", Authorization=f"Bearer {TOKEN}").status == 401


def test_an_account_that_may_not_see_any_more_ends_it(own_server: WebServer) -> None:
    with own_server.watch() as watch:
        own_server.execute("UPDATE rollouts_user SET is_superuser = 0")
        watch.wait_for_end()
    assert own_server.request("feed/", Authorization=f"Bearer {TOKEN}").status == 403


@pytest.mark.parametrize("keeps_data", [True, False])
def test_when_redis_comes_back_everything_is_looked_at_again(own_server: WebServer, keeps_data: bool) -> None:
    with own_server.watch() as watch:
        own_server.publish(changed(CHAT))
        watch.wait_for_event("change", CHAT)
        own_server.redis_process.kill()
        watch.wait_for_event("stale")
        if not keeps_data:
            own_server.redis_process.forget()
        own_server.redis_process.start()
        watch.wait_for_event("reset")
        own_server.publish(changed(OTHER))
        watch.wait_for_event("change", OTHER)
        assert [event.name for event in watch.events] == ["change", "stale", "reset", "change"]


def test_who_comes_while_redis_is_away_is_told_so_and_served_later(own_server: WebServer) -> None:
    own_server.redis_process.kill()
    with own_server.watch() as watch:
        watch.wait_for_event("stale")
        own_server.redis_process.start()
        watch.wait_for_event("reset")
        own_server.publish(changed(CHAT))
        watch.wait_for_event("change", CHAT)


def test_open_answers_do_not_hold_up_the_end_of_the_process(own_server: WebServer) -> None:
    with own_server.watch() as one, own_server.watch() as other:
        assert own_server.terminate() in (0, -15)
        one.wait_for_end()
        other.wait_for_end()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("feed/", {}, 401),
        ("feed/", {"Authorization": "Bearer grove_wrong"}, 401),
        ("feed/?workloads=x", {"Authorization": f"Bearer {TOKEN}"}, 400),
        ("feed/", {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}, 406),
    ],
)
def test_what_is_wrong_with_a_request_is_answered_as_a_problem(
    server: WebServer, path: str, headers: dict[str, str], status: int
) -> None:
    answer = server.request(path, **headers)
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert json.loads(answer.read())["status"] == status
