"""Stores the last known good configuration and the history, in ROOT_DIR/nodevisor.

The files are last-known-good.json, with a checksum, and config-history.json. Both are replaced atomically. They are not
synced: a slow disk would block the supervisor, and a file lost in a power cut costs a fallback, never a pod.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from pathlib import Path

import msgspec

from proto.common import untrusted
from supervisor.config.reload.candidate import Candidate, Entry

log = logging.getLogger(__name__)

VERSION = 1
MAX_ENTRIES = 50
GOOD, HISTORY = "last-known-good.json", "config-history.json"


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """State for the next start."""

    flags: str = ""
    """Digest of the command line that this state belongs to."""
    good: Candidate | None = None
    trial: str = ""
    """Digest of a configuration on trial; it stays after a kill."""
    bad: tuple[str, ...] = ()


class _File(msgspec.Struct):
    version: int
    checksum: int
    data: msgspec.Raw


def load(root_dir: str, flags: str) -> Saved:
    """Load the state saved for these flags; empty when the file is missing, damaged or of other flags."""
    path = Path(root_dir, "nodevisor", GOOD)
    try:
        file = untrusted.decode_json(path.read_bytes(), _File)
        if file.version != VERSION or zlib.crc32(file.data) != file.checksum:
            raise ValueError("another version, or its checksum does not match")
        saved = untrusted.decode_json(file.data, Saved)
    except FileNotFoundError:
        return Saved()
    except (OSError, ValueError) as error:  # DecodeError is a ValueError
        log.warning("cannot use %s: %s; there is no last known good configuration", path, error)
        return Saved()
    return saved if saved.flags == flags else Saved()


def save(root_dir: str, saved: Saved) -> None:
    """Replace the file. Raises OSError."""
    body = msgspec.json.encode(saved)
    file = _File(version=VERSION, checksum=zlib.crc32(body), data=msgspec.Raw(body))
    _write(Path(root_dir, "nodevisor", GOOD), msgspec.json.encode(file))


def history(root_dir: str) -> list[Entry]:
    """Every entry, oldest first; empty when there is no file or it is damaged. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return untrusted.decode_json(Path(root_dir, "nodevisor", HISTORY).read_bytes(), list[Entry])
    return []


def append(root_dir: str, entry: Entry) -> None:
    """Add an entry and drop the oldest beyond `MAX_ENTRIES`. Raises OSError."""
    entries = [*history(root_dir), entry][-MAX_ENTRIES:]
    _write(Path(root_dir, "nodevisor", HISTORY), msgspec.json.encode(entries))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
