"""Mounts, unmounts and measures CSI volumes. Blocks: runs in a helper process.

Files on disk record what the driver may have done, and are written before its call. One vol_data.json is in the pod's
directory of the volume, another beside the staged volume. So everything can be undone after a kill. A call with
unknown outcome is undone like a successful one. A volume is unstaged apart from the pod, which need not wait for it.
As long as it is staged its record is there. Source: pkg/volume/csi of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress

from msgspec.structs import replace

from actors.volume.csi import disk, policy, raw_block, requests, staged
from actors.volume.csi.driver import CallFailed, Plugin, connected
from actors.volume.csi.requests import Mark
from actors.volume.ops import ownership
from actors.volume.ops.inside import DIRECTORY, opened
from actors.volume.ops.setup import make_dirs
from actors.volume.steps import places
from actors.volume.steps.csi import CsiMeasure, CsiMount, CsiUnmount, CsiUnstage, Grown, Staged, Volume
from actors.volume.steps.errors import MOUNT_DEVICE_FAILED, VolumeError
from proto.plugins import csi_pb2
from proto.pods.volume import VolumeUsage

log = logging.getLogger(__name__)


def mount(root: str, step: CsiMount, mark: Mark) -> Grown:
    """Stage and publish the volume, and grow it if wanted. Raises VolumeError, OSError."""
    with connected(step.socket, mark) as plugin:
        publish = raw_block.mount if step.volume.block else _mount
        grown = publish(root, step, plugin, mark)
    disk.mark_ready(root, step.volume, step.name)
    return grown


def _mount(root: str, step: CsiMount, plugin: Plugin, mark: Mark) -> Grown:
    volume = step.volume
    place = places.csi_volume_dir(root, volume.uid, volume.spec_name)
    target = f"{place}/mount"
    capabilities = _capabilities(root, step, plugin)
    staging = ""
    new = not os.path.exists(f"{place}/{disk.DATA}")
    stages = not step.ephemeral and "STAGE_UNSTAGE_VOLUME" in capabilities
    if stages and step.secrets.stage_error and not disk.is_staged(root, volume):
        raise VolumeError(step.secrets.stage_error, MOUNT_DEVICE_FAILED)
    disk.check_record(place, volume)
    step = _with_label_of_mount(root, step, place)
    capability = requests.capability(step, capabilities)
    if stages:
        _leave_other_label(root, step, plugin, mark)
    disk.write_data(place, policy.volume_data(step))
    if stages:
        try:
            staging = _stage(root, step, plugin, capability)
        except CallFailed as error:
            # While an earlier staging is left, the pod's record has it unstaged once the pod goes.
            if error.final and new and not os.path.exists(places.csi_staging_dir(root, volume.driver, volume.handle)):
                disk.remove_place(place, "mount")
            raise
    try:
        plugin.node("NodePublishVolume", requests.publication(step, staging, target, capability))
    except CallFailed as error:
        present = disk.is_marked if step.ephemeral else disk.is_ready
        _after_failure(error, place, staging, keep=step.republish and present(root, volume))
        raise
    if step.ephemeral and not os.path.lexists(target):
        log.warning("driver %s published an ephemeral volume without making %s; making it", volume.driver, target)
        make_dirs(target)
    if not os.path.isdir(target):
        raise VolumeError(f"driver {volume.driver} reported the volume as published, but {target} does not exist")
    grown = requests.grow(plugin, step, staging, target, capabilities)
    _give_to_group(step, capabilities, target, mark)
    return grown


def _capabilities(root: str, step: CsiMount, plugin: Plugin) -> frozenset[str]:
    try:
        return plugin.capabilities()
    except CallFailed as error:
        if not step.ephemeral and not disk.is_staged(root, step.volume):
            error.stage = MOUNT_DEVICE_FAILED
        raise


def _after_failure(error: CallFailed, place: str, staging: str, *, keep: bool) -> None:
    # After a publication that certainly had no effect, only the staging is left to undo.
    if not error.final or keep:
        return
    if not staging:
        disk.remove_place(place, "mount")
    elif not disk.is_mount(f"{place}/mount"):
        with suppress(OSError):
            os.rmdir(f"{place}/mount")


def _with_label_of_mount(root: str, step: CsiMount, place: str) -> CsiMount:
    """The step with the SELinux label of the pod's mount, if that is there: containers may use it.

    An actor that could not read the disk at its start does not know the label.
    """
    label = disk.label_of(place)
    if label == step.selinux_label or not disk.is_ready(root, step.volume):
        return step
    if label is None:
        label = disk.label_of(places.csi_staging_dir(root, step.volume.driver, step.volume.handle))
    return replace(step, selinux_label=step.selinux_label if label is None else label)


def _leave_other_label(root: str, step: CsiMount, plugin: Plugin, mark: Mark) -> None:
    """Unstage a volume that is or may be staged with another SELinux label. Raises VolumeError if a pod has it mounted.

    A mount has its label as long as it is there (the kubelet's UnmountDevice before the next MountDevice).
    """
    volume = step.volume
    place = places.csi_staging_dir(root, volume.driver, volume.handle)
    label = disk.label_of(place) if os.path.exists(f"{place}/{disk.DATA}") else step.selinux_label
    if label == step.selinux_label or (label is None and not step.selinux_label):
        return
    one = Staged(volume.driver, volume.handle)
    if disk.is_ready(root, volume):
        return  # only its record is damaged
    if staged.is_mounted_elsewhere(root, volume, mark):
        raise VolumeError(policy.other_label_message(volume), MOUNT_DEVICE_FAILED)
    try:
        for user in (volume, *disk.users(root, volume)):
            target = disk.mount_point(root, user)
            # A kill came between a publication and its mark, or a call has not answered.
            if os.path.exists(f"{os.path.dirname(target)}/{disk.DATA}"):
                requests.unpublish(plugin, user, target)
        requests.unstage(plugin, one, staged.path_of(root, one))
        disk.remove_place(place, "globalmount")
    except VolumeError as error:
        error.stage = MOUNT_DEVICE_FAILED
        raise


def _stage(root: str, step: CsiMount, plugin: Plugin, capability: csi_pb2.VolumeCapability) -> str:
    volume = step.volume
    place = places.csi_staging_dir(root, volume.driver, volume.handle)
    staging = f"{place}/globalmount"
    if disk.is_staged(root, volume):
        return staging
    new = not os.path.exists(f"{place}/{disk.DATA}")
    _record_staging(place, volume, step.selinux_label)
    make_dirs(staging)
    try:
        plugin.node("NodeStageVolume", requests.staging(step, staging, capability))
    except CallFailed as error:
        if error.final and new:
            disk.remove_place(place, "globalmount")
        error.stage = MOUNT_DEVICE_FAILED
        raise
    return staging


def _record_staging(place: str, volume: Volume, label: str) -> None:
    record = {"volumeHandle": volume.handle, "driverName": volume.driver} | policy.label_data(label)
    with suppress(VolumeError):
        if record.items() <= disk.read_data(place).items():
            return  # a full disk must not keep a pod from its end
    disk.write_data(place, record)


def _give_to_group(step: CsiMount, capabilities: frozenset[str], target: str, mark: Mark) -> None:
    fs_group = policy.owned_by(step, capabilities)
    if fs_group is None:
        return
    with opened(target, DIRECTORY) as directory:
        once: ownership.Policy = "OnRootMismatch" if fs_group.change_policy == "OnRootMismatch" else "Always"
        try:
            ownership.set_ownership(directory, fs_group.group, read_only=False, policy=once, progress=mark)
        except OSError as error:
            raise VolumeError(f"applyFSGroup failed for vol {step.volume.handle}: {error}") from error


# Unmounting


def unmount(root: str, step: CsiUnmount, mark: Mark) -> None:
    """Undo `mount` for the pod, also an incomplete one; the volume stays staged. Raises VolumeError, OSError."""
    volume = step.volume
    if not step.socket:
        raise VolumeError(policy.not_registered(volume.driver))
    disk.unmark(root, volume)
    with connected(step.socket, mark) as plugin:
        if volume.block:
            raw_block.unmount(root, volume, plugin, mark)
        else:
            _unmount(root, volume, plugin)


def _unmount(root: str, volume: Volume, plugin: Plugin) -> None:
    place = places.csi_volume_dir(root, volume.uid, volume.spec_name)
    requests.unpublish(plugin, volume, f"{place}/mount")
    staging = places.csi_staging_dir(root, volume.driver, volume.handle)
    if os.path.exists(staging):
        # After this only that record has driver and handle; a damaged one is mended.
        _record_staging(staging, volume, disk.label_of(place) or "")
    disk.remove_place(place, "mount")


def unstage(root: str, step: CsiUnstage, mark: Mark) -> None:
    """Undo the staging, unless a pod has the volume or may have it. Raises VolumeError, OSError."""
    one = step.staged
    if not staged.is_recorded(root, one) or not staged.unused(root, [one], mark):
        return
    with connected(step.socket, mark) as plugin:
        requests.unstage(plugin, one, staged.path_of(root, one))
    if one.device:
        raw_block.remove_staging(root, one.device)
    else:
        disk.remove_place(places.csi_staging_dir(root, one.driver, one.handle), "globalmount")


# Figures

MEASURE_S = 5.0
"""Deadline of a measurement, with both of its calls."""


def measure(root: str, step: CsiMeasure, mark: Mark) -> VolumeUsage | None:
    """The volume's usage as the driver reports it; None without GET_VOLUME_STATS. Raises VolumeError.

    A driver without a listener fails the first call. Only that one's errors are those of policy.is_unresponsive.
    Figures that it leaves out are 0, and negative ones: no reader of /stats/summary takes those.
    """
    volume = step.volume
    path = f"{places.csi_volume_dir(root, volume.uid, volume.spec_name)}/mount"
    if volume.block:
        path = places.csi_block_target(root, volume.spec_name, volume.uid)
    deadline = time.monotonic() + MEASURE_S
    with connected(step.socket, mark) as plugin:
        if "GET_VOLUME_STATS" not in plugin.capabilities(MEASURE_S):
            return None
        request = csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume.handle, volume_path=path)
        try:
            answer = plugin.node("NodeGetVolumeStats", request, max(0.0, deadline - time.monotonic()))
        except CallFailed as error:
            if policy.is_unresponsive(str(error)):  # the driver has just answered: this concerns the volume alone
                raise VolumeError(f"NodeGetVolumeStats failed: {error}") from error
            raise
    if not answer.usage:
        raise VolumeError("failed to get usage from response. usage is nil")
    by_unit = {one.unit: one for one in answer.usage}
    size = by_unit.get(csi_pb2.VolumeUsage.BYTES, csi_pb2.VolumeUsage())
    inodes = by_unit.get(csi_pb2.VolumeUsage.INODES, csi_pb2.VolumeUsage())
    return VolumeUsage(
        name=step.name,
        used_bytes=max(0, size.used),
        inodes_used=max(0, inodes.used),
        local=False,
        capacity_bytes=max(0, size.total),
        available_bytes=max(0, size.available),
        inodes=max(0, inodes.total),
        inodes_free=max(0, inodes.available),
    )
