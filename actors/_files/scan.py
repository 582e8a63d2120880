"""Lists a directory or a single file and reads the changed files. May block: for a pool thread.

A file has changed when its stamp differs: inode, size and times. Nothing is parsed here. Symbolic links are followed,
as in the kubelet, so directories of links like a ConfigMap volume's work.
"""

import os
import stat
from collections.abc import Collection, Mapping
from typing import NamedTuple

from actors._files.names import Writing, is_being_written, is_meant, is_skipped_here_only
from actors._files.problems import FileError

MOST_SKIPPED = 100
"""Bounds what a scan reports of skipped files, which an editor or a script may leave without end."""


class Stamp(NamedTuple):
    """Facts of stat(2). They differ whenever a file's content may have changed."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class Kind(NamedTuple):
    """The size limit of a source's files, and the class of their errors."""

    max_bytes: int
    error: type[FileError]


class Listing(NamedTuple):
    """One scan of the path: the stamps of all files, and the contents of the changed ones."""

    stamps: dict[str, Stamp]
    contents: dict[str, bytes | FileError]
    held_back: frozenset[str]
    """Files that are still being written: their last state stays."""
    again: frozenset[str] = frozenset()
    """Files that were removed since the last scan and exist again, maybe with the same content. Set by `FileSource`."""
    skipped: tuple[str, ...] = ()
    """Files with names of backups and temporary files, MOST_SKIPPED at most."""


def scan(path: str, kind: Kind, known: Mapping[str, Stamp], writing: Mapping[str, Writing]) -> Listing:
    """Scan a directory or a file; a missing one is empty. Raises OSError for the path itself."""
    path = path.rstrip("/") or "/"
    listing = Listing({}, {}, frozenset())
    skipped: list[str] = []
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return listing
    if stat.S_ISREG(mode):
        names = [path]
    elif stat.S_ISDIR(mode):
        # The shortest form, as in the kubelet: a static pod's UID is a hash over its file's path.
        directory = f"/{os.path.normpath(path).lstrip('/')}" if path.startswith("/") else os.path.normpath(path)
        found = sorted(os.listdir(directory))
        names = [os.path.join(directory, name) for name in found if is_meant(name)]
        skipped = [os.path.join(directory, name) for name in found if is_skipped_here_only(name)][:MOST_SKIPPED]
    else:
        raise NotADirectoryError(f"{path} is neither a directory nor a file")
    held_back = {name for name in names if is_being_written(writing.get(os.path.basename(name)), _has_other_name(name))}
    for name in names:
        if name not in held_back:
            _scan_path(name, kind, known.get(name), listing, alone=name == path)
    return Listing(
        listing.stamps,
        listing.contents,
        frozenset(held_back),
        skipped=tuple(_printable(name) for name in skipped if os.path.isfile(name)),
    )


def without(listing: Listing, names: Collection[str]) -> Listing:
    """The listing with the files of these names held back, because they were written while they were read."""
    paths = {path for path in listing.stamps if os.path.basename(path) in names}
    if not paths:
        return listing
    return listing._replace(
        stamps={path: stamp for path, stamp in listing.stamps.items() if path not in paths},
        contents={path: content for path, content in listing.contents.items() if path not in paths},
        held_back=listing.held_back | paths,
    )


def _printable(path: str) -> str:
    """The path with escapes for bytes that are not UTF-8."""
    return path if path.isascii() else os.fsencode(path).decode(errors="backslashreplace")


def _has_other_name(path: str) -> bool:
    """True for a symbolic or hard link, which appears with its whole content."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or status.st_nlink > 1


def _scan_path(path: str, kind: Kind, known: Stamp | None, listing: Listing, *, alone: bool) -> None:
    if (shown := _printable(path)) != path:
        # Listed under a printable form, because no message, log or checkpoint can hold the real name.
        listing.contents[shown] = kind.error(shown, 0, "", "its name is not UTF-8; rename the file")
        listing.stamps[shown] = Stamp(0, 0, 0, 0)
        return
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return  # directories, sockets and devices are skipped, as in the kubelet
        stamp = Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        listing.stamps[path] = stamp
        if stamp != known:
            listing.contents[path] = _read(path, kind.max_bytes)
    except FileNotFoundError:
        if not alone and os.path.islink(path):
            problem = "a symbolic link to nothing; remove it or restore its target"
            listing.contents[path] = kind.error(path, 0, "", problem)
            listing.stamps[path] = Stamp(0, 0, 0, 0)
    except OSError as error:
        listing.stamps.setdefault(path, Stamp(0, 0, 0, 0))
        listing.contents[path] = kind.error(path, 0, "", f"cannot be read: {error.strerror}; check its permissions")


def _read(path: str, max_bytes: int) -> bytes:
    # Not blocking, in case a FIFO takes the file's place between stat and open.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(max_bytes + 1)
