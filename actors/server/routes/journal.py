"""The answer to a node log query: journald's entries of services, by journalctl, and files of /var/log.

The whole answer has one deadline, as in the kubelet. The answer begins before journalctl ends, so its later errors are
lines of the answer.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import time
from collections.abc import AsyncGenerator

from actors._base.messaging.tasks import first_of
from actors._host.files.untrusted_files import open_regular
from actors.server.base.http import Response, text
from actors.server.context import Context
from actors.server.routes.logquery import LogQuery, judge_pattern, pattern_check
from proto.wire.errors import ActorError

DEADLINE_S = 30.0
CALL_S = 5.0
BLOCK, FILE_BLOCK = 64 * 1024, 256 * 1024
MOST_AT_ONCE = 4
"""Queries at one time: journalctl reads all journals of the machine."""
_BUSY = f"{MOST_AT_ONCE} log queries run already; try again\n"
MOST_UNITS_BYTES = 4 * 1024 * 1024
"""Of the list of units that journald knows."""
MOST_CHECK_BYTES = 64 * 1024
"""Of journalctl's words on a pattern."""


async def services_log(context: Context, query: LogQuery) -> Response:
    """The logs of the services. 429 when too many queries run. Raises Invalid for a bad pattern."""
    if context.log_queries >= MOST_AT_ONCE:
        return text(429, _BUSY, **{"Retry-After": "1"})
    answer = _Answer(context, query)
    if query.pattern:
        judge_pattern(query.pattern, await answer.output(pattern_check(query.pattern), MOST_CHECK_BYTES))
    return Response(200, answer.parts(await answer.units()), "text/plain;charset=UTF-8")


def open_below(root: str, name: str) -> int:
    """A descriptor of the regular file `name`, whose links may lead to files below `root` only. Raises OSError."""
    real_root, real = os.path.realpath(root), os.path.realpath(os.path.join(root, name.lstrip("/")), strict=True)
    if os.path.commonpath([real_root, real]) != real_root:
        raise FileNotFoundError(2, f"leads out of {root}", name)
    return open_regular(os.path.relpath(real, real_root), beneath=real_root)  # a link made meanwhile is refused


class _Answer:
    """One answer, within its deadline."""

    def __init__(self, context: Context, query: LogQuery) -> None:
        self._context, self._query = context, query
        self._ends = time.monotonic() + DEADLINE_S

    async def parts(self, units: frozenset[bytes]) -> AsyncGenerator[bytes, None]:
        """The answer's body. `units` log to journald; other services may log to files."""
        query = self._query
        native = [service for service in query.services if f"{service}.service".encode() in units]
        others = [service for service in query.services if service not in native]
        if native:
            async with contextlib.aclosing(self._run(query.journalctl(native))) as entries:
                async for part in entries:
                    yield part
        if others and query.has_options:
            names = " ".join(others)
            yield f"\noptions present and query resolved to log files for [{names}]\n".encode()
            yield b"try without specifying options\n"
            return
        for service in others:
            async with contextlib.aclosing(self._file_of(service)) as lines:
                async for part in lines:
                    yield part

    async def units(self) -> frozenset[bytes]:
        """The units that have entries; none where journald does not answer."""
        found = await self.output(["journalctl", "--field", "_SYSTEMD_UNIT"], MOST_UNITS_BYTES)
        return frozenset(found.split(b"\n"))

    async def output(self, arguments: list[str], most_bytes: int) -> bytes:
        """A program's output, both streams. Reading stops after `most_bytes`."""
        found = bytearray()
        async with contextlib.aclosing(self._run(arguments)) as parts:
            async for part in parts:
                found += part
                if len(found) > most_bytes:
                    break
        return bytes(found)

    async def _run(self, arguments: list[str]) -> AsyncGenerator[bytes, None]:
        """A program's output, both streams. It is killed at the deadline, and when the client disconnects."""
        context = self._context
        if context.log_queries >= MOST_AT_ONCE:
            yield f"\nerror: journal output not available: {_BUSY}".encode()
            return
        context.log_queries += 1
        process = None
        try:
            process = await context.blocking(CALL_S, _start, arguments)
            assert process.stdout is not None
            timer = context.loop.call_later(max(0.0, self._ends - time.monotonic()), lambda: _kill(process))
            try:
                while part := await self._read(process.stdout.fileno()):
                    yield part
            finally:
                timer.cancel()
        except FileNotFoundError:
            return  # there is no journalctl: the services log to files
        except (OSError, ActorError) as error:
            yield f"\nerror: journal output not available: {error}\n".encode()
        finally:
            context.log_queries -= 1
            if process is not None:
                _kill(process)
                with contextlib.suppress(subprocess.TimeoutExpired, ActorError):
                    await context.blocking(CALL_S, process.wait, CALL_S)

    async def _read(self, descriptor: int) -> bytes:
        """The next bytes; none at the end and after the deadline."""
        readable = self._context.loop.readable(descriptor)
        late = self._context.loop.sleep(max(0.0, self._ends - time.monotonic()))
        try:
            await first_of(readable, late)
        finally:
            readable.cancel()
            late.cancel()
        return os.read(descriptor, BLOCK) if readable.done() else b""

    async def _file_of(self, service: str) -> AsyncGenerator[bytes, None]:
        """The first of SERVICE, SERVICE.log and SERVICE/SERVICE.log that is a file."""
        for name in (service, f"{service}.log", f"{service}/{service}.log"):
            try:
                descriptor = await self._context.blocking(CALL_S, open_below, self._context.log_root, name)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                continue
            except (OSError, ActorError) as error:
                yield f"\nerror getting log for {service}: {error}\n".encode()
                return
            async with contextlib.aclosing(content(self._context, io.FileIO(descriptor), self._ends)) as parts:
                async for part in parts:
                    yield part
            return
        yield f"\nlog not found for {service}\n".encode()


async def content(
    context: Context, file: io.FileIO, ends: float = float("inf"), *, length: int | None = None
) -> AsyncGenerator[bytes, None]:
    """The next `length` bytes of the file; by default up to the size that it has now, also while it grows."""
    left = os.fstat(file.fileno()).st_size if length is None else length
    coming = context.blocking(DEADLINE_S, file.read, min(FILE_BLOCK, left))
    try:
        while (block := await coming) and time.monotonic() < ends:
            left -= len(block)
            coming = context.blocking(DEADLINE_S, file.read, min(FILE_BLOCK, left))
            yield block
    finally:
        # Not while a thread reads: the descriptor's number could be reused for a client, and its bytes be read here.
        with contextlib.suppress(OSError, ActorError):
            await coming
        await context.blocking(DEADLINE_S, file.close)


def _start(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End its process group. Its number is free for others only after `wait`."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
