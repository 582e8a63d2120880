"""Files of CSI volumes on disk: the kubelet's directories and vol_data.json, and our `ready` marks. Blocks.

All of them are below directories that only root may enter; containers see only what a driver publishes.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from actors._host.files import mounts, paths
from actors._host.files.listing import names
from actors._host.files.untrusted_files import read_regular
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


def is_mount(path: str) -> bool:
    """True when the mount table has a mount there; the mounted file system itself is not touched."""
    real = f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"
    return any(one.mount_point == real for one in mounts.mounts_under(real))


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


def find(root: str, uid: str) -> tuple[Volume, ...]:
    """CSI volumes that a pod has or may have. Raises VolumeError when the record of a mounted volume is unreadable.

    An unreadable record of a volume that is not mounted is left out: it must not hold up all volumes of the node.
    """
    found = []
    top = f"{paths.pod_volumes_dir(root, uid)}/{places.CSI}"
    for directory in names(top):
        data = _record(f"{top}/{directory}", f"{top}/{directory}/mount")
        if data:
            name = data.get("specVolID", directory)
            found.append(Volume(uid, name, data.get("driverName", ""), data.get("volumeHandle", "")))
    return (*found, *_find_raw(root, uid))


def _record(place: str, *mount_points: str) -> dict[str, str] | None:
    """Content of vol_data.json; None when it is unreadable and nothing is mounted there. Raises VolumeError."""
    try:
        return read_data(place)
    except VolumeError as error:
        if any(is_mount(one) for one in mount_points):
            raise
        log.warning("%s; leaving the volume out, since it is not mounted", error)
        return None


def _find_raw(root: str, uid: str) -> Iterator[Volume]:
    top = places.csi_block_volumes_dir(root)
    for directory in names(top):
        if os.path.lexists(f"{top}/{directory}/dev/{uid}"):
            target = places.csi_block_target(root, directory, uid)
            data = _record(f"{top}/{directory}/data", f"{top}/{directory}/dev/{uid}", target)
            if data is None:
                continue
            name = data.get("specVolID", directory)
            yield Volume(uid, name, data.get("driverName", ""), data.get("volumeHandle", ""), block=True)


def users(root: str, volume: Volume) -> list[Volume]:
    """Records of the same volume in other pods. Raises VolumeError as `find` does."""
    return [
        one
        for uid in names(paths.pods_dir(root))
        for one in find(root, uid)
        if (one.driver, one.handle) == (volume.driver, volume.handle)
        and (one.uid, one.spec_name) != (volume.uid, volume.spec_name)
    ]


def is_ready(root: str, volume: Volume) -> bool:
    """True when the volume is completely set up and still mounted."""
    mark = f"{places.csi_mark_dir(root, volume.uid, volume.spec_name)}/{READY}"
    return os.path.exists(mark) and is_mount(mount_point(root, volume))


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
