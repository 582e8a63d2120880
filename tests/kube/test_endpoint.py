"""Connections to an API server: through proxies, kept for the next request, and closed when they are of no use."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from actors._host.proxies import Proxy
from actors._kube.connection import endpoint as endpoint_module
from actors._kube.connection.endpoint import MOST_IDLE, Endpoint
from actors._kube.connection.http1 import Connection
from tests.harness import Stalls, wait_for

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """A server or proxy: sends `answer` for each request of each connection, and keeps the connections' ends."""

    def __init__(self, answer: bytes, *, once: bool = False) -> None:
        """`once`: end each connection after its first answer."""
        self.answer, self._once = answer, once
        self.heads: list[bytes] = []
        self.accepted: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.accepted.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            while head := client.recv(65536):
                self.heads.append(head)
                client.sendall(self.answer)
                if self._once:
                    client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the test closed it

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for client in self.accepted:
            client.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    with closing(Peer(OK)) as one:
        yield one


def later() -> float:
    return time.monotonic() + 5


def ask(connection: Connection, target: str = "/x") -> bytes:
    connection.request("GET", target, [], None, later())
    connection.head(later())
    return connection.content(later(), 1000)


def endpoint(peer: Peer) -> Endpoint:
    return Endpoint(f"http://{peer.address}", None, "", None)


def test_proxy_of_https_gets_its_credentials() -> None:
    with closing(Peer(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")) as peer:
        proxy = Proxy.of(f"http://me:secret@{peer.address}")
        context = ssl.create_default_context()
        with pytest.raises(OSError, match=r"refused a tunnel to \[fd00::1\]:6443: status 407"):
            Endpoint("https://[fd00::1]:6443", context, "", proxy).connect(later())
    (head,) = peer.heads
    assert head.startswith(b"CONNECT [fd00::1]:6443 HTTP/1.1\r\nHost: [fd00::1]:6443\r\n")
    assert b"\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n" in head


@pytest.mark.parametrize(
    ("answer", "why"),
    [(b"", "closed the connection"), (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "illegal"), (None, "timed out")],
)
def test_proxy_that_opens_no_tunnel_is_named(answer: bytes | None, why: str) -> None:
    with closing(Peer(answer or b"", once=answer is not None)) as peer:
        one = Endpoint("https://api.example", ssl.create_default_context(), "", Proxy.of(peer.address))
        with pytest.raises(
            ConnectionError, match=f"the proxy {peer.address} opened no tunnel to api.example:443: .*{why}"
        ):
            one.connect(later() if answer is not None else time.monotonic() + 0.3)


@pytest.mark.parametrize("server", ["http://api.example", "https://api.example"])
def test_proxy_that_cannot_be_reached_is_named(server: str) -> None:
    with pytest.raises(ConnectionError, match=r"cannot reach the proxy 127.0.0.1:1: .*refused"):
        Endpoint(server, ssl.create_default_context(), "", Proxy.of("127.0.0.1:1")).connect(later())


def test_proxy_of_http_gets_the_whole_url(peer: Peer) -> None:
    """As from Go's client: many proxies allow CONNECT for port 443 alone."""
    one = Endpoint("http://api.example/base/", None, "", Proxy.of(f"http://me:secret@{peer.address}"))
    with closing(one.connect(later())) as connection:
        connection.request("GET", one.target("/x"), one.headers, None, later())
        assert connection.head(later()).status_code == 200
    (head,) = peer.heads
    assert head.startswith(b"GET http://api.example/base/x HTTP/1.1\r\nHost: api.example\r\n")
    assert b"\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n" in head


def test_host_has_a_port_only_if_the_url_has_one(monkeypatch: pytest.MonkeyPatch, peer: Peer) -> None:
    port = int(peer.address.rpartition(":")[2])
    monkeypatch.setattr(endpoint_module, "_dialled", lambda *_: socket.create_connection(("127.0.0.1", port)))
    for url, host in (("api.example", "api.example"), ("u@api.example:81", "api.example:81"), ("[::1]:", "[::1]")):
        with closing(Endpoint(f"http://{url}", None, "", None).connect(later())) as connection:
            assert ask(connection) == b"ok"
        assert peer.heads[-1].split(b"\r\n")[1] == f"Host: {host}".encode()


def test_address_that_drops_packets_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch, peer: Peer) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as waiting:
        for _ in range(3):  # fills the queue, so that further packets are dropped
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        host, port = peer.address.split(":")
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one) for one in (full.getsockname(), (host, int(port)))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        one = Endpoint("http://api.example", None, "", None)
        with closing(one.connect(time.monotonic() + 1)) as connection:
            assert ask(connection) == b"ok"
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1] * 3)
        began = time.monotonic()
        with Stalls() as machine, pytest.raises(TimeoutError):
            one.connect(began + 0.6)
        assert time.monotonic() - began < 1.2 + machine.longest_s


