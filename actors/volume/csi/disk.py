"""Files of CSI volumes on disk: the kubelet's directories and vol_data.json, and our `ready` marks. Blocks.

All of them are below directories that only root may enter; containers see only what a driver publishes.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeAlias

import msgspec

from actors._host.files import mounts, paths
from actors._host.files.listing import names
from actors._host.files.untrusted_files import read_regular
from actors.volume.csi.policy import SELINUX_LABEL
from actors.volume.ops.setup import READY, make_dirs
from actors.volume.steps import places
from actors.volume.steps.csi import Volume
from actors.volume.steps.errors import VolumeError
from proto.common import untrusted

log = logging.getLogger(__name__)

DATA = "vol_data.json"
MOST_DATA_BYTES = 1024 * 1024


def write_data(place: str, data: dict[str, str]) -> None:
    """Write vol_data.json atomically. Raises OSError."""
    make_dirs(place)
    temporary = f"{place}/.{DATA}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "w") as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())  # after a loss of power only this file tells what has to be undone
    os.rename(temporary, f"{place}/{DATA}")


def read_data(place: str) -> dict[str, str]:
    """Read vol_data.json; empty when there is none. Raises VolumeError when it is invalid."""
    try:
        data = untrusted.decode_json(read_regular(f"{place}/{DATA}", MOST_DATA_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise VolumeError(f"failed to open volume data file [{place}/{DATA}]: {error}") from error
    if not isinstance(data, dict) or not data:
        raise VolumeError(f"failed to open volume data file [{place}/{DATA}]: it has no fields")
    return {str(key): str(value) for key, value in data.items()}


def label_of(place: str) -> str | None:
    """The SELinux label of the mount that the record there tells; empty for none, None for an unreadable record."""
    try:
        return read_data(place).get(SELINUX_LABEL, "")
    except VolumeError:
        return None


def is_mount(path: str) -> bool:
    """True when the mount table has a mount there; the mounted file system itself is not touched."""
    real = _real(path)
    return any(one.mount_point == real for one in mounts.mounts_under(real))


def _real(path: str) -> str:
    return f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"


def remove_place(place: str, mount: str) -> None:
    """Remove a volume's directory and its mount point `mount`, if named. Raises VolumeError if mounted or not empty.

    vol_data.json is removed after the mount point, so that a repeat can undo the rest.
    """
    try:
        with suppress(FileNotFoundError):
            if mount:
                os.rmdir(f"{place}/{mount}")
        for name in (f".{DATA}", DATA):
            with suppress(FileNotFoundError):
                os.unlink(f"{place}/{name}")
        with suppress(FileNotFoundError):
            os.rmdir(place)
    except OSError as error:
        raise VolumeError(f"failed to clean up {place}: {(error.strerror or str(error)).lower()}") from error


def check_record(place: str, volume: Volume) -> None:
    """Raises VolumeError when the record is of another volume: its driver has to undo its calls first.

    An unreadable record passes: it is written anew.
    """
    try:
        before = read_data(place)
    except VolumeError as error:
        log.warning("%s; writing it anew", error)
        return
    has = before.get("driverName", ""), before.get("volumeHandle", "")
    if before and has != (volume.driver, volume.handle):
        text = f"{place} is in use by volume {has[1]} of driver {has[0]}, which has the same name"
        raise VolumeError(text)


@contextmanager
def device_records(root: str) -> Iterator[None]:
    """Hold the records of all raw devices while one is checked and changed; a kill ends it. Raises OSError.

    Their directories have the PersistentVolumes' names, so two volumes may have the same one.
    """
    top = places.csi_block_volumes_dir(root)
    make_dirs(top)
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def remove_device_record(root: str, directory: str) -> None:
    """Remove the record of a raw device, unless a pod has or may have the device. Raises VolumeError."""
    place = places.csi_block_dir(root, directory)
    if names(f"{place}/dev"):
        return
    with suppress(OSError):
        os.rmdir(f"{place}/dev")
    remove_place(f"{place}/data", "")
    with suppress(OSError):
        os.rmdir(place)


class Unreadable(NamedTuple):
    """The record of a mounted volume that cannot be read."""

    mount: str
    """Path of the mount."""
    error: VolumeError
    block: bool = False


def find(root: str, uid: str) -> tuple[Volume, ...]:
    """CSI volumes that a pod has or may have. Raises VolumeError when the record of a mounted volume is unreadable."""
    found, unreadable = look(root, uid, warn=True)
    for one in unreadable:
        raise one.error
    return found


def look(root: str, uid: str, *, warn: bool = False) -> tuple[tuple[Volume, ...], tuple[Unreadable, ...]]:
    """CSI volumes that a pod has or may have, and its mounted volumes whose record is unreadable.

    An unreadable record of a volume that is not mounted is left out: it must not hold up the pod's other volumes.
    `warn`: log it. Looks at all pods come again and again, so they do not.
    """
    found: list[Volume] = []
    unreadable: list[Unreadable] = []
    for directory, place, mount_points, block in (*_file_systems(root, uid), *_raw_devices(root, uid)):
        try:
            data = read_data(place)
        except VolumeError as error:
            mounted = next((one for one in mount_points if is_mount(one)), "")
            if mounted:
                unreadable.append(Unreadable(mounted, error, block))
            elif warn:
                log.warning("%s; leaving the volume out, since it is not mounted", error)
            continue
        if data or block:
            name = data.get("specVolID", directory)
            found.append(Volume(uid, name, data.get("driverName", ""), data.get("volumeHandle", ""), block=block))
    return tuple(found), tuple(unreadable)


def mounted(root: str, uid: str, table: Collection[str]) -> set[str]:
    """Names of the PersistentVolumes that a pod has mounted, also those with an unreadable record.

    `table`: the mount points of the machine, or those below the directories of pods and raw devices.
    """
    return {
        directory
        for directory, place, mount_points, _ in (*_file_systems(root, uid), *_raw_devices(root, uid))
        if any(_real(one) in table for one in mount_points) and not _is_ephemeral(place)
    }


def _is_ephemeral(place: str) -> bool:
    with suppress(VolumeError):
        return read_data(place).get("volumeLifecycleMode") == "Ephemeral"
    return False


_Place: TypeAlias = tuple[str, str, tuple[str, ...], bool]
"""Directory name of a volume, directory of its record, where it may be mounted, and if it is a raw device."""


def _file_systems(root: str, uid: str) -> Iterator[_Place]:
    top = f"{paths.pod_volumes_dir(root, uid)}/{places.CSI}"
    for directory in names(top):
        yield directory, f"{top}/{directory}", (f"{top}/{directory}/mount",), False


def _raw_devices(root: str, uid: str) -> Iterator[_Place]:
    top = places.csi_block_volumes_dir(root)
    for directory in names(top):
        device = f"{top}/{directory}/dev/{uid}"
        if os.path.lexists(device):
            target = places.csi_block_target(root, directory, uid)
            yield directory, f"{top}/{directory}/data", (device, target), True


def users(root: str, volume: Volume) -> list[Volume]:
    """Records of the same volume in other pods; unreadable ones are left out."""
    return [
        one
        for uid in names(paths.pods_dir(root))
        for one in look(root, uid)[0]
        if (one.driver, one.handle) == (volume.driver, volume.handle)
        and (one.uid, one.spec_name) != (volume.uid, volume.spec_name)
    ]


def is_marked(root: str, volume: Volume) -> bool:
    """True when the volume was completely set up; since then the machine may have started anew."""
    return os.path.exists(f"{places.csi_mark_dir(root, volume.uid, volume.spec_name)}/{READY}")


def is_ready(root: str, volume: Volume) -> bool:
    """True when the volume is completely set up and still mounted."""
    return is_marked(root, volume) and is_mount(mount_point(root, volume))


def is_staged(root: str, volume: Volume) -> bool:
    """True when this pod or another one of the node has the volume completely set up."""
    return any(is_ready(root, one) for one in (volume, *users(root, volume)))


def mount_point(root: str, volume: Volume) -> str:
    """Path of the volume's mount while the pod has it."""
    if volume.block:
        return f"{places.csi_block_dir(root, volume.spec_name)}/dev/{volume.uid}"
    return f"{places.csi_volume_dir(root, volume.uid, volume.spec_name)}/mount"


def mark_ready(root: str, volume: Volume, name: str) -> None:
    """Mark the volume as completely set up. The mark holds its name in the pod, which is nowhere else on disk."""
    directory = places.csi_mark_dir(root, volume.uid, volume.spec_name)
    make_dirs(directory)
    temporary = f"{directory}/.{READY}"
    with open(temporary, "w") as file:
        file.write(name)
    os.rename(temporary, f"{directory}/{READY}")


def unmark(root: str, volume: Volume) -> None:
    """Remove the mark, before the volume is unmounted."""
    directory = places.csi_mark_dir(root, volume.uid, volume.spec_name)
    for name in (f".{READY}", READY):
        with suppress(FileNotFoundError):
            os.unlink(f"{directory}/{name}")
    with suppress(FileNotFoundError):
        os.rmdir(directory)
