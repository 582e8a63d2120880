"""Small files in which an actor keeps what nobody could tell it again after a crash.

Covers one value per file: written atomically, checked when read. Not here: what is worth keeping, and when; a
checkpoint is never the only source of something the runtime or a peer knows.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import zlib
from pathlib import Path
from typing import Any

import msgspec

from proto.common import untrusted

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
"""Of a checkpoint: a hundred times the largest one, and no danger to the process that reads it."""


class _File(msgspec.Struct):
    """The file: JSON, so that a person can read it; the checksum is the CRC-32 of `data`'s bytes as they stand."""

    version: int
    checksum: int
    data: msgspec.Raw


def save(path: str | os.PathLike[str], version: int, data: Any, *, sync: bool = True) -> None:
    """Replace the checkpoint at `path` by `data`, anything msgspec writes as JSON. Missing directories are made.

    A reader sees the old file or the new one whole, whenever this process is killed. `sync` makes that true of a power
    cut too and may take tens of milliseconds; leave it out for what does not outlive the node's boot. Blocks: call it
    through `Actor.blocking`. One writer per path at a time. Raises OSError.
    """
    target = Path(path)
    body = msgspec.json.encode(data)
    content = msgspec.json.encode(_File(version=version, checksum=zlib.crc32(body), data=msgspec.Raw(body)))
    # One name, not a random one: what a killed process leaves is overwritten by the next instead of piling up.
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        _write(temporary, content, sync)
    except FileNotFoundError:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(temporary, content, sync)
    temporary.replace(target)
    if sync:
        _sync_directory(target.parent)


def load(path: str | os.PathLike[str], version: int) -> Any | None:
    """The data of the checkpoint at `path` as plain JSON values; None when there is none to trust.

    Missing is silent; unreadable, damaged, too large or of another version is logged, and the caller starts without it.
    """
    target = Path(path)
    try:
        content = _read(target)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("cannot read the checkpoint %s: %s; going on without it", target, error)
        return None
    problem, data = _checked(content, version)
    if problem:
        log.warning("cannot use the checkpoint %s: %s; going on without it", target, problem)
    return data


def _read(path: Path) -> bytes:
    """The content of a regular file of at most MOST_BYTES. Raises OSError for anything else."""
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


def _write(path: Path, content: bytes, sync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems refuse it; the rename stands all the same
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
