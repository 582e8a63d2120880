"""Reads a log file from its last lines on, and follows it through rotation. It never waits for data.

A follower keeps open the file that it reads and the files that had its name since, so that renaming and compressing
lose no data. Files that were created and rotated between two checks are found by their names, which sort by time.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO, NamedTuple, cast

from actors._host.files.untrusted_files import open_regular

log = logging.getLogger(__name__)

BLOCK = 64 * 1024
"""Small enough that malloc reuses it. Larger blocks are returned to the kernel, and each causes page faults again."""
TAIL_BLOCK = 64 * 1024
SETTLE_S = 1.0
"""Time for which a rotated file is still read: the runtime writes its last lines after its successor exists."""
COMPRESSED, TEMPORARY = ".gz", ".tmp"
MAX_HELD = 16
"""Open files for a reader that is slower than rotation. Beyond it the oldest unread file is skipped."""


class _File(NamedTuple):
    file: IO[bytes]
    since: float
    """Monotonic time of its discovery."""


class LogReader:
    """The bytes of a log from a position on. One thread reads; another may call `look` or `close` meanwhile."""

    def __init__(self, path: str | Path, tail: int | None = None, *, grows: bool = True) -> None:
        """Start at the beginning of the present file, or at its last `tail` lines. Raises OSError.

        `grows`: read also what is written from now on. Otherwise a tail would have more lines than wanted.
        """
        self._path = Path(path)
        file = _open(self._path)
        try:
            self._end = None if grows else file.seek(0, os.SEEK_END)
            file.seek(0 if tail is None else tail_offset(file, tail, self._end))
        except BaseException:
            file.close()
            raise
        self._files = deque([_File(file, time.monotonic())])
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._closed = False

    def check_rotation(self) -> None:
        """Check for a rotation. Call it more often than logs are rotated."""
        with self._lock:
            if self._files:
                self._check_rotation()

    def _check_rotation(self) -> None:
        try:
            found, last = self._path.lstat(), os.fstat(self._files[-1].file.fileno())
            if (found.st_dev, found.st_ino) == (last.st_dev, last.st_ino):
                return
            present = _open(self._path)
        except OSError:
            return  # renamed, with no new file yet; or no regular file
        between = _rotated_between(self._path, _name_of(self._files[-1].file), _name_of(present))
        # The runtime has opened another file since, so these files and the ones before them are complete.
        self._files += [_File(file, float("-inf")) for file in between]
        self._files.append(_File(present, time.monotonic()))
        while len(self._files) > MAX_HELD:
            lost = self._files[1]
            del self._files[1]
            lost.file.close()
            log.warning("%s: its reader is %d rotations behind and misses one", self._path, MAX_HELD)

    def read(self, *, final: bool = False) -> bytes:
        """The next bytes, at most a block; empty at the present end. `final`: the log is not written any more."""
        with self._reading:
            block = self._read(final=final)
        if self._closed:
            self._close_files()
        return block

    def _read(self, *, final: bool) -> bytes:
        while True:
            # Checked before the read, so that the read includes all bytes written until then.
            with self._lock:
                if self._closed or not self._files:
                    return b""
                moves_on = len(self._files) > 1 and (final or time.monotonic() >= self._files[1].since + SETTLE_S)
                file = self._files[0].file
            if self._end is not None:
                return file.read(max(0, min(BLOCK, self._end - file.tell())))
            block = file.read(BLOCK)
            if block:
                return block
            if not moves_on:
                self._notice_truncation(file)
                return b""
            with self._lock:
                self._files.popleft().file.close()

    @property
    def behind(self) -> bool:
        """True when a newer file waits to be read."""
        return len(self._files) > 1

    def _notice_truncation(self, file: IO[bytes]) -> None:
        if isinstance(file, io.RawIOBase) and os.fstat(file.fileno()).st_size < file.tell():
            log.info("%s was truncated: read from its beginning", self._path)
            file.seek(0)

    def close(self) -> None:
        """Close the files; during a read, the read closes them at its end. Otherwise a closed descriptor's number could
        be reused by a connection, and the read would take its bytes."""
        self._closed = True
        self._close_files()

    def _close_files(self) -> None:
        if not self._reading.acquire(blocking=False):
            return
        try:
            with self._lock:
                while self._files:
                    self._files.popleft().file.close()
        finally:
            self._reading.release()


def _open(path: Path) -> IO[bytes]:
    """Open a regular file that is no link. Raises OSError."""
    return open(open_regular(path), "rb", buffering=0)


def _name_of(file: IO[bytes]) -> str:
    """The present name of the open file, or its last one when it is deleted."""
    return os.path.basename(os.readlink(f"/proc/self/fd/{file.fileno()}").removesuffix(" (deleted)"))


def _rotated_between(path: Path, first: str, last: str) -> list[IO[bytes]]:
    """The files that had the name `path` between those now named `first` and `last`, oldest first.

    Their names are like `0.log.20261120-133433`, with `.gz` after the next rotation. Unreadable files are left out.
    """
    if not first.startswith(f"{path.name}."):
        return []  # deleted or replaced, not renamed: its successors are unknown
    first = first.removesuffix(COMPRESSED)
    names = {name.removesuffix(COMPRESSED) for name in os.listdir(path.parent) if not name.endswith(TEMPORARY)}
    end = last if last != path.name else f"{path.name}.~"
    found = (_open_rotated(path.with_name(name)) for name in sorted(names) if first < name < end)
    return [file for file in found if file is not None]


def _open_rotated(path: Path) -> IO[bytes] | None:
    import gzip  # noqa: PLC0415 - seldom needed

    with contextlib.suppress(OSError):
        return _open(path)
    with contextlib.suppress(OSError):  # compressed meanwhile or before: one of the two names always exists
        descriptor = open_regular(f"{path}{COMPRESSED}")
        try:
            return cast("IO[bytes]", gzip.open(f"/proc/self/fd/{descriptor}", "rb"))
        finally:
            os.close(descriptor)
    return None


def tail_offset(file: IO[bytes], lines: int, end: int | None = None) -> int:
    """The offset of the last `lines` entries of the file, or of its first `end` bytes. Reads blocks from the end."""
    end = file.seek(0, os.SEEK_END) if end is None else end
    if lines <= 0:
        return end
    wanted, position = lines, end
    while position > 0:
        start = max(0, position - TAIL_BLOCK)
        file.seek(start)
        block = file.read(position - start)
        # The newline that ends the file ends its last entry and does not begin another.
        scan_end = len(block) - (1 if position == end and block.endswith(b"\n") else 0)
        while (found := block.rfind(b"\n", 0, scan_end)) >= 0:
            wanted -= 1
            if wanted == 0:
                return start + found + 1
            scan_end = found
        position = start
    return 0
