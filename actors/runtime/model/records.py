"""What is kept on disk of sandboxes and containers: enough to know them again after any end.

    sandboxes/ID/record.json                    (its other files: sandboxes.py)
    containers/ID/record.json, started, exit    (the last two are the monitor's; its other files: containers.py)
    trash/                                      what is being removed

A directory without record.json was never finished and goes at the next start. Removing is a rename into the trash: what
is still in its place is whole. Configurations are kept as CRI's own bytes, so nothing of them is lost.
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
from actors.runtime.containers.image_volumes import ImageVolume
from actors.runtime.images.local.disk import discard, remove_tree

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
    """The machine's boot ID: what ran in another boot does not any more."""
    handler: str = ""
    stopped: bool = False
    ips: tuple[str, ...] = ()
    namespaces: dict[str, str] = {}
    """By OCI's name, the path to join."""
    network: dict[str, Any] = {}
    """What the network needs to take back what it gave."""
    pause_pid: int = 0
    """The first process of a shared pid namespace."""


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One container, but what the monitor knows of it."""

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


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a container ended."""

    code: int
    at_ns: int
    reason: str
    message: str = ""


class Started(NamedTuple):
    """The monitor's `started`."""

    pid: int
    ticks: str
    """Start time: with the pid it tells one process from a later one of the same number."""
    at_ns: int


class Records:
    """The directories of one kind."""

    def __init__(self, root: Path, kind: str, type_: type[T]) -> None:
        self.directory = root / kind
        self.trash = root / "trash"
        self._type: Any = type_
        for directory in (self.directory, self.trash):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, id_: str) -> Path:
        """One's directory."""
        return self.directory / id_

    def save(self, record: Any) -> None:
        """Replace the record. Raises OSError."""
        checkpoint.save(self.path(record.id) / "record.json", VERSION, record, sync=False)

    def load(self, give_back: Callable[[Path], bool] = lambda _: True) -> Iterator[Any]:
        """Every whole one; what is not is removed, unless `give_back` says that something of it is still to be done."""
        for path in sorted(self.directory.iterdir()):
            data = checkpoint.load(path / "record.json", VERSION)
            record = None
            if data is not None:
                with contextlib.suppress(msgspec.ValidationError):
                    record = msgspec.convert(data, self._type)
            if record is None:
                if give_back(path):
                    log.warning("%s was never finished, or is damaged: removed", path)
                    discard(path, self.trash)
            else:
                yield record

    def remove(self, id_: str) -> None:
        """Idempotent."""
        discard(self.path(id_), self.trash)

    def empty_trash(self) -> None:
        """What a kill left of a removal."""
        for path in list(self.trash.iterdir()):
            remove_tree(path)


def new_id() -> str:
    """As all runtimes have them: 64 hexadecimal digits."""
    return secrets.token_hex(32)


def read_started(directory: Path) -> Started | None:
    """What the monitor wrote when the container started."""
    try:
        pid, ticks, at_ns = (directory / "started").read_text().split()
        return Started(int(pid), ticks, int(at_ns))
    except (FileNotFoundError, ValueError):
        return None


def read_exit(directory: Path) -> tuple[int, int] | None:
    """Exit code and time, once it has ended."""
    try:
        code, at_ns = (directory / "exit").read_text().split()
        return int(code), int(at_ns)
    except (FileNotFoundError, ValueError):
        return None


def boot_id() -> str:
    """The ID of the present boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
