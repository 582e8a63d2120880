"""The events on disk: a file that grows by a line for each change and is written anew when most of it is history.

Covers lines, their checksums, and both ways of writing; everything here blocks. A line that is torn or damaged is left
out, since a kill may come within any write. No fsync: what a power cut takes is at most seconds of history.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterable

import msgspec

from actors.events.entry import Entry
from proto.common import untrusted

log = logging.getLogger(__name__)

MOST_BYTES = 16 * 1024 * 1024
"""Of a file that is read; ours are rewritten long before."""


class Life(msgspec.Struct, frozen=True, kw_only=True, tag="life"):
    """Which agent wrote what follows: its supervisor, and the incarnation of this actor."""

    agent: str
    incarnation: int


class Changed(msgspec.Struct, frozen=True, kw_only=True, tag="event"):
    """An event was created or has changed."""

    entry: Entry


class Sent(msgspec.Struct, frozen=True, kw_only=True, tag="sent"):
    """Up to this revision everything is the API server's."""

    revision: int


Line = Life | Changed | Sent


def read(path: str) -> tuple[list[Line], bool]:
    """The lines, oldest first, and whether all of the file was good. A missing file is an empty one. Raises OSError."""
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES)
    except FileNotFoundError:
        return [], True
    lines: list[Line] = []
    raw = content.split(b"\n")
    bad = 1 if raw.pop() else 0  # after the last newline: nothing, or a torn line
    for one in raw:
        checksum, _, body = one.partition(b" ")
        try:
            if int(checksum, 16) != zlib.crc32(body):
                raise ValueError("checksum")
            lines.append(untrusted.decode_json(body, Line))
        except ValueError:  # msgspec's errors are among them
            bad += 1
    if bad:
        log.warning("left %d damaged lines out of %s", bad, path)
    return lines, not bad


def encode(lines: Iterable[Line]) -> bytes:
    """Lines as they stand in the file."""
    bodies = (msgspec.json.encode(line) for line in lines)
    return b"".join(b"%08x %s\n" % (zlib.crc32(body), body) for body in bodies)


def append(path: str, content: bytes) -> None:
    """Add to the file. Raises OSError; then the file may end in a torn line and is to be rewritten."""
    _write(path, content, os.O_APPEND)


def rewrite(path: str, content: bytes) -> None:
    """Replace the file: the old one or the new one is there, whole. Raises OSError."""
    temporary = f"{path}.tmp"
    _write(temporary, content, os.O_TRUNC)
    os.replace(temporary, path)


def _write(path: str, content: bytes, how: int) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
