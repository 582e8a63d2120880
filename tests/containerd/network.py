"""A bridge name and a subnet that no other private containerd on this machine uses."""

import fcntl
import os
import tempfile
from pathlib import Path
from types import TracebackType

_SLOTS = 250


class NetworkSlot:
    """One of 250 subnets, 10.250.N.0/24, held by a lock on a file for as long as the slot is open.

    The lock goes with its process, so a slot is free again after the hardest crash.
    """

    name: str
    """Of the bridge and of the network."""
    subnet: str

    def __init__(self) -> None:
        for attempt in range(_SLOTS):
            number = (os.getpid() + attempt) % _SLOTS + 1
            if self._take(number):
                self.name, self.subnet = f"nvtest{number}", f"10.250.{number}.0/24"
                return
        raise OSError(f"cannot find a free test network: all {_SLOTS} are in use")

    def _take(self, number: int) -> bool:
        self._path = Path(tempfile.gettempdir()) / f"nodevisor-test-network-{number}.lock"
        self._file = self._path.open("w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            return False
        return True

    def close(self) -> None:
        """Give the slot back."""
        self._path.unlink(missing_ok=True)
        self._file.close()

    def __enter__(self) -> "NetworkSlot":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
