"""Checkpoint of helpers that could not be killed, so that a new incarnation leaves their volumes alone, too.

The file is written only when a helper is added or ends, which is rare.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

import msgspec

from actors._host.files import checkpoint
from proto.common.machine import procfs

log = logging.getLogger(__name__)

VERSION = 1


class Stuck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stuck helper and its volume. `since` in Unix seconds; `removal`: it hung while removing the pod's volumes."""

    pid: int
    uid: str
    name: str
    since: float
    started: int = 0
    """Start time in clock ticks after boot (/proc/PID/stat); tells a reused PID apart."""
    removal: bool = False


class Quarantine:
    """The stuck helpers, by PID. The file is on the root directory's disk, not on a volume."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stuck: dict[int, Stuck] = {}

    def load(self) -> list[tuple[Stuck, int]]:
        """Helpers of earlier incarnations that still hang, each with a pidfd."""
        found = []
        for record in checkpoint.load(self._path, VERSION) or ():
            stuck = msgspec.convert(record, Stuck)
            with suppress(OSError):
                fd = os.pidfd_open(stuck.pid)
                if procfs.start_time(stuck.pid) == stuck.started:
                    self._stuck[stuck.pid] = stuck
                    found.append((stuck, fd))
                else:
                    os.close(fd)
        return found

    def add(self, stuck: Stuck) -> None:
        """Add a helper that was written off."""
        self._stuck[stuck.pid] = msgspec.structs.replace(stuck, started=procfs.start_time(stuck.pid))

    def discard(self, pid: int) -> None:
        """Remove a helper that has ended."""
        self._stuck.pop(pid, None)

    def of(self, uid: str) -> list[Stuck]:
        """Helpers that hang at a volume of this pod, or of an earlier pod with its UID."""
        return [stuck for stuck in self._stuck.values() if stuck.uid == uid and not stuck.removal]

    def save(self) -> None:
        """Write the file; blocks on the root directory's disk only."""
        try:
            # Not synced: no process outlives the boot.
            checkpoint.save(self._path, VERSION, msgspec.to_builtins(list(self._stuck.values())), sync=False)
        except OSError as error:
            log.warning("cannot save the list of stuck helpers: %s; a restart of this actor detects them again", error)
