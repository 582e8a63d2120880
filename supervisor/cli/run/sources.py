"""Reads the files that a user names for `supervisor run`, and writes the session's copies of them.

All is read before the session makes its directory. So an interrupt of a read that waits leaves nothing behind.
"""

from __future__ import annotations

import os
import select
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from actors._host.files.untrusted_files import read_bounded
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render

MOST_BYTES = 16 * 1024 * 1024
"""The agent takes no larger file: objects have that limit, and manifests a lower one, of which it tells itself."""
QUIET_MS = 1000
"""After this time a pipe without content is named, because it may never have any."""


class Copy(NamedTuple):
    """A file for the session's directory."""

    name: str
    content: bytes


class Found(NamedTuple):
    """The content of all sources."""

    copies: tuple[Copy, ...]
    empty: tuple[Path, ...]
    """Directories without files."""


def read(sources: Sequence[Path]) -> Found:
    """Read files, pipes, and the files directly in directories. Waits for the writer of a pipe. Raises CommandError."""
    copies: list[Copy] = []
    empty: list[Path] = []
    for source in sources:
        if not source.is_dir():
            copies.append(_named(source))
            continue
        files = _files_in(source)
        copies += [Copy(file.name, _content(file)) for file in files]
        empty += [] if files else [source]
    return Found(tuple(copies), tuple(empty))


def _files_in(directory: Path) -> list[Path]:
    try:
        return [one for one in sorted(directory.iterdir()) if one.is_file() and not one.name.startswith(".")]
    except OSError as error:
        raise CommandError(f"cannot read {directory}: {error.strerror}") from error


def _named(path: Path) -> Copy:
    """A file or pipe that the user names. The agent leaves out hidden files, so that its copy is none."""
    name = path.name.lstrip(".") or "manifest"
    return Copy(name if path.is_file() or path.suffix else f"{name}.yaml", _content(path))


def _content(path: Path) -> bytes:
    try:
        descriptor = _opened(path)
        try:
            return read_bounded(descriptor, MOST_BYTES, str(path))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error


def _opened(path: Path) -> int:
    """A descriptor from which a read waits only for a pipe's writer. Raises CommandError for a device or a socket."""
    there = os.stat(path)
    if stat.S_ISREG(there.st_mode):
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # not blocked by a file's lease
    if _is_stdin(there):
        descriptor = os.dup(0)  # a terminal or a socket too, which cannot be opened by name
    elif stat.S_ISFIFO(there.st_mode):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(descriptor, True)
    else:
        raise CommandError(f"cannot read {path}: it is neither a file nor a pipe; name a file, a directory or a pipe")
    try:
        _wait_for_content(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_stdin(there: os.stat_result) -> bool:
    try:
        return os.path.samestat(there, os.fstat(0))
    except OSError:
        return False


def _wait_for_content(descriptor: int, path: Path) -> None:
    """Wait for the first byte, or for the end of a writer: before the first writer, a read would find an end."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    if not poller.poll(QUIET_MS):
        render.echo(f"supervisor: it waits for the content of {path}; Ctrl-C ends it", err=True)
        poller.poll()


def write(copies: Sequence[Copy], directory: Path) -> int:
    """Write the copies into a new `directory`; their number. Raises CommandError, and removes the directory above."""
    try:
        directory.mkdir(mode=0o700)  # objects may be Secrets
        for number, copy in enumerate(copies):
            target = directory / copy.name
            if target.exists():  # two directories may use one name
                target = directory / f"{number}-{copy.name}"
            target.write_bytes(copy.content)
    except OSError as error:
        shutil.rmtree(directory.parent, ignore_errors=True)
        raise CommandError(f"cannot write {directory}: {error.strerror}; free space, or set TMPDIR") from error
    return len(copies)
