"""Mounting and unmounting a CSI volume. Blocks: runs in a helper process.

What is on disk says what the driver may have done, and is written before the driver is asked: vol_data.json in the
pod's directory of the volume, another beside the staged one. So whoever comes after a kill can undo all of it, and a
call whose outcome is not known is undone like one that succeeded. Source: pkg/volume/csi of Kubernetes 1.36.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from actors.volume import ownership
from actors.volume.csi import disk, policy
from actors.volume.csi.driver import CallFailed, Plugin, connected
from actors.volume.csi.steps import CsiMeasure, CsiMount, CsiUnmount, Volume
from actors.volume.setup import VolumeError
from proto.plugins import csi_pb2
from proto.volume import VolumeUsage

Mark = Callable[[], None]


def mount(root: str, step: CsiMount, mark: Mark) -> None:
    """Have the volume published. Raises VolumeError, OSError."""
    volume = step.volume
    place = policy.target_dir(root, volume.uid, volume.spec_name)
    target = f"{place}/mount"
    with connected(step.socket, mark) as plugin:
        capabilities = plugin.capabilities()
        capability = _capability(step, capabilities)
        staging = ""
        new = not os.path.exists(f"{place}/{disk.DATA}")
        disk.write_data(place, policy.volume_data(step))
        if not step.ephemeral and "STAGE_UNSTAGE_VOLUME" in capabilities:
            try:
                staging = _stage(root, step, plugin, capability)
            except CallFailed as error:
                if error.final and new:
                    disk.remove_place(place, "mount")
                raise
        try:
            plugin.node("NodePublishVolume", _publication(step, staging, target, capability))
        except CallFailed as error:
            _after_failure(error, place, staging, keep=step.republish and disk.is_ready(root, volume))
            raise
        if not os.path.isdir(target):
            raise VolumeError(f"driver {volume.driver} says that it published the volume, and there is no {target}")
        if step.expand_bytes and "EXPAND_VOLUME" in capabilities:
            plugin.node("NodeExpandVolume", _expansion(step, staging, target, capability))
    _give_to_group(step, capabilities, target, mark)
    disk.mark_ready(root, volume, step.name)


def _after_failure(error: CallFailed, place: str, staging: str, *, keep: bool) -> None:
    """A publication that certainly did not happen leaves nothing to undo but the staging."""
    if not error.final or keep:
        return
    if not staging:
        disk.remove_place(place, "mount")
    elif not disk.is_mount(f"{place}/mount"):
        with suppress(OSError):
            os.rmdir(f"{place}/mount")


def _stage(root: str, step: CsiMount, plugin: Plugin, capability: csi_pb2.VolumeCapability) -> str:
    """The path of the staged volume. One that another pod has needs no call."""
    volume = step.volume
    place = policy.staging_dir(root, volume.driver, volume.handle)
    staging = f"{place}/globalmount"
    if any(disk.is_ready(root, one) for one in disk.users(root, volume)):
        return staging
    new = not os.path.exists(f"{place}/{disk.DATA}")
    disk.make_dirs(staging)
    disk.write_data(place, {"volumeHandle": volume.handle, "driverName": volume.driver})
    request = csi_pb2.NodeStageVolumeRequest(
        volume_id=volume.handle,
        publish_context=step.publish_context,
        staging_target_path=staging,
        volume_capability=capability,
        secrets=step.secrets.stage,
        volume_context=step.context,
    )
    try:
        plugin.node("NodeStageVolume", request)
    except CallFailed as error:
        if error.final and new:
            disk.remove_place(place, "globalmount")
        raise
    return staging


def _publication(
    step: CsiMount, staging: str, target: str, capability: csi_pb2.VolumeCapability
) -> csi_pb2.NodePublishVolumeRequest:
    return csi_pb2.NodePublishVolumeRequest(
        volume_id=step.volume.handle,
        publish_context=step.publish_context,
        staging_target_path=staging,
        target_path=target,
        volume_capability=capability,
        readonly=step.read_only,
        secrets=step.secrets.publish,
        volume_context=step.context | step.pod_info,
    )


def _expansion(
    step: CsiMount, staging: str, target: str, capability: csi_pb2.VolumeCapability
) -> csi_pb2.NodeExpandVolumeRequest:
    return csi_pb2.NodeExpandVolumeRequest(
        volume_id=step.volume.handle,
        volume_path=target,
        staging_target_path=staging,
        capacity_range=csi_pb2.CapacityRange(required_bytes=step.expand_bytes),
        volume_capability=capability,
        secrets=step.secrets.expand,
    )


def _capability(step: CsiMount, capabilities: frozenset[str]) -> csi_pb2.VolumeCapability:
    modes = csi_pb2.VolumeCapability.AccessMode
    mode = modes.Mode.Value(policy.access_mode(step.access_modes, capabilities))
    return csi_pb2.VolumeCapability(
        mount=csi_pb2.VolumeCapability.MountVolume(
            fs_type=step.fs_type,
            mount_flags=step.mount_options,
            volume_mount_group=policy.mount_group(step, capabilities),
        ),
        access_mode=modes(mode=mode),
    )


def _give_to_group(step: CsiMount, capabilities: frozenset[str], target: str, mark: Mark) -> None:
    wish = policy.owned_by(step, capabilities)
    if wish is None:
        return
    directory = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        once = "OnRootMismatch" if wish.change_policy == "OnRootMismatch" else "Always"
        ownership.set_ownership(directory, wish.group, read_only=False, policy=once, progress=mark)  # type: ignore[arg-type]
    except OSError as error:
        raise VolumeError(f"applyFSGroup failed for vol {step.volume.handle}: {error}") from error
    finally:
        os.close(directory)


# The way back


def unmount(root: str, step: CsiUnmount, mark: Mark) -> None:
    """Undo `mount`, from any point. Raises VolumeError, OSError."""
    volume = step.volume
    place = policy.target_dir(root, volume.uid, volume.spec_name)
    if not step.socket:
        raise VolumeError(policy.not_registered(volume.driver))
    disk.unmark(root, volume)
    with connected(step.socket, mark) as plugin:
        request = csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume.handle, target_path=f"{place}/mount")
        plugin.node("NodeUnpublishVolume", request)
        if disk.is_mount(f"{place}/mount"):
            raise VolumeError(f"driver {volume.driver} says that it unpublished the volume, and it is still mounted")
        staged = policy.staging_dir(root, volume.driver, volume.handle)
        if os.path.exists(staged) and not disk.users(root, volume):
            _unstage(volume, staged, plugin)
    disk.remove_place(place, "mount")


def _unstage(volume: Volume, place: str, plugin: Plugin) -> None:
    staging = f"{place}/globalmount"
    if "STAGE_UNSTAGE_VOLUME" in plugin.capabilities():
        request = csi_pb2.NodeUnstageVolumeRequest(volume_id=volume.handle, staging_target_path=staging)
        plugin.node("NodeUnstageVolume", request)
    if disk.is_mount(staging):
        raise VolumeError(f"driver {volume.driver} says that it unstaged the volume, and it is still mounted")
    disk.remove_place(place, "globalmount")


# Figures

MEASURE_S = 5.0


def measure(root: str, step: CsiMeasure, mark: Mark) -> VolumeUsage | None:
    """What the driver says the volume takes; None when it cannot say. Raises VolumeError."""
    volume = step.volume
    with connected(step.socket, mark) as plugin:
        if "GET_VOLUME_STATS" not in plugin.capabilities():
            return None
        request = csi_pb2.NodeGetVolumeStatsRequest(
            volume_id=volume.handle,
            volume_path=f"{policy.target_dir(root, volume.uid, volume.spec_name)}/mount",
        )
        answer = plugin.node("NodeGetVolumeStats", request, MEASURE_S)
    by_unit = {one.unit: one for one in answer.usage}
    size = by_unit.get(csi_pb2.VolumeUsage.BYTES, csi_pb2.VolumeUsage())
    inodes = by_unit.get(csi_pb2.VolumeUsage.INODES, csi_pb2.VolumeUsage())
    return VolumeUsage(
        name=step.name,
        used_bytes=size.used,
        inodes_used=inodes.used,
        local=False,
        capacity_bytes=size.total,
        available_bytes=size.available,
        inodes=inodes.total,
        inodes_free=inodes.available,
    )
