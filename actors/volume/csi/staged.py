"""Staged volumes of the node, found by their records on disk, and which of them no pod has. Blocks.

A staged file system has vol_data.json beside it. A raw device has none there, so its volume's record stays until it is
unstaged. Nothing else tells driver and handle once the pods have gone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from actors._host.files import mounts, paths
from actors._host.files.listing import names
from actors.volume.csi import disk
from actors.volume.steps import places
from actors.volume.steps.csi import Staged, Volume
from actors.volume.steps.errors import VolumeError

Mark = Callable[[], object]
"""Marks progress: a node may have a thousand volumes."""

_GLOBAL_MOUNT = "globalmount"
_DIGEST = re.compile("[0-9a-f]{64}")


class Found(NamedTuple):
    """The staged volumes of the node."""

    volumes: tuple[Staged, ...]
    unreadable: tuple[str, ...]
    """Errors of records that cannot be read, of volumes that are or may be staged: no driver can be asked to unstage
    them. A damaged record of a volume that is not mounted is left out."""


def path_of(root: str, staged: Staged) -> str:
    """Path to which the driver stages the volume."""
    if staged.device:
        return places.csi_block_staging_dir(root, staged.device)
    return f"{places.csi_staging_dir(root, staged.driver, staged.handle)}/{_GLOBAL_MOUNT}"


def find(root: str, mark: Mark = lambda: None) -> Found:
    """All staged volumes. Raises OSError."""
    volumes: list[Staged] = []
    unreadable: list[str] = []
    table = _Mounts(root)
    for place, device, path in (*_file_systems(root), *_devices(root)):
        mark()
        try:
            one = _read(place, device)
            problem = "" if one is not None else f"{place} has no {disk.DATA}"
            passing = False
        except VolumeError as error:
            # An error of the machine tells nothing of the volume.
            one, problem, passing = None, str(error), isinstance(error.__cause__, OSError)
        if one is not None and path_of(root, one) == path:
            volumes.append(one)
        elif problem and (passing or table.devices_at(path)):
            unreadable.append(problem)
    return Found(tuple(volumes), tuple(unreadable))


def is_recorded(root: str, one: Staged) -> bool:
    """True while the volume's own record says that it is staged. Raises VolumeError when it cannot be read."""
    if one.device:
        exists, place = os.path.lexists(path_of(root, one)), f"{places.csi_block_dir(root, one.device)}/data"
    else:
        exists, place = True, places.csi_staging_dir(root, one.driver, one.handle)
    return exists and _read(place, one.device) == one


_Place = tuple[str, str, str]
"""Directory of a record, directory name of a raw device or nothing, and the path to which the volume is staged."""


def _file_systems(root: str) -> Iterator[_Place]:
    top = places.csi_stagings_dir(root)
    for driver in names(top):
        for directory in names(f"{top}/{driver}"):
            # The kubelet's older layout, and files of drivers, have other names.
            if _DIGEST.fullmatch(directory):
                place = f"{top}/{driver}/{directory}"
                yield place, "", f"{place}/{_GLOBAL_MOUNT}"


def _devices(root: str) -> Iterator[_Place]:
    for directory in names(places.csi_block_stagings_dir(root)):
        yield f"{places.csi_block_dir(root, directory)}/data", directory, places.csi_block_staging_dir(root, directory)


def _read(place: str, device: str) -> Staged | None:
    """The volume of a record; None without one. Raises VolumeError."""
    data = disk.read_data(place)
    if not data:
        return None
    driver, handle = data.get("driverName", ""), data.get("volumeHandle", "")
    if not driver or not handle:
        raise VolumeError(f"failed to open volume data file [{place}/{disk.DATA}]: it names no volume")
    return Staged(driver, handle, device)


def unused(root: str, asked: Iterable[Staged], mark: Mark = lambda: None) -> tuple[Staged, ...]:
    """The volumes of `asked` that no pod has or may have. Raises OSError.

    A mounted volume whose record is unreadable is a staged one on the same device. If there is none, it may be any
    staged volume: a driver may publish another file system than it has staged.
    """
    asked = tuple(asked)
    used: set[tuple[str, str]] = set()
    unreadable: list[disk.Unreadable] = []
    for uid in names(paths.pods_dir(root)):
        mark()
        volumes, more = disk.look(root, uid)
        used.update((one.driver, one.handle) for one in volumes)
        unreadable += [one for one in more if not one.block]  # pods of a device have a file each, see below
    may_be = _on_same_device(root, unreadable, asked, mark) if unreadable else set()
    return tuple(
        one
        for one in asked
        if (one.driver, one.handle) not in used
        and one not in may_be
        and not (one.device and names(f"{places.csi_block_dir(root, one.device)}/dev"))
    )


def is_mounted_elsewhere(root: str, volume: Volume, mark: Mark) -> bool:
    """True when the staged volume is mounted for another pod, or may be, by an unreadable record. Raises OSError.

    Records outlive a reboot, which ends all mounts. So a record alone is not enough.
    """
    own = disk.mount_point(root, volume)
    doubts: list[disk.Unreadable] = []
    for uid in names(paths.pods_dir(root)):
        mark()
        doubts += [one for one in disk.look(root, uid)[1] if not one.block and one.mount != own]
    if any(disk.is_mount(disk.mount_point(root, one)) for one in disk.users(root, volume)):
        return True
    return bool(doubts and _on_same_device(root, doubts, (Staged(volume.driver, volume.handle),), mark))


def _on_same_device(root: str, doubts: list[disk.Unreadable], asked: tuple[Staged, ...], mark: Mark) -> set[Staged]:
    table = _Mounts(root)
    file_systems = {one for one in asked if not one.device}
    devices_of_doubts: set[str] = set()
    for doubt in doubts:
        mark()
        devices = table.devices_at(doubt.mount)
        if not devices & table.staged:
            return file_systems
        devices_of_doubts |= devices
    found = set()
    for one in file_systems:
        mark()
        if devices_of_doubts & table.devices_at(path_of(root, one)):
            found.add(one)
    return found


class _Mounts:
    """Devices of mounts, by directory. The mount table is read once, and only if a record cannot be read."""

    def __init__(self, root: str) -> None:
        self._root = root

    def devices_at(self, path: str) -> set[str]:
        """Devices of the mounts at and below a path, whose last component is no link."""
        real = f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"
        return self._by_directory.get(real, set())

    @cached_property
    def staged(self) -> set[str]:
        """Devices of all staged file systems, also of those without a readable record."""
        return {device for place, _, path in _file_systems(self._root) for device in self.devices_at(path)}

    @cached_property
    def _by_directory(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for one in mounts.mounts_under("/"):
            directory = one.mount_point
            while directory not in ("", "/"):
                found.setdefault(directory, set()).add(one.device)
                directory = os.path.dirname(directory)
        return found
