"""Parses mount tables: /proc/PID/mountinfo, mountinfo(5). Pure.

Containers and users choose names in it, in any bytes. The kernel escapes a space, a tab, a newline and a backslash
only. So a line ends at a newline, never at another separator, and a name need not be UTF-8.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

SELF = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_UNSAFE = re.compile(rb"[ \t\n\\]")
_FIELDS_BEFORE, _FIELDS_AFTER = 6, 3
_PEER_GROUPS = (b"shared:", b"master:")


class Mount(NamedTuple):
    """One line. Names that are no UTF-8 have surrogates, as os.fsdecode makes them."""

    mount_id: int
    device: str
    """MAJOR:MINOR."""
    mount_point: str
    shared: bool
    fs_type: str
    options: str
    """The file system's own, after its source."""
    slave: bool = False
    """True where mounts of a master appear, too: an optional field `master:`."""


def read(path: str = SELF) -> bytes:
    """The table, unparsed. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def mounts(table: bytes) -> Iterator[Mount]:
    """The mounts of a table, in mount order. A line that is no mount is left out."""
    return parsed(table.split(b"\n"))


def parsed(lines: Iterable[bytes]) -> Iterator[Mount]:
    """The same from some of its lines."""
    for line in lines:
        left, _, right = line.partition(b" - ")
        before, after = left.split(b" "), right.split(b" ")
        if len(before) < _FIELDS_BEFORE or len(after) < _FIELDS_AFTER or not before[0].isdigit():
            continue
        shared, slave = (any(one.startswith(tag) for one in before[_FIELDS_BEFORE:]) for tag in _PEER_GROUPS)
        device, point, fs_type, options = map(os.fsdecode, (before[2], _unescaped(before[4]), after[0], after[-1]))
        yield Mount(int(before[0]), device, point, shared, fs_type, options, slave)


def escaped(path: str) -> bytes:
    """A path as the table writes it."""
    return _UNSAFE.sub(lambda match: b"\\%03o" % match[0][0], os.fsencode(path))


def _unescaped(name: bytes) -> bytes:
    return _ESCAPED.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), name)
