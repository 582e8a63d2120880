"""Converts blocks of a CRI log file to the text that a client sees. A line is `TIME STREAM TAG[:TAG...] CONTENT`.

A log of 1 GB has ten million lines, so there are two fast ways for blocks of whole entries. Short lines: one regular
expression over the block, which reads every byte. Long lines: one by one, their ends found by memchr. A line of another
format is shown unchanged.
"""

from __future__ import annotations

import re
from datetime import datetime
from io import BytesIO

MAX_HELD = 1024 * 1024
"""A longer entry is sent in parts, so that a line without an end takes bounded memory."""
SHORT_LINE = 200
"""The line length in bytes at which both ways take equally long."""
_SAMPLE = 4096
"""Bytes at a block's start from which its line length is estimated."""
_UTC_LENGTH = len("2026-01-02T03:04:05.123456789Z")
_STREAMS = (b"stdout", b"stderr")

# It begins with a literal, which is searched for fast, and its possessive repetition never backtracks. It may match two
# malformed lines as one entry, so `_at_once` compares the numbers.
_FAST = re.compile(rb"\n\d[^ ]{19,34}+ std(?:out|err) F ")
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,8}))?(Z|[+-]\d\d:\d\d)")
"""A time with fewer than nine digits of a second."""
_ENTRY = re.compile(rb"([^ \n]+) (stdout|stderr) ([FP])(?::[^ \n]*)?(?: |(?=\n)|$)")


class Formatter:
    """Converts one log, block by block."""

    def __init__(
        self, *, timestamps: bool = False, since: float | None = None, stream: str = "", limit: int | None = None
    ) -> None:
        """`since` in Unix seconds drops older entries; `stream` selects stdout or stderr; `limit` is in bytes."""
        self._timestamps, self._stream = timestamps, stream
        self._wanted = (stream.encode(),) if stream else _STREAMS
        self._since = since
        self._left = limit
        self._rest = b""
        self._mid_line = False
        self._inside: bool | None = None
        """Within an entry over MAX_HELD: True when the rest of it is shown; None outside such an entry."""

    @property
    def full(self) -> bool:
        """True when `limit` is reached."""
        return self._left is not None and self._left <= 0

    def feed(self, block: bytes) -> bytes:
        """The text for the next bytes of the file. An incomplete line waits for its end."""
        if self._inside is not None:
            return self._cut(self._go_on(block))
        end = block.rfind(b"\n") + 1
        if end:
            data, self._rest = b"".join((self._rest, block[:end])), block[end:]
            out = self._entries(data)
        else:
            self._rest += block
            out = b""
        if len(self._rest) > MAX_HELD:
            out += self._begin_long()
        return self._cut(out)

    def finish(self) -> bytes:
        """The text of an incomplete last line."""
        rest, self._rest = self._rest, b""
        return self._cut(self._entries(rest + b"\n")) if rest else b""

    def _cut(self, out: bytes) -> bytes:
        if self._left is None:
            return out
        out = out[: max(0, self._left)]
        self._left -= len(out)
        return out

    def _entries(self, data: bytes) -> bytes:
        if self._since is not None:
            data = self._newer(data)
        if not data:
            return b""
        short = data.count(b"\n", 0, _SAMPLE) * SHORT_LINE > min(len(data), _SAMPLE)
        return (self._at_once(data) if short else b"") or self._one_by_one(data)

    def _one_by_one(self, data: bytes) -> bytes:
        """The text of any lines. A whole entry of a wanted stream takes a tenth of a microsecond."""
        timestamps, wanted = self._timestamps, self._wanted
        out: list[bytes] = []
        for line in BytesIO(data):
            try:
                stamp, stream, tag, content = line.split(b" ", 3)
            except ValueError:
                out.append(self._line(line))
                continue
            if tag != b"F" or stream not in wanted or not stamp:
                out.append(self._line(line))
                continue
            if timestamps and not self._mid_line:
                out.append(shown_time(stamp) + b" ")
            self._mid_line = False
            out.append(content)
        return b"".join(out)

    def _at_once(self, data: bytes) -> bytes:
        """The text of lines that are all whole, wanted entries, without times; empty when some are not."""
        if self._mid_line or self._timestamps or self._stream:
            return b""
        contents = _FAST.split(b"\n" + data)
        del contents[0]
        # bytes.count reads byte by byte and would take a third of the time here; replace uses memchr.
        lines = len(data) - len(data.replace(b"\n", b""))
        return b"\n".join(contents) if len(contents) == lines else b""

    def _line(self, line: bytes) -> bytes:
        """The text of one line. The time is shown at the start of an entry, not at its further parts."""
        found = _ENTRY.match(line)
        if found is None:
            return line
        if self._stream and found[2].decode() != self._stream:
            return b""
        prefix = shown_time(found[1]) + b" " if self._timestamps and not self._mid_line else b""
        self._mid_line = found[3] == b"P"
        content = line[found.end() :]
        return prefix + (content.removesuffix(b"\n") if self._mid_line else content)

    def _newer(self, data: bytes) -> bytes:
        """The data from the first entry that is new enough. A log is in order of time."""
        since = self._since or 0
        # When the last entry is too old, all are: that saves parsing each entry of a large log.
        last = _ENTRY.match(data, data.rfind(b"\n", 0, -1) + 1)
        if last is not None and seconds_of(last[1]) < since:
            return b""
        start = 0
        while start < len(data):
            found = _ENTRY.match(data, start)
            if found is None or seconds_of(found[1]) >= since:
                self._since = None
                return data[start:]
            start = data.index(b"\n", start) + 1
        return b""

    def _begin_long(self) -> bytes:
        rest, self._rest = self._rest, b""
        found = _ENTRY.match(rest)
        if found is None:
            self._inside = True
            return rest
        old = self._since is not None and seconds_of(found[1]) < self._since
        self._inside = not old and self._stream in ("", found[2].decode())
        if not self._inside:
            return b""
        prefix = shown_time(found[1]) + b" " if self._timestamps and not self._mid_line else b""
        self._mid_line = found[3] == b"P"
        return prefix + rest[found.end() :]

    def _go_on(self, block: bytes) -> bytes:
        end = block.find(b"\n")
        wanted = bool(self._inside)
        if end < 0:
            return block if wanted else b""
        self._inside = None
        ended = block[: end if self._mid_line else end + 1] if wanted else b""
        return ended + self.feed_uncut(block[end + 1 :])

    def feed_uncut(self, block: bytes) -> bytes:
        """`feed` without the limit, which the caller applies."""
        left, self._left = self._left, None
        try:
            return self.feed(block)
        finally:
            self._left = left


def shown_time(stamp: bytes) -> bytes:
    """Return an entry's time with nine digits of a second, as the kubelet does, so that lines align and sort as text.

    Runtimes leave out zeros at the end.
    """
    if len(stamp) in (_UTC_LENGTH, _UTC_LENGTH + 5) or (short := _STAMP.fullmatch(stamp)) is None:
        return stamp
    return b"%s.%s%s" % (short[1], (short[2] or b"").ljust(9, b"0"), short[3])


def seconds_of(timestamp: bytes) -> float:
    """Unix seconds of an entry's time; infinity for an invalid time, so that the entry is shown."""
    try:
        return datetime.fromisoformat(timestamp.decode()).timestamp()
    except (ValueError, UnicodeDecodeError):
        return float("inf")
