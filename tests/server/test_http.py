"""The server answers valid HTTP requests, refuses invalid ones, and bounds the time and memory of each."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors.server.base.http import BadRequest, Request, Response, clean, parse_target
from actors.server.policy import Route
from actors.server.transport import connection
from tests.controlplane.certificates import Authority
from tests.server.site import (
    HELLO,
    Site,
    client,
    read_all,
    read_while_sending,
    say,
    server_files,
    site,
    status_of,
    until,
)


@pytest.mark.parametrize(
    ("target", "path", "redirect"),
    [
        (b"/pods", "/pods", ""),
        (b"/logs/", "/logs/", ""),
        (b"/", "/", ""),
        (b"/logs/../pods", "/pods", "/pods"),
        (b"/logs/%2e%2e/pods", "/pods", "/pods"),
        (b"/logs/..%2f..%2fetc/passwd", "/etc/passwd", "/etc/passwd"),
        (b"//pods//", "/pods/", "/pods/"),
        (b"/../../..", "/", "/"),
        (b"/a%2Fb", "/a/b", ""),
        (b"//a%20b%3F", "/a b?", "/a%20b%3F"),
    ],
)
def test_a_path_is_decoded_once_and_sent_to_its_shortest_form(target: bytes, path: str, redirect: str) -> None:
    found = parse_target(target + b"?a=1&a=2&b")
    assert (found.path, found.redirect) == (path, redirect and redirect + "?a=1&a=2&b")
    assert found.query == {"a": ["1", "2"], "b": [""]}


@pytest.mark.parametrize("target", [b"pods", b"*", b"http://x/pods", b"/a%00b", b"/a%0d%0ab", b"/%ff", b"/a?b=%ff"])
def test_invalid_request_target_is_refused(target: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_target(target)


def test_cleaning_a_clean_path_changes_nothing() -> None:
    for path in ("/", "/a", "/a/b/", "/a/../b", "//", "/./a//b/."):
        assert clean(clean(path)) == clean(path)


def read_until(connected: socket.socket, end: bytes) -> bytes:
    answer = b""
    while not answer.endswith(end):
        part = connected.recv(4096)
        assert part, answer
        answer += part
    return answer


def test_connection_serves_several_requests(plain: Site) -> None:
    with client(plain.plain) as connected:
        for name in (b"one", b"two"):
            connected.sendall(b"GET /hello/%b HTTP/1.1\r\nHost: x\r\n\r\n" % name)
            answer = b""
            while not answer.endswith(b"hello " + name):
                answer += connected.recv(4096)
            assert status_of(answer) == 200


def test_requests_sent_at_once_are_answered_in_order(plain: Site) -> None:
    requests = b"".join(b"GET /hello/%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(20))
    answer = say(plain.plain, requests + b"GET /hello/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    found = [int(part.split(b"HTTP", 1)[0]) for part in answer.split(b"hello ")[1:-1]]
    assert found == list(range(20))
    assert answer.endswith(b"hello last")


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /x HTTP/1.1\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /hello/x HTTP/1.1\nHost: x\n\n",
        b"GET /hello/x HTTP/1.1\r\nHost: x\nAuthorization: Bearer a\r\n\r\n",
        b"GET /hello/x HTTP/1.1\r\nHost: x\r\nA: b\n\r\n",
        b"GET /hello/x HTTP/1.1\r\nHost: x\r\nAuthorization:\r\n Bearer a\r\n\r\n",
        b"GET /hello/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r\n\ta\r\n\r\n",
        b"GET /hello/x HTTP/1.1\r\n Host: x\r\nHost: x\r\n\r\n",
        b"GET /hello/x HTTP/1.1\r\nHost: x\r\nA: b\rAuthorization: c\r\n\r\n",
        b"GET /hello/x HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n",
        b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000,
    ],
    ids=lambda request: request[:24].decode("latin-1"),
)
def test_invalid_request_gets_a_4xx_without_internals(plain: Site, request_: bytes) -> None:
    answer = say(plain.plain, request_)
    assert 400 <= status_of(answer) < 500
    assert b"Traceback" not in answer
    assert say(plain.plain, b"GET /hello/x HTTP/1.0\r\n\r\n").endswith(b"hello x"), "and it goes on serving others"


def test_endless_headers_end(plain: Site) -> None:
    answer = say(plain.plain, b"GET /hello/x HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"x" * (2 * connection.HEADER_BYTES))
    assert not answer or status_of(answer) == 431


def test_too_many_headers_are_refused_before_parsing(plain: Site) -> None:
    def ask(lines: int, body: bytes = b"") -> int:
        head = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n" % len(body)
        return status_of(say(plain.plain, head + b"a: b\r\n" * lines + b"\r\n" + body))

    assert ask(connection.HEADER_LINES - 10) == 200
    assert ask(connection.HEADER_LINES) == 431
    assert ask(100_000) == 431
    assert ask(10, b"\n" * 1000) == 200, "a body may have as many lines as it likes"
    with client(plain.plain) as connected:
        for _ in range(3):
            connected.sendall(b"GET /hello/x HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 500 + b"\r\n")
            assert read_until(connected, b"hello x")


@pytest.mark.parametrize(("lines", "status"), [(-10, 200), (10, 431)])
def test_header_lines_in_pieces_are_counted_once(plain: Site, lines: int, status: int) -> None:
    head = b"GET /hello/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + b"a:b\r\n" * (connection.HEADER_LINES + lines)
    with client(plain.plain) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):
            for at in range(0, len(head), 3):
                connected.sendall(head[at : at + 3])
            connected.sendall(b"\r\n")
        assert status_of(read_all(connected)) == status


def test_unread_body_ends_the_connection(plain: Site) -> None:
    answer = say(plain.plain, b"POST /echo HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello")
    assert answer.endswith(b"\r\n\r\nhello")
    answer = say(plain.plain, b"POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n" + b"x" * 500_000)
    assert status_of(answer) == 404
    assert b"connection: close" in answer.lower()


def test_a_client_that_expects_100_is_told_to_go_on(plain: Site) -> None:
    with client(plain.plain) as connected:
        connected.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert connected.recv(4096).startswith(b"HTTP/1.1 100 ")
        connected.sendall(b"ok")
        assert read_until(connected, b"ok")


def test_a_slow_request_is_cut_off(plain: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_S", 0.2)
    with client(plain.plain) as connected:
        connected.sendall(b"GET /hello/x HTTP/1.1\r\nHost:")
        assert read_all(connected) == b""
    with client(plain.plain) as silent:
        assert read_all(silent) == b""
    until(lambda: plain.connections.count == 0)


def test_an_idle_connection_is_cut_off(plain: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_S", 0.2)
    with client(plain.plain) as connected:
        connected.sendall(b"GET /hello/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(connected).endswith(b"hello x")


def test_a_new_connection_takes_the_place_of_the_longest_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    with site(*HELLO) as made:
        made.connections.limit = 3
        idle = [client(made.plain) for _ in range(3)]
        until(lambda: len(made.connections.idle) == 3)
        assert say(made.plain, b"GET /hello/x HTTP/1.0\r\n\r\n").endswith(b"hello x")
        assert read_all(idle[0]) == b"", "it has been told to go"
        for one in idle:
            one.close()


class Parts:
    """A handler that sends parts without an end, and records its progress and its end."""

    def __init__(self, part: bytes) -> None:
        self.part, self.sent = part, 0
        self.ended = threading.Event()

    async def handle(self, _: Any, __: Request) -> Response:
        return Response(200, self._parts())

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield self.part
                self.sent += 1
        finally:
            self.ended.set()


def test_parts_pause_for_a_stalled_client_and_end_without_one() -> None:
    parts = Parts(b"x" * 100_000)
    with site(Route("GET", "/parts", parts.handle)) as made:
        connected = client(made.plain)
        connected.sendall(b"GET /parts HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: parts.sent)
        until(lambda: made.loop._waits and not made.loop._calls)
        sent = parts.sent
        assert sent < 200, "20 MB are in nobody's buffers"
        connected.close()
        assert parts.ended.wait(20)


@pytest.mark.parametrize(
    ("more", "later"),
    [
        (b"\r\n", b""),
        (b"\r\n", b"GET /hello/x HTTP/1.1\r\nHost: x\r\n\r\n"),
        (b"Content-Length: 5\r\n\r\nhello", b""),
    ],
    ids=["nothing more", "another request", "a body that nobody reads"],
)
def test_a_handler_that_waits_is_cancelled_when_its_client_goes(
    more: bytes, later: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LEFT_S", 0.05)
    ended = threading.Event()

    async def wait(_: Any, __: Request) -> Response:
        try:
            await Future[None]()
        finally:
            ended.set()
        return Response()

    with site(Route("GET", "/wait", wait)) as made:
        connected = client(made.plain)
        connected.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n" + more)
        until(lambda: made.seen)
        if later:
            connected.sendall(later)
            until(lambda: len(made.loop._waits) == 1, 20)  # it has been read: only the port is waited for
        connected.close()
        assert ended.wait(20)
        until(lambda: made.connections.count == 0)


def test_head_on_stream_creates_nothing() -> None:
    made_: list[AsyncGenerator[bytes, None]] = []

    async def parts() -> AsyncGenerator[bytes, None]:
        yield b"x"

    async def handle(_: Any, __: Request) -> Response:
        made_.append(parts())
        return Response(200, made_[0])

    with site(Route("GET", "/parts", handle)) as made:
        assert say(made.plain, b"HEAD /parts HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n")
        with pytest.raises(StopAsyncIteration):
            made_[0].asend(None).send(None)


def test_connection_goes_on_after_a_streams_last_chunk() -> None:
    async def three(_: Any, __: Request) -> Response:
        async def parts() -> AsyncGenerator[bytes, None]:
            for part in (b"a", b"b" * 100_000, b"c"):
                yield part

        return Response(200, parts())

    with site(Route("GET", "/three", three), *HELLO) as made:
        answer = say(made.plain, b"GET /three HTTP/1.1\r\nHost: x\r\n\r\nGET /hello/x HTTP/1.0\r\n\r\n")
        assert answer.count(b"b") == 100_000
        assert b"0\r\n\r\nHTTP/1.1 200" in answer
        assert answer.endswith(b"hello x")


async def at_once(_: Any, __: Request) -> Response:
    return Response(200, b"w" * 100_000)


@pytest.mark.parametrize("secure", [False, True])
def test_an_answer_before_the_body_is_read_arrives_whole(pki: Authority, secure: bool) -> None:
    """The body is still coming when the answer has gone: a reset of the connection would take what is not read yet."""
    with site(Route("POST", "/at-once", at_once), files=server_files(pki)) as made_:
        tls = ssl.create_default_context(cafile=str(pki.path)) if secure else None
        with client(made_.secure if secure else made_.plain, tls) as connected:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connected.sendall(b"POST /at-once HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n")
            said = read_while_sending(connected, b"x" * 50_000_000)
            assert len(said.partition(b"\r\n\r\n")[2]) == 100_000
