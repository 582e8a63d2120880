"""Parses records of /dev/kmsg. Pure.

Source: Documentation/ABI/testing/dev-kmsg of Linux.
"""

from __future__ import annotations

import re
from typing import NamedTuple

KERNEL = 0
"""The facility of the kernel's own messages. It gives writers of /dev/kmsg another one."""

MOST_BYTES = 16_384
"""Size of the buffer for one record; the kernel's longest is 8 KiB. A smaller buffer gives EINVAL."""

_HEAD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]{0,200};")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")


class LogRecord(NamedTuple):
    """One message of the kernel's log."""

    facility: int
    sequence: int
    """Its number since the boot, without gaps."""
    stamp_us: int
    """Time of the message on the kernel's monotonic clock, which no one can set. 0: the machine's boot."""
    text: str
    """Its line, with unprintable bytes as the kernel escapes them: `\\x0a`."""


def parse_record(data: bytes) -> LogRecord | None:
    """Return the record of one read of /dev/kmsg; None for data in another format.

    Lines after the first are key and value pairs of devices, which no reader here needs.
    """
    head = _HEAD.match(data)
    if head is None:
        return None
    priority, sequence, stamp_us = (int(part) for part in head.groups())
    line = data[head.end() :].partition(b"\n")[0]
    return LogRecord(priority >> 3, sequence, stamp_us, line.decode("ascii", "backslashreplace"))


def unescaped(text: str) -> str:
    """Return text without the kernel's escapes. Bytes that are no UTF-8 stay escaped."""
    raw = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text).encode("latin-1", "backslashreplace")
    return raw.decode("utf-8", "backslashreplace")
