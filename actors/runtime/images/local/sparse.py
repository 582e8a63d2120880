"""Copies a regular file and its holes, in chunks: a sparse file of an image says it is larger than the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

_CHUNK = 1024 * 1024


def copy_file(source: str, target: str, before: Callable[[int], None]) -> None:
    """Copy the file to a free path; `before` is called with the size of each chunk, and may raise. Raises OSError."""
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(reader).st_size
            for start, end in _data(reader, size):
                _copy_range(reader, writer, start, end, before)
            os.ftruncate(writer, size)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _copy_range(reader: int, writer: int, start: int, end: int, before: Callable[[int], None]) -> None:
    os.lseek(writer, start, os.SEEK_SET)
    while start < end:
        wanted = min(end - start, _CHUNK)
        before(wanted)
        copied = os.sendfile(writer, reader, start, wanted)
        if copied == 0:
            return
        start += copied


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each part that is no hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                return
            if error.errno != errno.EINVAL:
                raise
            start, end = end, size  # a file system that does not tell holes
        yield start, end
