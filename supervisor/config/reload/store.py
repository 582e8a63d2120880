"""Stores the last known good configuration and the history, in ROOT_DIR/nodevisor.

The files are last-known-good.json, with a checksum, and config-history.json. Both are replaced atomically. They are not
synced: a slow disk would block the supervisor, and a file lost in a power cut costs a fallback, never a pod.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from pathlib import Path

import msgspec

from proto.common import untrusted
from supervisor.config.reload.candidate import Candidate, Entry
from supervisor.host.replaced_file import replace_file

log = logging.getLogger(__name__)

VERSION = 1
MAX_ENTRIES = 50
MOST_BYTES = 16 << 20
"""Largest file that is read: a hundred times a usual one."""
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
        file = untrusted.decode_json(untrusted.read_file(path, MOST_BYTES), _File)
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
    replace_file(Path(root_dir, "nodevisor", GOOD), msgspec.json.encode(file))


def history(root_dir: str) -> list[Entry]:
    """Every entry, oldest first; empty when there is no file or it is damaged. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        content = untrusted.read_file(Path(root_dir, "nodevisor", HISTORY), MOST_BYTES)
        return untrusted.decode_json(content, list[Entry])
    return []


def append(root_dir: str, entry: Entry) -> None:
    """Add an entry and drop the oldest beyond `MAX_ENTRIES`. Raises OSError."""
    entries = [*history(root_dir), entry][-MAX_ENTRIES:]
    replace_file(Path(root_dir, "nodevisor", HISTORY), msgspec.json.encode(entries))
