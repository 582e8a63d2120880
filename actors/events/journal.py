"""Reads and writes the events file: one line per change, rewritten when most lines are outdated.

Each line has a checksum. Reading skips torn and damaged lines, because a kill may cut any write short. There is no
fsync: a power cut loses at most seconds of history. Every call blocks.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterable

import msgspec

from actors._host.files.checkpoint import write_file
from actors.events.entry import Entry
from proto.common import untrusted

log = logging.getLogger(__name__)

MOST_BYTES = 16 * 1024 * 1024
"""Largest content that is read. Our files are rewritten long before that."""


class Life(msgspec.Struct, frozen=True, kw_only=True, tag="life"):
    """The writer of the lines that follow: `agent` (agent.identity) and this actor's incarnation."""

    agent: str
    incarnation: int


class Changed(msgspec.Struct, frozen=True, kw_only=True, tag="event"):
    """A created or changed event."""

    entry: Entry


class Sent(msgspec.Struct, frozen=True, kw_only=True, tag="sent"):
    """The API server has all events up to this revision."""

    revision: int


Line = Life | Changed | Sent


def read(path: str) -> tuple[list[Line], bool]:
    """Return the lines, oldest first, and True when all were valid. A missing file is empty. Raises OSError."""
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES)
    except FileNotFoundError:
        return [], True
    lines: list[Line] = []
    raw = content.split(b"\n")
    bad = 1 if raw.pop() else 0  # the part after the last newline is empty or a torn line
    for one in raw:
        checksum, _, body = one.partition(b" ")
        try:
            if int(checksum, 16) != zlib.crc32(body):
                raise ValueError("checksum")
            lines.append(untrusted.decode_json(body, Line))
        except ValueError:  # msgspec.DecodeError is one
            bad += 1
    if bad:
        log.warning("cannot read %d damaged lines of %s: skipped", bad, path)
    return lines, not bad


def encode(lines: Iterable[Line]) -> bytes:
    """Return the lines in their file format: CRC-32 in hex, a space, JSON."""
    bodies = (msgspec.json.encode(line) for line in lines)
    return b"".join(b"%08x %s\n" % (zlib.crc32(body), body) for body in bodies)


def append(path: str, content: bytes) -> None:
    """Append to the file. After an OSError the file may end in a torn line and needs a rewrite."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_file(path, content, os.O_APPEND)


def rewrite(path: str, content: bytes) -> None:
    """Replace the file atomically. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.tmp"
    write_file(temporary, content)
    os.replace(temporary, path)
