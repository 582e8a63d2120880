"""Raw block devices of CSI drivers: staging, publishing, and the way back. Blocks: runs in a helper process.

As in operations.py, what is on disk says what the driver may have done, and is there before the driver is asked: a
file with the pod's UID below the volume's `dev`, to which the device is bound later. Source: csi_block.go of
pkg/volume/csi.
"""

from __future__ import annotations

import os
from contextlib import suppress

from actors._host.files import paths
from actors.volume.csi import disk, policy
from actors.volume.csi.driver import CallFailed, Plugin
from actors.volume.csi.requests import Mark, capability, grow, publication, staging
from actors.volume.ops import block
from actors.volume.ops.setup import make_dirs
from actors.volume.steps import places
from actors.volume.steps.csi import CsiMount, Growth, Volume
from actors.volume.steps.errors import VolumeError
from proto.plugins import csi_pb2

SET_UP_FAILED = "MapVolume.SetUpDevice failed"
MAP_FAILED = "MapVolume.MapPodDevice failed"


def mount(root: str, step: CsiMount, plugin: Plugin, mark: Mark) -> Growth:
    """Have the device published and passed into the pod's directory. Raises VolumeError, OSError."""
    volume = step.volume
    place = places.csi_block_dir(root, volume.spec_name)
    capabilities = plugin.capabilities()
    # What is below the pod's own directory has its volumes looked for when it goes.
    make_dirs(f"{paths.pod_devices_dir(root, volume.uid)}/{places.CSI}")
    make_dirs(f"{place}/dev")
    disk.write_data(f"{place}/data", policy.volume_data(step))
    block.claim(f"{place}/dev", volume.uid)
    staged = ""
    if "STAGE_UNSTAGE_VOLUME" in capabilities:
        staged = _stage(root, step, plugin, capabilities)
    target = places.csi_block_target(root, volume.spec_name, volume.uid)
    make_dirs(os.path.dirname(target))
    try:
        plugin.node("NodePublishVolume", publication(step, staged, target, capability(step, capabilities)))
    except CallFailed as error:
        raise VolumeError(str(error), MAP_FAILED) from error
    if not os.path.exists(target):
        text = f"driver {volume.driver} says that it published the volume, and there is no {target}"
        raise VolumeError(text, MAP_FAILED)
    name = places.file_name(volume.spec_name)
    try:
        block.map_device(root, volume.uid, places.CSI, name, target, f"{place}/dev", mark)
    except VolumeError as error:
        raise VolumeError(str(error), block.FAILED) from error
    return grow(plugin, step, staged, target, capabilities)


def _stage(root: str, step: CsiMount, plugin: Plugin, capabilities: frozenset[str]) -> str:
    volume = step.volume
    path = places.csi_block_staging_dir(root, volume.spec_name)
    if any(disk.is_ready(root, one) for one in disk.users(root, volume)):
        return path
    make_dirs(path)
    try:
        plugin.node("NodeStageVolume", staging(step, path, capability(step, capabilities)))
    except CallFailed as error:
        raise VolumeError(str(error), SET_UP_FAILED) from error
    return path


def unmount(root: str, volume: Volume, plugin: Plugin, mark: Mark) -> None:
    """Undo `mount`, from any point. Raises VolumeError, OSError."""
    place = places.csi_block_dir(root, volume.spec_name)
    name = places.file_name(volume.spec_name)
    block.unmap_device(root, volume.uid, places.CSI, name, f"{place}/dev", mark)
    target = places.csi_block_target(root, volume.spec_name, volume.uid)
    plugin.node("NodeUnpublishVolume", csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume.handle, target_path=target))
    if disk.is_mount(target):
        raise VolumeError(f"driver {volume.driver} says that it unpublished the volume, and it is still mounted")
    with suppress(FileNotFoundError):
        os.unlink(target)
    staged = places.csi_block_staging_dir(root, volume.spec_name)
    if os.path.exists(staged) and not disk.users(root, volume):
        _unstage(volume, staged, plugin)
    block.give_back(f"{place}/dev", volume.uid)
    _remove_place(place, os.path.dirname(target))


def _unstage(volume: Volume, path: str, plugin: Plugin) -> None:
    if "STAGE_UNSTAGE_VOLUME" in plugin.capabilities():
        request = csi_pb2.NodeUnstageVolumeRequest(volume_id=volume.handle, staging_target_path=path)
        plugin.node("NodeUnstageVolume", request)
    if disk.is_mount(path):
        raise VolumeError(f"driver {volume.driver} says that it unstaged the volume, and it is still mounted")
    try:
        os.rmdir(path)
    except OSError as error:
        raise VolumeError(f"failed to clean up {path}: {(error.strerror or str(error)).lower()}") from error


def _remove_place(place: str, published: str) -> None:
    """What is kept of the volume, once no pod has it."""
    with suppress(OSError):
        os.rmdir(published)
    if not os.path.isdir(f"{place}/dev"):
        disk.remove_place(f"{place}/data", "")
        with suppress(OSError):
            os.rmdir(place)
