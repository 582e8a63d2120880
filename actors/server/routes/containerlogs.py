"""/containerLogs: sends a container's log, and follows it until the container ends."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path

from inotify_simple import INotify, flags

from actors._base.messaging.tasks import first_of
from actors._cri.errors import CriError
from actors._host.files.stamp import stamp
from actors._logs.entries import Formatter
from actors._logs.files import NoSuchContainer, container_names, container_status, log_file
from actors._logs.reading import LogReader
from actors.server.base.http import BadRequest, Request, Response, text
from actors.server.context import Context
from actors.server.pods import ObjectNotFound, find_pod
from actors.server.policy import Route
from proto.cri import api_pb2 as pb
from proto.v1 import Pod

log = logging.getLogger(__name__)

READ_S = 60.0
GATHER_S = 0.02
"""Delay after a change, so that lines which a container writes one by one are sent together."""
LOOK_S = 0.5
"""Interval of checks for rotation, also while the client reads nothing: each rotated file has to be opened in time."""
RUNS_S = 2.0
"""Interval of asking the runtime whether a silent container still runs."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NOT_SPLIT = (
    'unable to return the given log stream: "%s". Please enable PodLogsQuerySplitStreams feature gate in kubelet'
)
"""The kubelet's text."""


class Options:
    """PodLogOptions of the query. Raises Invalid and Undecodable."""

    def __init__(self, request: Request) -> None:
        tail = request.first("tail") or request.first("tailLines")
        self.tail = None if tail in ("", "all") else _number(tail, least=0)
        self.follow = _flag(request.first("follow", "false"))
        self.previous = _flag(request.first("previous", "false"))
        self.timestamps = _flag(request.first("timestamps", "false"))
        self.limit = _number(limit, least=1) if (limit := request.first("limitBytes")) else None
        stream = request.first("stream") or "All"
        if stream not in ("All", "Stdout", "Stderr") or (stream != "All" and self.tail is not None):
            raise Invalid
        self.stream = "" if stream == "All" else stream.lower()
        self.since = _since(request.first("sinceSeconds"), request.first("sinceTime"))


class Invalid(BadRequest):
    """An option's value is not allowed."""

    def __init__(self) -> None:
        super().__init__('{"message": "Invalid request."}')


class Undecodable(BadRequest):
    """An option's value has another type."""

    def __init__(self) -> None:
        super().__init__('{"message": "Unable to decode query."}')


def _number(value: str, least: int) -> int:
    if _INTEGER.fullmatch(value) is None or not -(1 << 63) <= (number := int(value)) < 1 << 63:
        raise Undecodable
    if number < least:
        raise Invalid
    return number


def _flag(value: str) -> bool:
    """A boolean as the API's conversion reads it: present, and neither 0 nor false. A bare name counts as true."""
    return value.lower() not in ("0", "false")


def _since(seconds: str, moment: str) -> float | None:
    if seconds and moment:
        raise Invalid
    if seconds:
        return time.time() - _number(seconds, least=1)
    if not moment:
        return None
    try:
        found = datetime.fromisoformat(moment)
    except ValueError as error:
        raise Undecodable from error
    if found.tzinfo is None or "T" not in moment:  # RFC 3339 requires both
        raise Undecodable
    return found.timestamp()


async def get_container_logs(context: Context, request: Request) -> Response:
    """The log, in parts. 404 without the pod or container, 400 without a log yet, 422 for invalid options.

    One stream alone is sent with the feature gate PodLogsQuerySplitStreams, and refused with 400 without it.
    """
    try:
        options = Options(request)
    except Invalid as error:
        return text(422, str(error))
    except BadRequest as error:
        return text(400, str(error))
    name = request.params["pod"]
    container = request.params["container"]
    pod = await find_pod(context, request, f'pod "{name}" does not exist', running=container)
    if container not in container_names(pod):
        raise ObjectNotFound(f'container "{container}" not found in pod "{name}"')
    if options.stream and not context.settings.split_log_streams:
        return text(400, _NOT_SPLIT % request.first("stream"))
    try:
        path = log_file(context.settings.pod_logs_dir, pod, container, previous=options.previous)
        grows = options.follow or options.tail is None
        reader = await context.blocking(READ_S, lambda: LogReader(path, options.tail, grows=grows))
    except NoSuchContainer as error:
        return text(400, str(error))
    except OSError as error:
        status = 400 if isinstance(error, FileNotFoundError) else 500
        return text(status, f"cannot read the log of container {container}: {error.strerror}")
    body = (
        _follow(context, reader, path, options, _container_id(pod, container))
        if _runs(pod, container, options)
        else _whole(context, reader, options)
    )
    return Response(200, body)


