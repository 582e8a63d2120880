"""Requests of CSI's Node service, and the calls that raw devices and file systems have in common."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from actors.volume.csi import disk, growth, policy
from actors.volume.csi.driver import CallFailed, Plugin
from actors.volume.ops.commands import Progress
from actors.volume.steps.csi import CsiMount, Grown, Growth, Staged, Volume
from actors.volume.steps.errors import VolumeError
from proto.plugins import csi_pb2

log = logging.getLogger(__name__)

Mark = Progress


def staging(step: CsiMount, path: str, wanted: csi_pb2.VolumeCapability) -> csi_pb2.NodeStageVolumeRequest:
    """NodeStageVolume to `path`."""
    return csi_pb2.NodeStageVolumeRequest(
        volume_id=step.volume.handle,
        publish_context=step.publish_context,
        staging_target_path=path,
        volume_capability=wanted,
        secrets=step.secrets.stage,
        volume_context=step.context,
    )


def publication(
    step: CsiMount, staged: str, target: str, wanted: csi_pb2.VolumeCapability
) -> csi_pb2.NodePublishVolumeRequest:
    """NodePublishVolume to `target`. `staged`: the staging path, empty when the driver does not stage."""
    return csi_pb2.NodePublishVolumeRequest(
        volume_id=step.volume.handle,
        publish_context=step.publish_context,
        staging_target_path=staged,
        target_path=target,
        volume_capability=wanted,
        readonly=step.read_only,
        secrets=step.secrets.publish,
        volume_context=step.context | step.pod_info | step.secrets.attributes,
    )


def unpublish(plugin: Plugin, volume: Volume, target: str) -> None:
    """Unpublish a volume. Raises VolumeError, also when it is still mounted."""
    plugin.node("NodeUnpublishVolume", csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume.handle, target_path=target))
    if disk.is_mount(target):
        raise VolumeError(f"driver {volume.driver} reported the volume as unpublished, but it is still mounted")


def unstage(plugin: Plugin, volume: Staged, path: str) -> None:
    """Unstage a volume, if the driver stages. Raises VolumeError, also when it is still mounted."""
    if "STAGE_UNSTAGE_VOLUME" in plugin.capabilities():
        request = csi_pb2.NodeUnstageVolumeRequest(volume_id=volume.handle, staging_target_path=path)
        plugin.node("NodeUnstageVolume", request)
    if disk.is_mount(path):
        raise VolumeError(f"driver {volume.driver} reported the volume as unstaged, but it is still mounted")


def grow(plugin: Plugin, step: CsiMount, staged: str, target: str, capabilities: frozenset[str]) -> Grown:
    """Grow a published volume, if wanted and supported. Raises VolumeError."""
    if not step.expand_bytes or "EXPAND_VOLUME" not in capabilities:
        return Grown()
    if step.secrets.expand_error:
        raise _not_grown(step.secrets.expand_error, "failed")
    request = csi_pb2.NodeExpandVolumeRequest(
        volume_id=step.volume.handle,
        volume_path=target,
        staging_target_path=staged,
        capacity_range=csi_pb2.CapacityRange(required_bytes=step.expand_bytes),
        volume_capability=capability(replace(step, fs_group=None, selinux_label=""), capabilities),  # as in the kubelet
        secrets=step.secrets.expand,
    )
    try:
        plugin.node("NodeExpandVolume", request)
    except CallFailed as error:
        result = growth.failure_result(error.code)
        text = growth.failure_message(result, str(error))
        if result != "refused":
            raise _not_grown(text, result) from error
        # The specification: it cannot grow while in use. The pod can use the volume all the same.
        log.warning("MountVolume.NodeExpandVolume failed for volume %s with %s", step.volume.spec_name, text)
        return Grown("refused", text)
    return Grown("done")


def _not_grown(text: str, result: Growth) -> VolumeError:
    error = VolumeError(text)
    error.grown = result
    return error


def capability(step: CsiMount, capabilities: frozenset[str]) -> csi_pb2.VolumeCapability:
    """The VolumeCapability of the step, for a driver with these capabilities."""
    modes = csi_pb2.VolumeCapability.AccessMode
    mode = modes(mode=modes.Mode.Value(policy.access_mode(step.access_modes, capabilities)))
    if step.volume.block:
        return csi_pb2.VolumeCapability(block=csi_pb2.VolumeCapability.BlockVolume(), access_mode=mode)
    return csi_pb2.VolumeCapability(
        mount=csi_pb2.VolumeCapability.MountVolume(
            fs_type=step.fs_type,
            mount_flags=policy.mount_flags(step),
            volume_mount_group=policy.mount_group(step, capabilities),
        ),
        access_mode=mode,
    )
