"""Reading a path: a directory's files, or one file. All I/O that may block, to be run off the mailbox.

Covers listing, stamps that tell a changed file, and reading what changed. Does not parse, and decides nothing but what
is a regular file. Follows symbolic links, as the kubelet does (ConfigMap-like directories of links work).
"""

import os
import stat
from collections.abc import Mapping
from typing import NamedTuple

from actors._files.names import Writing, is_being_written, is_meant
from actors._files.problems import FileError


class Stamp(NamedTuple):
    """Changes whenever a file's content may have changed."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class Kind(NamedTuple):
    """What a source's files are: how large one may be, and the error that one is."""

    max_bytes: int
    error: type[FileError]


class Listing(NamedTuple):
    """One look at the path: every file's stamp, and what was read of those whose stamp is new."""

    stamps: dict[str, Stamp]
    contents: dict[str, bytes | FileError]
    held_back: frozenset[str]
    """Files someone is still writing: their last state stands."""
    again: frozenset[str] = frozenset()
    """Files that were removed and are there again, maybe with the same content."""


def scan(path: str, kind: Kind, known: Mapping[str, Stamp], writing: Mapping[str, Writing]) -> Listing:
    """Look at a directory or one file; a missing one lists nothing. Raises OSError for the path itself."""
    path = path.rstrip("/") or "/"
    listing = Listing({}, {}, frozenset())
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return listing
    if stat.S_ISREG(mode):
        names = [path]
    elif stat.S_ISDIR(mode):
        names = [os.path.join(path, name) for name in sorted(os.listdir(path)) if is_meant(name)]
    else:
        raise NotADirectoryError(f"{path} is neither a directory nor a file")
    held_back = {name for name in names if is_being_written(writing.get(os.path.basename(name)), _has_other_name(name))}
    for name in names:
        if name not in held_back:
            _look(name, kind, known.get(name), listing, alone=name == path)
    return Listing(listing.stamps, listing.contents, frozenset(held_back))


def _has_other_name(path: str) -> bool:
    """A symbolic or hard link appears complete: nobody writes through the new name."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or status.st_nlink > 1


def _look(path: str, kind: Kind, known: Stamp | None, listing: Listing, *, alone: bool) -> None:
    if not path.isascii() and (shown := os.fsencode(path).decode(errors="backslashreplace")) != path:
        # Under the name as it can be shown, as no message, log or checkpoint can hold the other one.
        listing.contents[shown] = kind.error(shown, 0, "", "its name is not UTF-8; rename the file")
        listing.stamps[shown] = Stamp(0, 0, 0, 0)
        return
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return  # a directory, socket or device is none of ours; the kubelet says the same and goes on
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
