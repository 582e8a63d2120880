"""Unmounts volumes whose data outlives the pod. Blocks: runs in a helper process.

Only the empty directory below the mount is removed; a directory with content makes the removal fail.
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
"""Deadline of each unmount call."""
_STACKED = 8
"""Most stacked mounts that are unmounted at once."""


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

    target = f"/proc/self/fd/{directory}/{name}"
    # Without its server a plain unmount hangs. MNT_FORCE fails the pending calls; MNT_DETACH only hides the mount.
    for flag in (0, mounts.MNT_FORCE, mounts.MNT_DETACH) if plugin == NFS else (0,):
        try:
            commands.call(partial(mounts.unmount, target, flag), UNMOUNT_S, progress)
            return
        except TimeoutError:
            continue
        except OSError as error:
            if error.errno == errno.EBUSY and flag == mounts.MNT_FORCE:
                continue
            raise VolumeError(tear_down_message(name, go_text("unmount", path, error))) from error
    raise VolumeError(tear_down_message(name, f"unmount {path}: did not return in {UNMOUNT_S:.0f} s"))
