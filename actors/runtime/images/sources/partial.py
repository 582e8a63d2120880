"""Files of unfinished downloads: shared between pulls, resumed by later ones, and removed when they are old.

Imported at the runtime's start, so it must not import urllib3.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from actors.runtime.images.errors import StoreFull
from actors.runtime.images.sources.progress import Pull

SHARE_S = 10.0
"""Wait for another pull that downloads the same blob."""
LOOK_S = 0.2
"""Interval of looking whether the pull is still wanted, in a wait for another one."""
KEPT_S = 24 * 3600.0
"""Time after its last byte in which a download can be resumed."""
log = logging.getLogger(__name__)

_lock = threading.Lock()
_locks: dict[str, threading.Lock] = {}
_used: set[str] = set()
"""Files of running downloads."""


@contextlib.contextmanager
def downloaded(path: Path, download: Callable[[Path], None], pull: Pull) -> Iterator[IO[bytes]]:
    """Download a blob to `path` and open it; remove it at the end of the context. Raises Cancelled, StoreFull.

    One pull at a time uses the file, which a later one resumes. Another pull of the blob waits SHARE_S for it, then
    downloads to a file of its own. The first one's registry may be slow, by a tenant's choice. A download for which
    the disk has no room is removed, so that it does not take the room of others.
    """
    with _lock:
        lock = _locks.setdefault(str(path), threading.Lock())
    with contextlib.ExitStack() as stack:
        if _acquire(lock, pull):
            own = path
            stack.callback(lock.release)
        else:
            own = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
            stack.callback(own.unlink, missing_ok=True)  # no pull resumes it
        stack.enter_context(_in_use(own))
        try:
            download(own)
        except StoreFull:
            own.unlink(missing_ok=True)
            raise
        stack.callback(own.unlink, missing_ok=True)
        yield stack.enter_context(own.open("rb"))


def _acquire(lock: threading.Lock, pull: Pull) -> bool:
    """Wait SHARE_S for the lock; return True when it is held. Raises Cancelled."""
    deadline = time.monotonic() + SHARE_S
    while not lock.acquire(timeout=LOOK_S):
        pull.require_wanted()
        if time.monotonic() > deadline:
            return False
    return True


@contextlib.contextmanager
def _in_use(path: Path) -> Iterator[None]:
    with _lock:
        _used.add(str(path))
    try:
        yield
    finally:
        with _lock:
            _used.discard(str(path))


def unused_bytes(directory: Path) -> int:
    """Bytes of unfinished downloads that no pull uses."""
    found = 0
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                found += 0 if str(path) in _used else path.stat().st_size
    return found


def clear(directory: Path, kept_s: float = KEPT_S) -> None:
    """Remove unfinished downloads that no pull uses or resumes: older than `kept_s`, or one pull's own file."""
    try:
        for path in list(directory.iterdir()):
            with _lock, contextlib.suppress(FileNotFoundError):
                if str(path) not in _used and (path.suffix or path.stat().st_mtime < time.time() - kept_s):
                    path.unlink()
    except OSError as error:
        log.warning("cannot remove unfinished downloads in %s: %s", directory, error)
