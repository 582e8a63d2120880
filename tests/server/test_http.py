"""HTTP: valid and invalid requests, deadlines, bodies with back-pressure, and upgraded connections."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import select
import socket
import ssl
import sys
import termios
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._net import stream
from actors._net.stream import Stream, connect
from actors.server.base.http import BadRequest, Request, Response, Upgraded, clean, parse_target
from actors.server.policy import Route
from actors.server.streaming import proxy
from actors.server.transport import connection, listening
from actors.server.transport.tls import TlsFiles
from tests import tls_records
from tests.controlplane.certificates import Authority
from tests.ports import free_port
from tests.server.site import Site, client, read_all, say, site, status_of, until


async def hello(_: Any, request: Request) -> Response:
    return Response(200, f"hello {request.params.get('name', '')}".encode())


async def echo(_: Any, request: Request) -> Response:
    assert request.read_body is not None
    return Response(200, await request.read_body(1000))


HELLO = (Route("GET", "/hello/{name}", hello), Route("POST", "/echo", echo))


@pytest.fixture
def plain() -> Iterator[Site]:
    with site(*HELLO) as made:
        yield made


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


# TLS, and connections handed over


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("pki") / "pki")
    made.issue("server", "node")
    return made


def files(pki: Authority) -> TlsFiles:
    return TlsFiles(str(pki.directory / "server.crt"), str(pki.directory / "server.key"))


class EchoServer:
    """Agrees to an upgrade and gives back what it gets, a character on from the alphabet's first."""

    def __init__(self, answer: bytes = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: any\r\n\r\nfirst") -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.answer, self.head, self.ended = answer, b"", threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connected, _ = self.listener.accept()
        with connected:
            while b"\r\n\r\n" not in self.head:
                self.head += connected.recv(4096)
            connected.sendall(self.answer)
            try:
                while data := connected.recv(65536):
                    connected.sendall(data)
            except OSError:
                pass
            self.ended.set()


def handing_over(other: EchoServer, idle_s: float = 0) -> Route:
    async def proxy_streams(_: Any, request: Request) -> Upgraded:
        runtime = await connect(made["site"].loop, "127.0.0.1", other.port, 5)
        await runtime.write(request.head)
        head = await runtime.read()
        return Upgraded(lambda client, early: proxy.proxy_streams(client, runtime, early, head, idle_s))

    return Route("POST", "/exec", proxy_streams)


made: dict[str, Site] = {}
UPGRADE = b"POST /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: any\r\nX-Case: Kept\r\n\r\n"


@pytest.mark.parametrize("secure", [False, True])
def test_upgraded_connection_is_proxied_byte_for_byte(pki: Authority, secure: bool) -> None:
    other = EchoServer()
    with site(handing_over(other), files=files(pki)) as made["site"]:
        tls = ssl.create_default_context(cafile=str(pki.path)) if secure else None
        with client(made["site"].secure if secure else made["site"].plain, tls) as connected:
            connected.sendall(UPGRADE)
            head = b""
            while not head.endswith(b"first"):
                head += connected.recv(4096)
            assert head == other.answer
            assert other.head == UPGRADE
            data = os.urandom(5_000_000)
            back = read_while_sending(connected, data, len(data))
            assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()
        assert other.ended.wait(20), "the other end is told that the client has gone"


def test_bytes_after_the_upgrade_request_are_passed_on(pki: Authority) -> None:
    other = EchoServer()
    with site(handing_over(other)) as made["site"], client(made["site"].plain) as connected:
        connected.sendall(UPGRADE + b"early")
        answer = b""
        while not answer.endswith(b"early"):
            answer += connected.recv(4096)


class DeafServer(EchoServer):
    """Agrees, reads a little, says its last word and hangs up with the rest unread, as the runtime of `head -c 1`."""

    def _serve(self) -> None:
        connected, _ = self.listener.accept()
        with connected:
            while b"\r\n\r\n" not in self.head:
                self.head += connected.recv(4096)
            connected.sendall(self.answer)
            connected.recv(1)
            until(lambda: fcntl.ioctl(connected, termios.FIONREAD, b"\0" * 4) != b"\0" * 4)
            connected.sendall(b"exit code 7")
        self.ended.set()


@pytest.mark.parametrize("secure", [False, True])
def test_output_arrives_when_the_runtime_leaves_input_unread(pki: Authority, secure: bool) -> None:
    other = DeafServer()
    with site(handing_over(other), files=files(pki)) as made["site"]:
        tls = ssl.create_default_context(cafile=str(pki.path)) if secure else None
        with client(made["site"].secure if secure else made["site"].plain, tls) as connected:
            connected.sendall(UPGRADE)
            said = read_while_sending(connected, b"x" * 50_000_000)
            assert said.removeprefix(other.answer) == b"exit code 7"


class TalkingServer(EchoServer):
    """Agrees, and sends a byte again and again until the other end is gone."""

    def _serve(self) -> None:
        connected, _ = self.listener.accept()
        with connected, contextlib.suppress(OSError):
            while b"\r\n\r\n" not in self.head:
                self.head += connected.recv(4096)
            connected.sendall(self.answer)
            while not self.ended.wait(0.01):
                connected.sendall(b"x")
        self.ended.set()


def test_part_of_a_key_update_ends_only_its_stream(pki: Authority, tmp_path: Path) -> None:
    """With it the next write waits to read, beside the pump that reads."""
    other = TalkingServer()
    tls = ssl.create_default_context(cafile=str(pki.path))
    tls.keylog_filename = str(tmp_path / "keys")
    with site(handing_over(other), *HELLO, files=files(pki)) as made["site"]:
        with client(made["site"].secure, tls) as connected:
            connected.sendall(UPGRADE)
            answer = b""
            while b"first" not in answer:  # what the other end says next may come with it
                answer += connected.recv(4096) or pytest.fail("the stream has ended")
            lines = (line.split() for line in (tmp_path / "keys").read_text().splitlines())
            secret = next(bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")
            fragment = tls_records._record(secret, 1, tls_records._KEY_UPDATE[:4], tls_records._HANDSHAKE)
            socket.socket.sendall(connected, fragment)
            assert read_all(connected).strip(b"x") == b""
        assert other.ended.wait(20)
        assert say(made["site"].plain, b"GET /hello/x HTTP/1.0\r\n\r\n").endswith(b"hello x")


def test_any_error_of_a_pump_ends_only_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    other = EchoServer()
    monkeypatch.setattr(proxy, "BLOCK", "no size")
    with site(handing_over(other), *HELLO) as made["site"]:
        assert say(made["site"].plain, UPGRADE) == other.answer
        assert other.ended.wait(20)
        assert say(made["site"].plain, b"GET /hello/x HTTP/1.0\r\n\r\n").endswith(b"hello x")


def read_while_sending(connected: socket.socket, data: bytes, enough: int = sys.maxsize) -> bytes:
    """So many bytes, or up to the end; from one thread: a TLS session is not for two. What cannot be sent any more is
    let go."""
    connected.setblocking(False)
    parts, left = bytearray(), memoryview(data)
    while True:
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
            part = connected.recv(65536)
            parts += part
            if not part or len(parts) >= enough:
                return bytes(parts)
            continue  # a session may hold more that select does not see
        try:
            left = left[connected.send(left[:65536]) :] if left else left
        except (BlockingIOError, ssl.SSLWantWriteError):
            pass
        except OSError:
            left = left[:0]
        assert any(select.select([connected], [connected] if left else [], [], 20)), "nothing more comes"


async def at_once(_: Any, __: Request) -> Response:
    return Response(200, b"w" * 100_000)


@pytest.mark.parametrize("secure", [False, True])
def test_an_answer_before_the_body_is_read_arrives_whole(pki: Authority, secure: bool) -> None:
    """The body is still coming when the answer has gone: a reset of the connection would take what is not read yet."""
    with site(Route("POST", "/at-once", at_once), files=files(pki)) as made_:
        tls = ssl.create_default_context(cafile=str(pki.path)) if secure else None
        with client(made_.secure if secure else made_.plain, tls) as connected:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connected.sendall(b"POST /at-once HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n")
            said = read_while_sending(connected, b"x" * 50_000_000)
            assert len(said.partition(b"\r\n\r\n")[2]) == 100_000


def test_client_that_stops_sending_gets_the_remaining_output() -> None:
    other = EchoServer()
    with site(handing_over(other)) as made["site"], client(made["site"].plain) as connected:
        data = os.urandom(3_000_000)
        connected.sendall(UPGRADE)

        def send() -> None:
            connected.sendall(data)
            connected.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert read_all(connected).removeprefix(other.answer) == data
        sender.join()


class LongAnswer(EchoServer):
    """Agrees, sends LENGTH bytes, and closes."""

    LENGTH = 1_000_000

    def _serve(self) -> None:
        connected, _ = self.listener.accept()
        with connected:
            while b"\r\n\r\n" not in self.head:
                self.head += connected.recv(4096)
            connected.sendall(self.answer + b"x" * self.LENGTH)
        self.ended.set()


@contextlib.contextmanager
def slow_reader(port: int, tls: ssl.SSLContext | None = None) -> Iterator[socket.socket]:
    """A client whose kernel takes little that it has not read, after its upgrade."""
    with socket.socket() as small:
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        small.settimeout(20)
        small.connect(("127.0.0.1", port))
        connected = small if tls is None else tls.wrap_socket(small, server_hostname="localhost")
        with connected:
            connected.sendall(UPGRADE)
            yield connected


@pytest.mark.parametrize("secure", [False, True])
def test_slow_reader_that_sends_gets_the_last_output(
    pki: Authority, secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LINGER_S", 0.01)
    monkeypatch.setattr(stream, "DRAIN_LOOK_S", 0.01)
    other = LongAnswer()
    with site(handing_over(other), files=files(pki)) as made["site"]:
        tls = ssl.create_default_context(cafile=str(pki.path)) if secure else None
        with slow_reader(made["site"].secure if secure else made["site"].plain, tls) as connected:
            assert other.ended.wait(20)
            until(lambda: any(task.name == "linger" for task in list(made["site"].loop.tasks)))
            for _ in range(10):  # as kubectl's pings do
                connected.sendall(b"ping")
                time.sleep(0.02)
            assert read_all(connected) == other.answer + b"x" * other.LENGTH
        until(lambda: made["site"].connections.count == 0)


def test_client_that_takes_none_of_the_last_output_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LINGER_S", 0.01)
    monkeypatch.setattr(proxy, "STALLED_S", 0.2)
    other = LongAnswer()
    with site(handing_over(other)) as made["site"], slow_reader(made["site"].plain):
        here = made["site"]

        def stalls() -> bool:
            """Or it is over by now: who stands still for STALLED_S does not see it."""
            stalled = any(one.stalled_since is not None for one in list(here.connections.streams))
            return stalled or (bool(here.seen) and not here.connections.count)

        until(stalls)
        until(lambda: here.connections.count == 0)


def test_client_that_takes_the_last_output_slowly_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LINGER_S", 0.01)
    monkeypatch.setattr(stream, "DRAIN_LOOK_S", 0.01)
    monkeypatch.setattr(stream, "MOST_DRAIN_S", 0.5)
    other = LongAnswer()
    with site(handing_over(other)) as made["site"], slow_reader(made["site"].plain) as connected:
        came = 0
        while made["site"].connections.count:
            came += len(connected.recv(1000))
            time.sleep(0.01)
        assert came < other.LENGTH


def test_idle_upgraded_connection_is_ended() -> None:
    other = EchoServer()
    with site(handing_over(other, idle_s=2.0)) as made["site"]:
        assert say(made["site"].plain, UPGRADE) == other.answer
        assert other.ended.wait(20)


def test_client_with_nagle_waits_for_no_delayed_acknowledgement(pki: Authority) -> None:
    """Linux delays one by 40 ms at least; the fastest of many connections is told apart on the busiest machine."""
    tls = ssl.create_default_context(cafile=str(pki.path))
    took: list[float] = []
    with site(*HELLO, files=files(pki)) as made_:
        while len(took) < 20 or (min(took) >= 0.03 and len(took) < 500):
            began = time.monotonic()
            with client(made_.secure, tls) as connected:
                connected.sendall(b"GET /hello/x HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connected.recv(1000)
            took.append(time.monotonic() - began)
    assert min(took) < 0.03, took


def test_plain_http_on_the_tls_port_is_told_so(pki: Authority) -> None:
    with site(*HELLO, files=files(pki)) as made_:
        answer = say(made_.secure, b"GET /hello/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.endswith(b"Client sent an HTTP request to an HTTPS server.\n")


def test_port_in_use_is_opened_once_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "RETRY_S", 0.02)
    number = free_port()  # which no connection takes before a listener does
    with site(*HELLO) as made_, socket.create_server(("127.0.0.1", number)) as holder:
        port = listening.Port(made_.loop, made_.connections, made_.serve, None)
        made_.loop.call(lambda: made_.loop.spawn(port.listen("127.0.0.1", number)))
        holder.close()
        until(lambda: port.listener is not None)
        assert say(number, b"GET /hello/x HTTP/1.0\r\n\r\n").endswith(b"hello x")


@pytest.mark.needs("IPv6")
@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_wildcard_address_serves_clients_of_both_families(address: str) -> None:
    async def remote(client_: Stream, _: Request) -> Response:
        return Response(200, f"of {client_.remote}.".encode())

    with site() as made_:
        port = listening.Port(made_.loop, made_.connections, remote, None)
        made_.loop.call(lambda: made_.loop.spawn(port.listen(address, 0)))
        until(lambda: port.number)
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port.number), timeout=20) as connected:
                connected.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert read_all(connected).endswith(f"of {host}.".encode())


def test_vanished_clients_connection_is_probed(plain: Site) -> None:
    with client(plain.plain):
        (served,) = until(lambda: list(plain.connections.streams))
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [served._socket.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [15, 15, 9]
        assert served._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_plain_port_needs_no_certificate_files(tmp_path: Path) -> None:
    with site(*HELLO) as made_:
        assert made_.secure == 0
