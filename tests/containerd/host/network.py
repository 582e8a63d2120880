"""A bridge name and a subnet that no other private containerd on this machine uses."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_SLOTS = 250
_LOCKS = "nodevisor-test-network-{}.lock"


class NetworkSlot:
    """One of 250 subnets, 10.250.N.0/24, held by a lock on a file that names the directory of its containerd.

    The lock goes with its process, the file does not: an unlocked file tells of a run that was killed (`abandoned`).
    """

    def __init__(self, number: int, path: Path, file: IO[str]) -> None:
        self.name = f"nvtest{number}"
        """Of the bridge and of the network."""
        self.subnet = f"10.250.{number}.0/24"
        self._path, self._file = path, file

    @staticmethod
    def take(directory: Path) -> "NetworkSlot":
        """Take a free slot for the containerd in `directory`. Raises OSError when there is none."""
        for attempt in range(_SLOTS):
            slot = _lock((os.getpid() + attempt) % _SLOTS + 1, "a+")
            if slot is not None and slot.directory is None:
                slot._file.write(str(directory))
                slot._file.flush()
                return slot
        raise OSError(f"cannot find a free test network: all {_SLOTS} are in use")

    @staticmethod
    def abandoned() -> Iterator["NetworkSlot"]:
        """Take over, one by one, the slots of runs that ended without giving them back."""
        for number in range(1, _SLOTS + 1):
            slot = _lock(number, "r+")
            if slot is not None:
                yield slot

    @property
    def directory(self) -> Path | None:
        """The directory of the containerd this slot was taken for; None before that."""
        self._file.seek(0)
        text = self._file.read()
        return Path(text) if text else None

    def close(self) -> None:
        """Give the slot back."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def owner_of(name: str) -> str:
    """The directory of the containerd that has the slot of that bridge; empty when the slot is free."""
    with contextlib.suppress(FileNotFoundError):
        return (Path(tempfile.gettempdir()) / _LOCKS.format(name.removeprefix("nvtest"))).read_text()
    return ""


def _lock(number: int, mode: str) -> NetworkSlot | None:
    path = Path(tempfile.gettempdir()) / _LOCKS.format(number)
    file: IO[str]
    try:
        file = path.open(mode)
    except OSError:  # not there, or another user's
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last holder may have deleted the file between our opening and our locking it: then it locks nothing.
        if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
            return NetworkSlot(number, path, file)
    except OSError:
        pass
    file.close()
    return None
