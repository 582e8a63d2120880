"""Decompresses a layer to its tar stream: gzip, zstd or plain, recognised by its first bytes.

The media type is not used, because many manifests have a wrong one. The output is hashed and counted: a few bytes can
become terabytes.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Callable
from typing import IO, Any

from actors.runtime.images.errors import BadImage

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK = 256 * 1024
_ZSTD_WINDOW_BYTES = 128 * 1024 * 1024
"""Largest window of a frame: that of `zstd --long`, the maximum that the zstd program accepts by default."""


class Unpacked(io.RawIOBase):
    """The tar stream in `source`, read in order. Its hash covers all that was read."""

    def __init__(self, source: IO[bytes], count: Callable[[int], None] = lambda _: None) -> None:
        """`count` is called with the length of each piece that was decompressed; it may raise what ends the work."""
        head = source.read(4)
        self._plain = _opened(_Rewound(head, source), head)
        self._hash = hashlib.sha256()
        self._count = count

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes, fewer only at the end. Raises BadImage for a broken stream."""
        wanted = _CHUNK if size < 0 else size
        parts = []
        while wanted > 0:
            chunk = self._read_some(wanted)
            if not chunk:
                break
            parts.append(chunk)
            wanted -= len(chunk)
        return b"".join(parts)

    def _read_some(self, size: int) -> bytes:
        try:
            chunk: bytes = self._plain.read(size)
        except (zlib.error, EOFError, OSError, ValueError) as error:
            raise BadImage(f"a layer cannot be decompressed: {error}") from error
        except Exception as error:
            if type(error).__name__ != "ZstdError":  # its module is imported only for a zstd layer
                raise
            raise BadImage(f"a layer cannot be decompressed: {error}") from error
        self._count(len(chunk))
        self._hash.update(chunk)
        return chunk

    def drain(self) -> str:
        """Read the bytes after the tar; return the digest of the whole stream, `sha256:HEX`."""
        while self.read(_CHUNK):
            pass
        return f"sha256:{self._hash.hexdigest()}"


class _Rewound(io.RawIOBase):
    """`source`, preceded by the bytes already read from it."""

    def __init__(self, head: bytes, source: IO[bytes]) -> None:
        self._head = head
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def read(self, size: int = -1) -> bytes:
        if self._head:
            chunk, self._head = self._head[:size], self._head[size:]
            return chunk
        return self._source.read(size)


def _opened(source: Any, head: bytes) -> Any:
    if head.startswith(GZIP_MAGIC):
        return _Gzip(source)
    if head == ZSTD_MAGIC:
        import zstandard  # noqa: PLC0415 - it takes a megabyte, and few images need it

        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        return decompressor.stream_reader(source, read_across_frames=True)
    return source


class _Gzip:
    """Decompresses consecutive gzip members. The gzip module would take a truncated stream for a whole one."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._object: Any = None
        self._pending = b""
        self._begun = False

    def read(self, size: int) -> bytes:
        while True:
            if not self._pending:
                self._pending = self._source.read(_CHUNK)
                if not self._pending:
                    return self._rest(size)
            if self._object is None:
                if self._begun and not self._pending.startswith(GZIP_MAGIC[:1]):
                    self._pending = self._pending.lstrip(b"\0")  # padding, which gzip ignores
                    if not self._pending:
                        continue
                self._object = zlib.decompressobj(wbits=31)
                self._begun = True
            chunk: bytes = self._object.decompress(self._pending, size)
            if self._object.eof:
                self._pending, self._object = self._object.unused_data, None
            else:
                self._pending = self._object.unconsumed_tail
            if chunk:
                return chunk

    def _rest(self, size: int) -> bytes:
        """Output that zlib holds back at the end of the input."""
        if self._object is None:
            return b""
        chunk: bytes = self._object.decompress(b"", size)
        if self._object.eof:
            self._object = None
        elif not chunk:
            raise EOFError("the gzip stream is truncated")
        return chunk
