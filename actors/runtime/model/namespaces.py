"""A sandbox's namespaces: a thread creates them and a bind mount keeps each, so that no process has to live for them.

Covers net, ipc and uts, and their setup: loopback, host name, sysctls. A user namespace needs a process of its own
(oci/user_namespaces.py), and a shared pid namespace a first process (sandboxes/pause.py). CRI-O's pinns works the same
way.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from actors._host.files import mounts
from actors.runtime.helper.kernel.syscalls import NEW, become_user, setns, unshare
from actors.runtime.model.namespace_threads import PROC_NAMES, in_thread

_OF_IPC = tuple(
    f"kernel/{name}" for name in ("msgmax", "msgmnb", "msgmni", "sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced")
)
"""Sysctls below kernel.* that each ipc namespace has its own values of, as in runc."""
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def make(
    directory: Path, kinds: Iterable[str], hostname: str, sysctls: Mapping[str, str], *, holder: int = 0, root: int = 0
) -> dict[str, str]:
    """Create namespaces pinned in `directory` and return path by kind. Raises OSError, also for a sysctl that cannot be
    set.

    `holder`: the pid of a process that has them, with their user namespace, which is pinned, too. `root`: the machine's
    ID of the root in there.
    """
    wanted = list(kinds)
    if foreign := [name for name in sysctls if namespace_of(name) not in wanted]:
        raise OSError(errno.EPERM, f"cannot set sysctl {foreign[0]}: it would be set for the machine, not for the pod")
    if not wanted:
        return {}
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    pins = {kind: str(directory / kind) for kind in ([*wanted, "user"] if holder else wanted)}
    source = f"/proc/{holder or 'thread-self'}/ns"

    def work() -> None:
        flags = 0
        for kind in wanted:
            if holder:
                setns(f"{source}/{PROC_NAMES[kind]}")
            else:
                flags |= NEW[kind]
        unshare(flags)
        if "uts" in wanted:
            socket.sethostname(hostname)
        if "network" in wanted:
            _bring_up("lo")
        for kind, pin in pins.items():
            Path(pin).touch(mode=0o600)
            mounts.bind(f"{source}/{PROC_NAMES[kind]}", pin)
        _set_sysctls(sysctls, root)

    in_thread(work)
    return pins


def all_pinned(pins: Iterable[str]) -> bool:
    """Return True when each path is still a namespace.

    Mounts end with their machine. That is one more sign beside the boot ID, which a machine that is itself a container
    has from its host. Its restart keeps that ID and may keep the files below the mounts.
    """
    kind = os.stat("/proc/thread-self/ns/net").st_dev  # all namespaces are on one file system
    try:
        return all(os.stat(pin).st_dev == kind for pin in pins)
    except FileNotFoundError:
        return False


def release(directory: Path) -> None:
    """Unpin the namespaces in `directory`; each ends with its last process. Idempotent. Raises OSError."""
    if not directory.exists():
        return
    for pin in directory.iterdir():
        unmount_all(str(pin))
        with contextlib.suppress(FileNotFoundError):
            pin.unlink()
    directory.rmdir()


def unmount_all(target: str) -> None:
    """Unmount all mounts stacked at `target`. Raises OSError."""
    while True:
        try:
            mounts.unmount(target, mounts.MNT_DETACH)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return
            raise


def _bring_up(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14s", name.encode(), 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14s", name.encode(), flags | _IFF_UP, b""))


def namespace_of(name: str) -> str:
    """OCI's name of the namespace that a sysctl belongs to; empty for a sysctl of the whole machine. Pure."""
    path = _path_of(name)
    if path.startswith("net/"):
        return "network"
    if path.startswith("fs/mqueue/") or path in _OF_IPC:
        return "ipc"
    return "uts" if path == "kernel/domainname" else ""


def _path_of(name: str) -> str:
    # sysctl(8) separates by `/` or `.`; a component that contains the other character has the two exchanged.
    return name if "/" in name.split(".", 1)[0] else name.translate(str.maketrans("./", "/."))


def _set_sysctls(sysctls: Mapping[str, str], root: int) -> None:
    """Set the sysctls of this thread's namespaces; afterwards the thread may do nothing else. Raises OSError.

    Linux 6.9 lets the root of the ipc namespace's user namespace alone set those of ipc, older kernels the machine's.
    """
    denied: dict[str, str] = {}
    for name, value in sysctls.items():
        try:
            _set_sysctl(name, value)
        except PermissionError:
            if not root:
                raise
            denied[name] = value
    if denied:
        become_user(root)
        for name, value in denied.items():
            _set_sysctl(name, value)


def _set_sysctl(name: str, value: str) -> None:
    path = _path_of(name)
    if ".." in path.split("/"):
        raise OSError(errno.EINVAL, "not the name of a sysctl", name)
    try:
        fd = os.open(f"/proc/sys/{path}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, f"cannot set sysctl {name} to {value!r}: {error.strerror}") from error
