"""State files of the managers of CPUs, memory and claims: cpu_manager_state and the like below --root-dir."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from actors._host.files.numbered_file import NumberedFile
from actors._host.files.untrusted_files import read_regular
from actors.resources.errors import PolicyError

State = TypeVar("State")

MOST_BYTES = 4 << 20
"""Of a file, for reading and writing: what is written must be readable at the next start."""


class StateFile(Generic[State]):
    """The file `MANAGER_manager_state` of one policy. `write` may be called from any thread."""

    def __init__(
        self, directory: str, manager: str, encode: Callable[[State], bytes], decode: Callable[[bytes], State]
    ) -> None:
        """`manager`: "cpu", "memory" or "dra". `encode` gives the file's content; `decode` raises ValueError."""
        self._file = NumberedFile(os.path.join(directory, f"{manager}_manager_state"), MOST_BYTES)
        self.path, self.write = self._file.path, self._file.write
        self._manager = {"cpu": "CPU"}.get(manager, manager)
        self._decode, self.content = decode, encode

    def load(self) -> State | None:
        """Return the state; None without a file. Raises PolicyError for a damaged file or one of another policy."""
        try:
            return self._decode(read_regular(self.path, MOST_BYTES))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.refused(f"cannot read it: {error.strerror}") from error
        except ValueError as error:
            raise self.refused(str(error)) from error

    def refused(self, reason: str) -> PolicyError:
        """The error for a state that cannot be used, in the kubelet's words."""
        return PolicyError(
            f"could not restore state from checkpoint: {reason}, please drain this node and delete the "
            f'{self._manager} manager checkpoint file "{self.path}" before restarting Kubelet'
        )


def quoted(text: str) -> str:
    """`text` as Go's %q prints it, for errors in the kubelet's words."""
    return msgspec.json.encode(text).decode()
