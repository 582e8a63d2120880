"""Removes directories, logs and log symlinks of pods. Every call blocks and is idempotent.

A directory is renamed to a trash name before it is deleted. A static pod that comes back keeps its UID and its paths:
it creates a new directory while the old one is being deleted. The next run deletes the trash of a run that was killed.
Trash is on the file system of its directory: ROOT_DIR/pods may be a mount.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from actors._host.files import mounts, paths, trees
from actors._host.files.listing import names
from actors.container_gc.policy import log_directory_uid
from proto.wire.errors import AskTimeout

T = TypeVar("T")

log = logging.getLogger(__name__)

TRASH = ".removed-"


def in_time(timeout_s: float, function: Callable[..., T]) -> Callable[..., T]:
    """Return `function`, which raises AskTimeout when it begins later than `timeout_s` from now.

    A removal that waited behind a hung disk was decided too long ago: a static pod may have come back with its paths.
    """
    deadline = time.monotonic() + timeout_s

    @functools.wraps(function)
    def begun(*args: Any) -> T:
        if time.monotonic() >= deadline:
            raise AskTimeout(f"{function.__name__} did not begin within {timeout_s:g} s")
        return function(*args)

    return begun


def has_volumes(root: str, uid: str) -> bool:
    """Return True when the pod has a volume left. Only the volume actor knows how to unmount it."""
    volumes = paths.pod_volumes_dir(root, uid)
    # The directory of raw devices goes with the last device. A device's link may go before its detach has ended.
    return bool(names(paths.pod_devices_dir(root, uid))) or any(names(f"{volumes}/{one}") for one in names(volumes))


def with_volumes(root: str, uids: Iterable[str]) -> list[str]:
    """Return the pods that have a volume left."""
    return [uid for uid in uids if has_volumes(root, uid)]


def mounted_pods(root: str) -> set[str]:
    """Return the UIDs of pods with a mount below their directory."""
    pods = os.path.realpath(paths.pods_dir(root))
    return {mount.mount_point[len(pods) + 1 :].partition("/")[0] for mount in mounts.mounts_under(pods)}


def remove_pod_directories(root: str, uids: Iterable[str], note: Callable[[list[str]], None] | None = None) -> int:
    """Remove these pods' directories; return how many. One with a volume or a mount stays and is logged.

    `note` is called first, with the UIDs of the directories to be removed.
    """
    trash, pods = f"{paths.checkpoints_dir(root)}/removed", paths.pods_dir(root)
    wanted = [uid for uid in uids if not uid.startswith(TRASH) and os.path.isdir(paths.pod_dir(root, uid))]
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
        os.makedirs(trash, mode=0o700, exist_ok=True)
        moved += _move(paths.pod_dir(root, uid), f"{trash}/{TRASH}{uid}", f"{pods}/{TRASH}{uid}")
    _delete_trash(trash)
    _delete_trash(pods)
    return len(moved)


def remove_log_directories(pod_logs_dir: str, directories: Iterable[str]) -> int:
    """Remove log directories by name; return how many. A name may be the trash of an earlier run."""
    wanted = set(directories)
    trash = {name for name in wanted if name.startswith(TRASH)}
    moved = []
    for name in sorted(wanted - trash):
        moved += _move(f"{pod_logs_dir}/{name}", f"{pod_logs_dir}/{_log_trash(name)}")
    _delete_trash(pod_logs_dir, trash.union(map(os.path.basename, moved)))
    return len(moved)


def _log_trash(name: str) -> str:
    """Return a new trash name for a log directory. `policy.log_directory_uid` finds the pod's UID in it.

    The name itself may be as long as a file's name may be, so only the UID is kept.
    """
    return f"{TRASH}{secrets.token_hex(8)}__{log_directory_uid(name)}"


def _move(path: str, target: str, beside: str = "") -> list[str]:
    """Return the new path, or nothing when the rename was not possible.

    `beside` is a name on the file system of `path`, for a `target` on another one.
    """
    try:
        if os.path.lexists(target):
            trees.remove(target)  # of an earlier pod with this UID
        os.rename(path, target)
    except FileNotFoundError:
        return []
    except OSError as error:
        if error.errno == errno.EXDEV and beside:
            return _move(path, beside)
        log.warning("cannot rename %s for its removal: %s; trying again later", path, error)
        return []
    return [target]


def _delete_trash(directory: str, only: Collection[str] | None = None) -> None:
    """Delete trash in a directory; `only` these names in a directory that other agents share."""
    found = (name for name in names(directory) if name.startswith(TRASH))
    leftovers = [name for name in found if only is None or name in only]
    if not leftovers:
        return
    real = os.path.realpath(directory)
    mounted = {mount.mount_point for mount in mounts.mounts_under(real)}
    for name in leftovers:
        path = f"{directory}/{name}"
        if any(f"{point}/".startswith(f"{real}/{name}/") for point in mounted):
            log.warning("cannot remove %s: there is a mount below it; unmount it", path)
            continue
        try:
            trees.remove(path)
        except OSError as error:
            log.warning("cannot remove %s: %s; tried again later", path, error)


def remove_container_log(log_path: str) -> int:
    """Remove a container's log and its rotated files; return their bytes.

    Never raises: the whole directory goes later.
    """
    directory, name = os.path.split(log_path)
    size = 0
    for entry in names(directory):
        if entry == name or entry.startswith(f"{name}."):
            with contextlib.suppress(OSError):
                own = os.lstat(f"{directory}/{entry}").st_size
                os.unlink(f"{directory}/{entry}")
                size += own
    return size


def dead_symlinks(container_logs_dir: str, pod_logs_dir: str) -> dict[str, str]:
    """Return dangling log symlinks: link name to the name of the pod's log directory.

    A link that leads out of `pod_logs_dir` belongs to another program and is left out.
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
    """Return the names of symlinks into these log directories (full paths)."""
    wanted = tuple(f"{directory}/" for directory in log_directories)
    found = []
    for name in names(container_logs_dir) if wanted else ():
        with contextlib.suppress(OSError):
            if os.readlink(f"{container_logs_dir}/{name}").startswith(wanted):
                found.append(name)
    return found


def remove_symlinks(container_logs_dir: str, links: Iterable[str]) -> None:
    """Remove symlinks by name; other files stay."""
    for name in links:
        path = f"{container_logs_dir}/{name}"
        with contextlib.suppress(OSError):
            if os.path.islink(path):
                os.unlink(path)
