"""The system calls that set volumes up, and those that see what is set up. They block: not for the mailbox thread.

Everything below a pod's directory is reached by directory file descriptors that follow no link. What is done is safe to
do again from any point, so that a process killed in between leaves nothing that the next one cannot finish.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import ExitStack, suppress

from actors._host import mounts, paths
from actors.volume.policy import EMPTY_DIR, EmptyDir, HostPath, Wanted

DATA_MODE = 0o750
EMPTY_DIR_MODE = 0o777
READY = "ready"

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FS_GROUP_BITS = 0o660 | 0o110 | stat.S_ISGID
"""What SetVolumeOwnership adds to a directory: the group may read, write and enter, and new files get it."""


class VolumeError(Exception):
    """A volume cannot be set up or removed now; the message is Go's, as the kubelet shows it."""


def go_text(call: str, path: str, error: OSError) -> str:
    """An OSError as Go's *PathError prints it: `mkdir /x: permission denied`."""
    return f"{call} {path}: {(error.strerror or str(error)).lower()}"


def set_up(root: str, uid: str, volume: Wanted) -> None:
    """Have the volume there. Raises VolumeError."""
    try:
        if isinstance(volume, HostPath):
            check_host_path(volume)
        else:
            _set_up_empty_dir(root, uid, volume)
    except OSError as error:
        path = paths.volume_dir(root, uid, EMPTY_DIR, volume.name)
        raise VolumeError(go_text("set up", error.filename or path, error)) from error


def _set_up_empty_dir(root: str, uid: str, volume: EmptyDir) -> None:
    os.makedirs(paths.pods_dir(root), DATA_MODE, exist_ok=True)
    with ExitStack() as stack:

        def enter(parent: int, name: str, mode: int) -> int:
            fd = ensure_dir(parent, name, mode)
            stack.callback(os.close, fd)
            return fd

        pods = os.open(paths.pods_dir(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, pods)
        pod = enter(pods, uid, DATA_MODE)
        plugin = enter(enter(pod, "volumes", DATA_MODE), EMPTY_DIR, 0o755)
        directory = enter(plugin, volume.name, EMPTY_DIR_MODE)
        ready = enter(enter(enter(pod, "plugins", DATA_MODE), EMPTY_DIR, DATA_MODE), volume.name, DATA_MODE)
        is_mounted = mounts.mount_id(directory) != mounts.mount_id(plugin)
        if os.access(READY, os.F_OK, dir_fd=ready) and is_mounted == bool(volume.medium):
            return
        if not is_mounted:
            if stat.S_IMODE(os.fstat(directory).st_mode) != EMPTY_DIR_MODE:
                os.fchmod(directory, EMPTY_DIR_MODE)  # the umask took some away
            if volume.medium:
                _mount_on(directory, volume)
                directory = enter(plugin, volume.name, EMPTY_DIR_MODE)  # now the file system's own root
        if volume.fs_group is not None:
            os.chown(directory, -1, volume.fs_group)
            os.fchmod(directory, stat.S_IMODE(os.fstat(directory).st_mode) | _FS_GROUP_BITS)
        os.close(os.open(READY, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644, dir_fd=ready))


def ensure_dir(parent: int, name: str, mode: int) -> int:
    """The directory `name` in `parent`, made if need be, open; a link in its place is an error."""
    with suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=parent)
    return os.open(name, _DIRECTORY, dir_fd=parent)


def _mount_on(directory: int, volume: EmptyDir) -> None:
    target = f"/proc/self/fd/{directory}"
    source = "tmpfs" if volume.medium == "tmpfs" else "nodev"
    try:
        if volume.medium == "tmpfs":
            # What is meant to stay in memory is not written to swap, where the kernel (6.4) can promise that.
            with suppress(OSError):
                return mounts.mount(source, target, volume.medium, f"{volume.options},noswap")
        mounts.mount(source, target, volume.medium, volume.options)
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise VolumeError(f"mount failed: {reason} (type {volume.medium}, options {volume.options})") from error


_IS_TYPE: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "FileOrCreate": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket file"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}


def check_host_path(volume: HostPath) -> None:
    """Have the path there if its type says to make it, and see that it is of its type. Links are followed.

    Raises VolumeError. Source: pkg/volume/hostpath.
    """
    path = volume.path
    if ".." in path.split("/"):
        raise VolumeError(f"invalid HostPath `{path}`: must not contain '..'")
    if not volume.type:
        return
    if volume.type not in _IS_TYPE:
        raise VolumeError(f"{volume.type} is an invalid volume type")
    is_type, description = _IS_TYPE[volume.type]
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = 0
    if not mode and volume.type.endswith("OrCreate"):
        _create(path, volume.type)
    elif not is_type(mode):
        raise VolumeError(f"hostPath type check failed: {path} is not a {description}")


def _create(path: str, kind: str) -> None:
    try:
        if kind == "DirectoryOrCreate":
            os.makedirs(path, 0o755, exist_ok=True)
        else:
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError as error:
        call = "mkdir" if kind == "DirectoryOrCreate" else "open"
        raise VolumeError(go_text(call, error.filename or path, error)) from error


def find_ready(root: str) -> dict[str, dict[str, Wanted]]:
    """Every pod with something on disk, by UID, and its emptyDirs that were set up to the end, by name."""
    pods_dir = os.path.realpath(paths.pods_dir(root))
    found: dict[str, dict[str, Wanted]] = {}
    if not os.path.isdir(pods_dir):
        return found
    mounted = {mount.mount_point: mount.fs_type for mount in mounts.mounts_under(pods_dir)}
    for uid in os.listdir(pods_dir):
        plugins, volumes = f"{pods_dir}/{uid}/plugins", f"{pods_dir}/{uid}/volumes"
        if not os.path.lexists(plugins) and not os.path.lexists(volumes):
            continue
        found[uid] = ready = {}
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(f"{plugins}/{EMPTY_DIR}"):
                directory = f"{volumes}/{EMPTY_DIR}/{name}"
                if os.path.exists(f"{plugins}/{EMPTY_DIR}/{name}/{READY}") and os.path.isdir(directory):
                    fs_type = mounted.get(directory, "")
                    if fs_type in ("", "tmpfs", "hugetlbfs"):
                        ready[name] = EmptyDir(name, fs_type)  # type: ignore[arg-type]
    return found
