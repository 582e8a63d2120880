"""Staged volumes of the node, found by their records on disk, and which of them no pod has. Blocks.

A staged file system has vol_data.json beside it. A raw device has none there, so its volume's record stays until it is
unstaged. Nothing else tells driver and handle once the pods have gone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator

from actors._host.files import mounts, paths
from actors._host.files.listing import names
from actors.volume.csi import disk
from actors.volume.steps import places
from actors.volume.steps.csi import Staged
from actors.volume.steps.errors import VolumeError

log = logging.getLogger(__name__)


def path_of(root: str, staged: Staged) -> str:
    """Path to which the driver stages the volume."""
    if staged.device:
        return places.csi_block_staging_dir(root, staged.device)
    return f"{places.csi_staging_dir(root, staged.driver, staged.handle)}/globalmount"


def find(root: str) -> tuple[Staged, ...]:
    """All staged volumes. Those without a readable record are left out: no driver could be asked to unstage them."""
    return (*_file_systems(root), *_devices(root))


def _file_systems(root: str) -> Iterator[Staged]:
    top = places.csi_stagings_dir(root)
    for driver in names(top):
        for directory in names(f"{top}/{driver}"):
            place = f"{top}/{driver}/{directory}"
            one = _read(place, "")
            # The kubelet's older layout, and files of drivers, are elsewhere.
            if one is not None and places.csi_staging_dir(root, one.driver, one.handle) == place:
                yield one


def _devices(root: str) -> Iterator[Staged]:
    for directory in names(places.csi_block_stagings_dir(root)):
        one = _read(f"{places.csi_block_dir(root, directory)}/data", directory)
        if one is not None:
            yield one


def _read(place: str, device: str) -> Staged | None:
    try:
        data = disk.read_data(place)
    except VolumeError as error:
        log.warning("%s; the volume stays staged", error)
        return None
    driver, handle = data.get("driverName", ""), data.get("volumeHandle", "")
    return Staged(driver, handle, device) if driver and handle else None


def unused(root: str, found: Iterable[Staged]) -> tuple[Staged, ...]:
    """The volumes of `found`, all staged ones, that no pod has or may have.

    A mounted volume whose record is unreadable is a staged one on the same device. If there is none, it may be any
    staged volume: a driver may publish another file system than it has staged.
    """
    found = tuple(found)
    used: set[tuple[str, str]] = set()
    unreadable: list[disk.Unreadable] = []
    for uid in names(paths.pods_dir(root)):
        volumes, more = disk.look(root, uid)
        used.update((one.driver, one.handle) for one in volumes)
        unreadable += [one for one in more if not one.block]  # pods of a device have a file each, see below
    may_be = {one for doubt in unreadable for one in _on_same_device(root, doubt.mount, found)}
    return tuple(
        one
        for one in found
        if (one.driver, one.handle) not in used
        and one not in may_be
        and not (one.device and names(f"{places.csi_block_dir(root, one.device)}/dev"))
    )


def _on_same_device(root: str, mount: str, found: tuple[Staged, ...]) -> list[Staged]:
    wanted, file_systems = _devices_at(mount), [one for one in found if not one.device]
    return [one for one in file_systems if wanted & _devices_at(path_of(root, one))] or file_systems


def _devices_at(path: str) -> set[str]:
    real = os.path.realpath(os.path.dirname(path))
    return {one.device for one in mounts.mounts_under(f"{real}/{os.path.basename(path)}")}
