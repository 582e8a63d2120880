"""The system calls that set a volume up. They block, and run in a helper process.

Everything below a pod's directory is reached by directory file descriptors that follow no link. What is done is safe to
do again from any point, so that a process killed in between leaves nothing that the next one cannot finish.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from actors._host.files import mounts, paths
from actors.volume.ops import atomic_writer, ownership
from actors.volume.steps.errors import VolumeError, go_text
from actors.volume.steps.places import EMPTY_DIR
from actors.volume.steps.volumes import EmptyDir, Files, HostPath

DATA_MODE = 0o750
EMPTY_DIR_MODE = 0o777
READY = "ready"

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def ready_name(plugin: str, name: str) -> str:
    """The directory with the mark that a volume is ready; plugins that wrap an emptyDir have one of theirs for it."""
    return name if plugin == EMPTY_DIR else f"wrapped_{name}"


def mount_mark(root: str, uid: str, name: str) -> str:
    """The file that says that a mounted volume is the pod's group's; gone before the volume is, as an emptyDir's is."""
    return f"{paths.plugin_volume_dir(root, uid, EMPTY_DIR, f'mounted_{name}')}/{READY}"


def set_up_empty_dir(root: str, volume: EmptyDir) -> None:
    """The directory, its file system, its group, and the mark that it is ready."""
    with _open_volume(root, volume) as (directory, ready, was_ready):
        if was_ready:
            return
        if volume.fs_group is not None:
            ownership.set_directory(directory, volume.fs_group, read_only=False)
        _mark_ready(ready)


def set_up_files(root: str, volume: Files) -> None:
    """The directory as of an emptyDir, and the files in it. Ready once the files are there."""
    with _open_volume(root, volume.directory) as (directory, ready, _):
        atomic_writer.write(directory, volume.files, volume.directory.fs_group)
        _mark_ready(ready)


def _mark_ready(ready: int) -> None:
    os.close(os.open(READY, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644, dir_fd=ready))


@contextmanager
def _open_volume(root: str, volume: EmptyDir) -> Iterator[tuple[int, int, bool]]:
    """The volume's directory with its file system mounted, the one for the mark, and whether both were there before.

    An ordinary user has no file system of its own in memory: its volumes are directories on the disk.
    """
    if volume.medium == "tmpfs" and os.geteuid() != 0:
        volume = msgspec.structs.replace(volume, medium="", options="")
    make_dirs(paths.pods_dir(root))
    with ExitStack() as stack:

        def enter(parent: int, name: str, mode: int) -> int:
            fd = ensure_dir(parent, name, mode)
            stack.callback(os.close, fd)
            return fd

        pods = os.open(paths.pods_dir(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, pods)
        pod = enter(pods, volume.uid, DATA_MODE)
        plugin = enter(enter(pod, "volumes", DATA_MODE), volume.plugin, DATA_MODE)
        directory = enter(plugin, volume.name, EMPTY_DIR_MODE)
        plugins = enter(enter(pod, "plugins", DATA_MODE), EMPTY_DIR, DATA_MODE)
        ready = enter(plugins, ready_name(volume.plugin, volume.name), DATA_MODE)
        is_mounted = mounts.mount_id(directory) != mounts.mount_id(plugin)
        if os.access(READY, os.F_OK, dir_fd=ready) and is_mounted == bool(volume.medium):
            yield directory, ready, True
            return
        if not is_mounted:
            if stat.S_IMODE(os.fstat(directory).st_mode) != EMPTY_DIR_MODE:
                os.fchmod(directory, EMPTY_DIR_MODE)  # the umask took some away
            if volume.medium:
                _mount_on(directory, volume)
                directory = enter(plugin, volume.name, EMPTY_DIR_MODE)  # now the file system's own root
        yield directory, ready, False


def make_dirs(path: str, mode: int = DATA_MODE) -> None:
    """The directory and those above it, all with that mode whatever the umask is: a helper's is 0."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for one in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(one, mode)


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

    A path without a type is asked for too: on a file system that does not answer, the runtime would hang instead of us.
    Raises VolumeError. Source: pkg/volume/hostpath.
    """
    path = volume.path
    if ".." in path.split("/"):
        raise VolumeError(f"invalid HostPath `{path}`: must not contain '..'")
    if volume.type and volume.type not in _IS_TYPE:
        raise VolumeError(f"{volume.type} is an invalid volume type")
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = 0
    if not volume.type:
        return
    is_type, description = _IS_TYPE[volume.type]
    if not mode and volume.type.endswith("OrCreate"):
        _create(path, volume.type)
    elif not is_type(mode):
        raise VolumeError(f"hostPath type check failed: {path} is not a {description}")


def _create(path: str, kind: str) -> None:
    try:
        if kind == "DirectoryOrCreate":
            make_dirs(path, 0o755)
        else:
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError as error:
        call = "mkdir" if kind == "DirectoryOrCreate" else "open"
        raise VolumeError(go_text(call, error.filename or path, error)) from error
