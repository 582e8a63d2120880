"""A CRI client for the coroutines of a loop, that begins sessions without another thread.

A call by gRPC goes through four threads of it and a new one of Python's, some 0.7 ms of an exec's 5 where the runtime
needs 0.2. So the rpcs that prepare a session are asked on a connection of the loop's own (`actors._net.unary`), and by
gRPC, like all others, where that has no answer: it says what is wrong. Asked twice they only prepare another session.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from actors._base.messaging.futures import Future
from actors._cri.call import wrapped
from actors._cri.client import REQUEST_SECONDS, Cri, path_of, response_type
from actors._cri.errors import CriError
from actors._net.loop import Loop
from actors._net.stream import HEAD_BLOCK, Stream
from actors._net.unary import UnaryCalls

log = logging.getLogger(__name__)

SESSIONS = frozenset(("Exec", "Attach", "PortForward"))


class LoopCri(Cri):
    """As `Cri`. What begins a session is called from the loop's thread."""

    def __init__(self, endpoint: str, loop: Loop, *, request_seconds: float = REQUEST_SECONDS) -> None:
        super().__init__(endpoint, request_seconds=request_seconds)
        self._line = Line(loop, self.endpoint.removeprefix("unix://"))

    def _start(self, rpc: str, request: Message, deadline: float) -> Any:
        if rpc not in SESSIONS:
            return super()._start(rpc, request, deadline)
        ends = time.monotonic() + deadline
        asked = Asked(rpc, lambda: Cri._start(self, rpc, request, max(0.0, ends - time.monotonic())))
        self._line.ask(asked, request.SerializeToString(), deadline)
        return asked


class Asked(Future[Any]):
    """One call, in the shape of gRPC's futures."""

    __slots__ = ("_by_grpc", "_forget", "_under_way", "rpc")

    def __init__(self, rpc: str, by_grpc: Callable[[], Any]) -> None:
        super().__init__()
        self.rpc = rpc
        self._by_grpc = by_grpc
        self._forget: Callable[[], None] = lambda: None
        self._under_way: Any = None

    def under_way(self, forget: Callable[[], None]) -> None:
        """On the loop's connection. `forget`: what to do once it is over."""
        self._forget = forget

    def take(self, message: bytes | None) -> None:
        """The answer; None for a call that has none."""
        self._end()
        if message is not None:
            with contextlib.suppress(DecodeError):
                self.set(response_type(self.rpc).FromString(message))
                return
        self.ask_again()

    def ask_again(self) -> None:
        """By gRPC. Its answer comes in a thread of its own."""
        self._end()
        try:
            self._under_way = self._by_grpc()
            self._under_way.add_done_callback(self._hand_on)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
            self.set_error(wrapped(error, self.rpc))

    def _hand_on(self, ended: Any) -> None:
        try:
            self.set(ended.result(0))
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            self.set_error(error)

    def late(self) -> None:
        """The deadline is over."""
        self._end()
        self.set_error(CriError.of("DeadlineExceeded", "context deadline exceeded", self.rpc))

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        if self.done():
            return
        self._end()
        if self._under_way is not None:
            self._under_way.cancel()
        self.set_error(CriError.of("Canceled", "context canceled", self.rpc))

    def _end(self) -> None:
        forget, self._forget = self._forget, lambda: None
        forget()


class Line:
    """The connection to the runtime, opened with the first call and again with the next one after its end."""

    def __init__(self, loop: Loop, path: str) -> None:
        self._loop, self._path = loop, path
        self._stream: Stream | None = None
        self._calls: UnaryCalls | None = None
        self._asked: dict[int, Asked] = {}

    def ask(self, asked: Asked, request: bytes, timeout_s: float) -> None:
        """Begin the call; by gRPC where it cannot be done here."""
        try:
            calls = self._calls or self._open()
            stream = calls.ask(path_of(asked.rpc), request, timeout_s)
        except OSError as error:
            log.debug("cannot ask the runtime: %s", error)
            self._close()
            stream = None
        if stream is None:
            asked.ask_again()
            return
        self._asked[stream] = asked
        timer = self._loop.call_later(timeout_s, asked.late)

        def forget() -> None:
            timer.cancel()
            if self._asked.pop(stream, None) is not None:
                self._give_up(stream)

        asked.under_way(forget)

    def _open(self) -> UnaryCalls:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        stream = Stream(self._loop, connecting)
        try:
            connecting.connect(self._path)  # at once, or not at all where nobody has accepted others for long
            calls = UnaryCalls(stream.write_now)
        except OSError:
            stream.close()
            raise
        self._stream, self._calls = stream, calls
        self._loop.spawn(self._read(stream, calls), "runtime's answers")
        return calls

    async def _read(self, stream: Stream, calls: UnaryCalls) -> None:
        try:
            while data := await stream.read(HEAD_BLOCK):
                for number, message in calls.take(data):
                    if (asked := self._asked.pop(number, None)) is not None:
                        asked.take(message)
        except OSError as error:
            log.debug("the runtime's connection ends: %s", error)
        finally:
            stream.close()
            if self._stream is stream:
                self._close()

    def _give_up(self, stream: int) -> None:
        try:
            if self._calls is not None:
                self._calls.give_up(stream)
        except OSError:
            self._close()

    def _close(self) -> None:
        """What waits for an answer is asked again."""
        if self._stream is not None:
            self._stream.abort()  # its reader ends, and closes it
        self._stream = self._calls = None
        waiting, self._asked = self._asked, {}
        for asked in waiting.values():
            asked.ask_again()
