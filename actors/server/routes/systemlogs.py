"""/logs/: serves the files below /var/log; directories as lists of links. enableSystemLogQuery adds queries."""

from __future__ import annotations

import errno
import io
import os
import stat
from html import escape
from urllib.parse import quote

from actors.server.base import ranges
from actors.server.base.http import Request, Response, text
from actors.server.base.ranges import PLAIN
from actors.server.context import Context
from actors.server.policy import Route
from actors.server.routes import journal, logquery

READ_S = 30.0
HTML = "text/html; charset=utf-8"


async def get_logs(context: Context, request: Request) -> Response:
    """A directory's names, a file, or the answer to a query. The path has no `..`: see `http.clean`."""
    name = request.params.get("path", "").strip("/")
    if context.settings.enable_system_log_query and (query := logquery.parse(request.query)):
        return await _answer(context, query) if not name else text(406, "path not allowed in query mode\n")
    root = context.log_root
    return await context.blocking(READ_S, _open, context, f"{root}/{name}" if name else root, request)


async def _answer(context: Context, query: logquery.LogQuery) -> Response:
    try:
        logquery.check(query)
        if query.services:
            return await journal.services_log(context, query)
        name = query.files[0].replace("\\", "/")
        descriptor = await context.blocking(READ_S, journal.open_below, context.log_root, name)
    except logquery.Invalid as error:
        return text(406, f"{error}\n")
    except IsADirectoryError:
        return Response(301, b"", headers={"Location": f"/logs/{quote(name.strip('/'))}/"})
    except (OSError, ValueError) as error:  # ValueError: a NUL
        return text(406, f"query: Invalid value: {list(query.files)}: {error}\n")
    return Response(200, journal.content(context, io.FileIO(descriptor)), PLAIN)


def _open(context: Context, path: str, request: Request) -> Response:
    """For a pool thread. Follows links, as the kubelet's http.FileServer does."""
    try:
        descriptor = _open_file_or_directory(path)
    except FileNotFoundError:
        return text(404, "404 page not found\n")
    except OSError as error:
        return text(404 if isinstance(error, NotADirectoryError) else 403, f"{error.strerror}\n")
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode):
        # FileIO closes the descriptor when it is collected: after HEAD, or a lost client, the generator never runs.
        return _part(context, io.FileIO(descriptor), found, request)
    try:
        if not request.path.endswith("/"):
            return Response(301, b"", headers={"Location": quote(request.path) + "/"})
        return Response(200, _listing(descriptor), HTML)
    finally:
        os.close(descriptor)


def _part(context: Context, file: io.FileIO, found: os.stat_result, request: Request) -> Response:
    """The wanted part of a regular file, with its length."""
    part = ranges.part_of(request.headers, found.st_size, found.st_mtime)
    if part.status not in (200, 206):
        file.close()
        said = b"invalid range\n" if part.status == 416 else b""
        return Response(part.status, said, PLAIN, part.headers)
    kind = ranges.type_of(os.pread(file.fileno(), ranges.SNIFFED_BYTES, 0))
    file.seek(part.start)
    body = journal.content(context, file, length=part.length)
    return Response(part.status, body, kind, part.headers, part.length)


def _open_file_or_directory(path: str) -> int:
    """A descriptor for reading. Raises OSError, also for a pipe or a device.

    Their type is read by O_PATH, which does not open them: opening a device by its name may start it, as a watchdog.
    """
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        mode = os.fstat(found).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(found)


def _listing(descriptor: int) -> bytes:
    with os.scandir(descriptor) as entries:
        names = sorted(entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "") for entry in entries)
    lines = (f'<a href="{escape(quote(os.fsencode(name)))}">{escape(name)}</a>\n' for name in names)
    return ("<!doctype html>\n<pre>\n" + "".join(lines) + "</pre>\n").encode(errors="surrogateescape")


ROUTES = (Route("GET", "/logs", get_logs), Route("GET", "/logs/{path:*}", get_logs))
