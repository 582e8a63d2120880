"""A container's mount namespace: its root, what is mounted there, what is hidden. In the process that becomes it.

What is bound from the machine is picked up while the machine's root is still there, and put down once it is gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from actors.runtime.helper import syscalls
from actors.runtime.helper.cgroups import mounted
from actors.runtime.helper.plan import Bind, Cgroups, Device, Link, Mask, Mount, Plan, ReadOnly, Step


class Mounting:
    """Steps of one plan. Raises OSError that names the path."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._picked: dict[int, tuple[int, bool]] = {}
        """By index of the step: the mount to be put there, and whether it is a directory."""
        self._cgroups: list[tuple[str, int, list[str]]] = []

    def make(self) -> None:
        """All of it; afterwards the container's root is this process's."""
        syscalls.mount("", "/", "", self._plan.root_propagation | syscalls.MS_REC)
        for index, step in enumerate(self._plan.steps):
            if isinstance(step, Bind):
                self._picked[index] = _pick(step.source, recursive=step.recursive)
            elif isinstance(step, Mount) and step.kind == "proc":
                # In a user namespace the kernel makes one only beside another that is seen whole: the machine's.
                self._picked[index] = syscalls.new_file_system("proc", step.flags), True
            elif isinstance(step, Cgroups):
                self._pick_cgroups()
        self._enter_root()
        for index, step in enumerate(self._plan.steps):
            self._take(index, step)
        if self._plan.root_read_only:
            syscalls.set_attributes("/", syscalls.MOUNT_ATTR["ro"], recursive=False)

    def _enter_root(self) -> None:
        root = os.path.realpath(self._plan.root)
        _make_private(root)  # or the machine would get what is mounted there, and the kernel refuses to pivot
        fd = syscalls.open_tree(root, recursive=True)
        syscalls.set_attributes(root, 0, fd=fd, recursive=False, propagation=syscalls.MS_PRIVATE)
        if root == "/":  # the image `host` of who may not mount a layer above it
            syscalls.set_attributes(root, syscalls.MOUNT_ATTR["ro"], fd=fd, recursive=True)
        syscalls.move_mount(fd, root)
        os.fchdir(fd)  # not by its path: of the root's own that would be what is below
        os.close(fd)
        syscalls.pivot_root()
        os.chdir("/")

    def _pick_cgroups(self) -> None:
        for name, path, controllers in mounted(self._plan.cgroup):
            fd, _ = _pick(path, recursive=False)
            self._cgroups.append((name, fd, controllers))

    def _take(self, index: int, step: Step) -> None:
        if isinstance(step, Mount):
            os.makedirs(step.target, mode=0o755, exist_ok=True)
            if index in self._picked:
                syscalls.move_mount(self._picked[index][0], step.target)
            else:
                syscalls.mount(step.source, step.target, step.kind, step.flags, step.data)
        elif isinstance(step, Bind):
            fd, is_directory = self._picked[index]
            _put(fd, is_directory, step)
        elif isinstance(step, Cgroups):
            self._put_cgroups(step)
        elif isinstance(step, Device):
            os.makedirs(os.path.dirname(step.path), mode=0o755, exist_ok=True)
            os.mknod(step.path, step.mode, os.makedev(step.major, step.minor))
            os.chmod(step.path, stat.S_IMODE(step.mode))
            os.chown(step.path, step.uid, step.gid)
        elif isinstance(step, Link):
            with contextlib.suppress(FileExistsError):
                os.symlink(step.target, step.path)
        elif isinstance(step, Mask):
            self._hide(step.path)
        elif isinstance(step, ReadOnly):
            self._make_read_only(step.path)

    def _put_cgroups(self, step: Cgroups) -> None:
        os.makedirs(step.target, mode=0o755, exist_ok=True)
        if [name for name, _, _ in self._cgroups] == [""]:
            syscalls.set_attributes(step.target, step.attributes, fd=self._cgroups[0][1], recursive=False)
            syscalls.move_mount(self._cgroups[0][1], step.target)
            return
        syscalls.mount("tmpfs", step.target, "tmpfs", 2 | 4 | 8, "mode=755")
        for name, fd, controllers in self._cgroups:
            target = f"{step.target}/{name or 'unified'}"
            os.mkdir(target, 0o755)
            syscalls.set_attributes(target, step.attributes, fd=fd, recursive=False)
            syscalls.move_mount(fd, target)
            for controller in controllers:
                if controller != name:
                    os.symlink(name, f"{step.target}/{controller}")
        syscalls.set_attributes(step.target, step.attributes, recursive=False)

    def _hide(self, path: str) -> None:
        try:
            is_directory = stat.S_ISDIR(os.stat(path).st_mode)
        except OSError:
            return  # as runc: nothing to hide
        if is_directory:
            syscalls.mount("tmpfs", path, "tmpfs", syscalls.MS_RDONLY, "size=0k")
        else:
            fd = syscalls.open_tree("/dev/null", recursive=False)
            syscalls.move_mount(fd, path)
            os.close(fd)

    def _make_read_only(self, path: str) -> None:
        if not os.path.lexists(path):
            return
        fd = syscalls.open_tree(path, recursive=True)
        syscalls.set_attributes(path, syscalls.MOUNT_ATTR["ro"], fd=fd, recursive=True)
        syscalls.move_mount(fd, path)
        os.close(fd)


def _make_private(path: str) -> None:
    """The mount that `path` is on."""
    while True:
        try:
            syscalls.mount("", path, "", syscalls.MS_PRIVATE)
        except OSError as error:
            if error.errno != errno.EINVAL or path == "/":
                raise
            path = os.path.dirname(path)
        else:
            return


def _pick(source: str, *, recursive: bool) -> tuple[int, bool]:
    fd = syscalls.open_tree(source, recursive=recursive)
    return fd, stat.S_ISDIR(os.fstat(fd).st_mode)


def _put(fd: int, is_directory: bool, step: Bind) -> None:
    if is_directory:
        os.makedirs(step.target, mode=0o755, exist_ok=True)
    elif not os.path.exists(step.target):
        os.makedirs(os.path.dirname(step.target), mode=0o755, exist_ok=True)
        os.close(os.open(step.target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    if step.propagation:
        syscalls.set_attributes(step.target, 0, fd=fd, recursive=True, propagation=step.propagation)
    if step.below:
        syscalls.set_attributes(step.target, step.below, fd=fd, recursive=True)
    if step.attributes:
        syscalls.set_attributes(step.target, step.attributes, fd=fd, recursive=False)
    syscalls.move_mount(fd, step.target)
    os.close(fd)
