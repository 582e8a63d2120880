"""The run directory: private to its user, with a short enough path for sockets, locked by one supervisor at a time.

Each problem is a StartError before the first process starts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path

SUN_PATH_BYTES = 107
"""sockaddr_un.sun_path is 108 bytes with its final zero, unix(7)."""


class StartError(Exception):
    """The agent cannot start; the text gives the problem, its place and a remedy."""


class RunDir:
    """Context manager: the directory with its lock held. Its end removes the sockets and releases the lock.

    With an inherited lock it does so only once `ours` is set: until then a former supervisor may come back to them.
    """

    def __init__(self, path: str, actors: Iterable[str], lock: int = -1) -> None:
        """With `lock`, a descriptor that holds the lock already."""
        self.path = Path(path)
        self.names = ("control", "world", *actors)
        self.ours = lock < 0
        self.lock = lock
        """The descriptor that holds the lock, once it is entered."""

    def __enter__(self) -> RunDir:
        check_socket_paths(self.path, self.names)
        make_private(self.path)
        if self.lock < 0:
            self._take_lock()
        (self.path / "deaths").mkdir(mode=0o700, exist_ok=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.ours:
            return
        for name in self.names:
            for kind in ("sock", "tap"):
                with contextlib.suppress(OSError):
                    (self.path / f"{name}.{kind}").unlink()
        os.close(self.lock)  # the file stays: unlinking it would let two supervisors hold two locks of one name

    def _take_lock(self) -> None:
        path = self.path / "lock"
        self.lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self.lock, 32).decode(errors="replace").strip() or "unknown"
            os.close(self.lock)
            raise StartError(
                f"cannot start: {self.path} is in use by the supervisor with pid {holder}; "
                "stop it (`supervisor stop`) or choose another --run-dir"
            ) from None
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, f"{os.getpid()}\n".encode(), 0)


def check_socket_paths(run_dir: Path, names: Iterable[str]) -> None:
    """Raise StartError if the longest socket path does not fit the kernel's address."""
    longest = max((f"{run_dir}/{name}.sock" for name in names), key=lambda path: len(os.fsencode(path)))
    size = len(os.fsencode(longest))
    if size > SUN_PATH_BYTES:
        raise StartError(
            f"cannot start: socket path {longest} is {size} bytes long, the kernel takes at most {SUN_PATH_BYTES}; "
            f"choose a --run-dir that is at least {size - SUN_PATH_BYTES} bytes shorter"
        )


def make_private(path: Path) -> None:
    """Create the directory with mode 0700, or check type, owner and mode of an existing one. Raises StartError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
    except OSError as error:
        raise StartError(f"cannot start: run directory {path}: {error.strerror}; choose another --run-dir") from error
    if not stat.S_ISDIR(info.st_mode):
        raise StartError(f"cannot start: run directory {path} is not a directory (nor may it be a symbolic link)")
    if info.st_uid != os.geteuid():
        raise StartError(f"cannot start: run directory {path} belongs to uid {info.st_uid}, not to us ({os.geteuid()})")
    mode = stat.S_IMODE(info.st_mode)
    if mode & 0o077:
        raise StartError(f"cannot start: run directory {path} has mode {mode:04o}; others may reach it: chmod 0700 it")
    check_writable(path, "--run-dir")


def check_writable(path: Path, option: str) -> None:
    """Create the directory if it is missing, and a trial file in it. Raises StartError."""
    trial = path / f".nodevisor-{os.getpid()}"
    try:
        path.mkdir(mode=0o750, parents=True, exist_ok=True)
        os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        trial.unlink()
    except OSError as error:
        hint = "choose another" if error.errno != errno.ENOSPC else "free space there or choose another"
        raise StartError(f"cannot start: {path} is not writable: {error.strerror}; {hint} {option}") from error
