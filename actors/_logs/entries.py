"""The CRI log format, as bytes in and bytes out: `TIME STREAM TAG[:TAG...] CONTENT`, a line each.

Blocks of a file go in as they are read, and what a person sees comes out. A log of 1 GB has ten million lines, so those
that are whole entries go one of two ways: short ones by one regular expression over the whole block, which looks at
every byte; long ones each by itself, their ends being found at the speed of memory. A line that is in another format is
shown as it is.
"""

from __future__ import annotations

import re
from datetime import datetime
from io import BytesIO

MAX_HELD = 1024 * 1024
"""An entry that is longer goes out in parts, so that a line without an end needs no memory without one."""
SHORT_LINE = 200
"""Bytes, of which one way takes as long as the other."""
_SAMPLE = 4096
"""Bytes of a block whose lines say how long its lines are."""
_STREAMS = (b"stdout", b"stderr")

# A literal first, which is searched for over all that lies between, and a possessive repetition, never tried again with
# less. It may take two odd lines for one entry; whoever uses it compares the numbers.
_FAST = re.compile(rb"\n\d[^ ]{19,34}+ std(?:out|err) F ")
_ENTRY = re.compile(rb"([^ \n]+) (stdout|stderr) ([FP])(?::[^ \n]*)?(?: |(?=\n)|$)")


class Formatter:
    """Of one read of one log."""

    def __init__(
        self, *, timestamps: bool = False, since: float | None = None, stream: str = "", limit: int | None = None
    ) -> None:
        """`since`: Unix seconds; what is older is left out. `stream`: only stdout or stderr. `limit`: bytes in all."""
        self._timestamps, self._stream = timestamps, stream
        self._wanted = (stream.encode(),) if stream else _STREAMS
        self._since = since
        self._left = limit
        self._rest = b""
        self._mid_line = False
        self._inside: bool | None = None
        """In an entry that was too long to be held: whether the rest of it is wanted."""

    @property
    def full(self) -> bool:
        """As much has come out as was asked for."""
        return self._left is not None and self._left <= 0

    def feed(self, block: bytes) -> bytes:
        """What to show after these bytes of the file. A line without its end waits for it."""
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
        """The line that never got its end."""
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
        """What to show of any lines. An entry that is whole and wanted takes a tenth of a microsecond here."""
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
                out.append(stamp + b" ")
            self._mid_line = False
            out.append(content)
        return b"".join(out)

    def _at_once(self, data: bytes) -> bytes:
        """What to show of lines that are all whole entries, all wanted, without times; nothing where some are not."""
        if self._mid_line or self._timestamps or self._stream:
            return b""
        contents = _FAST.split(b"\n" + data)
        del contents[0]
        # `count` goes byte by byte, and would be a third of all this; this finds them at the speed of memory.
        lines = len(data) - len(data.replace(b"\n", b""))
        return b"\n".join(contents) if len(contents) == lines else b""

    def _line(self, line: bytes) -> bytes:
        """The time stands where a line begins, and not where it goes on."""
        found = _ENTRY.match(line)
        if found is None:
            return line
        if self._stream and found[2].decode() != self._stream:
            return b""
        prefix = found[1] + b" " if self._timestamps and not self._mid_line else b""
        self._mid_line = found[3] == b"P"
        content = line[found.end() :]
        return prefix + (content.removesuffix(b"\n") if self._mid_line else content)

    def _newer(self, data: bytes) -> bytes:
        """From the first entry that is new enough on: a log is in order."""
        since = self._since or 0
        # Where the last one is too old all of them are: of a large log it matters not to look at each.
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
        prefix = found[1] + b" " if self._timestamps and not self._mid_line else b""
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


def seconds_of(timestamp: bytes) -> float:
    """Unix seconds of an entry's time; of what is none, for ever, so that it is shown."""
    try:
        return datetime.fromisoformat(timestamp.decode()).timestamp()
    except (ValueError, UnicodeDecodeError):
        return float("inf")
