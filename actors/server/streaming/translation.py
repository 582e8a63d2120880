"""Translates exec and attach between WebSocket version 5 (the client's channels) and SPDY (the runtime's streams).

The client ends a channel by byte 255 and its number, which ends that stream. The runtime's end of a single stream is
not sent: client-go rejects channels that it has not opened. The content of the error stream is sent last, always as a
metav1.Status.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from actors._base.messaging.futures import Future
from actors._net.streaming.remotecommand import (
    CHANNELS,
    END_OF_STREAM,
    SPDY_COMMAND,
    V5,
    WITH_RESIZE,
    as_status,
    failed,
)
from actors._net.streaming.spdy import Accepted, Data, Event, Opened, Reset
from actors._net.streaming.spdylink import Link
from actors._net.streaming.websocket import AGAINST_RULES, Numbered
from actors.server.streaming.bridge import Bridge, Ends

STREAMS_S = 30.0
"""Time for the runtime to accept the streams, as in the kubelet."""
KEEP_ALIVE_S = 1.0
"""Shortest interval at which a client's pings are passed on."""
MAX_OUTCOME = 1024 * 1024
"""Bytes of the error stream."""
MAX_ANSWERS = 16
"""Frames that wait while the runtime reads nothing."""
_INPUTS = ("stdin", "resize")
_WHOLE = frozenset((CHANNELS.index("resize"), END_OF_STREAM))
_UNCLEAR = "the runtime closed the connection before it reported how the command ended"


class Translation(Bridge):
    """One session of exec or attach."""

    def __init__(self, ends: Ends, version: str, wanted: Mapping[str, bool]) -> None:
        """`version` is the runtime's. `wanted` has the keys stdin, stdout, stderr and tty."""
        super().__init__(ends)
        self._version = version
        self._outputs = [name for name in ("stdout", "stderr") if wanted[name]]
        inputs = ["stdin"] if wanted["stdin"] else []
        sizes = ["resize"] if wanted["tty"] and version in WITH_RESIZE else []
        self._kinds = ["error", *inputs, *self._outputs, *sizes]  # in the order of client-go
        self._channels = Numbered(self._websocket, V5, _WHOLE)
        self._link = Link(self._runtime, b"", self._answer)
        self._streams: dict[int, str] = {}
        self._inputs: dict[str, int] = {}
        """SPDY numbers of the streams that the client may still write to, by kind."""
        self._open = {"error", *self._outputs}
        """Kinds of output that the runtime has not ended."""
        self._outcome = b""
        self._failure = ""
        self._ready: Future[None] = Future()
        self._answers: deque[bytes] = deque()
        self._pending: Future[None] = Future()
        self._pinged = 0.0

    def _directions(self) -> list[Coroutine[Any, None, None]]:
        return [*super()._directions(), self._send_answers()]

    # From the runtime

    async def _from_runtime(self) -> None:
        try:
            first = next(iter(self._outputs), "error")
            await self._to_client(
                self._channels.send(CHANNELS.index(first), b"")
            )  # an empty message: the session has begun
            await self._take_streams()
            while self._open:
                await self._on(await self._event())
        finally:
            self._ready.set(None)

    async def _take_streams(self) -> None:
        """Open the streams and wait for the replies. Runtimes in Go drop data that comes before their reply."""
        timer = self._abort_in(STREAMS_S, self._ends.runtime)
        for kind in self._kinds:
            number, frame = self._link.session.open({"streamtype": kind})
            self._streams[number] = kind
            await self._link.send(frame)
        missing = set(self._streams)
        while missing:
            event = await self._event()
            if isinstance(event, Accepted | Reset):
                missing.discard(event.stream)
            if isinstance(event, Accepted) and (kind := self._streams.get(event.stream, "")) in _INPUTS:
                self._inputs[kind] = event.stream
            await self._on(event)
        timer.cancel()
        self._ready.set(None)

    async def _event(self) -> Event:
        event = await self._link.event()
        if event is None:
            raise ConnectionResetError(_UNCLEAR)
        return event

    async def _on(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._queue_frame(self._link.session.reset(event.stream))
        if not isinstance(event, Data | Reset) or (kind := self._streams.get(event.stream)) is None:
            return
        if isinstance(event, Data) and kind in self._open:
            await self._take(kind, event.content)
        if isinstance(event, Reset):
            self._inputs.pop(kind, None)
            if kind == "error" and not self._outcome and self._version == SPDY_COMMAND[0]:
                self._on_failure(_UNCLEAR)  # older versions send nothing after a success
        if isinstance(event, Reset) or event.end:
            self._open.discard(kind)

    async def _take(self, kind: str, content: bytes) -> None:
        if kind != "error":
            if content:
                await self._to_client(self._channels.send(CHANNELS.index(kind), content))
        elif len(self._outcome) < MAX_OUTCOME:
            self._outcome += content

    def _on_failure(self, why: str) -> None:
        self._failure = self._failure or why

    async def _send_outcome(self) -> None:
        self._inputs.clear()
        unclear = self._failure and not self._outcome
        status = msgspec.json.encode(failed(self._failure)) if unclear else as_status(self._version, self._outcome)
        await self._channels.send(CHANNELS.index("error"), status)

    # From the client

    async def _from_client(self) -> None:
        await self._ready
        while (found := await self._channels.receive()) is not None:
            number, content = found
            if number == END_OF_STREAM and len(content) == 1 and content[0] < len(CHANNELS):
                await self._end(CHANNELS[content[0]])
            elif number < len(CHANNELS):
                await self._feed(CHANNELS[number], content)
            else:
                await self._websocket.fail(AGAINST_RULES, f"there is no channel {number}, or nothing like that on it")
                return

    async def _feed(self, kind: str, content: bytes) -> None:
        if content and kind in self._inputs:
            await self._to_runtime(self._link.session.data(self._inputs[kind], content))

    async def _end(self, kind: str) -> None:
        number = self._inputs.pop(kind, None)
        if number is not None:
            await self._to_runtime(self._link.session.data(number, b"", end=True))

    async def _to_runtime(self, frame: bytes) -> None:
        try:
            await self._link.send(frame)
        except OSError:
            self._inputs.clear()  # the runtime closed: the other direction ends after the rest of its output

    # Pings

    def _on_ping(self) -> None:
        """Pass a ping on, because the runtime ends idle sessions too."""
        now = time.monotonic()
        if self._ready.done() and now - self._pinged >= KEEP_ALIVE_S:
            self._pinged = now
            self._queue_frame(self._link.session.ping())

    async def _answer(self, answer: bytes) -> None:
        self._queue_frame(answer)

    def _queue_frame(self, frame: bytes) -> None:
        """Queue a frame for a separate coroutine, so that output is read while the runtime takes no input."""
        if len(self._answers) < MAX_ANSWERS:
            self._answers.append(frame)
            self._pending.set(None)

    async def _send_answers(self) -> None:
        while True:
            await self._pending
            self._pending = Future()
            while self._answers:
                await self._to_runtime(self._answers.popleft())
