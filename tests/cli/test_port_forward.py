"""The client side of port-forward with a runtime that speaks SPDY: slow readers on either side hold bytes back."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from actors._net.streaming.spdy import Data, Opened, Session
from supervisor.cli.streams.transport.connection import BLOCK, Connection
from supervisor.cli.streams.transport.forward import MAX_UNREAD, PROTOCOL, Forwarder
from tests.harness import wait_for

TOTAL = 64 << 20
"""More than the kernel's buffers of both connections hold."""
STUCK_S = 1.0
"""A send of so long means that no process reads."""


def send(connected: socket.socket, content: bytes, stuck: threading.Event) -> None:
    """Send all of it; `stuck` is set while the other side takes nothing."""
    connected.settimeout(STUCK_S)
    left = memoryview(content)
    while left:
        try:
            left = left[connected.send(left) :]
        except TimeoutError:
            stuck.set()


class Runtime:
    """The runtime's streaming server, for one connection, in a thread. It reads nothing while it sends."""

    def __init__(self, answer: Callable[[Runtime, Opened | Data], None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/portforward"
        self.session = Session()
        self.stuck = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.client, _ = self._listener.accept()
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.client.recv(BLOCK)
        self.client.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                self.client.settimeout(None)
                if not (received := self.client.recv(BLOCK)):
                    return
                for event in self.session.feed(received):
                    if isinstance(event, Opened | Data):
                        self._answer(self, event)

    def send(self, stream: int, content: bytes, *, end: bool = False) -> None:
        send(self.client, self.session.data(stream, content, end=end), self.stuck)

    def close(self) -> None:
        self._listener.close()
        self.client.close()


class Forwarding:
    """A runtime, the forwarder in a thread, and a client of its port."""

    def __init__(self, answer: Callable[[Runtime, Opened | Data], None]) -> None:
        self.runtime = Runtime(answer)
        self.connection = Connection(self.runtime.url, PROTOCOL)
        self.forwarder = Forwarder(self.connection, pytest.fail)
        self.turns = itertools.count()
        port = self.forwarder.listen("127.0.0.1", 0, 80)
        select = self.forwarder._selector.select
        self.forwarder._selector.select = lambda timeout=None: (next(self.turns), select(timeout))[1]  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self.forwarder.run, daemon=True)
        self._thread.start()
        self.client = socket.create_connection(("127.0.0.1", port))

    def close(self) -> None:
        self.client.close()
        self.runtime.client.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self.connection.close()
        self.runtime.close()

    def unread(self) -> int:
        return max((len(pair.out) for pair in list(self.forwarder._pairs.values())), default=0)

    def received(self) -> Iterator[bytes]:
        self.client.settimeout(30)
        return iter(lambda: self.client.recv(1 << 20), b"")


@contextlib.contextmanager
def forwarding(answer: Callable[[Runtime, Opened | Data], None]) -> Iterator[Forwarding]:
    one = Forwarding(answer)
    try:
        yield one
    finally:
        one.close()


def flood(runtime: Runtime, event: Opened | Data) -> None:
    if isinstance(event, Opened) and event.headers["streamtype"] == "data":
        for _ in range(TOTAL // BLOCK):
            runtime.send(event.stream, bytes(BLOCK))
        runtime.send(event.stream, b"", end=True)


def echo(runtime: Runtime, event: Opened | Data) -> None:
    if isinstance(event, Data) and event.content:
        runtime.send(event.stream, event.content)


def test_slow_local_client_holds_back_the_runtime() -> None:
    with forwarding(flood) as one:
        # A forwarder without its turn for STUCK_S takes nothing either.
        wait_for(lambda: one.runtime.stuck.is_set() and one.unread() >= MAX_UNREAD, 30, "the runtime's are not taken")
        assert one.unread() <= MAX_UNREAD + BLOCK
        before = next(one.turns)
        one.runtime.stuck.clear()
        wait_for(one.runtime.stuck.is_set, 30, "the runtime waits on")
        assert next(one.turns) - before < 20, "the forwarder loops"
        assert sum(map(len, one.received())) == TOTAL


def test_echo_goes_on_after_both_directions_were_full() -> None:
    with forwarding(echo) as one:
        stuck = threading.Event()
        sender = threading.Thread(target=send, args=(one.client.dup(), bytes(TOTAL), stuck), daemon=True)
        sender.start()
        wait_for(stuck.is_set, 30, "nothing moves any more")
        wait_for(one.runtime.stuck.is_set, 30, "the runtime's bytes are not taken")
        got = 0
        for part in one.received():
            got += len(part)
            if got >= TOTAL:
                break
        assert got == TOTAL


def test_slow_client_is_forgotten_at_its_end() -> None:
    with forwarding(flood) as one:
        wait_for(one.runtime.stuck.is_set, 30, "the runtime's bytes are not taken")
        one.client.close()
        wait_for(lambda: not one.forwarder._pairs, 30, "the connection is forgotten")
