"""Removes a pod's volumes from disk, in slices of time. Blocks: runs in a helper process.

It deletes only content of the volume's own file system. No link is followed. Each open directory's mount ID is compared
with the volume's, which also detects bind mounts and cannot be raced. A mount inside a volume that goes with the pod is
unmounted, and its content is not touched. While a process uses that mount, the removal fails and is tried again.
Source: TearDownAt of pkg/volume/emptydir, test/e2e_node/emptydir_bidirectional_teardown_linux_test.go.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from actors._host.files import mounts, paths
from actors.volume.ops import block, unmounting
from actors.volume.ops.inside import DIRECTORY, PATH, opened
from actors.volume.steps.errors import VolumeError, go_text, tear_down_message
from actors.volume.steps.places import MOUNTED_PLUGINS
from actors.volume.steps.removal_rules import VolumeDir, removal_steps

At = Callable[..., None]
"""Called with the name of the volume in work, to mark progress, and with the files that have their new owner."""

_DEEPEST = 64
"""Directories below this depth are moved up first: containers can nest them deeper than a process may open files."""
_STACKED = 8
"""Most stacked mounts that are unmounted at once."""


class OutOfTime(Exception):
    """The slice of time is over, with more to delete."""


class _MountPoint(VolumeError):
    """A mount inside the volume is in the way."""


def remove_pod_volumes(root: str, uid: str, slice_s: float, at: At = lambda _: None) -> bool:
    """Unmount and delete the pod's volumes and plugin directories. Idempotent.

    False when `slice_s` seconds were too short: call again. Raises VolumeError when a volume must not or cannot go.
    """
    deadline = time.monotonic() + slice_s
    try:
        with _open_pod(root, uid) as pod:
            if pod is not None:
                # Sub paths go before their volume, since these bind mounts keep its file system busy.
                _unbind_sub_paths(pod, paths.subpaths_dir(root, uid), at)
                _give_back_devices(root, uid, at)
                _remove_pod(pod, paths.pod_dir(root, uid), deadline, at)
    except OutOfTime:
        return False
    return True


@contextmanager
def _open_pod(root: str, uid: str) -> Iterator[int | None]:
    try:
        pods = os.open(paths.pods_dir(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        with _open_dir(pods, uid, paths.pod_dir(root, uid)) as pod:
            yield pod
    finally:
        os.close(pods)


def _give_back_devices(root: str, uid: str, at: At) -> None:
    # Devices of local volumes only: drivers have taken theirs back. The directories go with the last device.
    directory = paths.pod_devices_dir(root, uid)
    if not os.path.isdir(directory):
        return
    block.remove_local(root, uid, at)
    try:
        for plugin in os.listdir(directory):
            os.rmdir(f"{directory}/{plugin}")
        os.rmdir(directory)
    except OSError as error:
        raise VolumeError(go_text("rmdir", error.filename or directory, error)) from error


def unbind_pod_sub_paths(root: str, uid: str, at: At) -> None:
    """Unmount the pod's sub paths, which would keep its volumes busy. Idempotent."""
    with _open_pod(root, uid) as pod:
        if pod is not None:
            _unbind_sub_paths(pod, paths.subpaths_dir(root, uid), at)


def _unbind_sub_paths(pod: int, path: str, at: At) -> None:
    with _open_dir(pod, paths.SUBPATHS, path) as top:
        for volume in os.listdir(top) if top is not None else ():
            at(volume)
            with _open_dir(top or 0, volume, f"{path}/{volume}") as containers:
                for container in os.listdir(containers) if containers is not None else ():
                    inner = f"{path}/{volume}/{container}"
                    with _open_dir(containers or 0, container, inner) as targets:
                        for name in os.listdir(targets) if targets is not None else ():
                            _unbind(targets or 0, name, f"{inner}/{name}", partial(at, volume))
                    _rmdir(containers or 0, container, inner)
            _rmdir(top or 0, volume, f"{path}/{volume}")
    _rmdir(pod, paths.SUBPATHS, path)


def _unbind(directory: int, name: str, path: str, tick: Callable[[], object]) -> None:
    while _is_mounted(directory, name):
        try:
            unmounting.unmount(directory, path, tick=tick)
        except OSError as error:
            raise VolumeError(f"error cleaning subpath mount {go_text('unmount', error.filename, error)}") from error
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return
    except OSError:
        _rmdir(directory, name, path)


def _is_mounted(parent: int, name: str) -> bool:
    # O_PATH does not touch a mounted file system, which may not answer.
    try:
        with opened(name, PATH, parent) as fd:
            return mounts.mount_id(fd) != mounts.mount_id(parent)
    except FileNotFoundError:
        return False


