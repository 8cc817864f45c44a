"""The HTTP protocol of the web process limits headers, times, connections and bodies."""

import contextlib
import gc
import json
import select
import socket
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pytest_django.fixtures import Settings

from grove_ui.http_protocol import MAX_HEADER_BYTES, MAX_HEADERS
from tests.project.http_server import (
    KIB,
    LARGE,
    MIB,
    PIECE,
    GenerousProtocol,
    NarrowProtocol,
    PatientProtocol,
    QuickProtocol,
    Server,
    get,
    post,
    read_all,
    read_until,
    serving,
    status_of,
    wait_for,
)

# A rejected connection reads at most this much.
ENOUGH = 24 * MIB


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with the limits of the product."""
    with serving() as server:
        yield server


@pytest.fixture
def quick() -> Iterator[Server]:
    """A server with short deadlines."""
    with serving(QuickProtocol, seconds=0.4) as server:
        yield server


# ---- headers


def test_a_request_is_answered(server: Server) -> None:
    answer = server.send(post("/", b"Content-Length: 3") + b"abc")
    assert status_of(answer) == 200
    assert b"\r\n3\r\n" in answer


def test_headers_as_large_as_may_be_are_taken(server: Server) -> None:
    room = MAX_HEADER_BYTES - 200
    assert status_of(server.send(get().replace(b"Host", b"X-Large: %b\r\nHost" % (b"x" * room)))) == 200


@pytest.mark.parametrize(
    "headers",
    [
        [b"X-Large: %b\r\n" % (b"x" * MAX_HEADER_BYTES)],
        [b"X-Small-%d: x\r\n" % number for number in range(MAX_HEADERS)],
        [b"X-Endless: ", *[b"x" * MIB] * 64],
    ],
    ids=["one large", "many", "one without an end"],
)
def test_headers_that_are_too_large_or_too_many_are_refused(server: Server, headers: list[bytes]) -> None:
    answer = server.send(b"GET / HTTP/1.1\r\nHost: x\r\n", *headers, b"\r\n")
    assert status_of(answer) in (431, 0)  # the connection of a client that keeps sending may be reset before it reads
    assert server.app.asked == []


def test_who_sends_too_large_headers_and_listens_is_told(server: Server) -> None:
    answer = server.send(b"GET / HTTP/1.1\r\nHost: x\r\nX-Large: %b" % (b"x" * (MAX_HEADER_BYTES + 1)))
    assert status_of(answer) == 431
    assert b"The headers are larger than 64 KiB, or there are more than 100." in answer


def test_what_comes_after_a_body_in_chunks_is_bounded_too(server: Server) -> None:
    answer = server.send(post("/", b"Transfer-Encoding: chunked"), b"0\r\n", *[b"X-Endless: " + b"x" * MIB] * 8)
    assert status_of(answer) == 0


# ---- times


def test_a_silent_connection_is_closed(quick: Server) -> None:
    assert quick.send() == b""


def test_unfinished_headers_have_their_time_however_slowly_they_come(quick: Server) -> None:
    with quick.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        connection.settimeout(0.05)
        answer = b""
        while not answer:
            with contextlib.suppress(TimeoutError):
                connection.sendall(b"X: y\r\n")
                answer = connection.recv(65536)
        assert status_of(answer) == 408
    assert quick.app.asked == []


def test_so_have_those_of_a_second_request(quick: Server) -> None:
    with quick.connect() as connection:
        connection.sendall(get(close=False))
        assert connection.recv(65536)
        connection.sendall(b"GET / HTTP/1.1\r\nHo")
        assert b" 408 " in read_all(connection)


def test_an_unfinished_body_has_its_time(quick: Server) -> None:
    answer = quick.send(post("/", b"Content-Length: 10") + b"abc")
    assert status_of(answer) == 408
    assert quick.app.asked == []


def test_an_answer_that_nobody_takes_is_given_up(quick: Server) -> None:
    with quick.connect() as connection:
        connection.sendall(get("/large"))
        wait_for(lambda: quick.connections == 1)
        wait_for(lambda: quick.connections == 0)


def test_little_is_made_of_an_answer_that_nobody_takes(quick: Server) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
        connection.connect(("127.0.0.1", quick.port))
        connection.sendall(get("/pieces"))
        wait_for(lambda: quick.unread)
        made = quick.app.pieces * PIECE
    wait_for(lambda: quick.connections == 0)
    assert made < MIB


def test_so_is_the_end_of_an_answer_after_which_the_connection_is_to_close() -> None:
    with serving(GenerousProtocol) as server, server.connect() as connection:
        connection.sendall(get("/large"))
        wait_for(lambda: server.app.asked == ["/large"])
        wait_for(lambda: server.connections == 0)


def test_an_answer_that_stays_open_is_not_cut_off(quick: Server) -> None:
    with quick.connect() as connection, quick.connect() as silent:
        connection.sendall(get("/open") + b"\r\n")
        assert read_all(silent) == b""  # both deadlines are over
        assert b"open" in connection.recv(65536)
        assert quick.connections == 1


# ---- connections


def test_a_new_connection_takes_the_place_of_the_one_that_waited_longest(settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, connection_limit=3)
    with serving() as server, contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(server.connect()) for _ in range(3)]
        wait_for(lambda: server.connections == 3)
        assert status_of(server.send(get())) == 200
        assert read_all(waiting[0]) == b""
        for other in waiting[1:]:
            other.sendall(get())
            assert status_of(read_all(other)) == 200


def test_where_every_connection_is_in_use_only_probes_are_answered(settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, connection_limit=2)
    with serving() as server, contextlib.ExitStack() as stack:
        for _ in range(2):
            connection = stack.enter_context(server.connect())
            connection.sendall(get("/open"))
            assert connection.recv(65536)
        refused = server.send(get("/api/v1/me/"))
        assert (status_of(refused), b"retry-after: 5\r\n" in refused) == (503, True)
        assert json.loads(refused.partition(b"\r\n\r\n")[2])["type"] == "urn:grove-ui:problem:overloaded"
        assert status_of(server.send(get("/healthz"))) == 200
        assert status_of(server.send(get("/readyz"))) == 200


@pytest.mark.parametrize("behind", [b"", get("/behind")], ids=["nothing behind", "a request behind"])
def test_who_does_not_take_their_answer_makes_room_for_others(settings: Settings, behind: bytes) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, connection_limit=3)
    with serving(PatientProtocol) as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(3)]
        for connection in slow:
            connection.sendall(get("/large", close=False))
        wait_for(lambda: server.unread == [0] * 3)
        for connection in slow:
            connection.sendall(behind)
        wait_for(lambda: sum(server.unread) == 3 * bool(behind))
        assert [status_of(server.send(get("/other"))) for _ in range(4)] == [200] * 4


def test_they_do_so_when_there_are_more_of_them_than_connections_may_be(settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, connection_limit=1)
    with serving(PatientProtocol) as server, contextlib.ExitStack() as stack:
        for number in range(3):
            stack.enter_context(server.connect()).sendall(get("/healthz?later"))
            wait_for(lambda number=number: len(server.app.asked) == number + 1)
        server.app.release()
        wait_for(lambda: server.unread == [0] * 3)
        assert status_of(server.send(get("/other"))) == 200


def test_whose_client_was_slow_for_a_moment_is_closed_after_those_who_wait_longer(settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, connection_limit=2)
    with serving(PatientProtocol) as server, server.connect() as silent, server.connect() as slow:
        wait_for(lambda: server.connections == 2)
        slow.sendall(get("/open/large"))
        wait_for(lambda: server.unread == [0])
        assert status_of(server.send(get("/other"))) == 200
        assert read_all(silent) == b""
        assert server.unread == [0]


def test_who_has_taken_all_that_there_is_keeps_an_answer_that_stays_open(settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, connection_limit=1)
    with serving(PatientProtocol) as server, server.connect() as slow:
        slow.sendall(get("/open/large"))
        wait_for(lambda: server.unread == [0])
        read_until(slow, b"open\r\n")
        assert status_of(server.send(get("/other"))) == 503
        assert server.connections == 1


# ---- memory of all connections

HEADER = b"X-Large: " + b"x" * 60_000
SOME = b"".join(b"X-%d: %b\r\n" % (number, b"x" * 600) for number in range(90))


@pytest.mark.parametrize("before", [b"", get("/first", close=False)], ids=["first", "second"])
@pytest.mark.parametrize("headers", [HEADER, SOME], ids=["one header", "many headers"])
def test_headers_that_are_not_complete_are_bounded_together(before: bytes, headers: bytes) -> None:
    sent = get()[:-2] + headers
    with serving(NarrowProtocol) as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(40)]
        for connection in slow:
            if before:
                connection.sendall(before)
                read_until(connection, b"\r\n0\r\n\r\n")
            connection.sendall(sent)
        wait_for(lambda: 0 < count_open(slow) * len(sent) <= MIB)
        assert b" 503 Service Unavailable\r\n" in read_all(slow[0])
        assert status_of(server.send(get("/other"))) == 200
        slow[-1].sendall(b"\r\n\r\n")
        assert b" 200 " in read_all(slow[-1])


def test_so_are_headers_whose_bodies_are_not_complete() -> None:
    with serving(NarrowProtocol) as server, contextlib.ExitStack() as stack:
        head = post("/", SOME + b"Content-Length: 10")
        slow = [stack.enter_context(server.connect()) for _ in range(40)]
        for connection in slow:
            connection.sendall(head + b"12345")
        wait_for(lambda: 0 < count_open(slow) * len(head) <= MIB)
        assert read_all(slow[0]) == b""
        slow[-1].sendall(b"67890")
        assert status_of(read_all(slow[-1])) == 200


def test_bodies_that_are_thrown_away_are_bounded_together() -> None:
    with serving(NarrowProtocol) as server, contextlib.ExitStack() as stack:
        most = 0
        for _ in range(60):
            connection = stack.enter_context(server.connect())
            connection.sendall(post("/healthz", b"Content-Length: %d" % (200 * MIB)))
            assert status_of(connection.recv(65536)) == 413
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.send(b"x" * MIB)
            most = max(most, server.bytes_of_bodies)
        assert most <= NarrowProtocol.max_unfinished_bytes + 320 * KIB  # plus one chunk just read from a socket


@pytest.mark.parametrize("behind", [get(close=False) * 20, post("/", b"Content-Length: 200000") + b"x" * 200_000])
def test_who_has_much_wait_behind_an_answer_is_left(server: Server, behind: bytes) -> None:
    assert b"open" in server.send(get("/open", close=False) + behind)


def test_a_few_requests_may_wait_behind_an_answer(server: Server) -> None:
    answer = server.send(get(close=False) * 10 + get())
    assert answer.count(b" 200 OK\r\n") == 11


@pytest.mark.parametrize("behind", [0, 10])
def test_nothing_is_left_of_a_connection_that_is_gone_until_garbage_is_collected(server: Server, behind: int) -> None:
    gc.disable()
    try:
        with server.connect() as connection:
            connection.sendall(get("/large", close=False) + b"\r\n" + (get(close=False) + b"\r\n") * behind)
            wait_for(lambda: server.unread == [behind])
            known = weakref.ref(server.only_connection())
        wait_for(lambda: known() is None)
    finally:
        gc.enable()


def test_a_client_that_leaves_with_requests_behind_its_answer_is_no_error(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with server.connect() as connection:
        connection.sendall((get("/pieces", close=False) + b"\r\n") * 3)
        wait_for(lambda: server.unread == [2])
    wait_for(lambda: server.connections == 0)
    wait_for(lambda: server.app.pieces == LARGE // PIECE)  # the application goes on, and its data is discarded
    server.stop()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_answers_that_are_not_taken_are_bounded_together() -> None:
    with serving(NarrowProtocol) as server, server.connect() as first, server.connect() as second:
        for connection in (first, second):
            connection.sendall(get("/large"))
        wait_for(lambda: len(server.app.asked) == 2)
        wait_for(lambda: server.connections == 1)
        sizes = sorted(len(read_all(connection)) for connection in (first, second))
        assert sizes[0] < LARGE < sizes[1]


def count_open(connections: list[socket.socket]) -> int:
    """Return how many connections were neither closed nor answered with 503."""
    return sum(not is_refused(connection) for connection in connections)


def is_refused(connection: socket.socket) -> bool:
    """Whether a connection was closed or answered with 503."""
    if not select.select([connection], [], [], 0)[0]:
        return False
    try:
        said = connection.recv(65536, socket.MSG_PEEK)
    except ConnectionError:
        return True
    return not said or b" 503 " in said


# ---- bodies


@pytest.mark.parametrize(
    ("path", "most"),
    [("/sign-in/", 2560 * KIB), ("/nowhere/", 2560 * KIB), ("/api/v1/tokens/", MIB), ("/healthz", 16 * KIB)],
)
@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_body_is_taken_up_to_its_limit(server: Server, path: str, most: int, in_chunks: bool) -> None:
    for size, status in ((most, 200), (most + 1, 413)):
        assert status_of(server.send(*body_of(path, size, in_chunks=in_chunks))) == status
    assert server.app.asked == [path]


@pytest.mark.parametrize("in_chunks", [False, True])
def test_much_more_than_may_be_sent_is_not_read(server: Server, in_chunks: bool) -> None:
    pieces = body_of("/api/v1/tokens/", 200 * MIB, in_chunks=in_chunks)
    sent = 0
    with server.connect() as connection, contextlib.suppress(ConnectionError):
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
    assert sent < ENOUGH
    assert server.app.asked == []


def test_a_get_has_no_large_body(server: Server) -> None:
    head = get("/").replace(b"Host", b"Content-Length: 100000\r\nHost")
    assert status_of(server.send(head + b"x" * 100_000)) == 413


def test_the_api_says_it_as_a_problem_and_pages_in_plain_words(server: Server) -> None:
    problem = server.send(*body_of("/api/v1/tokens/", MIB + 1))
    assert b"content-type: application/problem+json\r\n" in problem
    assert json.loads(problem.partition(b"\r\n\r\n")[2])["detail"] == "The body is larger than 1024 KiB."
    plain = server.send(*body_of("/sign-in/", 3 * MIB))
    assert plain.endswith(b"\r\n\r\nThe body is larger than 2560 KiB.\n")


def test_bodies_that_are_slow_make_room_for_quick_ones() -> None:
    with serving(max_total_bytes=3 * MIB) as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(3)]
        for connection in slow:
            connection.sendall(post("/slow", b"Content-Length: %d" % (2 * MIB)) + b"x" * (MIB - KIB))
        assert status_of(server.send(*body_of("/quick", MIB))) == 200
        assert status_of(read_all(slow[0])) == 408
        assert server.app.asked == ["/quick"]


def body_of(path: str, size: int, *, in_chunks: bool = False) -> list[bytes]:
    """Return a request with a body of this size, in chunks."""
    if not in_chunks:
        whole, rest = divmod(size, MIB)
        return [post(path, b"Content-Length: %d" % size), *[b"x" * MIB] * whole, b"x" * rest]
    whole, rest = divmod(size, 64 * KIB)
    chunks = [*[64 * KIB] * whole, *([rest] if rest else [])]
    return [
        post(path, b"Transfer-Encoding: chunked"),
        *(b"%x\r\n%b\r\n" % (length, b"x" * length) for length in chunks),
        b"0\r\n\r\n",
    ]
