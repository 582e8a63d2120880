"""Helpers that could not be killed, kept across incarnations: so that none is sent after a volume that swallowed one.

The file is written only when that changes, which is hardly ever.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from actors._host.files import checkpoint

log = logging.getLogger(__name__)

VERSION = 1


class Stuck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A helper and the volume it hangs at. `since` in Unix seconds; `removal`: while the pod's volumes were removed."""

    pid: int
    uid: str
    name: str
    since: float
    started: int = 0
    """Clock ticks after boot, as /proc has it: another process that gets the pid has another."""
    removal: bool = False


class Quarantine:
    """See the module. Its file is on the root directory, not on a volume."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stuck: dict[int, Stuck] = {}

    def load(self) -> list[tuple[Stuck, int]]:
        """Those of earlier incarnations that still hang, each with a pidfd."""
        found = []
        for record in checkpoint.load(self._path, VERSION) or ():
            stuck = msgspec.convert(record, Stuck)
            with suppress(OSError):
                fd = os.pidfd_open(stuck.pid)
                if _started(stuck.pid) == stuck.started:
                    self._stuck[stuck.pid] = stuck
                    found.append((stuck, fd))
                else:
                    os.close(fd)
        return found

    def add(self, stuck: Stuck) -> None:
        """A helper was written off."""
        self._stuck[stuck.pid] = msgspec.structs.replace(stuck, started=_started(stuck.pid))

    def discard(self, pid: int) -> None:
        """It is gone after all."""
        self._stuck.pop(pid, None)

    def of(self, uid: str) -> list[Stuck]:
        """Those that hang at a volume of that pod, or of an earlier one of that UID."""
        return [stuck for stuck in self._stuck.values() if stuck.uid == uid and not stuck.removal]

    def save(self) -> None:
        """Write the file. Blocks, on the root directory's disk only."""
        try:
            # Not synced: no process outlives the boot.
            checkpoint.save(self._path, VERSION, msgspec.to_builtins(list(self._stuck.values())), sync=False)
        except OSError as error:
            log.warning("cannot save which helpers hang: %s; a restart of this actor will find out again", error)


def _started(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return -1
