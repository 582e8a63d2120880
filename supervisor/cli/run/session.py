"""A session of `supervisor run`: its record on disk, its cgroups, and the removal of its directory.

The session's process keeps its record locked. So a record without a lock belongs to a dead session, and `leftovers`
removes the directory and cgroups in it. A session that leaves pods on purpose removes its record first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from actors._host.files import mounts
from supervisor.host.rundir import StartError, make_private

DIRECTORY_VARIABLE = "NODEVISOR_SESSIONS_DIR"
"""Environment variable with another directory for the records, for tests."""
PREFIX = "nodevisor-"
KILLED_S = 5.0
REMOVALS = 3
_NAME = re.compile(rf"/{PREFIX}[a-z0-9_]{{8}}")
Say = Callable[[str], None]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One session's directory, agent and cgroups."""

    directory: str
    command: tuple[str, ...]
    """Command line of its agent."""
    cgroup_root: str
    """Empty: no cgroups."""
    boot: str
    """The kernel's boot ID. After a reboot there are no processes and cgroups."""


class Claim:
    """A record on disk, locked until `release` or the end of the process."""

    def __init__(self, path: Path, descriptor: int, record: Record) -> None:
        self.record = record
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, directory: Path, command: Sequence[str], cgroup_root: str) -> Claim | None:
        """Write and lock a new record; None when it cannot be written. Then no later session clears this one."""
        record = Record(directory=str(directory), command=tuple(command), cgroup_root=cgroup_root, boot=boot_id())
        above = records_directory()
        path = above / f"{directory.name}.json"
        for _ in range(REMOVALS):
            try:
                make_private(above)
                return cls(path, _locked_file(path, msgspec.json.encode(record)), record)
            except FileNotFoundError:  # a session that ended meanwhile removed the empty directory
                continue
            except (StartError, OSError):
                break
        return None

    def forget(self) -> None:
        """Remove the record, so that no later session clears this one. Idempotent."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
            with contextlib.suppress(OSError):  # other sessions have records there
                self._path.parent.rmdir()
            self.release()

    def release(self) -> None:
        """Unlock the record, so that the next session clears this one. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _locked_file(path: Path, content: bytes) -> int:
    """Return the descriptor of a new locked file. It is locked before it gets its name."""
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, content)
        os.rename(temporary, path)
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return descriptor


def cgroup_root(directory: Path) -> str:
    """The session's cgroup, the parent of `kubepods`; empty without root, when pods have no cgroups."""
    name = f"/{directory.name}"
    return name if os.geteuid() == 0 and _NAME.fullmatch(name) else ""


def records_directory() -> Path:
    """The directory of this user's records. TMPDIR may change between sessions, so it is not used."""
    if given := os.environ.get(DIRECTORY_VARIABLE):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/nodevisor-sessions")
    return Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp", f"nodevisor-sessions-{os.geteuid()}")


def boot_id() -> str:
    """The kernel's boot ID, which changes with each boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


# Removal at the session's end


def remove_manifests(directory: Path) -> None:
    """Remove the files of the manifests, so that the agent ends their pods. It reads no directories there."""
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)  # its user may remove files meanwhile


def remove_cgroups(name: str, *, kill: bool = False) -> bool:
    """Remove a session's cgroup with its children; False when processes run in it, or no session has that name.

    `kill`: kill these processes first.
    """
    if not name:
        return True
    if not _NAME.fullmatch(name):
        return False
    from actors._cgroup import fs  # noqa: PLC0415 - at the end of a session only
    from actors._cgroup.hierarchy import hierarchy  # noqa: PLC0415
    from actors._cgroup.names import qos_cgroup  # noqa: PLC0415

    tree = hierarchy()
    made = {name: "cgroupfs"}
    slices = os.path.dirname(qos_cgroup("systemd", name, "Guaranteed"))  # with the runtime's cgroup driver
    if any(map(os.path.isdir, tree.paths(slices))):
        made[slices] = "systemd"
    deadline = time.monotonic() + (KILLED_S if kill else 1.0)  # ended processes leave a cgroup with a delay
    while True:
        with contextlib.suppress(OSError):
            if all(fs.discard(one, driver, tree) for one, driver in made.items()):
                return True
        if time.monotonic() > deadline:
            return False
        if kill:
            _kill_below([path for one in made for path in tree.paths(one)])
        time.sleep(0.02)


def _kill_below(paths: Sequence[str]) -> None:
    for path in paths:
        for directory, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                for pid in Path(directory, "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)


def remove_directory(directory: Path, say: Say) -> bool:
    """Remove a session's directory; False when it stays, for example because of a mount below it."""
    if left := [mount.mount_point for mount in mounts.mounts_under(os.path.realpath(directory))]:
        say(f"{directory} stays: still mounted below it: {', '.join(left)}")
        return False
    for _ in range(REMOVALS):  # a process that is about to end may change files meanwhile
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.lexists(directory):
            return True
    say(f"{directory} stays: it cannot be removed")
    return False