def test_address_of_a_family_that_the_kernel_lacks_is_passed_over(monkeypatch: pytest.MonkeyPatch, peer: Peer) -> None:
    """As with ipv6.disable=1."""
    host, port = peer.address.split(":")
    unknown = 9999
    found = [(family, socket.SOCK_STREAM, 6, "", (host, int(port))) for family in (unknown, socket.AF_INET)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with closing(Endpoint("http://api.example", None, "", None).connect(later())) as connection:
        assert ask(connection) == b"ok"


@pytest.mark.parametrize(("method", "has"), [("GET", False), ("DELETE", False), ("POST", True), ("PATCH", True)])
def test_request_without_a_body_has_a_length_where_one_is_expected(peer: Peer, method: str, has: bool) -> None:
    with closing(endpoint(peer).connect(later())) as connection:
        connection.request(method, "/x", [], None, later())
        connection.head(later())
    assert (b"Content-Length: 0\r\n" in peer.heads[0]) is has


def test_answer_before_the_body_was_sent_counts() -> None:
    """A server that refuses a request, as with 401 or 413, need not read its body."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            client.recv(1000)
            client.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        one = Endpoint(f"http://127.0.0.1:{listening.getsockname()[1]}", None, "", None)
        with closing(one.connect(later())) as connection:
            connection.request("POST", "/x", [], bytes(64 << 20), later())
            assert connection.head(later()).status_code == 413
        thread.join()


def test_connection_is_used_again_after_its_answer(peer: Peer) -> None:
    one = endpoint(peer)
    for _ in range(3):
        connection = one.take(later())
        assert ask(connection) == b"ok"
        one.give_back(connection)
    assert len(peer.accepted) == 1
    one.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"more",
    ],
    ids=["close", "HTTP/1.0", "bytes after the answer"],
)
def test_connection_of_no_further_use_is_closed(peer: Peer, answer: bytes) -> None:
    peer.answer = answer
    one = endpoint(peer)
    connection = one.take(later())
    assert ask(connection) == b"ok"
    one.give_back(connection)
    assert connection.sock.fileno() == -1


def test_connection_that_the_server_closed_or_wrote_to_is_not_used_again(peer: Peer) -> None:
    one = endpoint(peer)
    for end in (lambda: peer.accepted[-1].shutdown(socket.SHUT_RDWR), lambda: peer.accepted[-1].sendall(b"HTTP/1.1")):
        connection = one.take(later())
        ask(connection)
        one.give_back(connection)
        end()
        wait_for(lambda used=connection: not used.is_idle())
        assert one.take(later()) is not connection
        assert connection.sock.fileno() == -1


def test_unread_answer_closes_its_connection(peer: Peer) -> None:
    one = endpoint(peer)
    connection = one.take(later())
    connection.request("GET", "/x", [], None, later())
    one.give_back(connection)
    assert connection.sock.fileno() == -1


def test_idle_connections_are_limited_and_closed_with_the_endpoint(peer: Peer) -> None:
    one = endpoint(peer)
    taken = [one.take(later()) for _ in range(MOST_IDLE + 2)]
    for connection in taken:
        ask(connection)
        one.give_back(connection)
    assert sum(connection.sock.fileno() == -1 for connection in taken) == 2
    busy = one.take(later())
    one.close()
    assert sum(connection.sock.fileno() == -1 for connection in taken) == MOST_IDLE + 1
    ask(busy)
    one.give_back(busy)
    assert busy.sock.fileno() == -1


def test_informational_answers_come_before_the_real_one(peer: Peer) -> None:
    peer.answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK
    with closing(endpoint(peer).connect(later())) as connection:
        assert ask(connection) == b"ok"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", "without sending complete message body"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + 2000 * b"x", "more than 1000 bytes"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "illegal status line"),
        (b"HTTP/1.1 200 OK\r\nX: " + 200_000 * b"x", "buffer"),
    ],
    ids=["no answer", "half", "too long", "another protocol", "endless head"],
)
def test_answer_that_cannot_be_used_is_an_error(answer: bytes, why: str) -> None:
    with closing(Peer(answer, once=True)) as peer, closing(endpoint(peer).connect(later())) as connection:
        connection.request("GET", "/x", [], None, later())
        with pytest.raises(Exception, match=why):  # OSError or h11's: the session takes both
            ask_rest(connection)


def ask_rest(connection: Connection) -> None:
    connection.head(later())
    connection.content(later(), 1000)
