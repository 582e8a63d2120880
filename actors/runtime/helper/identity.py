"""Whom a container's process runs as, and what it may: the last things done before its program is executed."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
from collections.abc import Mapping
from typing import Any

from actors.runtime.helper import syscalls
from actors.runtime.helper.capabilities import CAPABILITIES, mask
from actors.runtime.helper.plan import PLAIN, ROOT
from actors.runtime.helper.seccomp import Filter

UMASK = 0o022


class Identity:
    """Made while the machine's files can be seen; put on in the container."""

    def __init__(self, process: Mapping[str, Any], profile: Mapping[str, Any] | None, mode: str) -> None:
        """`profile` is linux.seccomp. Raises OSError."""
        self._process = process
        self._mode = mode
        # Without privileges a filter needs no_new_privs, and a plain process shall never get any.
        self._no_new_privs = bool(process.get("noNewPrivileges")) or mode == PLAIN
        self._filter = Filter(profile) if profile is not None else None

    def execute(self, root: str = "") -> None:
        """Become the program; returns never. Raises OSError.

        `root` is the image's root directory, of a plain process, which has the machine's.
        """
        process = self._process
        for limit in process.get("rlimits", ()):
            number = getattr(resource, limit["type"])
            resource.setrlimit(number, (_rlimit(limit["soft"]), _rlimit(limit["hard"])))
        if self._mode != PLAIN:
            self._own_standard_files()
            self._privileges()
        os.umask(process.get("user", {}).get("umask", UMASK))
        os.chdir(root + (process.get("cwd") or "/"))
        environment = dict(text.partition("=")[::2] for text in process.get("env", ()))
        if self._mode == PLAIN:
            environment["PATH"] = plain_path(environment.get("PATH", os.defpath), root)
        program = find(process["args"][0], environment.get("PATH", os.defpath), root)
        if self._no_new_privs:
            syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
            if self._filter is not None:
                self._filter.load()
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
            signal.signal(ignored, signal.SIG_DFL)
        syscalls.close_all_on_exec()
        os.execve(program, process["args"], environment)

    def _own_standard_files(self) -> None:
        uid = self._process["user"]["uid"]
        for fd in range(3):
            with contextlib.suppress(OSError):
                if not stat.S_ISCHR(os.fstat(fd).st_mode) or os.isatty(fd):
                    os.fchown(fd, uid, -1)

    def _privileges(self) -> None:
        user, told = self._process["user"], self._process.get("capabilities", {})
        if self._filter is not None and not self._no_new_privs:
            self._filter.load()
        bounding = mask(told.get("bounding", ()))
        with contextlib.suppress(OSError):  # EINVAL: the kernel has fewer
            for number in range(len(CAPABILITIES)):
                if not bounding >> number & 1:
                    syscalls.prctl(syscalls.PR_CAPBSET_DROP, number)
        syscalls.prctl(syscalls.PR_SET_KEEPCAPS, 1)
        if self._mode == ROOT:  # a user namespace of one user has no further groups
            os.setgroups(user.get("additionalGids", ()))
        os.setresgid(user["gid"], user["gid"], user["gid"])
        os.setresuid(user["uid"], user["uid"], user["uid"])
        syscalls.prctl(syscalls.PR_SET_KEEPCAPS, 0)
        syscalls.set_capabilities(*(mask(told.get(kind, ())) for kind in ("effective", "permitted", "inheritable")))
        syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
        for number in range(len(CAPABILITIES)):
            if mask(told.get("ambient", ())) >> number & 1:
                syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_RAISE, number)


def plain_path(path: str, root: str) -> str:
    """PATH of a plain process: the image's directories, then the machine's. Pure."""
    names = [name for name in path.split(":") if name]
    return ":".join([root + name for name in names] + names)


def find(name: str, path: str, root: str) -> str:
    """The program to execute. Raises OSError."""
    if "/" in name:
        return root + name if root and name.startswith("/") and os.path.exists(root + name) else name
    for directory in path.split(":"):
        program = f"{directory or '.'}/{name}"
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    raise FileNotFoundError(2, "executable file not found in $PATH", name)


def _rlimit(value: int) -> int:
    return resource.RLIM_INFINITY if value >= resource.RLIM_INFINITY or value >= 2**64 - 1 else value
