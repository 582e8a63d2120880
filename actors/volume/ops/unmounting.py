"""Unmounts volumes, and mounts that are left below them. Blocks: runs in a helper process.

Of a volume whose data outlives the pod, only the empty directory below the mount is removed; a directory with content
makes the removal fail.

A container with Bidirectional propagation leaves its mounts in the volume's directory on the host. The bind of its
termination log is such a mount. They keep the volume busy, so they are unmounted first. Their content is not touched.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

from actors._host.files import mounts
from actors.volume.ops.inside import PATH
from actors.volume.steps.errors import VolumeError, go_text, tear_down_message
from actors.volume.steps.places import NFS

UNMOUNT_S = 5.0
"""Deadline of each unmount call."""
_STACKED = 8
"""Most stacked mounts that are unmounted at once."""
_MS_PRIVATE = 1 << 18
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EINVAL})
"""The mount has gone, or another one covers it."""


def remove(directory: int, plugin: str, name: str, path: str, progress: Callable[[], object]) -> None:
    """Unmount `name` in the open directory of its plugin, and remove it. Raises VolumeError, ChildStuck."""
    # The mount table tells if it is mounted; opening the directory could wait for the server.
    for _ in range(_STACKED):
        if not mounts.type_at(path):
            break
        _unmount(directory, plugin, name, path, progress)
    try:
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise VolumeError(tear_down_message(name, go_text("remove", path, error))) from error


def _unmount(directory: int, plugin: str, name: str, path: str, progress: Callable[[], object]) -> None:
    from actors.volume.ops import commands  # noqa: PLC0415 - memory that only a few helpers need

    # Without its server a plain unmount hangs. MNT_FORCE fails the pending calls; MNT_DETACH only hides the mount.
    for flag in (0, mounts.MNT_FORCE, mounts.MNT_DETACH) if plugin == NFS else (0,):
        try:
            if flag == mounts.MNT_DETACH:
                _check_nothing_below(path)
            commands.call(partial(unmount, directory, path, flag), UNMOUNT_S, progress)
            return
        except TimeoutError:
            continue
        except OSError as error:
            if error.errno == errno.EBUSY and flag == mounts.MNT_FORCE:
                continue
            raise VolumeError(tear_down_message(name, go_text("unmount", error.filename or path, error))) from error
    raise VolumeError(tear_down_message(name, f"unmount {path}: did not return in {UNMOUNT_S:.0f} s"))


def _check_nothing_below(path: str) -> None:
    # MNT_DETACH takes the whole tree, and each mount also at its source, such as a disk of the node.
    for point in _points(path)[1]:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), point)


def unmount(directory: int, path: str, flags: int = 0, tick: Callable[[], object] = bool) -> None:
    """Unmount `path`, whose last name is in the open directory. Raises OSError with the path of the mount that stays.

    When it is busy, the mounts below it go first. `flags`, `tick`: see mounts.unmount, unmount_below.
    """
    try:
        _unmount_one(directory, path, flags)
    except OSError as error:
        if error.errno != errno.EBUSY or flags or not unmount_below(directory, path, tick):
            raise
        _unmount_one(directory, path)


def unmount_below(directory: int, path: str, tick: Callable[[], object]) -> bool:
    """Unmount the mounts below `path`, the deepest first; False when there are none. Never lazily, and along no link.

    `tick` is called after each one. Raises OSError with the path of a mount that stays, such as one in use.
    """
    top, below = _points(path)
    if not below:
        return False
    # An unmount below a bind of a shared mount would also unmount at its source, such as a disk of the node. No table
    # here shows a source in another namespace. So an unmount reaches no copy elsewhere: it goes with its directory.
    for point, following in pairwise(sorted({f"{one}/" for one in (top, *below)})):
        if following.startswith(point):
            with _unless_gone(), _walked(directory, _names(top, point)) as mounted:
                mounts.mount("none", f"/proc/self/fd/{mounted}", "", "", _MS_PRIVATE)
    for point in sorted(below, key=lambda one: one.count("/"), reverse=True):
        with _unless_gone(), _walked(directory, _names(top, point)[:-1]) as parent:
            _unmount_one(parent, point)
        tick()
    return True


def _unmount_one(directory: int, path: str, flags: int = 0) -> None:
    try:
        mounts.unmount(f"/proc/self/fd/{directory}/{os.path.basename(path)}", flags)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _points(path: str) -> tuple[str, list[str]]:
    """`path` as the mount table has it, and the mount points below it. The table tells them, so no server is asked."""
    top = f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"
    return top, [one.mount_point for one in mounts.mounts_under(top) if one.mount_point != top]


def _names(top: str, point: str) -> list[str]:
    return point.rstrip("/")[len(os.path.dirname(top)) + 1 :].split("/")


@contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise


@contextmanager
def _walked(directory: int, names: Iterable[str]) -> Iterator[int]:
    # A process may still write to the volume: a directory on the way can become a link at any moment.
    here = os.dup(directory)
    try:
        for name in names:
            inner = os.open(name, PATH | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)
