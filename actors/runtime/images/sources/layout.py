"""OCI image layouts: directories of blobs, and tar archives of them (`ctr images export`, skopeo).

https://github.com/opencontainers/image-spec/blob/main/image-layout.md. The index's annotations name the images.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from actors.runtime.images import names
from actors.runtime.images.blobs import checked_digest
from actors.runtime.images.errors import BadImage
from actors.runtime.images.headers import ArchiveReader, next_member
from actors.runtime.images.headers import opened as tar_of
from actors.runtime.images.limits import Budget, Limits
from actors.runtime.images.local.store import Image, ImageStore
from actors.runtime.images.manifest import Descriptor
from actors.runtime.images.sources.source import add_image, index_of

_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
"""The first holds the full name; the second is the specification's and often only a tag."""
_MOST_MEMBERS = 100_000
Opener = Callable[[str], IO[bytes]]


class Layout:
    """A layout. `open_` opens its files by path, and raises FileNotFoundError for a missing one."""

    def __init__(self, open_: Opener) -> None:
        self._open = open_

    def images(self, most_bytes: int) -> list[tuple[str, Descriptor]]:
        """The images in the layout: (full name, descriptor of the manifest or index). Raises BadImage."""
        with self._file("index.json") as file:
            content = file.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise BadImage(f"index.json has more than {most_bytes} bytes")
        found = []
        for descriptor in index_of(content).manifests:
            annotated = [(descriptor.annotations or {}).get(key, "") for key in _NAMES]
            name = next((name for name in annotated if names.is_name(name) and ("/" in name or ":" in name)), "")
            if name:
                found.append((names.full(name), descriptor))
        if not found:
            raise BadImage(f"no image in it has a name: index.json has no valid annotation {_NAMES[0]}")
        return found

    def document(self, descriptor: Descriptor, most_bytes: int) -> bytes:
        """See source.Source."""
        with self.blob(descriptor) as file:
            return file.read(most_bytes + 1)

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[IO[bytes]]:
        """See source.Source."""
        algorithm, _, encoded = checked_digest(descriptor.digest).partition(":")
        with self._file(f"blobs/{algorithm}/{encoded}") as file:
            yield file

    def _file(self, path: str) -> IO[bytes]:
        try:
            return self._open(path)
        except FileNotFoundError as error:
            raise BadImage(f"{path} is not in it") from error


@contextlib.contextmanager
def opened(path: Path, limits: Limits) -> Iterator[Layout]:
    """The layout in a directory or an uncompressed tar archive. Raises BadImage, OSError."""
    if path.is_dir():
        yield Layout(lambda relative: _open_regular(path / relative))
        return
    try:
        with path.open("rb") as file:
            source = ArchiveReader(file, Budget(limits, str(path)), seekable=file)
            with tar_of(source) as tar:
                yield Layout(_in_archive(tar, source, path))
    except (tarfile.TarError, EOFError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise BadImage(f"{path} is neither a directory nor a tar archive: {error}") from error


def import_all(store: ImageStore, path: Path) -> list[Image]:
    """Import every named image. Raises ImageError, OSError; images before a bad one stay."""
    with opened(path, store.limits) as layout:
        found = layout.images(store.limits.document_bytes)
        return [add_image(store, layout, name, descriptor) for name, descriptor in found]


def import_one(store: ImageStore, path: Path, name: str) -> Image | None:
    """Import the image with this full name, or with the digest that it ends in; None without it.

    Raises ImageError, OSError.
    """
    with opened(path, store.limits) as layout:
        for found, descriptor in layout.images(store.limits.document_bytes):
            if name in (found, f"{names.repository(found)}@{descriptor.digest}"):
                return add_image(store, layout, name, descriptor)
    return None


def _open_regular(path: Path) -> IO[bytes]:
    """Open a regular file of the layout: a link could lead anywhere, and a FIFO would block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise FileNotFoundError(str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(str(path))
    return open(descriptor, "rb")


def _in_archive(tar: tarfile.TarFile, source: ArchiveReader, path: Path) -> Opener:
    members: dict[str, tuple[int, int]] = {}
    while (member := next_member(tar, source)) is not None:
        if len(members) >= _MOST_MEMBERS:
            raise BadImage(f"an archive of more than {_MOST_MEMBERS} files")
        if member.isreg() and not member.issparse():
            members[member.name.removeprefix("./")] = (member.offset_data, member.size)

    def open_(name: str) -> IO[bytes]:
        if name not in members:
            raise FileNotFoundError(name)
        return io.BufferedReader(_Part(path, *members[name]))

    return open_


class _Part(io.RawIOBase):
    """A file in the archive, read in place."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        self._file = path.open("rb")
        self._file.seek(start)
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._file.read(min(len(buffer), self._left))
        buffer[: len(chunk)] = chunk
        self._left -= len(chunk)
        return len(chunk)

    def close(self) -> None:
        self._file.close()
        super().close()
