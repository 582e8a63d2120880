"""Listens on a unix socket. Runs the server behind it only while there are clients, as systemd-socket-proxyd does.

A gRPC server looks for calls five times a second. Few nodes have a client, and the proxy sleeps until one connects. It
starts the server behind it, passes the bytes of each connection on both ways, and stops the server when all are gone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import stat
import threading
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

log = logging.getLogger(__name__)

UNUSED_S = 30.0
"""The server behind is stopped when there has been no client for so long."""
STALLED_S = 60.0
"""A side that takes no byte for so long is cut off."""
FAILED_S = 60.0
"""A failure counts for so long: plugins that can register again seldom do."""
CLOSE_S = 5.0
"""Bytes that are under way when one side closes arrive within this time, or not at all."""
STOP_S = 10.0
CHUNK = 64 * 1024
WAITING = 16
"""Connections that wait to be accepted. asyncio accepts as many at once, before any can be refused."""

Stream = tuple[StreamReader, StreamWriter]
Stop = Callable[[], None]
"""Stops the server behind. Does not block for long."""


class SocketProxy:
    """Listens in a thread of its own. Usable from any thread."""

    def __init__(self, path: str, behind: str, start: Callable[[], Stop], connections: int) -> None:
        """Listen at `path`. `start` makes the server behind listen at `behind`; it and its result run in the thread.

        Replaces a socket at the path, and nothing else. Connections beyond `connections` are closed at once. Raises
        OSError when it cannot listen.
        """
        self._behind, self._start, self._connections = behind, start, connections
        self._stop: Stop | None = None
        self._said = ""
        """The last problem in the log."""
        self._failed_at = -math.inf
        """Monotonic time at which a client could not be served."""
        self._serving: set[asyncio.Task[Any]] = set()
        """A task for each client."""
        self._unused: asyncio.TimerHandle | None = None
        self._ending = asyncio.Event()
        self._listening = _listen(path)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="socket proxy", daemon=True)
        self._thread.start()

    @property
    def serves(self) -> bool:
        """True while it listens, unless the last client could not be served a short time ago."""
        failed = bool(self._said) and time.monotonic() - self._failed_at < FAILED_S
        return self._thread.is_alive() and not failed

    def stop(self) -> None:
        """Close all connections and stop the server behind. Blocks."""
        with suppress(RuntimeError):  # the loop is closed: stopped before
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(STOP_S)

    # In the thread

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        finally:
            self._stop_server()

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(self._serve_client, sock=self._listening, backlog=WAITING)
        await self._ending.wait()
        # The clients end before the server: its end waits for them from Python 3.12 on, and a connection that has just
        # been accepted cannot be handed on after it.
        self._loop.remove_reader(self._listening)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._serving:
                task.cancel()
            await asyncio.wait(others)
        server.close()

    async def _serve_client(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # in a coroutine
        if len(self._serving) >= self._connections or self._ending.is_set():
            writer.transport.abort()
            return
        self._serving.add(task)
        if self._unused is not None:
            self._unused.cancel()
        try:
            await _pass_on((reader, writer), await self._connect())
        except OSError as error:
            self._say(f"cannot serve clients: the server behind the socket: {error}; the next client tries again")
        except asyncio.CancelledError:
            pass  # the end; asyncio would log it
        finally:
            writer.transport.abort()
            self._serving.discard(task)
            if not self._serving:
                self._unused = self._loop.call_later(UNUSED_S, self._stop_server)

    async def _connect(self) -> Stream:
        """Connect to the server behind; start it if need be. Raises OSError."""
        if self._stop is None:
            self._stop = self._start()
        try:
            behind = await asyncio.open_unix_connection(self._behind)
        except (FileNotFoundError, ConnectionRefusedError):
            self._stop_server()  # its socket is gone: another one can be reached
            raise
        self._said = ""
        return behind

    def _say(self, problem: str) -> None:
        self._failed_at = time.monotonic()
        if problem != self._said:
            self._said = problem
            log.error("%s", problem)

    def _stop_server(self) -> None:
        if self._stop is not None:
            stop, self._stop = self._stop, None
            stop()


async def _pass_on(one: Stream, other: Stream) -> None:
    """Pass bytes on both ways until one side closes or takes no more."""
    ways = [asyncio.ensure_future(_copy(one[0], other[1])), asyncio.ensure_future(_copy(other[0], one[1]))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, _close(one[1]), _close(other[1]), return_exceptions=True)


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):  # TimeoutError and a lost connection, too
        while data := await reader.read(CHUNK):
            writer.write(data)
            async with asyncio.timeout(STALLED_S):
                await writer.drain()


async def _close(writer: StreamWriter) -> None:
    """Send what is left, and close."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_S):
            await writer.wait_closed()
    except OSError:
        writer.transport.abort()


def _listen(path: str) -> socket.socket:
    """A listening socket at the path, with mode 0600: others than its owner cannot connect.

    The path has the mode of the socket, less the umask, from the moment of its creation. Without an x bit it is told
    from a kubelet's, also after a kill in between (`actors/_host/other_agent.py`).
    """
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        os.fchmod(listening.fileno(), 0o600)
        listening.bind(path)
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening
