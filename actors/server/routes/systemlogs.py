"""/logs/: serves the files below /var/log; directories as lists of links."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import AsyncGenerator
from html import escape
from urllib.parse import quote

from actors.server.base.http import Request, Response, text
from actors.server.context import Context
from actors.server.policy import Route
from proto.wire.errors import ActorError

BLOCK = 256 * 1024
READ_S = 30.0
HTML = "text/html; charset=utf-8"


async def get_logs(context: Context, request: Request) -> Response:
    """A directory's names, or a file. The path has no `..`: see `http.clean`."""
    name = request.params.get("path", "").strip("/")
    root = context.log_root
    return await context.blocking(READ_S, _open, context, f"{root}/{name}" if name else root, request)


def _open(context: Context, path: str, request: Request) -> Response:
    """For a pool thread. Pipes and devices are refused, and opening them does not block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return text(404, "404 page not found\n")
    except OSError as error:
        return text(404 if isinstance(error, NotADirectoryError) else 403, f"{error.strerror}\n")
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode):
        # FileIO closes the descriptor when it is collected: after HEAD, or a lost client, the generator never runs.
        return Response(200, _content(context, io.FileIO(descriptor), found.st_size), "text/plain; charset=utf-8")
    try:
        if not stat.S_ISDIR(found.st_mode):
            return text(403, "not a regular file\n")
        if not request.path.endswith("/"):
            return Response(301, b"", headers={"Location": quote(request.path) + "/"})
        return Response(200, _listing(descriptor), HTML)
    finally:
        os.close(descriptor)


def _listing(descriptor: int) -> bytes:
    with os.scandir(descriptor) as entries:
        names = sorted(entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "") for entry in entries)
    lines = (f'<a href="{escape(quote(os.fsencode(name)))}">{escape(name)}</a>\n' for name in names)
    return ("<!doctype html>\n<pre>\n" + "".join(lines) + "</pre>\n").encode(errors="surrogateescape")


async def _content(context: Context, file: io.FileIO, size: int) -> AsyncGenerator[bytes, None]:
    """The file's first `size` bytes, its size when it was opened, so that the answer ends while the file grows."""
    left = size
    coming = context.blocking(READ_S, file.read, min(BLOCK, left))
    try:
        while block := await coming:
            left -= len(block)
            coming = context.blocking(READ_S, file.read, min(BLOCK, left))
            yield block
    finally:
        # Not while a thread reads: the descriptor's number could be reused for a client, and its bytes be read here.
        with contextlib.suppress(OSError, ActorError):
            await coming
        await context.blocking(READ_S, file.close)


ROUTES = (Route("GET", "/logs", get_logs), Route("GET", "/logs/{path:*}", get_logs))
