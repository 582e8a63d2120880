"""An upgraded connection is proxied whole in both ways, and ends without harm to others."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import ssl
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._net import stream
from actors._net.stream import connect
from actors.server.base.http import Request, Upgraded
from actors.server.policy import Route
from actors.server.streaming import proxy
from tests import tls_records
from tests.controlplane.certificates import Authority
from tests.server.site import HELLO, Site, client, read_all, read_while_sending, say, server_files, site, until
from tests.server.streaming.echo_server import EchoServer


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
    with site(handing_over(other), files=server_files(pki)) as made["site"]:
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
    with site(handing_over(other), files=server_files(pki)) as made["site"]:
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
    with site(handing_over(other), *HELLO, files=server_files(pki)) as made["site"]:
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
    with site(handing_over(other), files=server_files(pki)) as made["site"]:
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
