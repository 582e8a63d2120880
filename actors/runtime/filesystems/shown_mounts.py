"""Shows a container its root file system and its mounts where the users of its pod may reach them.

An OCI runtime mounts as root of the pod's user namespace, a user of the machine that may not enter the agent's
directories. So each container has a directory in /run that its pod's group may enter, with a mount for each source.
Files of volumes appear there with the pod's IDs: runc before 1.2 makes no ID-mapped mounts. containerd has such
directories, too.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

from actors.runtime.helper.kernel import syscalls
from actors.runtime.model.namespaces import unmount_all
from actors.runtime.model.records import ShownMount
from actors.runtime.model.user_mapping import PodUsers

_PARENT = "/run"
_NO_MAPS = (errno.EINVAL, errno.EPERM)
"""mount_setattr's errors for a file system without ID-mapped mounts, and for a mount that has IDs already."""


class ShownMounts:
    """Makes and removes these mounts. Safe from any thread."""

    def __init__(self, run: Path) -> None:
        """`run` is the runtime's run directory, of which there is one for each agent."""
        self._directory = Path(_PARENT, f"nodevisor-users-{hashlib.sha256(os.fsencode(run)).hexdigest()[:16]}")
        self._lock = threading.Lock()

    def root(self, id_: str) -> Path:
        """Path of the root file system of a container, or of a sandbox's pause process."""
        return self._directory / id_ / "root"

    def place(self, id_: str, number: int) -> Path:
        """Path of the mount with this number."""
        return self._directory / id_ / str(number)

    def prepare(self, id_: str, users: PodUsers, root: Path, mounts: Sequence[ShownMount]) -> None:
        """Mount all. Idempotent after `remove`. Raises OSError."""
        with self._lock:
            self._directory.mkdir(mode=0o711, exist_ok=True)
            os.chmod(self._directory, 0o711)
            own = self._directory / id_
            own.mkdir(mode=0o700, exist_ok=True)
            os.chown(own, 0, users.ids.first)
            os.chmod(own, 0o710)
        of_root = ShownMount(source=str(root), mapped=False, recursive=False, follows=False)
        _show(of_root, self.root(id_), -1)
        namespace = os.open(users.namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for number, mount in enumerate(mounts):
                _show(mount, self.place(id_, number), namespace)
        finally:
            os.close(namespace)

    def remove(self, id_: str) -> None:
        """Unmount all. Idempotent. Raises OSError."""
        own = self._directory / id_
        if not own.is_dir():
            return
        for path in list(own.iterdir()):
            unmount_all(str(path))
            with contextlib.suppress(FileNotFoundError):
                path.rmdir() if path.is_dir() else path.unlink()
        with self._lock:
            with contextlib.suppress(FileNotFoundError):
                own.rmdir()
            with contextlib.suppress(OSError):  # other containers have theirs there
                self._directory.rmdir()

    def orphaned(self, known: set[str]) -> list[str]:
        """IDs that have mounts and are not in `known`."""
        return [path.name for path in self._directory.glob("*") if path.name not in known]


def _show(mount: ShownMount, place: Path, namespace: int) -> None:
    tree = syscalls.open_tree(mount.source, recursive=mount.recursive)
    try:
        # Never shared with the machine: the unmount of a shared copy takes away what is mounted in the original.
        spread = syscalls.MS_SLAVE if mount.follows else syscalls.MS_PRIVATE
        syscalls.set_attributes(mount.source, 0, fd=tree, recursive=True, propagation=spread)
        if mount.mapped:
            _map(tree, namespace, mount.source)
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            place.mkdir(mode=0o700)
        else:
            place.touch(mode=0o600)
        target = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            syscalls.move_mount(tree, target, str(place))
        finally:
            os.close(target)
    finally:
        os.close(tree)


def _map(tree: int, namespace: int, source: str) -> None:
    try:
        syscalls.map_ids(tree, namespace, source)
    except OSError as error:
        if error.errno in _NO_MAPS:
            why = f"cannot map the users of {source}: its file system has no ID-mapped mounts, or it is one"
            raise OSError(error.errno, why) from error
        raise