def _runs(pod: Pod, container: str, options: Options) -> bool:
    status = container_status(pod, container)
    return options.follow and not options.previous and status is not None and status.state.running is not None


def _container_id(pod: Pod, container: str) -> str:
    status = container_status(pod, container)
    return status.container_id.partition("://")[2] if status is not None and status.container_id else ""


def _formatter(options: Options) -> Formatter:
    return Formatter(timestamps=options.timestamps, since=options.since, stream=options.stream, limit=options.limit)


def _next(reader: LogReader, formatter: Formatter, blocks: int, final: bool) -> tuple[list[bytes], bool]:
    """Parts to send, and whether the present end was reached. For a pool thread."""
    parts: list[bytes] = []
    for _ in range(blocks):
        block = reader.read(final=final)
        if not block:
            return parts, True
        if part := formatter.feed(block):
            parts.append(part)
    return parts, False


async def _whole(context: Context, reader: LogReader, options: Options) -> AsyncGenerator[bytes, None]:
    formatter = _formatter(options)
    try:
        with context.log_readers as readers:
            coming = context.blocking(READ_S, _next, reader, formatter, readers.blocks, True)
            while True:
                parts, over = await coming
                if over or formatter.full:
                    yield b"".join([*parts, formatter.finish()])
                    return
                # The next parts are read while these are sent.
                coming = context.blocking(READ_S, _next, reader, formatter, readers.blocks, True)
                for part in parts:
                    yield part
    finally:
        await context.blocking(READ_S, reader.close)


class _Changes:
    """Wakes a follower, by inotify, when its log grows or is renamed; checks for rotation every LOOK_S.

    The kernel limits a user's inotify instances, 128 by default. Without one, the file's size is polled.
    """

    def __init__(self, context: Context, reader: LogReader, path: Path) -> None:
        self._loop, self._reader, self._path = context.loop, reader, path
        self._inotify: INotify | None = None
        try:
            self._inotify = INotify(nonblocking=True)
            self._inotify.add_watch(path.parent, flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.DELETE_SELF)
        except OSError as error:
            log.info("cannot watch %s: %s; checking it every %g s", path.parent, error.strerror, LOOK_S)
            self._close_inotify()
        self._seen = stamp(path)
        self._timer = self._loop.call_later(LOOK_S, self._check_rotation)

    def _check_rotation(self) -> None:
        self._reader.check_rotation()
        self._timer = self._loop.call_later(LOOK_S, self._check_rotation)

    async def wait(self, most_s: float) -> bool:
        """Wait for a change of the container's log files; False when none comes within `most_s`."""
        if self._inotify is None:
            return await self._grown(most_s)
        readable = self._loop.readable(self._inotify.fileno())
        late = self._loop.sleep(most_s)
        try:
            await first_of(readable, late)
        finally:
            readable.cancel()
            late.cancel()
        if not readable.done():
            return False
        await self._loop.sleep(GATHER_S)
        self._inotify.read(timeout=0)
        return True

    async def _grown(self, most_s: float) -> bool:
        end = time.monotonic() + most_s
        while (found := stamp(self._path)) == self._seen:
            if time.monotonic() >= end:
                return False
            await self._loop.sleep(min(LOOK_S, most_s))
        self._seen = found
        return True

    def close(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        self._close_inotify()

    def _close_inotify(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None


async def _follow(
    context: Context, reader: LogReader, path: Path, options: Options, container_id: str
) -> AsyncGenerator[bytes, None]:
    formatter = _formatter(options)
    with context.log_readers as readers, contextlib.closing(_Changes(context, reader, path)) as changes:
        final = False
        try:
            while not formatter.full:
                reader.check_rotation()
                parts, idle = await context.blocking(READ_S, _next, reader, formatter, readers.blocks, final)
                for part in parts:
                    yield part
                if not idle:
                    continue
                if final:
                    break
                if not await changes.wait(LOOK_S if reader.behind else RUNS_S) and not reader.behind:
                    # One more read after the container's end: the runtime may write the last lines after it.
                    final = not await _still_runs(context, container_id)
            yield formatter.finish()
        finally:
            await context.blocking(READ_S, reader.close)


async def _still_runs(context: Context, container_id: str) -> bool:
    """True when the runtime reports the container as running. True also when it does not answer."""
    try:
        status = await context.cri.container_status(container_id)
    except CriError as error:
        return error.code != "NotFound"
    return bool(status.status.state == pb.CONTAINER_RUNNING)


ROUTES = (Route("GET", "/containerLogs/{namespace}/{pod}/{container}", get_container_logs),)
