"""Limits of one client of the embedded runtime: streams, descriptors and bytes."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._net.loop import Loop
from actors._net.streaming.spdy import MAX_NAMES, Accepted, Event, Opened, ProtocolError, Reset, Session
from actors._net.streaming.spdylink import Link
from actors.runtime.streaming import portforward
from actors.runtime.streaming.limits import MOST_NAME, MOST_PAIRS, MOST_WAITING, Descriptors, Limits
from actors.runtime.streaming.portforward import Inbox, Output, SpdyForward
from actors.runtime.streaming.spdy import SpdyChannels


class Memory:
    """A transport in memory; the client's side is a SPDY session."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.client = loop, Session()
        self.events: list[Event] = []
        self._coming: deque[bytes] = deque()
        self._came: Future[None] = Future()

    async def read(self) -> bytes:
        while not self._coming:
            self._came = Future()
            await self._came
        return self._coming.popleft()

    async def write(self, data: bytes) -> None:
        self.events += self.client.feed(data)

    def send(self, frame: bytes) -> None:
        self._coming.append(frame)
        self._came.set(None)
        self.loop.call(lambda: None)
        self.loop._run_once()

    def open(self, kind: str, request: str, port: str = "80") -> int:
        number, frame = self.client.open({"streamtype": kind, "port": port, "requestid": request})
        self.send(frame)
        return number

    def turn(self) -> None:
        for _ in range(5):
            self.loop.call(lambda: None)
            self.loop._run_once()


class Pods:
    """Carries connections until they are cancelled."""

    def __init__(self) -> None:
        self.count = 0

    async def carry(self, _port: int, _inbox: Inbox, output: Output) -> None:
        self.count += 1
        try:
            await Future()
        finally:
            self.count -= 1
            await output.end()


class Watch:
    def touch(self) -> None: ...


@pytest.fixture
def made() -> Any:
    loop = Loop()
    memory, pods, limits = Memory(loop), Pods(), Limits(Descriptors(most=400))
    forward: Any = SpdyForward(loop, Link(memory, b""), pods, Watch(), limits)  # type: ignore[arg-type]
    task = loop.spawn(forward.run())
    yield memory, pods, limits, task
    task.cancel()
    memory.turn()
    assert pods.count == 0
    assert limits.waiting.bytes == 0


def reset(memory: Memory) -> list[int]:
    return [event.stream for event in memory.events if isinstance(event, Reset)]


def test_streams_without_their_other_are_few(made: Any) -> None:
    memory, _, limits, _ = made
    numbers = [memory.open("error", str(n)) for n in range(MOST_PAIRS + 50)]
    memory.turn()
    assert reset(memory) == numbers[MOST_PAIRS:]
    assert limits.descriptors.free == 400 - MOST_PAIRS


def test_long_request_id_is_refused_and_the_session_goes_on(made: Any) -> None:
    memory, pods, _, _ = made
    refused = memory.open("error", "x" * (MOST_NAME + 1))
    long_port = memory.open("error", "1", "8" * 3000)
    memory.open("error", "2")
    memory.open("data", "2")
    memory.turn()
    assert (reset(memory), pods.count) == ([refused, long_port], 1)


def test_pairs_are_limited_and_reset_ones_make_room(made: Any) -> None:
    memory, pods, _, _ = made
    data = []
    for n in range(MOST_PAIRS):
        memory.open("error", str(n))
        data.append(memory.open("data", str(n)))
    refused = memory.open("error", "more")
    memory.turn()
    assert (pods.count, reset(memory)) == (MOST_PAIRS, [refused])
    memory.send(Session.reset(data[0]))
    accepted = memory.open("error", "again")
    memory.turn()
    assert pods.count == MOST_PAIRS - 1
    assert Accepted(accepted) in memory.events


def test_second_stream_of_a_kind_is_refused(made: Any) -> None:
    memory, _, _, _ = made
    memory.open("error", "1")
    refused = memory.open("error", "1")
    memory.turn()
    assert reset(memory) == [refused]


def test_descriptors_of_all_sessions_are_limited(made: Any) -> None:
    memory, _, limits, _ = made
    assert limits.descriptors.take(300)
    refused = memory.open("error", "1")
    memory.turn()
    assert reset(memory) == [refused]


@pytest.mark.parametrize("by_reset", [False, True])
def test_unmatched_stream_is_dropped(by_reset: bool, monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    memory, _, limits, _ = made
    monkeypatch.setattr(portforward, "MATCH_S", 600.0 if by_reset else 0.0)
    number = memory.open("data", "1")
    memory.send(Session.data(number, b"early"))
    if by_reset:
        memory.send(Session.reset(number))
    memory.turn()
    assert limits.descriptors.free == 400
    assert limits.waiting.bytes == 0
    assert reset(memory) == ([] if by_reset else [number])


@pytest.mark.parametrize("size", [0, 1, 60_000])
def test_data_before_all_streams_of_a_command_is_limited(size: int) -> None:
    loop = Loop()
    memory = Memory(loop)
    channels = SpdyChannels(Link(memory, b""), frozenset({"error", "stdin"}))
    ready = loop.spawn(channels.ready())
    ready.add_done_callback(lambda _: None)
    number, frame = memory.client.open({"streamtype": "stdin"})
    memory.send(frame)
    for _ in range(2 * MOST_WAITING // (size + 64) // 10):
        memory.send(Session.data(number, b"x" * size) * 10)
    memory.turn()
    assert ready.done()
    with pytest.raises(ProtocolError):
        ready.result(0)


def test_headers_are_few_and_unpacked_in_their_turn() -> None:
    client, server = Session(), Session()
    with pytest.raises(ProtocolError):
        server.feed(client.open({str(n): "" for n in range(MAX_NAMES + 1)})[1])
    client, server = Session(), Session()
    server.receive(b"".join(client.open({"streamtype": "x" * 3000})[1] for _ in range(2)))
    assert isinstance(server.next_event(), Opened)
    assert len(server._buffer) > 0
    with pytest.raises(ProtocolError):
        Session().feed(Session().open({"requestid": "x" * 60_000})[1])
