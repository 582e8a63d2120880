"""Records of sandboxes and containers on disk, from which a restarted actor recovers them.

Files:

    sandboxes/ID/record.json                    (other files: sandboxes/sandboxes.py)
    containers/ID/record.json, started, exit    (the monitor writes the last two; other files: containers/containers.py)
    trash/                                      directories being removed

A directory without record.json was never finished; the next start removes it. Removing begins with a rename into the
trash, so a directory in its place is always whole. Configurations are CRI's own bytes: no field of them is lost.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from actors._host.files import checkpoint
from actors.runtime.model.disk import discard, remove_all

VERSION = 1
T = TypeVar("T")
log = logging.getLogger(__name__)


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One pod sandbox."""

    id: str
    config: bytes
    """A serialized PodSandboxConfig."""
    created_at_ns: int
    boot: str
    """The machine's boot ID; processes of another boot do not exist any more."""
    handler: str = ""
    stopped: bool = False
    ips: tuple[str, ...] = ()
    namespaces: dict[str, str] = {}
    """Path of the namespace to join, by OCI's name."""
    network: dict[str, Any] = {}
    """Data of the network plugin, needed to detach the sandbox."""
    pause_pid: int = 0
    """The first process of a shared pid namespace."""


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One container. Its start and exit are in the monitor's files."""

    id: str
    sandbox_id: str
    config: bytes
    """A serialized ContainerConfig."""
    created_at_ns: int
    boot: str
    image_id: str
    image_ref: str
    layers: tuple[str, ...]
    stop_signal: int
    user: tuple[int, int, tuple[int, ...]]
    """UID, GID, supplemental groups."""
    log_path: str = ""
    cgroup: str = ""
    volumes: tuple[ImageVolume, ...] = ()
    finished: Finished | None = None


class ImageVolume(msgspec.Struct, frozen=True, kw_only=True):
    """An image volume of a container."""

    mount: int
    """Index in the configuration's mounts."""
    layers: tuple[str, ...]
    part: str = ""
    """Path in the image to mount, with links resolved; empty for the whole image."""
    image_id: str = ""
    """Empty in records of older versions."""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """Exit of a container."""

    code: int
    at_ns: int
    reason: str
    message: str = ""


class Started(NamedTuple):
    """The content of the monitor's file `started`."""

    pid: int
    ticks: str
    """Start time in clock ticks: tells this process from a later one with the same pid."""
    at_ns: int


class Records:
    """The directories of all sandboxes, or of all containers."""

    def __init__(self, root: Path, kind: str, type_: type[T]) -> None:
        self.directory = root / kind
        self.trash = root / "trash"
        self._type: Any = type_
        for directory in (self.directory, self.trash):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, id_: str) -> Path:
        """The directory of one record."""
        return self.directory / id_

    def save(self, record: Any) -> None:
        """Replace the record. Raises OSError."""
        checkpoint.save(self.path(record.id) / "record.json", VERSION, record, sync=False)

    def load(self, clean_up: Callable[[Path], bool] = lambda _: True) -> Iterator[Any]:
        """Yield every whole record. Remove unfinished directories, unless `clean_up` fails; the next start retries."""
        for path in sorted(self.directory.iterdir()):
            data = checkpoint.load(path / "record.json", VERSION, secret=True)
            record = None
            if data is not None:
                with contextlib.suppress(msgspec.ValidationError):
                    record = msgspec.convert(data, self._type)
            if record is None:
                if clean_up(path):
                    log.warning("%s is unfinished or damaged: removed", path)
                    discard(path, self.trash)
            else:
                yield record

    def remove(self, id_: str) -> None:
        """Remove a record and its directory. Idempotent."""
        discard(self.path(id_), self.trash)

    def empty_trash(self) -> None:
        """Finish removals that a kill interrupted."""
        remove_all(self.trash)


def new_id() -> str:
    """A new ID of 64 hexadecimal digits, as in all runtimes."""
    return secrets.token_hex(32)


def read_started(directory: Path) -> Started | None:
    """The monitor's file `started`; None before the start."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        pid, ticks, at_ns = (directory / "started").read_text().split()
        return Started(int(pid), ticks, int(at_ns))
    return None


def read_exit(directory: Path) -> tuple[int, int] | None:
    """The monitor's file `exit`: exit code and time in ns; None before the exit."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        code, at_ns = (directory / "exit").read_text().split()
        return int(code), int(at_ns)
    return None


def boot_id() -> str:
    """The ID of the machine's current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
