"""Records of sandboxes and containers on disk, from which a restarted actor recovers them.

Files:

    sandboxes/ID/record.json                    (other files: sandboxes/sandboxes.py)
    containers/ID/record.json, started, exit    (the monitor writes the last two; other files: containers/containers.py)
    trash/                                      directories being removed

A directory without record.json was never finished; the next start removes it. Removing begins with a rename into the
trash, so a directory in its place is always whole. Configurations are CRI's own bytes: no field of them is lost.

A record that cannot be read keeps the runtime from serving, and so does a damaged one whose process runs. To go on
without it would end a container that runs, and remove its files, for one error of the disk.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from actors._host.files import checkpoint
from actors.runtime.model import processes
from actors.runtime.model.disk import discard, remove_all
from actors.runtime.selinux.labels import NONE, Labels

VERSION = 1
T = TypeVar("T")
log = logging.getLogger(__name__)


class UnreadableError(Exception):
    """A record is there and cannot be read; the message says what to do."""


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One pod sandbox."""

    id: str
    config: bytes
    """A serialized PodSandboxConfig."""
    created_at_ns: int
    boot: str
    """The machine's boot ID; processes of another boot do not exist any more."""
    handler: str = ""
    oci: str = ""
    """Name of its OCI runtime. Empty in records of older versions, which had one for all pods."""
    stopped: bool = False
    ips: tuple[str, ...] = ()
    namespaces: dict[str, str] = {}
    """Path of the namespace to join, by OCI's name."""
    network: dict[str, Any] = {}
    """Data of the network plugin, needed to detach the sandbox."""
    pause_pid: int = 0
    """The first process of a shared pid namespace."""
    labels: Labels = NONE
    """SELinux's, of all containers that ask for no others. A privileged one has the level without the process label."""


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
    declared: tuple[str, ...] = ()
    """Paths in the container of its image's VOLUMEs."""
    shown: tuple[ShownMount, ...] = ()
    """Its bind mounts, in the order of config.json, if the pod has users of its own."""
    labels: Labels = NONE
    """SELinux's. Records of older versions have none."""
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


class ShownMount(msgspec.Struct, frozen=True, kw_only=True):
    """A mount of a container whose pod has users of its own (helper/shown_mounts.py)."""

    source: str
    """Path on the machine."""
    mapped: bool
    """Its files appear with the pod's IDs."""
    recursive: bool
    """With the mounts below it."""
    follows: bool
    """Later mounts of the machine appear, too."""
    options: tuple[str, ...] = ()
    """Of "ro", "rro", "nosuid", "nodev" and "noexec"."""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """Exit of a container."""

    code: int
    at_ns: int
    reason: str
    message: str = ""


ETC_FILES = ("hostname", "hosts", "resolv.conf")
"""Files in a sandbox's directory that its containers have in /etc."""


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
        """Replace the record. Raises OSError, also without its directory: a removed record does not come back."""
        if not self.path(record.id).is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path(record.id)))
        checkpoint.save(self.path(record.id) / "record.json", VERSION, record, sync=False)

    def load(self, clean_up: Callable[[Path], bool] = lambda _: True) -> Iterator[Any]:
        """Yield every whole record. Remove unfinished directories, unless `clean_up` fails; the next start retries.

        A disk that is read-only keeps them, too.
        Raises UnreadableError before the first one is removed.
        """
        found = [(path, self._read(path / "record.json")) for path in sorted(self.directory.iterdir())]
        for path, record in found:
            if record is not None:
                yield record
            elif clean_up(path):
                self._discard_unfinished(path)

    def _discard_unfinished(self, path: Path) -> None:
        try:
            discard(path, self.trash)
        except OSError as error:
            log.warning("cannot remove %s, which is unfinished: %s; trying again at the next start", path, error)
        else:
            log.warning("%s is unfinished or damaged: removed", path)

    def _read(self, path: Path) -> Any | None:
        """The record; None when it was never written, or is damaged and no process runs under it."""
        try:
            data = checkpoint.read(path, VERSION, secret=True)
            return None if data is None else msgspec.convert(data, self._type)
        except (checkpoint.Damaged, msgspec.ValidationError) as error:
            if (started := read_started(path.parent)) and processes.is_alive(started.pid, started.ticks):
                raise UnreadableError(
                    f"cannot use {path}: {error}; process {started.pid} runs under it: put a copy of the file back, or "
                    f"move {path.parent} away to end the process"
                ) from None
            log.warning("cannot use %s: %s; no process runs under it", path, error)
        except checkpoint.Unusable as error:
            raise UnreadableError(
                f"cannot use {path}: {error}; start the version that wrote it, or move {path.parent} away to "
                "end what runs under it"
            ) from None
        except OSError as error:
            raise UnreadableError(
                f"cannot read {path}: {error}; containers run on, and the next start reads it again"
            ) from None
        return None

    def remove(self, id_: str) -> None:
        """Remove a record and its directory. Idempotent."""
        discard(self.path(id_), self.trash)

    def empty_trash(self) -> None:
        """Finish removals that a kill or their limit of time interrupted."""
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
