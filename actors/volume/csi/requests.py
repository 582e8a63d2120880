"""What drivers are asked, as their protocol words it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from actors.volume.csi import policy
from actors.volume.csi.driver import CallFailed, Plugin
from actors.volume.steps.csi import CsiMount, Growth
from proto.plugins import csi_pb2

log = logging.getLogger(__name__)

Mark = Callable[[], None]
"""Called now and then: the helper is alive."""


def staging(step: CsiMount, path: str, wanted: csi_pb2.VolumeCapability) -> csi_pb2.NodeStageVolumeRequest:
    """Make the volume ready at a path of the node's."""
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
    """Give the volume to a pod. `staged`: its path, empty when the driver does not stage."""
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


def expansion(
    step: CsiMount, staged: str, target: str, wanted: csi_pb2.VolumeCapability
) -> csi_pb2.NodeExpandVolumeRequest:
    """Have the volume grow on the node."""
    return csi_pb2.NodeExpandVolumeRequest(
        volume_id=step.volume.handle,
        volume_path=target,
        staging_target_path=staged,
        capacity_range=csi_pb2.CapacityRange(required_bytes=step.expand_bytes),
        volume_capability=wanted,
        secrets=step.secrets.expand,
    )


def grow(plugin: Plugin, step: CsiMount, staged: str, target: str, capabilities: frozenset[str]) -> Growth:
    """Have a published volume grow on the node, where that is wished for. Raises CallFailed."""
    if not step.expand_bytes or "EXPAND_VOLUME" not in capabilities:
        return ""
    try:
        plugin.node("NodeExpandVolume", expansion(step, staged, target, capability(step, capabilities)))
    except CallFailed as error:
        if error.code != "FailedPrecondition":
            error.grown = policy.growth_failure(error.code)
            raise
        # It cannot while it is in use, says the specification: no reason to keep the volume from the pod.
        log.warning("MountVolume.NodeExpandVolume failed for volume %s with %s", step.volume.spec_name, error)
        return "refused"
    return "done"


def capability(step: CsiMount, capabilities: frozenset[str]) -> csi_pb2.VolumeCapability:
    """How the volume is used, by a driver that can do these things."""
    modes = csi_pb2.VolumeCapability.AccessMode
    mode = modes(mode=modes.Mode.Value(policy.access_mode(step.access_modes, capabilities)))
    if step.volume.block:
        return csi_pb2.VolumeCapability(block=csi_pb2.VolumeCapability.BlockVolume(), access_mode=mode)
    return csi_pb2.VolumeCapability(
        mount=csi_pb2.VolumeCapability.MountVolume(
            fs_type=step.fs_type,
            mount_flags=step.mount_options,
            volume_mount_group=policy.mount_group(step, capabilities),
        ),
        access_mode=mode,
    )
