"""Builds a container's mount namespace: its root, its mounts, its masked paths. Runs in the container's process.

Mounts from the machine are opened while the machine's root is present, and attached after it is gone. ContainerRoot
finds the mount points: no link of a pod or image decides what is mounted, or where on the machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from actors.runtime.helper.cgroups import mounted
from actors.runtime.helper.container_root import ContainerRoot, is_directory, require_proc
from actors.runtime.helper.kernel import syscalls
from actors.runtime.helper.plan import Bind, Cgroups, Device, Link, Mask, Mount, Plan, ReadOnly, Step

_NULL = "/dev/null"
_LINKED = ("/proc", "/sys")
"""Kernel file systems whose mount points may not be links: later steps name files in them by these paths."""


class Mounting:
    """Takes the steps of one plan. Raises OSError with the path."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._picked: dict[int, int] = {}
        """Opened mounts by index of the step; the machine's /dev/null for a masked path."""
        self._cgroups: list[tuple[str, int, list[str]]] = []
        self._container_root: ContainerRoot
        self.terminals = -1
        """The container's own devpts, even if it is covered; -1 without one."""

    def make(self) -> ContainerRoot:
        """Take all steps; the container's root is then the root of this process."""
        syscalls.mount("", "/", "", self._plan.root_propagation | syscalls.MS_REC)
        for index, step in enumerate(self._plan.steps):
            if isinstance(step, Bind):
                self._picked[index] = syscalls.open_tree(step.source, recursive=step.recursive)
            elif isinstance(step, Mount) and step.kind == "proc":
                # A user namespace may create a procfs only while the machine's, fully visible one is present.
                self._picked[index] = syscalls.new_file_system("proc", step.attributes)
            elif isinstance(step, Mask):
                self._picked[index] = _pick_null()
            elif isinstance(step, Cgroups):
                self._pick_cgroups()
        self._enter_root()
        self._container_root = ContainerRoot()
        for index, step in enumerate(self._plan.steps):
            self._take(index, step)
        if self._plan.root_read_only:
            read_only = syscalls.MOUNT_ATTR["ro"]
            syscalls.set_attributes("/", read_only, fd=self._container_root.fd, recursive=False)
        return self._container_root

    def _enter_root(self) -> None:
        root = os.path.realpath(self._plan.root)
        _make_private(root)  # else mounts would appear on the machine, and the kernel refuses pivot_root
        fd = syscalls.open_tree(root, recursive=True)
        syscalls.set_attributes(root, 0, fd=fd, recursive=False, propagation=syscalls.MS_PRIVATE)
        if root == "/":  # the image `host`, where no layer can be mounted above it
            syscalls.set_attributes(root, syscalls.MOUNT_ATTR["ro"], fd=fd, recursive=True)
        place = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        syscalls.move_mount(fd, place, root)
        os.close(place)
        os.fchdir(fd)  # not by path: "/" names the mount below
        os.close(fd)
        syscalls.pivot_root()
        os.chdir("/")

    def _pick_cgroups(self) -> None:
        for name, path, controllers in mounted(self._plan.cgroup):
            self._cgroups.append((name, syscalls.open_tree(path, recursive=False), controllers))

    def _take(self, index: int, step: Step) -> None:
        if isinstance(step, Mount):
            self._mount(index, step)
        elif isinstance(step, Bind):
            self._bind(index, step)
        elif isinstance(step, Cgroups):
            self._put_cgroups(step)
        elif isinstance(step, Device):
            self._make_device(step)
        elif isinstance(step, Link):
            with self._directory_of(step.path) as (above, name), contextlib.suppress(FileExistsError):
                os.symlink(step.target, name, dir_fd=above)
        elif isinstance(step, Mask):
            self._hide(index, step.path)
        elif isinstance(step, ReadOnly):
            self._make_read_only(step.path)

    def _mount(self, index: int, step: Mount) -> None:
        made = self._picked.pop(index, -1)
        if made < 0:
            made = syscalls.new_file_system(step.kind, step.attributes, source=step.source, options=step.data)
        if step.target in _LINKED:
            self._put(made, self._container_root.kernel_mount_point(step.target), step.target)
        else:
            self._put(
                made,
                self._container_root.mount_point(step.target, is_directory=True),
                step.target,
                keep=step.kind == "devpts",
            )
        if step.kind == "devpts":
            self.terminals = made

    def _bind(self, index: int, step: Bind) -> None:
        fd = self._picked.pop(index)
        if step.propagation:
            syscalls.set_attributes(step.target, 0, fd=fd, recursive=True, propagation=step.propagation)
        if step.below:
            syscalls.set_attributes(step.target, step.below, fd=fd, recursive=True)
        if step.attributes:
            syscalls.set_attributes(step.target, step.attributes, fd=fd, recursive=False)
        if step.target == "/proc":
            require_proc(fd, "/proc/")
            self._put(fd, self._container_root.kernel_mount_point(step.target), step.target)
        else:
            self._put(fd, self._container_root.mount_point(step.target, is_directory=is_directory(fd)), step.target)

    def _put(self, fd: int, place: int, target: str, *, keep: bool = False) -> None:
        syscalls.move_mount(fd, place, target)
        os.close(place)
        if not keep:
            os.close(fd)

    @contextlib.contextmanager
    def _directory_of(self, path: str) -> Iterator[tuple[int, str]]:
        parent, name = os.path.split(path)
        above = self._container_root.directory(parent)
        try:
            yield above, name
        finally:
            os.close(above)

    def _make_device(self, step: Device) -> None:
        with self._directory_of(step.path) as (above, name):
            before = os.umask(0)  # chmod afterwards could follow a link made meanwhile
            try:
                os.mknod(name, step.mode, os.makedev(step.major, step.minor), dir_fd=above)
            finally:
                os.umask(before)
            os.chown(name, step.uid, step.gid, dir_fd=above, follow_symlinks=False)

    def _put_cgroups(self, step: Cgroups) -> None:
        for _, fd, _ in self._cgroups:
            syscalls.set_attributes(step.target, step.attributes, fd=fd, recursive=False)
        if [name for name, _, _ in self._cgroups] == [""]:
            self._put(
                self._cgroups[0][1], self._container_root.mount_point(step.target, is_directory=True), step.target
            )
            return
        quiet = sum(syscalls.MOUNT_ATTR[name] for name in ("nosuid", "nodev", "noexec"))
        above = syscalls.new_file_system("tmpfs", quiet, options="mode=755")
        self._put(above, self._container_root.mount_point(step.target, is_directory=True), step.target, keep=True)
        for name, fd, controllers in self._cgroups:
            label = name or "unified"
            os.mkdir(label, 0o755, dir_fd=above)
            self._put(fd, os.open(label, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above), step.target)
            for controller in controllers:
                if controller != name:
                    os.symlink(name, controller, dir_fd=above)
        syscalls.set_attributes(step.target, step.attributes, fd=above, recursive=False)
        os.close(above)

    def _hide(self, index: int, path: str) -> None:
        null = self._picked.pop(index)
        found = self._container_root.find(path)
        if found is None:
            os.close(null)
            return  # as in runc
        require_proc(found, path)
        if is_directory(found):
            os.close(null)
            null = syscalls.new_file_system("tmpfs", syscalls.MOUNT_ATTR["ro"], options="size=0k")
        self._put(null, found, path)

    def _make_read_only(self, path: str) -> None:
        found = self._container_root.find(path)
        if found is None:
            return
        require_proc(found, path)
        fd = syscalls.open_tree_of(found, path, recursive=True)
        syscalls.set_attributes(path, syscalls.MOUNT_ATTR["ro"], fd=fd, recursive=True)
        self._put(fd, found, path)


def _pick_null() -> int:
    """Descriptor of a mount of the machine's /dev/null, checked by its device number. Raises OSError."""
    found = os.open(_NULL, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(found)
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev != os.makedev(1, 3):
            raise OSError(errno.ENODEV, "it is not the null device of this machine", _NULL)
        return syscalls.open_tree_of(found, _NULL, recursive=False)
    finally:
        os.close(found)


def _make_private(path: str) -> None:
    """Make the mount that contains `path` private."""
    while True:
        try:
            syscalls.mount("", path, "", syscalls.MS_PRIVATE)
        except OSError as error:
            if error.errno != errno.EINVAL or path == "/":
                raise
            path = os.path.dirname(path)
        else:
            return
