"""Gives a container's process its user, capabilities, limits and seccomp filter, then executes its program."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
from collections.abc import Mapping
from typing import Any, NoReturn

from actors.runtime.helper.kernel import syscalls
from actors.runtime.helper.kernel.capabilities import CAPABILITIES, mask
from actors.runtime.helper.kernel.seccomp import Filter
from actors.runtime.helper.plan import PLAIN, ROOT

UMASK = 0o022


class Identity:
    """The user and rights of one process. Made while the machine's files are visible; applied in the container."""

    def __init__(self, process: Mapping[str, Any], profile: Mapping[str, Any] | None, mode: str) -> None:
        """`profile` is linux.seccomp. Raises OSError."""
        self._process = process
        self._mode = mode
        # An unprivileged filter needs no_new_privs; a plain process must never gain privileges.
        self._no_new_privs = bool(process.get("noNewPrivileges")) or mode == PLAIN
        self._filter = Filter(profile) if profile is not None else None

    def execute(self, directory: int, keep: int) -> NoReturn:
        """Execute the program in the container's root with working directory `directory`. Raises OSError.

        Closes all descriptors but `keep`: the container could reach the machine through them (CVE-2024-21626).
        Executing closes `keep`.
        """
        syscalls.close_all(directory, keep)
        self._limit()
        self._chown_standard_files()
        entered = _enter(directory)  # before the rights are gone: the directory may be of another user
        self._privileges()
        os.umask(self._process.get("user", {}).get("umask", UMASK))
        if not entered:
            os.fchdir(directory)
        os.close(directory)
        self._execute(self._environment(), "")

    def execute_plain(self, root: str, keep: int) -> NoReturn:
        """Execute the program in the machine's root; `root` is the image's root directory. Raises OSError."""
        syscalls.close_all(keep)
        self._limit()
        os.umask(self._process.get("user", {}).get("umask", UMASK))
        os.chdir(root + (self._process.get("cwd") or "/"))
        environment = self._environment()
        environment["PATH"] = plain_path(environment.get("PATH", os.defpath), root)
        self._execute(environment, root)

    def _limit(self) -> None:
        for limit in self._process.get("rlimits", ()):
            number = getattr(resource, limit["type"])
            resource.setrlimit(number, (_rlimit(limit["soft"]), _rlimit(limit["hard"])))

    def _environment(self) -> dict[str, str]:
        return dict(text.partition("=")[::2] for text in self._process.get("env", ()))

    def _execute(self, environment: Mapping[str, str], root: str) -> NoReturn:
        arguments = self._process["args"]
        program = find(arguments[0], environment.get("PATH", os.defpath), root)
        if self._no_new_privs:
            syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
            if self._filter is not None:
                self._filter.load()
        for number in signal.valid_signals():
            if signal.getsignal(number) is signal.SIG_IGN:  # ignored by Python, or by the nohup that started the agent
                signal.signal(number, signal.SIG_DFL)
        os.execve(program, arguments, environment)

    def _chown_standard_files(self) -> None:
        uid = self._process["user"]["uid"]
        for fd in range(3):
            with contextlib.suppress(OSError):
                if not stat.S_ISCHR(os.fstat(fd).st_mode) or os.isatty(fd):
                    os.fchown(fd, uid, -1)

    def _privileges(self) -> None:
        user, granted = self._process["user"], self._process.get("capabilities", {})
        if self._filter is not None and not self._no_new_privs:
            self._filter.load()
        bounding = mask(granted.get("bounding", ()))
        with contextlib.suppress(OSError):  # EINVAL: this kernel knows fewer capabilities
            for number in range(len(CAPABILITIES)):
                if not bounding >> number & 1:
                    syscalls.prctl(syscalls.PR_CAPBSET_DROP, number)
        syscalls.prctl(syscalls.PR_SET_KEEPCAPS, 1)
        if self._mode == ROOT:  # a user namespace of one user has no supplemental groups
            os.setgroups(user.get("additionalGids", ()))
        os.setresgid(user["gid"], user["gid"], user["gid"])
        os.setresuid(user["uid"], user["uid"], user["uid"])
        syscalls.prctl(syscalls.PR_SET_KEEPCAPS, 0)
        syscalls.set_capabilities(*(mask(granted.get(kind, ())) for kind in ("effective", "permitted", "inheritable")))
        syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
        for number in range(len(CAPABILITIES)):
            if mask(granted.get("ambient", ())) >> number & 1:
                syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_RAISE, number)


def _enter(directory: int) -> bool:
    """Make `directory` the working directory; False without the right. As on NFS, only the container's user has it."""
    try:
        os.fchdir(directory)
    except PermissionError:
        return False
    return True


def plain_path(path: str, root: str) -> str:
    """PATH of a plain process: the image's directories, then the machine's. Pure."""
    names = [name for name in path.split(":") if name]
    return ":".join([root + name for name in names] + names)


def find(name: str, path: str, root: str) -> str:
    """Path of the program to execute. Raises OSError."""
    if "/" in name:
        return root + name if root and name.startswith("/") and os.path.exists(root + name) else name
    for directory in path.split(":"):
        program = f"{directory or '.'}/{name}"
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    raise FileNotFoundError(2, "executable file not found in $PATH", name)


def _rlimit(value: int) -> int:
    return resource.RLIM_INFINITY if value >= resource.RLIM_INFINITY or value >= 2**64 - 1 else value
