"""Probes the rights of this process on this machine, by trying them in short-lived children."""

from __future__ import annotations

import os
from collections.abc import Callable

from actors.runtime.helper.kernel import seccomp, syscalls


def features() -> dict[str, bool]:
    """`mount`: mounts work in a new namespace; `user`: also in a user namespace with its own pids; `seccomp`."""
    return {"mount": _works(_mount), "user": _works(_user), "seccomp": seccomp.available()}


def _works(trial: Callable[[], None]) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            trial()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _mount() -> None:
    syscalls.unshare(syscalls.NEW["mount"])
    syscalls.mount("", "/", "", syscalls.MS_SLAVE | syscalls.MS_REC)
    # The calls that create a container's root: kernels before 5.12 lack some of them.
    fd = syscalls.open_tree("/dev", recursive=True)
    syscalls.set_attributes("/dev", syscalls.MOUNT_ATTR["nosuid"], fd=fd, recursive=True)
    place = syscalls.openat2(os.open("/", os.O_PATH), "dev", os.O_PATH | os.O_DIRECTORY, syscalls.RESOLVE_IN_ROOT)
    syscalls.move_mount(fd, place, "/dev")
    os.close(fd)
    syscalls.move_mount(syscalls.new_file_system("tmpfs", 0), place, "/dev")


def _user() -> None:
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.NEW["user"] | syscalls.NEW["pid"])
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    if not _works(_user_mounts):
        raise OSError(0, "no mounts in a user namespace")


def _user_mounts() -> None:
    _mount()
    place = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    quiet = sum(syscalls.MOUNT_ATTR[name] for name in ("nosuid", "nodev", "noexec"))
    syscalls.move_mount(syscalls.new_file_system("proc", quiet), place, "/proc")
