"""Sets up emptyDirs, volumes made of files, and hostPaths. Blocks: runs in a helper process.

Everything below a pod's directory is reached by directory descriptors that follow no link. Every step can be repeated
from any point, so that the next helper finishes the work of a killed one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from actors._host import selinux
from actors._host.files import mounts, paths
from actors.volume.ops import atomic_writer, ownership
from actors.volume.ops.inside import DIRECTORY, PATH, opened
from actors.volume.steps.errors import VolumeError, go_text
from actors.volume.steps.places import EMPTY_DIR
from actors.volume.steps.volumes import EmptyDir, Files, HostPath

DATA_MODE = 0o750
EMPTY_DIR_MODE = 0o777
MOUNT_POINT_MODE = 0o755
READY = "ready"


def ready_name(plugin: str, name: str) -> str:
    """Name of the directory with a volume's `ready` mark; plugins that wrap an emptyDir have another one."""
    return name if plugin == EMPTY_DIR else f"wrapped_{name}"


def mount_mark(root: str, uid: str, name: str) -> str:
    """Path of the mark that a mounted volume belongs to the pod's group; it is removed before the volume."""
    return f"{paths.plugin_volume_dir(root, uid, EMPTY_DIR, f'mounted_{name}')}/{READY}"


def set_up_empty_dir(root: str, volume: EmptyDir) -> None:
    """Create the directory with its file system, group and `ready` mark. Raises VolumeError, OSError."""
    with _open_volume(root, volume) as (directory, ready, was_ready):
        if was_ready:
            return
        if volume.fs_group is not None:
            ownership.set_directory(directory, volume.fs_group, read_only=False)
        _mark_ready(ready)


def set_up_files(root: str, volume: Files) -> None:
    """Create the directory as for an emptyDir, write its files, and mark it as ready. Raises VolumeError, OSError.

    Mount points come first: a file of the same name gives way. Source: MakeNestedMountpoints of pkg/volume/util.
    """
    with _open_volume(root, volume.directory) as (directory, ready, _):
        for path in volume.mount_points:
            _make_mount_point(directory, path, volume.directory.fs_group)
        atomic_writer.write(directory, volume.files, volume.directory.fs_group)
        _mark_ready(ready)


def _make_mount_point(volume: int, path: str, fs_group: int | None) -> None:
    """Make the directories of a relative path in the open volume.

    It ends at a link or file that is there already, which running containers may use: the runtime tells what it cannot
    mount. It ends at a mount, too, which a container may have propagated here.
    """
    with ExitStack() as stack:
        here = volume
        for name in path.split("/"):
            made = _made(here, name)
            here = stack.enter_context(opened(name, PATH, here))
            if not stat.S_ISDIR(os.fstat(here).st_mode) or mounts.mount_id(here) != mounts.mount_id(volume):
                return
            if made:
                os.chmod(f"/proc/self/fd/{here}", MOUNT_POINT_MODE)  # the umask may have removed bits
            if fs_group is not None and not ownership.matches(here, fs_group, read_only=True):
                ownership.set_directory(here, fs_group, read_only=True)


def _made(parent: int, name: str) -> bool:
    try:
        os.mkdir(name, MOUNT_POINT_MODE, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _mark_ready(ready: int) -> None:
    os.close(os.open(READY, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644, dir_fd=ready))


@contextmanager
def _open_volume(root: str, volume: EmptyDir) -> Iterator[tuple[int, int, bool]]:
    """Yields the open volume directory, the open directory of its mark, and True when both were ready before.

    Without root, file systems in memory cannot be mounted: such volumes are directories on the disk.
    """
    if volume.medium == "tmpfs" and os.geteuid() != 0:
        volume = msgspec.structs.replace(volume, medium="", options="")
    make_dirs(paths.pods_dir(root))
    with ExitStack() as stack:

        def enter(parent: int, name: str, mode: int) -> int:
            fd = ensure_dir(parent, name, mode)
            stack.callback(os.close, fd)
            return fd

        pods = stack.enter_context(opened(paths.pods_dir(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        pod = enter(pods, volume.uid, DATA_MODE)
        plugin = enter(enter(pod, "volumes", DATA_MODE), volume.plugin, DATA_MODE)
        plugins = enter(enter(pod, "plugins", DATA_MODE), EMPTY_DIR, DATA_MODE)
        ready = enter(plugins, ready_name(volume.plugin, volume.name), DATA_MODE)
        _drop_stale_mark(ready, plugin, volume.name)
        directory = enter(plugin, volume.name, EMPTY_DIR_MODE)
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
        selinux.share_content(directory)
        yield directory, ready, False


def _drop_stale_mark(ready: int, plugin: int, name: str) -> None:
    # The node's owner removed the directory alone: the next one needs its group and mode again.
    try:
        os.lstat(name, dir_fd=plugin)
    except FileNotFoundError:
        with suppress(FileNotFoundError):
            os.unlink(READY, dir_fd=ready)


def make_dirs(path: str, mode: int = DATA_MODE) -> None:
    """Create a directory and its parents, all with this mode (a helper's umask is 0). Raises OSError."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for one in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(one, mode)


def ensure_dir(parent: int, name: str, mode: int) -> int:
    """Open the directory `name` in `parent`, created if missing. Raises OSError, also for a link in its place."""
    with suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=parent)
    return os.open(name, DIRECTORY, dir_fd=parent)


def _mount_on(directory: int, volume: EmptyDir) -> None:
    target = f"/proc/self/fd/{directory}"
    source = "tmpfs" if volume.medium == "tmpfs" else "nodev"
    try:
        if volume.medium == "tmpfs":
            # Secrets must not be written to swap; kernels since 6.4 have this option.
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
    """Check the type of a path, and create it if its type says so. Links are followed. Raises VolumeError.

    A path without a type is read too: on a file system that hangs, the runtime would hang instead of this helper.
    Source: pkg/volume/hostpath.
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
