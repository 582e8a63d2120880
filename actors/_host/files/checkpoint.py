"""Saves and loads checkpoints: small files with the state that an actor cannot rebuild from elsewhere after a crash.

A file holds one value. It is written atomically and checked when read. Callers decide what to keep and when. They keep
nothing that the runtime or a peer can report.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import stat
import threading
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from proto.common import untrusted
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
"""Largest checkpoint that is read: a hundred times the largest one seen, and harmless to the reader's memory."""


class _Writers:
    """The threads that write one path: one at a time, and a write that was asked for earlier replaces no later one.

    A write that is past its deadline goes on in its thread, beside the next one.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.newest = 0


on_load: Callable[[str, Any | None], None] | None = None
"""Called with each checkpoint that was read, unless it has secrets."""
_writers: WeakValueDictionary[str, _Writers] = WeakValueDictionary()
_writers_lock = threading.Lock()
_numbers = itertools.count(1)


class _File(msgspec.Struct):
    """The file's JSON. `checksum` is the CRC-32 of the bytes of `data` as written."""

    version: int
    checksum: int
    data: msgspec.Raw


class CheckpointFile:
    """An actor's checkpoint at `path`, written by coroutines of that actor.

    `blocking` is that of the actor, `deadline_s` the longest wait for a write, and `sync` as in `save`. `loss` says
    what a restart without the newest data does, for the log.
    """

    def __init__(
        self, blocking: Callable[..., Awaitable[None]], path: str, version: int, loss: str,
        *, deadline_s: float, sync: bool = False,
    ) -> None:  # fmt: skip
        self._blocking, self.path, self._version, self._loss = blocking, path, version, loss
        self._deadline_s, self._sync = deadline_s, sync
        self.failed = False
        """True when the last write failed."""

    def load(self) -> Any | None:
        """See `load`."""
        return load(self.path, self._version)

    def write(self, data: Any) -> None:
        """Write it now; blocks. Raises OSError."""
        save(self.path, self._version, data, sync=self._sync)

    async def save(self, data: Any) -> bool:
        """Write it; True when that is done. A failure is logged once, until a write succeeds."""
        try:
            await self._blocking(self._deadline_s, self.write, data)
        except (OSError, ActorError) as error:
            if not self.failed:
                log.error("cannot write %s: %s; %s", self.path, error, self._loss)
            self.failed = True
        else:
            self.failed = False
        return not self.failed


def save(path: str | os.PathLike[str], version: int, data: Any, *, sync: bool = True) -> None:
    """Replace the checkpoint at `path` by `data`, any value that msgspec encodes as JSON. Creates directories.

    A kill at any moment leaves the old or the new file whole. `sync` extends that to a power cut and may take tens of
    milliseconds; state that ends with the node's boot does not need it. Blocks: call it through `Actor.blocking`.
    Of several threads with the same path the latest caller's data stays. Raises OSError.
    """
    target = Path(path)
    with _writers_lock:
        number, writers = next(_numbers), _writers.setdefault(str(target), _Writers())
    with writers.lock:
        if number > writers.newest:
            _replace(target, version, data, sync=sync)
            writers.newest = number


def _replace(target: Path, version: int, data: Any, *, sync: bool) -> None:
    body = msgspec.json.encode(data)
    content = msgspec.json.encode(_File(version=version, checksum=zlib.crc32(body), data=msgspec.Raw(body)))
    # A fixed name, so that files of killed processes are overwritten instead of piling up.
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        write_file(temporary, content, sync=sync)
    except FileNotFoundError:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(temporary, content, sync=sync)
    temporary.replace(target)
    if sync:
        sync_directory(target.parent)


def load(path: str | os.PathLike[str], version: int, *, secret: bool = False) -> Any | None:
    """Return the data of the checkpoint at `path` as plain JSON values; None when there is no valid one.

    With `secret` it has Secrets, which stay out of the flight recorder.

    A missing file is not logged. An unreadable, damaged or too large file, or another version, is logged.
    """
    data = _load(Path(path), version)
    if on_load is not None and not secret:
        on_load(os.fspath(path), data)
    return data


def _load(target: Path, version: int) -> Any | None:
    try:
        content = _read(target)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("cannot read the checkpoint %s: %s; starting without it", target, error)
        return None
    problem, data = _checked(content, version)
    if problem:
        log.warning("cannot use the checkpoint %s: %s; starting without it", target, problem)
    return data


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if status.st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, more than {MOST_BYTES}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MOST_BYTES)
    finally:
        os.close(descriptor)


def _checked(content: bytes, version: int) -> tuple[str, Any | None]:
    try:
        file = untrusted.decode_json(content, _File)
        if file.version != version:
            return f"it has version {file.version}, this agent reads version {version}", None
        if zlib.crc32(file.data) != file.checksum:
            return "its checksum does not match", None
        return "", untrusted.decode_json(file.data)
    except msgspec.DecodeError as error:
        return str(error), None


def write_file(path: str | os.PathLike[str], content: bytes, flags: int = os.O_TRUNC, *, sync: bool = False) -> None:
    """Write all of `content` to a file of mode 0600. `flags`: O_TRUNC or O_APPEND. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Put the directory's entries on the disk, where its file system can."""
    with contextlib.suppress(OSError):  # some file systems refuse it; the rename is done
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
