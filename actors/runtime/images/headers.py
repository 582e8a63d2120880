"""Reads headers of tar archives with tarfile, within limits: a budget bounds its memory and time.

The module reads extended headers whole, collects the fields of several of them, and finds fields with patterns that
take quadratic time (CVE-2024-6232). So all headers and maps of one member share a limit of bytes, records are checked
before tarfile sees them, and steps are counted.
"""

from __future__ import annotations

import re
import tarfile
from typing import IO, Any, Protocol

from actors.runtime.images.errors import BadImage
from actors.runtime.images.limits import Budget

_BLOCK = 512
_CHUNK = 256 * 1024
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LENGTH = re.compile(rb"([0-9]{1,9}) ")
_DIGITS = re.compile(rb"[0-9]{64,}")
_GLOBAL_BYTES = 64 * 1024
"""Size of all headers for the whole archive: tarfile compares each member with them."""
_PER_STEP = 100
"""Characters that tarfile's patterns read in the time of one step."""


class Readable(Protocol):
    """A stream that an archive is read from."""

    def read(self, size: int, /) -> bytes:
        """Read at most `size` bytes; fewer only at the end."""


class ArchiveReader:
    """An archive's bytes in order, as a file for tarfile. Counts the bytes that it reads for one header."""

    def __init__(self, stream: Readable, budget: Budget, seekable: IO[bytes] | None = None) -> None:
        """`seekable`: the same stream, if it can seek."""
        self._stream = stream
        self._seekable = seekable
        self.budget = budget
        self._at = 0
        self._ahead = b""
        self._left = 0
        self._global = _GLOBAL_BYTES

    def begin(self) -> None:
        """Start a member's headers."""
        self._left = self.budget.limits.header_bytes
        self.budget.work(1)

    def header(self, size: int) -> None:
        """Count bytes of a header. Raises BadImage past the limit."""
        self._left -= size
        if size < 0 or self._left < 0:
            raise BadImage(f"headers of more than {self.budget.limits.header_bytes} bytes for one file")

    def global_header(self, size: int) -> None:
        """Count bytes of a header for the whole archive. Raises BadImage past the limit."""
        self._global -= size
        if self._global < 0:
            raise BadImage(f"headers of more than {_GLOBAL_BYTES} bytes for all files")

    def peek(self, size: int) -> bytes:
        """The next bytes, without consuming them."""
        self._ahead += self._stream.read(size - len(self._ahead))
        return self._ahead[:size]

    # Called by tarfile

    def read(self, size: int) -> bytes:
        """Read bytes of a header; `data` reads files."""
        self.header(size)
        return self.data(size)

    def data(self, size: int) -> bytes:
        """Read at most `size` bytes; fewer only at the end."""
        chunk, self._ahead = self._ahead[:size], self._ahead[size:]
        if len(chunk) < size:
            chunk += self._stream.read(size - len(chunk))
        self._at += len(chunk)
        return chunk

    def tell(self) -> int:
        """Bytes from the beginning."""
        return self._at

    def seek(self, position: int) -> None:
        """Seek forward, or anywhere in a seekable stream. Raises BadImage."""
        if self._seekable is not None and position >= 0:
            self._seekable.seek(position)
            self._at, self._ahead = position, b""
            return
        if position < self._at:
            raise BadImage("a member's size leads backwards")
        while (left := position - self._at) > 0:
            if not self.data(min(left, _CHUNK)):
                return


def opened(source: ArchiveReader) -> tarfile.TarFile:
    """Open the archive, for `next_member`. Raises BadImage and tarfile's errors."""
    source.begin()
    fileobj: Any = source
    return tarfile.TarFile(fileobj=fileobj, mode="r", tarinfo=Member)


def next_member(tar: tarfile.TarFile, source: ArchiveReader) -> Member | None:
    """The next member; None after the last. Raises as `opened`."""
    source.begin()
    member: Any = tar.next()
    tar.members = []  # type: ignore[attr-defined]  # tarfile keeps all members: a million take a gigabyte
    source.budget.work(len(tar.pax_headers))
    return None if member is None else member.checked()


class Member(tarfile.TarInfo):
    """A member whose headers are checked before tarfile uses them."""

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        source: Any = tar.fileobj
        if self.size < 0:
            raise BadImage(f"a size of {self.size} bytes")
        if self.type in _EXTENDED:
            size = -(-self.size // _BLOCK) * _BLOCK
            if size > source.budget.limits.header_bytes:
                raise BadImage(f"a header of {self.size} bytes")
            source.budget.work(check_records(source.peek(size)) + len(tar.pax_headers))
            if self.type == tarfile.XGLTYPE:
                source.global_header(size)
        return super()._proc_member(tar)  # type: ignore[misc]

    def checked(self) -> Member:
        """Return self if its numbers are valid. Raises BadImage."""
        if self.size < 0:
            raise BadImage(f"a size of {self.size} bytes")
        for number in (self.uid, self.gid):
            if not 0 <= number < 2**32 - 1:  # chown(2) takes the last number as "no change"
                raise BadImage(f"a file of user or group {number}")
        return self

    def pieces(self) -> list[tuple[int, int]]:
        """Offset and size of each piece of data in the file; the rest is zeros. Raises BadImage."""
        sparse: Any = self.sparse
        if sparse is None:
            return [(0, self.size)]
        end = 0
        for offset, size in sparse:
            if size < 0 or offset < end or offset + size > self.size:
                raise BadImage("a sparse file with an invalid map")
            end = offset + size
        return [(offset, size) for offset, size in sparse if size]


def check_records(block: bytes) -> int:
    """Steps that tarfile takes to read an extended header. Raises BadImage for an invalid one.

    Records are `LENGTH KEY=VALUE` and a newline; zeros follow the last.
    """
    at = steps = 0
    while at < len(block) and block[at]:
        found = _LENGTH.match(block, at)
        end = at + int(found[1]) if found is not None else 0
        if found is None or end <= found.end() or end > len(block) or block[end - 1] != 0x0A:
            raise BadImage("an invalid extended header")
        if block.find(b"=", found.end() + 1, end) < 0:
            raise BadImage("an extended header without a value")
        at, steps = end, steps + 1
    squares = sum((found.end() - found.start()) ** 2 for found in _DIGITS.finditer(block))
    return steps + squares // _PER_STEP
