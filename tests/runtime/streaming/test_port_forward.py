"""Port-forward of the embedded runtime, by SPDY and by WebSocket."""

from __future__ import annotations

import fcntl
import re
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from actors._cri.client import Cri
from actors._net.streaming.spdy import Accepted, Data, Session
from supervisor.cli.streams.transport.connection import Connection
from tests.containerd.images import PYTHON, python
from tests.containerd.pods import container_config
from tests.runtime.containers.test_containers import start
from tests.runtime.inside import LISTENING, SERVERS, listens
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.runtime.streaming.clients import WebSocketSession
from tests.runtime.streaming.test_streaming import V4, cri

__all__ = ["cri"]  # fixtures


@pytest.fixture(scope="module")
def listening(embedded: EmbeddedInstance) -> Iterator[str]:
    """A sandbox in whose network port 80 echoes, and 81 sends many bytes and closes."""
    embedded.import_images([python()])
    sandbox, container = start(embedded.cri, "ports", container_config(SERVERS, image=PYTHON))

    def ready() -> bool:
        told = embedded.cri.exec_sync(container, LISTENING, 20).result().stdout.decode()
        return listens(told, 80) and listens(told, 81)

    wait_for(ready)
    yield sandbox
    embedded.cri.remove_pod_sandbox(sandbox).result()


class Forward:
    """A port-forward session over SPDY."""

    def __init__(self, url: str) -> None:
        self.connection = Connection(url, "portforward.k8s.io")
        self.said: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.requests = 0

    def connect(self, port: int, *, named: bool = True) -> tuple[int, int]:
        self.requests += 1
        told = {"port": str(port)} | ({"requestid": str(self.requests)} if named else {})
        error = self.connection.open({"streamtype": "error", **told})
        self.connection.write(error, b"", end=True)
        data = self.connection.open({"streamtype": "data", **told})
        self.said |= {error: b"", data: b""}
        return data, error

    def wait(self, ready: Any) -> None:
        deadline = time.monotonic() + 60
        while not ready() and time.monotonic() < deadline:
            self.connection.flush()
            for event in self.connection.read() or ():
                if isinstance(event, Data):
                    self.said[event.stream] += event.content
                    if event.end:
                        self.ended.add(event.stream)
            time.sleep(0.002)
        assert ready()


@pytest.mark.needs("mounts", "networks")
def test_forwarded_connections_are_independent(cri: Cri, listening: str) -> None:
    forward = Forward(cri.port_forward(listening).result())
    with closing(forward.connection):
        pairs = [forward.connect(80, named=number % 2 == 0) for number in range(50)]
        for data, _ in pairs:
            forward.connection.write(data, b"hello %d" % data)
        forward.wait(lambda: all(forward.said[data] == b"hello %d" % data for data, _ in pairs))
        for data, _ in pairs:
            forward.connection.write(data, b" and bye", end=True)
        forward.wait(lambda: all({data, error} <= forward.ended for data, error in pairs))
        assert all(forward.said[data] == b"hello %d and bye" % data for data, _ in pairs)
        much, error = forward.connect(81)
        forward.wait(lambda: {much, error} <= forward.ended)
        assert (len(forward.said[much]), forward.said[error]) == (3_000_000, b"")


@pytest.mark.needs("mounts", "networks")
def test_reset_connection_leaves_the_others_frames_whole(cri: Cri, listening: str) -> None:
    """kubectl resets a stream when its own client leaves, such as a browser during a download."""
    forward = Forward(cri.port_forward(listening).result())
    with closing(forward.connection):
        downloads = [forward.connect(81)[0] for _ in range(5)]
        seen, since = -1, time.monotonic()

        def stalled() -> bool:
            nonlocal seen, since
            count = fcntl.ioctl(forward.connection.fileno(), termios.FIONREAD, bytes(4))
            if (now := int.from_bytes(count, sys.byteorder)) != seen:
                seen, since = now, time.monotonic()
            return seen > 0 and time.monotonic() - since > 0.5

        wait_for(stalled)  # the runtime is in the middle of a frame
        for data in downloads:
            forward.connection.reset(data)
        good, _ = forward.connect(80)
        forward.connection.write(good, b"still there")
        forward.wait(lambda: forward.said[good] == b"still there")
        assert any(len(forward.said[data]) < 3_000_000 for data in downloads)


@pytest.mark.needs("mounts", "networks")
def test_closed_port_is_an_error_of_its_connection_only(cri: Cri, listening: str) -> None:
    forward = Forward(cri.port_forward(listening).result())
    with closing(forward.connection):
        good, _ = forward.connect(80)
        _, error = forward.connect(9)
        forward.wait(lambda: error in forward.ended)
        assert re.search(rb"error forwarding port 9 .*: cannot connect|refused", forward.said[error])
        forward.connection.write(good, b"still there")
        forward.wait(lambda: forward.said[good] == b"still there")


@pytest.mark.needs("mounts", "networks")
def test_ports_by_websocket(cri: Cri, listening: str) -> None:
    session = WebSocketSession(cri.port_forward(listening, [80, 9]).result(), V4)
    with closing(session):
        session.wait(lambda: len(session.whole) >= 4)
        assert sorted(session.whole[:4]) == [bytes((n,)) + struct.pack("<H", p) for n, p in enumerate((80, 80, 9, 9))]
        session.send(0, b"hello")
        session.wait(lambda: session.said[0].endswith(b"hello"))
        session.wait(lambda: b"error forwarding port 9" in session.said[3])


@pytest.mark.needs("mounts", "networks")
def test_spdy_within_websocket(cri: Cri, listening: str) -> None:
    session = WebSocketSession(cri.port_forward(listening).result(), "SPDY/3.1+portforward.k8s.io")
    with closing(session):
        spdy = Session()
        events: list[Any] = []
        numbers = []
        for kind in ("error", "data"):
            number, frame = spdy.open({"streamtype": kind, "port": "80", "requestid": "0"})
            numbers.append(number)
            session.raw(frame[:5])
            session.raw(frame[5:])
        session.raw(Session.data(numbers[1], b"through", end=True))

        def done() -> bool:
            events.extend(spdy.feed(b"".join(session.whole)))
            session.whole.clear()
            return Data(numbers[1], b"", True) in events

        session.wait(done)
    assert [one.stream for one in events if isinstance(one, Accepted)] == numbers
    assert b"".join(one.content for one in events if isinstance(one, Data)) == b"through"
