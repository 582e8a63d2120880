"""Drops unreadable records (vol_data.json) of CSI volumes that are not mounted. Blocks: runs in a helper process.

Without a readable record the driver cannot be asked to unpublish the volume, and the pod would never be removed. The
kubelet, too, removes vol_data.json of an orphaned pod once nothing is mounted (pkg/kubelet/kubelet_volumes.go).
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from actors._host.files import paths
from actors._host.files.listing import names
from actors.volume.csi import disk
from actors.volume.ops import block
from actors.volume.steps import places
from actors.volume.steps.csi import Volume
from actors.volume.steps.errors import VolumeError

log = logging.getLogger(__name__)

_TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EWOULDBLOCK, errno.EINTR)
"""Errors of the machine, not of the file: the next try may read it."""


def drop(root: str, uid: str, progress: Callable[[str], object]) -> None:
    """Drop the pod's unreadable records of volumes that are not mounted. Raises VolumeError, OSError."""
    top = f"{paths.pod_volumes_dir(root, uid)}/{places.CSI}"
    for directory in names(top):
        if _is_lost(f"{top}/{directory}", f"{top}/{directory}/mount"):
            disk.unmark(root, Volume(uid, directory, "", ""))
            disk.remove_place(f"{top}/{directory}", "mount")
    top = places.csi_block_volumes_dir(root)
    for directory in names(top):
        device, target = f"{top}/{directory}/dev/{uid}", places.csi_block_target(root, directory, uid)
        if os.path.lexists(device) and _is_lost(f"{top}/{directory}/data", device, target):
            progress(directory)
            _drop_raw(root, uid, directory, target, partial(progress, directory))


def _is_lost(place: str, *mount_points: str) -> bool:
    try:
        disk.read_data(place)
    except VolumeError as error:
        is_transient = isinstance(error.__cause__, OSError) and error.__cause__.errno in _TRANSIENT
        if is_transient or any(disk.is_mount(one) for one in mount_points):
            return False
        log.warning("%s; dropping the record, since the volume is not mounted", error)
        return True
    return False


def _drop_raw(root: str, uid: str, directory: str, target: str, progress: Callable[[], object]) -> None:
    place = f"{places.csi_block_volumes_dir(root)}/{directory}"
    disk.unmark(root, Volume(uid, directory, "", "", block=True))
    block.unmap_device(root, uid, places.CSI, directory, f"{place}/dev", progress)
    with suppress(FileNotFoundError):
        os.unlink(target)
    with suppress(OSError):
        os.rmdir(os.path.dirname(target))
    with disk.device_records(root):
        block.give_back(f"{place}/dev", uid)
        disk.remove_device_record(root, directory)
