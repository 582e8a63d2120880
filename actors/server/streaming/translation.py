"""exec and attach for clients of WebSocket version 5, by runtimes that speak SPDY: channels here, streams there.

The client's end of a channel (byte 255 and its number) is the end of that stream. The other way there is no such thing:
client-go complains of channels that it has not opened, so a stream's end is known by the session's. What stands on the
error stream goes to the client at the very end, as a metav1.Status whatever the runtime's version.
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
"""For the runtime to take the streams, as in the kubelet."""
KEEP_ALIVE_S = 1.0
"""A client's pings go on at most so often."""
MOST_TOLD = 1024 * 1024
"""On the error stream."""
MOST_ANSWERS = 16
"""To the runtime's pings, while it takes nothing."""
_INPUTS = ("stdin", "resize")
_WHOLE = frozenset((CHANNELS.index("resize"), END_OF_STREAM))
_UNCLEAR = "the runtime hung up before it told how the command ended"


class Translation(Bridge):
    """One command's, or one container's."""

    def __init__(self, ends: Ends, version: str, wanted: Mapping[str, bool]) -> None:
        """`version` is the runtime's; `wanted` says which of stdin, stdout and stderr there are, and whether a tty."""
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
        """Streams that the client may still write to."""
        self._open = {"error", *self._outputs}
        """Those of which the end has not come."""
        self._told = b""
        self._trouble = ""
        self._ready: Future[None] = Future()
        self._answers: deque[bytes] = deque()
        self._asked: Future[None] = Future()
        self._pinged = 0.0

    def _ways(self) -> list[Coroutine[Any, None, None]]:
        return [*super()._ways(), self._send_answers()]

    # From the runtime

    async def _from_runtime(self) -> None:
        try:
            first = next(iter(self._outputs), "error")
            await self._to_client(self._channels.send(CHANNELS.index(first), b""))  # says that it has begun
            await self._take_streams()
            while self._open:
                await self._on(await self._event())
        finally:
            self._ready.set(None)

    async def _take_streams(self) -> None:
        """Until the runtime has them: those of Go drop what comes for a stream before that."""
        timer = self._cut_in(STREAMS_S, self._ends.runtime)
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
            self._tell_runtime(self._link.session.reset(event.stream))
        if not isinstance(event, Data | Reset) or (kind := self._streams.get(event.stream)) is None:
            return
        if isinstance(event, Data) and kind in self._open:
            await self._take(kind, event.content)
        if isinstance(event, Reset):
            self._inputs.pop(kind, None)
            if kind == "error" and not self._told and self._version == SPDY_COMMAND[0]:
                self._on_trouble(_UNCLEAR)  # in older versions nothing is told of a success
        if isinstance(event, Reset) or event.end:
            self._open.discard(kind)

    async def _take(self, kind: str, content: bytes) -> None:
        if kind != "error":
            if content:
                await self._to_client(self._channels.send(CHANNELS.index(kind), content))
        elif len(self._told) < MOST_TOLD:
            self._told += content

    def _on_trouble(self, why: str) -> None:
        self._trouble = self._trouble or why

    async def _last_words(self) -> None:
        self._inputs.clear()
        unclear = self._trouble and not self._told
        status = msgspec.json.encode(failed(self._trouble)) if unclear else as_status(self._version, self._told)
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
            self._inputs.clear()  # it has hung up: the other direction ends with the last of what it said

    # Pings

    def _on_ping(self) -> None:
        """The runtime, too, may end what is idle: it learns that the client lives."""
        now = time.monotonic()
        if self._ready.done() and now - self._pinged >= KEEP_ALIVE_S:
            self._pinged = now
            self._tell_runtime(self._link.session.ping())

    async def _answer(self, answer: bytes) -> None:
        self._tell_runtime(answer)

    def _tell_runtime(self, frame: bytes) -> None:
        """By a coroutine of its own: a runtime that takes no input for now is listened to all the same."""
        if len(self._answers) < MOST_ANSWERS:
            self._answers.append(frame)
            self._asked.set(None)

    async def _send_answers(self) -> None:
        while True:
            await self._asked
            self._asked = Future()
            while self._answers:
                await self._to_runtime(self._answers.popleft())
