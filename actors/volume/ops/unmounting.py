"""Taking mounts of what outlives the pod away from it. Blocks: runs in a helper process.

Nothing is deleted but the empty directory below the mount; whatever else is there makes the removal fail.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial

from actors._host.files import mounts
from actors.volume.steps.errors import VolumeError, go_text, tear_down_message
from actors.volume.steps.places import NFS

UNMOUNT_S = 5.0
"""Each way of unmounting gets so long."""
_STACKED = 8
"""Mounts on top of one another that are unmounted at once."""


def remove(directory: int, plugin: str, name: str, path: str, progress: Callable[[], object]) -> None:
    """Unmount `name` in the open directory of its plugin, and remove it. Raises VolumeError, ChildStuck."""
    # Whether it is mounted is read in the table: to open the directory could ask the server.
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

    target = f"/proc/self/fd/{directory}/{name}"
    # A server that is gone keeps a plain unmount waiting; by force, what waits for it fails; the last resort hides it.
    ways = (0, mounts.MNT_FORCE, mounts.MNT_DETACH) if plugin == NFS else (0,)
    for way in ways:
        try:
            commands.call(partial(mounts.unmount, target, way), UNMOUNT_S, progress)
            return
        except TimeoutError:
            continue
        except OSError as error:
            if error.errno == errno.EBUSY and way == mounts.MNT_FORCE:
                continue
            raise VolumeError(tear_down_message(name, go_text("unmount", path, error))) from error
    raise VolumeError(tear_down_message(name, f"unmount {path}: did not return in {UNMOUNT_S:.0f} s"))
