"""Raw block devices of CSI drivers: stage, publish, unpublish, unstage. Blocks: runs in a helper process.

As in operations.py, files on disk record what the driver may have done, and are written before its call. Here it is a
file named after the pod's UID in the volume's `dev`. The device is bound to it later. The volume's record stays until
it is unstaged. Source: csi_block.go of pkg/volume/csi.
"""

from __future__ import annotations

import os
from contextlib import suppress

from actors._host.files import paths
from actors._host.files.listing import names
from actors.volume.csi import disk, policy
from actors.volume.csi.driver import CallFailed, Plugin
from actors.volume.csi.requests import Mark, capability, grow, publication, staging, unpublish
from actors.volume.ops import block
from actors.volume.ops.setup import make_dirs
from actors.volume.steps import places
from actors.volume.steps.csi import CsiMount, Grown, Volume
from actors.volume.steps.errors import SET_UP_DEVICE_FAILED, VolumeError

MAP_FAILED = "MapVolume.MapPodDevice failed"


def mount(root: str, step: CsiMount, plugin: Plugin, mark: Mark) -> Grown:
    """Publish the device and link it into the pod's directory. Raises VolumeError, OSError."""
    volume = step.volume
    place = places.csi_block_dir(root, volume.spec_name)
    capabilities = plugin.capabilities()
    stages = "STAGE_UNSTAGE_VOLUME" in capabilities
    if stages and step.secrets.stage_error and not disk.is_staged(root, volume):
        raise VolumeError(step.secrets.stage_error, SET_UP_DEVICE_FAILED)
    # The removal looks for a pod's devices below this directory.
    make_dirs(f"{paths.pod_devices_dir(root, volume.uid)}/{places.CSI}")
    with disk.device_records(root):
        # The record of a volume that no pod has, and that is not staged, is left from a kill.
        if names(f"{place}/dev") or os.path.exists(places.csi_block_staging_dir(root, volume.spec_name)):
            disk.check_record(f"{place}/data", volume)
        disk.write_data(f"{place}/data", policy.volume_data(step))
        claimed = os.path.exists(f"{place}/dev/{volume.uid}")
        block.claim(f"{place}/dev", volume.uid)
    staged = _stage(root, step, plugin, capabilities, claimed=claimed) if stages else ""
    target = places.csi_block_target(root, volume.spec_name, volume.uid)
    make_dirs(os.path.dirname(target))
    try:
        plugin.node("NodePublishVolume", publication(step, staged, target, capability(step, capabilities)))
    except CallFailed as error:
        raise VolumeError(str(error), MAP_FAILED) from error
    if not os.path.exists(target):
        text = f"driver {volume.driver} reported the volume as published, but {target} does not exist"
        raise VolumeError(text, MAP_FAILED)
    name = places.file_name(volume.spec_name)
    try:
        block.map_device(root, volume.uid, places.CSI, name, target, f"{place}/dev", mark)
    except VolumeError as error:
        raise VolumeError(str(error), block.FAILED) from error
    return grow(plugin, step, staged, target, capabilities)


def _stage(root: str, step: CsiMount, plugin: Plugin, capabilities: frozenset[str], *, claimed: bool) -> str:
    """Stage the device; returns the path. `claimed`: the pod may have the device from an earlier try."""
    volume = step.volume
    path = places.csi_block_staging_dir(root, volume.spec_name)
    if disk.is_staged(root, volume):
        return path
    new = not os.path.exists(path)
    make_dirs(path)
    try:
        plugin.node("NodeStageVolume", staging(step, path, capability(step, capabilities)))
    except CallFailed as error:
        if error.final and new:
            # Nothing is left to undo, so the pod's end waits for no driver (cleanupOrphanDeviceFiles).
            with suppress(OSError):
                os.rmdir(path)
            if not claimed:
                give_back(root, volume.spec_name, volume.uid)
        raise VolumeError(str(error), SET_UP_DEVICE_FAILED) from error
    return path


def unmount(root: str, volume: Volume, plugin: Plugin, mark: Mark) -> None:
    """Undo `mount` for the pod, also an incomplete one; it stays staged. Raises VolumeError, OSError."""
    place = places.csi_block_dir(root, volume.spec_name)
    name = places.file_name(volume.spec_name)
    block.unmap_device(root, volume.uid, places.CSI, name, f"{place}/dev", mark)
    target = places.csi_block_target(root, volume.spec_name, volume.uid)
    unpublish(plugin, volume, target)
    with suppress(FileNotFoundError):
        os.unlink(target)
    give_back(root, volume.spec_name, volume.uid)


def give_back(root: str, spec_name: str, uid: str) -> None:
    """Remove the file of a pod that no longer has the device, and the record after the last pod and the staging."""
    with suppress(OSError):
        os.rmdir(os.path.dirname(places.csi_block_target(root, spec_name, uid)))
    with disk.device_records(root):
        block.give_back(f"{places.csi_block_dir(root, spec_name)}/dev", uid)
        if not os.path.exists(places.csi_block_staging_dir(root, spec_name)):
            disk.remove_device_record(root, spec_name)


def remove_staging(root: str, directory: str) -> None:
    """Remove the staging directory of an unstaged device, then its record. Raises VolumeError."""
    staged = places.csi_block_staging_dir(root, directory)
    with disk.device_records(root):
        try:
            with suppress(FileNotFoundError):
                os.rmdir(staged)
        except OSError as error:
            raise VolumeError(f"failed to clean up {staged}: {(error.strerror or str(error)).lower()}") from error
        disk.remove_device_record(root, directory)
