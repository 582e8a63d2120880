"""Taking away what pods left on disk: directories, logs, symlinks. Blocks; may be repeated.

A directory is first moved aside and then deleted. A static pod that comes back keeps its UID, and so its paths: what it
makes while the old directory is being deleted is a new one, which nobody deletes. What an earlier run moved aside and
did not live to delete goes with the next.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Collection, Iterable

from actors._host.files import mounts, paths
from actors._host.files.listing import names

log = logging.getLogger(__name__)

ASIDE = ".removed-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 200
"""Nobody but a container with a host path into them makes deeper ones; they are left and said."""


def has_volumes(root: str, uid: str) -> bool:
    """Whether any volume of the pod is left: the volume actor must take it down, which knows what it is."""
    volumes = paths.pod_volumes_dir(root, uid)
    # A directory for raw devices goes with the last of them, whose link may be gone before it is given back.
    return bool(names(paths.pod_devices_dir(root, uid))) or any(names(f"{volumes}/{one}") for one in names(volumes))


def with_volumes(root: str, uids: Iterable[str]) -> list[str]:
    """Those of the pods that have any volume left."""
    return [uid for uid in uids if has_volumes(root, uid)]


def mounted_pods(root: str) -> set[str]:
    """UIDs of pods with anything mounted below their directory."""
    pods = os.path.realpath(paths.pods_dir(root))
    return {mount.mount_point[len(pods) + 1 :].partition("/")[0] for mount in mounts.mounts_under(pods)}


def remove_pod_directories(root: str, uids: Iterable[str], note: Callable[[list[str]], None] | None = None) -> int:
    """Remove these pods' directories; how many went. One with a volume or a mount in it stays, and is said.

    `note` is called before with the UIDs of those that go.
    """
    aside = f"{paths.checkpoints_dir(root)}/removed"
    wanted = [uid for uid in uids if os.path.isdir(paths.pod_dir(root, uid))]
    mounted = mounted_pods(root) if wanted else set()
    going = []
    for uid in wanted:
        if uid in mounted or has_volumes(root, uid):
            log.warning("cannot remove the directory of pod %s yet: a volume is still in it", uid)
            continue
        going.append(uid)
    if note is not None:
        note(going)
    moved = []
    for uid in going:
        os.makedirs(aside, mode=0o700, exist_ok=True)
        moved += _move(paths.pod_dir(root, uid), f"{aside}/{ASIDE}{uid}")
    _delete_aside(aside)
    return len(moved)


def remove_log_directories(pod_logs_dir: str, directories: Iterable[str]) -> int:
    """Remove log directories by name; how many went. A name may be of one that an earlier run moved aside."""
    wanted = set(directories)
    aside = {name for name in wanted if name.startswith(ASIDE)}
    moved = []
    for name in sorted(wanted - aside):
        moved += _move(f"{pod_logs_dir}/{name}", f"{pod_logs_dir}/{ASIDE}{name}")
    _delete_aside(pod_logs_dir, aside.union(map(os.path.basename, moved)))
    return len(moved)


def _move(path: str, target: str) -> list[str]:
    """The new path, or nothing when there was nothing to move."""
    try:
        if os.path.lexists(target):
            delete_tree(target)  # of an earlier life of the same pod
        os.rename(path, target)
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("cannot move %s aside to remove it: %s", path, error)
        return []
    return [target]


def _delete_aside(directory: str, only: Collection[str] | None = None) -> None:
    """`only`: these names alone, in a directory that other agents may use, too."""
    asides = (name for name in names(directory) if name.startswith(ASIDE))
    leftovers = [name for name in asides if only is None or name in only]
    if not leftovers:
        return
    real = os.path.realpath(directory)
    mounted = {mount.mount_point for mount in mounts.mounts_under(real)}
    for name in leftovers:
        path = f"{directory}/{name}"
        if any(f"{point}/".startswith(f"{real}/{name}/") for point in mounted):
            log.warning("cannot remove %s: something was mounted below it meanwhile; unmount it", path)
            continue
        try:
            delete_tree(path)
        except OSError as error:
            log.warning("cannot remove %s: %s; tried again later", path, error)


def delete_tree(path: str) -> None:
    """Delete a directory with all below it on its own file system; follows no link. Raises OSError."""
    try:
        fd = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        os.unlink(path)
        return
    try:
        _clear(fd, os.fstat(fd).st_dev, 0)
    finally:
        os.close(fd)
    os.rmdir(path)


def _clear(fd: int, device: int, depth: int) -> None:
    if depth > _DEEPEST:
        raise OSError(errno.ENAMETOOLONG, "directories are nested too deep")
    with os.scandir(fd) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=fd)
                continue
            child = os.open(entry.name, _DIRECTORY, dir_fd=fd)
            try:
                if os.fstat(child).st_dev != device:
                    raise OSError(errno.EXDEV, f"{entry.name} is a mount point")
                _clear(child, device, depth + 1)
            finally:
                os.close(child)
            os.rmdir(entry.name, dir_fd=fd)


def remove_container_log(log_path: str) -> None:
    """Remove one container life's log, and what rotation made of it. Never raises: the directory goes some day."""
    directory, name = os.path.split(log_path)
    for entry in names(directory):
        if entry == name or entry.startswith(f"{name}."):
            with contextlib.suppress(OSError):
                os.unlink(f"{directory}/{entry}")


def dead_symlinks(container_logs_dir: str, pod_logs_dir: str) -> dict[str, str]:
    """Symlinks into the pods' logs whose log is not there: the name of its pod's log directory, by the link's name.

    One that leads elsewhere is another program's.
    """
    dead = {}
    for name in names(container_logs_dir):
        path = f"{container_logs_dir}/{name}"
        with contextlib.suppress(OSError):
            target = os.readlink(path)
            if name.endswith(".log") and target.startswith(f"{pod_logs_dir}/") and not os.path.exists(path):
                dead[name] = target[len(pod_logs_dir) + 1 :].partition("/")[0]
    return dead


def symlinks_into(container_logs_dir: str, log_directories: Iterable[str]) -> list[str]:
    """Names of symlinks into these log directories (full paths)."""
    wanted = tuple(f"{directory}/" for directory in log_directories)
    found = []
    for name in names(container_logs_dir) if wanted else ():
        with contextlib.suppress(OSError):
            if os.readlink(f"{container_logs_dir}/{name}").startswith(wanted):
                found.append(name)
    return found


def remove_symlinks(container_logs_dir: str, links: Iterable[str]) -> None:
    """Remove symlinks by name; what is no symlink stays."""
    for name in links:
        path = f"{container_logs_dir}/{name}"
        with contextlib.suppress(OSError):
            if os.path.islink(path):
                os.unlink(path)