def _remove_pod(pod: int, path: str, deadline: float, at: At) -> None:
    # The marks go first, so that after a kill a half-deleted volume does not count as ready.
    errors: list[VolumeError] = []
    for part in ("plugins", "volumes"):
        with _open_dir(pod, part, f"{path}/{part}") as directory:
            if directory is None:
                continue
            for plugin in os.listdir(directory):
                with _open_dir(directory, plugin, f"{path}/{part}/{plugin}") as opened:
                    for name in os.listdir(opened) if opened is not None else ():
                        at(name)
                        try:
                            inner = f"{path}/{part}/{plugin}/{name}"
                            if plugin in MOUNTED_PLUGINS:
                                unmounting.remove(opened or 0, plugin, name, inner, partial(at, name))
                            else:
                                _remove_volume(opened or 0, plugin, name, inner, deadline)
                        except VolumeError as error:
                            errors.append(error)  # the pod's other volumes are removed all the same
                if not errors:
                    _rmdir(directory, plugin, f"{path}/{part}/{plugin}")
        if not errors:
            _rmdir(pod, part, f"{path}/{part}")
    if errors:
        raise errors[0]


def _remove_volume(plugin_fd: int, plugin: str, name: str, path: str, deadline: float) -> None:
    tick = partial(_check_time, deadline)
    for _ in range(_STACKED):
        if not _is_mounted(plugin_fd, name):
            break
        removal_steps(VolumeDir(plugin, name, mounts.type_at(path) or "unknown"))
        try:
            unmounting.unmount(plugin_fd, path, tick=tick)
        except OSError as error:
            # Never lazily: a process or mount that still uses it would keep it while the pod counts as removed. The
            # kubelet's unmount fails here too, and is tried again.
            raise VolumeError(tear_down_message(name, go_text("unmount", error.filename, error))) from error
    delete = "delete" in removal_steps(VolumeDir(plugin, name))
    with _open_dir(plugin_fd, name, path) as volume:
        if volume is None:
            return
        if delete:
            deletion = _Deletion(volume, path, deadline)
            try:
                deletion.run()
            except _MountPoint:
                try:
                    unmounting.unmount_below(plugin_fd, path, tick)
                except OSError as error:
                    raise VolumeError(tear_down_message(name, go_text("unmount", error.filename, error))) from error
                deletion.run()
    _rmdir(plugin_fd, name, path, again=delete)


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise OutOfTime


@contextmanager
def _open_dir(parent: int, name: str, path: str) -> Iterator[int | None]:
    # Yields None when the directory does not exist; a link or a file in its place is an error.
    try:
        fd = os.open(name, DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise VolumeError(go_text("open", path, error)) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _rmdir(parent: int, name: str, path: str, *, again: bool = False) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError as error:
        if again and error.errno == errno.ENOTEMPTY:
            raise OutOfTime from None  # an entry was added or moved up meanwhile
        raise VolumeError(go_text("rmdir", path, error)) from error


class _Deletion:
    """Deletes the content of one directory until the deadline."""

    def __init__(self, top: int, path: str, deadline: float) -> None:
        self.top, self.path, self.deadline = top, path, deadline
        self.mount = mounts.mount_id(top)
        self.moved = 0

    def run(self) -> None:
        self._clear(self.top, self.path, 0)

    def _clear(self, directory: int, path: str, depth: int) -> None:
        with os.scandir(directory) as entries:
            for entry in entries:
                _check_time(self.deadline)
                inner = f"{path}/{entry.name}"
                try:
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.name, dir_fd=directory)
                    elif depth < _DEEPEST:
                        self._remove_dir(directory, entry.name, inner, depth)
                    else:
                        self._move_up(directory, entry.name)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    refusal = _MountPoint if error.errno == errno.EBUSY else VolumeError
                    raise refusal(go_text("remove", inner, error)) from error

    def _remove_dir(self, parent: int, name: str, path: str, depth: int) -> None:
        # A mount point is found without opening it: its file system may not answer.
        try:
            os.rmdir(name, dir_fd=parent)
            return
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise
        with opened(name, DIRECTORY, parent) as child:
            if mounts.mount_id(child) != self.mount:
                raise _MountPoint(f"remove {path}: it is a mount point, whose content is not the volume's: unmount it")
            self._clear(child, path, depth + 1)
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            raise OutOfTime from None

    def _move_up(self, parent: int, name: str) -> None:
        self.moved += 1
        with suppress(FileExistsError):
            target = f".removed-{os.getpid()}-{time.monotonic_ns()}-{self.moved}"
            os.rename(name, target, src_dir_fd=parent, dst_dir_fd=self.top)
