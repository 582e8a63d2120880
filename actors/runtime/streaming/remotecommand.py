"""Carries bytes between the streams of a client and those of a process, whatever the protocol and the process.

Back pressure is the sockets' and pipes' own: what one side does not take is not read from the other. So a command that
does not read its input holds up all that its client sends, which is how it is with Kubernetes' own servers, too.
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
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Task, first_of
from actors._net.loop import Loop, Readiness
from actors._net.stream import Stream
from actors._net.streaming.spdy import ProtocolError
from actors._net.watch import Watch
from proto.common import untrusted

BLOCK = 64 * 1024
DRAIN_S = 2.0
"""A process that the command leaves behind may keep its output open: so long is waited for more of it."""


class Message(NamedTuple):
    """What a client sent. Without a kind it is gone."""

    kind: str
    content: bytes
    end: bool


GONE = Message("", b"", end=True)


class Channels(Protocol):
    """A client's streams by name: stdin, stdout, stderr, error, resize. The errors are OSError and ProtocolError."""

    async def ready(self) -> bool:
        """Until they are there; False: the client left."""
        ...

    async def receive(self) -> Message:
        """What comes next."""
        ...

    async def send(self, kind: str, content: bytes) -> None:
        """Once the other end has room."""
        ...

    async def end(self, kind: str) -> None:
        """Nothing more comes there."""
        ...

    async def close(self) -> None:
        """Nothing more comes at all."""
        ...


@dataclass
class Ends:
    """A process's side. Descriptors do not block; whoever made them closes them, but for `stdin`."""

    outputs: dict[str, int]
    pidfd: int
    stdin: int = -1
    """Closed at the input's end, if it is not the terminal."""
    terminal: int = -1
    over_with_output: bool = False
    """The streams are a container's own, and may be taken away while it runs on."""
    on_resize: Callable[[], object] = lambda: None
    on_stdin_end: Callable[[], object] = lambda: None


class Size(msgspec.Struct, rename="pascal"):
    """A terminal's, as client-go sends it."""

    width: int = 0
    height: int = 0


class RemoteCommand:
    """One session, until the process's end or the client's."""

    def __init__(self, loop: Loop, channels: Channels, ends: Ends, stream: Stream, idle_s: float) -> None:
        self._loop, self._channels, self._ends = loop, channels, ends
        self._waits: dict[int, Readiness] = {}
        self._expired: set[int] = set()
        self._draining = False
        self._stdin = ends.stdin
        self._gone: Future[None] = Future()
        self._over: Future[None] = Future()
        self._watch = Watch(loop, stream, idle_s, lambda: self._gone.set(None))
        self._pumps: list[Task[None]] = []
        self._pumping = len(ends.outputs)

    async def run(self) -> bool:
        """True at the process's end, with all its output sent; False when the client left before."""
        self._pumps = [self._loop.spawn(self._pump(*one), "output") for one in self._ends.outputs.items()]
        tasks = [*self._pumps, self._loop.spawn(self._take(), "input"), self._loop.spawn(self._wait(), "process")]
        try:
            await first_of(self._over, self._gone)
            if not self._gone.done():
                await self._drain()
            return not self._gone.done()
        finally:
            self._watch.cancel()
            for task in tasks:
                task.cancel()
            self._close_stdin()

    async def _wait(self) -> None:
        looking = select.poll()
        looking.register(self._ends.pidfd, select.POLLIN)
        while not looking.poll(0):  # a descriptor's readiness may be that of another one which had its number
            await self._loop.readable(self._ends.pidfd)
        self._over.set(None)

    # In

    async def _take(self) -> None:
        with contextlib.suppress(OSError, ProtocolError):
            while (message := await self._channels.receive()).kind:
                self._watch.touch()
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
            except OSError:  # nobody reads any more; what else comes is thrown away
                self._close_stdin()

    def _end_stdin(self) -> None:
        self._close_stdin()
        self._ends.on_stdin_end()
        if not self._ends.outputs:
            self._over.set(None)

    def _close_stdin(self) -> None:
        if self._stdin >= 0 and self._stdin != self._ends.terminal:
            os.close(self._stdin)
        self._stdin = self._ends.stdin = -1

    def _resize(self, content: bytes) -> None:
        """Each is a JSON document without one in it; of several in one piece the last counts."""
        last = content.rpartition(b"}")[0].rpartition(b"{")[2]
        with contextlib.suppress(msgspec.MsgspecError, OSError):
            size = untrusted.decode_json(b"{%b}" % last, Size)
            if self._ends.terminal >= 0 and 0 < size.width < 65536 and 0 < size.height < 65536:
                packed = struct.pack("HHHH", size.height, size.width, 0, 0)
                fcntl.ioctl(self._ends.terminal, termios.TIOCSWINSZ, packed)
                self._ends.on_resize()

    # Out

    async def _pump(self, kind: str, fd: int) -> None:
        try:
            while chunk := await self._read(fd):
                await self._channels.send(kind, chunk)
                self._watch.touch()
        except OSError:
            self._gone.set(None)
        self._pumping -= 1
        if self._ends.over_with_output and not self._pumping:
            self._over.set(None)

    async def _read(self, fd: int) -> bytes:
        while fd not in self._expired:
            try:
                return os.read(fd, BLOCK)
            except BlockingIOError:
                await self._more(fd)
            except OSError:  # EIO: nobody has the terminal any more
                return b""
        return b""

    async def _more(self, fd: int) -> None:
        wait = self._waits[fd] = self._loop.readable(fd)
        timer = self._loop.call_later(DRAIN_S, partial(self._expire, fd)) if self._draining else None
        try:
            await wait
        finally:
            self._waits.pop(fd, None)
            if timer is not None:
                timer.cancel()

    def _expire(self, fd: int) -> None:
        if (wait := self._waits.get(fd)) is not None:
            self._expired.add(fd)
            self._loop.forget(wait)
            wait.set(None)

    async def _drain(self) -> None:
        """What the process has written before its end is sent, however slowly the client takes it."""
        self._draining = True
        for fd in list(self._waits):
            self._loop.call_later(DRAIN_S, partial(self._expire, fd))
        for pump in self._pumps:
            await first_of(pump, self._gone)
