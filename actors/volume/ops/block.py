"""Raw block devices for pods, in the kubelet's layout. Blocks: runs in a helper process.

    GLOBAL/UID                              the bound device, and a loop device on it, which keeps the device in use
                                            while the pod has it
    pods/UID/volumeDevices/PLUGIN/NAME      a link to the device, which the runtime gets

GLOBAL is the plugin's directory for the volume. Every operation can be repeated from any point. Source: MapBlockVolume
of pkg/volume/util, pkg/volume/util/volumepathhandler.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from actors._host.files import mounts, paths
from actors._host.files.listing import names
from actors.volume.ops.setup import make_dirs
from actors.volume.steps.errors import VolumeError, go_text
from actors.volume.steps.places import LOCAL_VOLUME, local_block_dir
from actors.volume.steps.volumes import Block

FAILED = "MapVolume.MapBlockVolume failed"
Progress = Callable[[], object]

_LOOPS = "/sys/block"
_LOOP_SET_FD, _LOOP_CLR_FD, _LOOP_CTL_GET_FREE = 0x4C00, 0x4C01, 0x4C82
_TRIES = 64
"""Tries to get a free loop device, since another process may take it first."""
_FREE_S, _RETRY_S = 5.0, 0.005
"""Time for programs that scan all devices to close this one."""
_STACKED = 8
"""Most stacked mounts that are unmounted at once."""


def set_up_local(root: str, volume: Block, progress: Progress) -> None:
    """Give a pod a block device of the node. Raises VolumeError, OSError."""
    if not os.path.lexists(volume.path):
        raise VolumeError(f'path "{volume.path}" does not exist', FAILED)
    try:
        map_device(
            root, volume.uid, volume.plugin, volume.name, volume.path, local_block_dir(root, volume.name), progress
        )
    except VolumeError as error:
        raise VolumeError(str(error), FAILED) from error


def map_device(root: str, uid: str, plugin: str, name: str, device: str, place: str, progress: Progress) -> None:
    """Give a pod a device; `place` is GLOBAL. Raises VolumeError, OSError."""
    if not stat.S_ISBLK(os.stat(device).st_mode):
        raise VolumeError(f"{device} is not a block device")
    link = paths.pod_device(root, uid, plugin, name)
    make_dirs(os.path.dirname(link))
    # The link comes first: after a kill the removal finds the device by it.
    if not os.path.islink(link) or os.readlink(link) != device:
        with suppress(FileNotFoundError):
            os.unlink(link)
        os.symlink(device, link)
    target = claim(place, uid)
    if not mounts.type_at(target):
        try:
            mounts.bind(device, target)
        except OSError as error:
            raise VolumeError(f"failed to bind mount devicePath: {device} to linkPath {target}: {error}") from error
    progress()
    if not list(_loops(target)):
        _attach_loop(target)


def claim(place: str, uid: str) -> str:
    """Create the file to which a pod's device is bound, the sign that the pod has or may have it; returns its path."""
    make_dirs(place)
    target = f"{os.path.realpath(place)}/{uid}"
    with suppress(FileExistsError):
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))
    return target


def unmap_device(root: str, uid: str, plugin: str, name: str, place: str, progress: Progress) -> None:
    """Take the device from the pod; the file to which it was bound stays. Raises VolumeError, OSError."""
    target = f"{os.path.realpath(place)}/{uid}"
    for loop in _loops(target):
        progress()
        _detach_loop(loop)
    deadline = time.monotonic() + _FREE_S
    for _ in range(_STACKED):
        if not mounts.type_at(target):
            break
        _unmount(target, deadline, progress)
    with suppress(FileNotFoundError):
        os.unlink(paths.pod_device(root, uid, plugin, name))


def give_back(place: str, uid: str) -> None:
    """Remove the pod's file, and the directory with the last file. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(f"{place}/{uid}")
    with suppress(OSError):
        os.rmdir(place)


def remove_local(root: str, uid: str, at: Callable[[str], object]) -> None:
    """Take all local devices from a pod; `at` marks the volume in work. Raises VolumeError, OSError."""
    directory = f"{paths.pod_devices_dir(root, uid)}/{LOCAL_VOLUME}"
    for name in names(directory):
        place = local_block_dir(root, name)
        try:
            unmap_device(root, uid, LOCAL_VOLUME, name, place, partial(at, name))
            give_back(place, uid)
        except OSError as error:
            raise VolumeError(f'UnmapVolume.UnmapBlockVolume failed for volume "{name}" : {error}') from error


def _loops(target: str) -> Iterator[str]:
    for name in names(_LOOPS):
        if name.startswith("loop"):
            with suppress(OSError):
                behind = Path(f"{_LOOPS}/{name}/loop/backing_file").read_bytes()  # also of files that users named
                if behind.removesuffix(b"\n") == os.fsencode(target):
                    yield f"/dev/{name}"


def _attach_loop(target: str) -> None:
    # By ioctl (loop(4)) and not by losetup(8): a process that uses gRPC must not fork.
    try:
        device = os.open(target, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        device = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            with open("/dev/loop-control", "rb") as control:
                number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
            try:
                with open(f"/dev/loop{number}", "rb") as loop:
                    fcntl.ioctl(loop, _LOOP_SET_FD, device)
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
        raise OSError(errno.EBUSY, "no free loop device", target)
    finally:
        os.close(device)


def _unmount(target: str, deadline: float, progress: Progress) -> None:
    # LOOP_CLR_FD takes effect when the last process closes the loop device. A program that scans all block devices,
    # such as udev or losetup(8), may have it open for a moment; until then the file is busy.
    while True:
        try:
            return mounts.unmount(target)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise VolumeError(go_text("unmount", target, error)) from error
        progress()
        time.sleep(_RETRY_S)


def _detach_loop(loop: str) -> None:
    with suppress(FileNotFoundError), open(loop, "rb") as opened:
        try:
            fcntl.ioctl(opened, _LOOP_CLR_FD)
        except OSError as error:
            if error.errno != errno.ENXIO:  # detached already
                raise
