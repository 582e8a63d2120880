"""Copies bytes between a client's streams and a process's, for any protocol and process.

Sockets and pipes give back pressure: bytes that one side does not take are not read from the other. So a command that
does not read its input blocks all that its client sends, as with Kubernetes' own servers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Task, first_of
from actors._base.messaging.timers import Timer
from actors._net.client_watchdog import ClientWatchdog
from actors._net.loop import Loop, Readiness
from actors._net.stream import Stream
from actors._net.streaming.spdy import ProtocolError
from actors.runtime.model.output import most_held
from proto.common import untrusted

BLOCK = 64 * 1024
DRAIN_S = 2.0
"""Waits this long for more output after the end: a process that the command leaves behind may keep it open."""


class Message(NamedTuple):
    """A message from the client; an empty kind means that the client has gone."""

    kind: str
    content: bytes
    end: bool


GONE = Message("", b"", end=True)


class Channels(Protocol):
    """A client's streams by name: stdin, stdout, stderr, error, resize. Methods raise OSError and ProtocolError."""

    async def ready(self) -> bool:
        """Wait for the streams; return False when the client leaves."""
        ...

    async def receive(self) -> Message:
        """The next message."""
        ...

    async def send(self, kind: str, content: bytes) -> None:
        """Send, once the client has room."""
        ...

    async def end(self, kind: str) -> None:
        """End one stream."""
        ...

    async def close(self) -> None:
        """End all streams."""
        ...


DROPPED = ""


@dataclass
class ProcessStreams:
    """A process's streams, as non-blocking descriptors. Their creator closes them, except `stdin`."""

    outputs: dict[str, int]
    """By kind. The kind DROPPED is read and not sent: a terminal without a reader blocks its writers."""
    pidfd: int
    stdin: int = -1
    """Closed at the end of input, unless it is the terminal."""
    terminal: int = -1
    ends_with_output: bool = False
    """The streams are a container's own: they may end while it runs on, and the monitor ends them with it."""
    ends_with_input: bool = False
    """Attach to a process that runs on: after its input the client waits for no more than the output of DRAIN_S."""
    on_resize: Callable[[], object] = lambda: None
    on_stdin_end: Callable[[], object] = lambda: None


class Size(msgspec.Struct, rename="pascal"):
    """A terminal's size, as client-go sends it."""

    width: int = 0
    height: int = 0


class RemoteCommand:
    """One session, until the process exits or the client leaves."""

    def __init__(self, loop: Loop, channels: Channels, process: ProcessStreams, stream: Stream, idle_s: float) -> None:
        self._loop, self._channels, self._process = loop, channels, process
        self._waits: dict[int, Readiness] = {}
        self._left: dict[int, int] = {}
        """The most bytes to read of each output, without a wait, once their time is over."""
        self._stop: Timer | None = None
        self._stdin = process.stdin
        self._gone: Future[None] = Future()
        self._over: Future[None] = Future()
        self._watchdog = ClientWatchdog(loop, stream, idle_s, lambda: self._gone.set(None))
        self._pumps: list[Task[None]] = []
        self._pumping = len(process.outputs)

    async def run(self) -> bool:
        """Return True after the process's exit, with all output sent; False when the client left before."""
        self._pumps = [self._loop.spawn(self._pump(*one), "output") for one in self._process.outputs.items()]
        tasks = [*self._pumps, self._loop.spawn(self._take(), "input"), self._loop.spawn(self._wait(), "process")]
        try:
            await first_of(self._over, self._gone)
            if not self._gone.done():
                for pump in self._pumps:
                    await first_of(pump, self._gone)
            return not self._gone.done()
        finally:
            self._watchdog.cancel()
            if self._stop is not None:
                self._stop.cancel()
            for task in tasks:
                task.cancel()
            self._close_stdin()

    async def _wait(self) -> None:
        looking = select.poll()
        looking.register(self._process.pidfd, select.POLLIN)
        while not looking.poll(0):  # a readiness event may belong to an earlier descriptor of this number
            await self._loop.readable(self._process.pidfd)
        if self._process.ends_with_output:
            self._over.set(None)
        else:
            self._end_soon()

    # Input

    async def _take(self) -> None:
        with contextlib.suppress(OSError, ProtocolError):
            while (message := await self._channels.receive()).kind:
                self._watchdog.touch()
                if message.kind == "stdin":
                    await self._feed(message.content)
                    if message.end:
                        self._end_stdin()
                elif message.kind == "resize" and message.content:
                    self._resize(message.content)
        self._gone.set(None)

    async def _feed(self, content: bytes) -> None:
        left = memoryview(content)
        while left and self._stdin >= 0:
            try:
                left = left[os.write(self._stdin, left) :]
            except BlockingIOError:
                await self._loop.writable(self._stdin)
            except OSError:  # no reader any more; further input is dropped
                self._close_stdin()

    def _end_stdin(self) -> None:
        self._close_stdin()
        self._process.on_stdin_end()
        if self._process.ends_with_input:
            self._end_soon()

    def _close_stdin(self) -> None:
        if self._stdin >= 0 and self._stdin != self._process.terminal:
            os.close(self._stdin)
        self._stdin = self._process.stdin = -1

    def _resize(self, content: bytes) -> None:
        """Set the size. Each message is a flat JSON document; of several in one piece the last counts."""
        last = content.rpartition(b"}")[0].rpartition(b"{")[2]
        with contextlib.suppress(msgspec.MsgspecError, OSError):
            size = untrusted.decode_json(b"{%b}" % last, Size)
            if self._process.terminal >= 0 and 0 < size.width < 65536 and 0 < size.height < 65536:
                packed = struct.pack("HHHH", size.height, size.width, 0, 0)
                fcntl.ioctl(self._process.terminal, termios.TIOCSWINSZ, packed)
                self._process.on_resize()

    # Output

    async def _pump(self, kind: str, fd: int) -> None:
        try:
            while chunk := await self._read(fd):
                if kind != DROPPED:
                    await self._channels.send(kind, chunk)
                self._watchdog.touch()
        except OSError:
            self._gone.set(None)
        self._pumping -= 1
        if self._process.ends_with_output and not self._pumping:
            self._over.set(None)

    async def _read(self, fd: int) -> bytes:
        while True:
            try:
                chunk = os.read(fd, min(BLOCK, self._left.get(fd, BLOCK)))
            except BlockingIOError:
                if fd in self._left:
                    return b""
                await self._more(fd)
            except OSError:  # EIO: the terminal's slave is closed
                return b""
            else:
                if fd in self._left:
                    self._left[fd] -= len(chunk)
                return chunk

    async def _more(self, fd: int) -> None:
        wait = self._waits[fd] = self._loop.readable(fd)
        try:
            await wait
        finally:
            self._waits.pop(fd, None)

    def _end_soon(self) -> None:
        """End the session once its output has ended, or after DRAIN_S."""
        self._stop = self._stop or self._loop.call_later(DRAIN_S, self._stop_reading)
        self._over.set(None)

    def _stop_reading(self) -> None:
        """End the output, at a fixed time: a process that runs on may never pause.

        What the outputs hold now is still sent, however slowly the client takes it.
        """
        for fd in self._process.outputs.values():
            self._left[fd] = most_held(fd)
            if (wait := self._waits.get(fd)) is not None:
                self._loop.forget(wait)
                wait.set(None)
