"""Reading a log file: its last lines, and all that is added to it, in the files that rotation makes of it.

A follower holds the file that it reads, and the ones that have taken over its name since, so that neither renaming nor
compressing loses it anything. One that came and went between two looks is found by its name: these sort by time. It
never waits: who uses it looks again when something may have happened.
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
"""Below what malloc hands back to the kernel each time: the pages of larger ones would be faulted in again for each."""
TAIL_BLOCK = 64 * 1024
SETTLE_S = 1.0
"""A file's successor is there before the runtime has written the last of it: so long it is still looked at."""
COMPRESSED, TEMPORARY = ".gz", ".tmp"
MAX_HELD = 16
"""Files held for a reader who is slower than rotation; beyond it, the oldest it has not begun are lost to it."""


class _File(NamedTuple):
    file: IO[bytes]
    since: float
    """When it was seen first, on the monotonic clock."""


class LogReader:
    """The bytes of a log from a place on. One thread reads; another may look, or close it, meanwhile."""

    def __init__(self, path: str | Path, tail: int | None = None) -> None:
        """From the beginning of the present file, or from its last `tail` lines on. Raises OSError."""
        self._path = Path(path)
        file = _open(self._path)
        try:
            file.seek(0 if tail is None else tail_offset(file, tail))
        except BaseException:
            file.close()
            raise
        self._files = deque([_File(file, time.monotonic())])
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._closed = False

    def look(self) -> None:
        """See whether another file has the name now. To be called more often than logs are rotated."""
        with self._lock:
            if self._files:
                self._look()

    def _look(self) -> None:
        try:
            found, last = self._path.lstat(), os.fstat(self._files[-1].file.fileno())
            if (found.st_dev, found.st_ino) == (last.st_dev, last.st_ino):
                return
            present = _open(self._path)
        except OSError:
            return  # renamed, and not opened again yet; or something is there that is no log
        between = _rotated_between(self._path, _name_of(self._files[-1].file), _name_of(present))
        # Who writes one of these has had another file since: whatever was before them is whole.
        self._files += [_File(file, float("-inf")) for file in between]
        self._files.append(_File(present, time.monotonic()))
        while len(self._files) > MAX_HELD:
            lost = self._files[1]
            del self._files[1]
            lost.file.close()
            log.warning("%s: its reader is %d rotations behind and misses one", self._path, MAX_HELD)

    def read(self, *, final: bool = False) -> bytes:
        """The next bytes, at most a block; empty when there are none now. `final`: nobody writes any more."""
        with self._reading:
            block = self._read(final=final)
        if self._closed:
            self._let_go()
        return block

    def _read(self, *, final: bool) -> bytes:
        while True:
            # Asked before the read: what came until the time was over is in it.
            with self._lock:
                if self._closed or not self._files:
                    return b""
                moves_on = len(self._files) > 1 and (final or time.monotonic() >= self._files[1].since + SETTLE_S)
                file = self._files[0].file
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
        """True when another file waits to be read."""
        return len(self._files) > 1

    def _notice_truncation(self, file: IO[bytes]) -> None:
        if isinstance(file, io.RawIOBase) and os.fstat(file.fileno()).st_size < file.tell():
            log.info("%s was truncated: read from its beginning", self._path)
            file.seek(0)

    def close(self) -> None:
        """Let go of the files; a read under way does that at its end. A descriptor that was closed under it could be
        somebody's connection by the time it reads."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        if not self._reading.acquire(blocking=False):
            return
        try:
            with self._lock:
                while self._files:
                    self._files.popleft().file.close()
        finally:
            self._reading.release()


def _open(path: Path) -> IO[bytes]:
    """A regular file, and no link to one. Raises OSError."""
    return open(open_regular(path), "rb", buffering=0)


def _name_of(file: IO[bytes]) -> str:
    """What the file is called now, or was when it was deleted."""
    return os.path.basename(os.readlink(f"/proc/self/fd/{file.fileno()}").removesuffix(" (deleted)"))


def _rotated_between(path: Path, first: str, last: str) -> list[IO[bytes]]:
    """Files that were called `path` after the one that is `first` now and before `last`, oldest first.

    They are `0.log.20261120-133433`, and `.gz` once the next one was rotated. What cannot be read any more is left out.
    """
    if not first.startswith(f"{path.name}."):
        return []  # deleted or replaced under its own name: nothing says what came after it
    first = first.removesuffix(COMPRESSED)
    names = {name.removesuffix(COMPRESSED) for name in os.listdir(path.parent) if not name.endswith(TEMPORARY)}
    end = last if last != path.name else f"{path.name}.~"
    found = (_open_rotated(path.with_name(name)) for name in sorted(names) if first < name < end)
    return [file for file in found if file is not None]


def _open_rotated(path: Path) -> IO[bytes] | None:
    import gzip  # noqa: PLC0415 - most followers never need it

    with contextlib.suppress(OSError):
        return _open(path)
    with contextlib.suppress(OSError):  # compressed, meanwhile or before: never both gone
        descriptor = open_regular(f"{path}{COMPRESSED}")
        try:
            return cast("IO[bytes]", gzip.open(f"/proc/self/fd/{descriptor}", "rb"))
        finally:
            os.close(descriptor)
    return None


def tail_offset(file: IO[bytes], lines: int) -> int:
    """Where the last `lines` entries of the file begin, read from the end in blocks."""
    end = file.seek(0, os.SEEK_END)
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
