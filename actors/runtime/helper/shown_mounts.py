"""Shows a container its root and mounts where the users of its pod may reach them, and executes the OCI runtime.

The mounts are in a mount namespace of this process's own. Among the machine's mounts, a copy of a tree would keep each
directory busy that the original has a mount on. The namespace ends with the OCI runtime, so a kill leaves nothing.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
from typing import Any, NoReturn

from actors.runtime.helper.commands import Failed
from actors.runtime.helper.kernel import syscalls

_NO_MAPS = (errno.EINVAL, errno.EPERM)
"""mount_setattr's errors for a file system without ID-mapped mounts, and for a mount that has IDs already."""


def execute(plan: Any) -> NoReturn:
    """Make the mounts of a plan (filesystems/shown_mounts.py), then execute its command. Raises OSError, Failed."""
    syscalls.unshare(syscalls.NEW["mount"])
    syscalls.mount("", "/", "", syscalls.MS_SLAVE | syscalls.MS_REC)
    directory = plan["directory"]
    _mount_directory(directory, plan["group"])
    namespace = os.open(plan["namespace"], os.O_RDONLY | os.O_CLOEXEC)
    _show(plan["root"], f"{directory}/root", namespace)
    for number, mount in enumerate(plan["mounts"]):
        _show(mount, f"{directory}/{number}", namespace)
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:  # ignored by Python; the container would ignore it, too
            signal.signal(number, signal.SIG_DFL)
    os.execv(plan["command"][0], plan["command"])


def _mount_directory(directory: str, group: int) -> None:
    """Mount an empty file system that the pod's group may enter. A copy of the mounts above it leaves it out."""
    attributes = syscalls.MOUNT_ATTR["nosuid"] | syscalls.MOUNT_ATTR["nodev"] | syscalls.MOUNT_ATTR["noexec"]
    tree = syscalls.new_file_system("tmpfs", attributes, options=f"mode=0710,uid=0,gid={group}")
    try:
        syscalls.attach(tree, directory)
    finally:
        os.close(tree)
    syscalls.mount("", directory, "", syscalls.MS_UNBINDABLE)


def _show(mount: Any, place: str, namespace: int) -> None:
    source = mount["source"]
    tree = syscalls.open_tree(source, recursive=mount["recursive"])
    try:
        spread = syscalls.MS_SLAVE if mount["follows"] else syscalls.MS_PRIVATE
        syscalls.set_attributes(source, 0, fd=tree, recursive=True, propagation=spread)
        if mount["mapped"]:
            _map(tree, namespace, source)
            # The pod would own a device that another pod has made there. The cgroup of a privileged one allows all.
            syscalls.set_attributes(source, syscalls.MOUNT_ATTR["nodev"], fd=tree, recursive=False)
        for option in mount["options"]:
            attribute = syscalls.MOUNT_ATTR["ro" if option == "rro" else option]
            syscalls.set_attributes(source, attribute, fd=tree, recursive=option == "rro")
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.mkdir(place, 0o700)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        syscalls.attach(tree, place)
    finally:
        os.close(tree)


def _map(tree: int, namespace: int, source: str) -> None:
    try:
        syscalls.map_ids(tree, namespace, source)
    except OSError as error:
        if error.errno in _NO_MAPS:
            why = f"cannot map the users of {source}: its file system has no ID-mapped mounts, or it is one"
            raise Failed(why) from error
        raise
