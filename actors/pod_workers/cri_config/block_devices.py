"""Makes CRI devices from a container's raw block volumes. Pure. Source: makeBlockVolumes of pkg/kubelet."""

from __future__ import annotations

from collections.abc import Mapping

from actors.pod_workers.environment.variables import ConfigError
from proto.cri import api_pb2 as pb
from proto.v1 import Container, Pod

READ_WRITE, READ_ONLY = "mrw", "r"


def volume_devices(pod: Pod, container: Container, host_paths: Mapping[str, str]) -> list[pb.Device]:
    """The devices in the spec's order. `host_paths`: volume name to a link to the device. Raises ConfigError."""
    claims = {one.name: one.persistent_volume_claim for one in pod.spec.volumes}
    devices = []
    for device in container.volume_devices:
        if not device.device_path.startswith("/"):
            raise ConfigError(f"error DevicePath `{device.device_path}` must be an absolute path")
        path = host_paths.get(device.name)
        if not path:
            raise ConfigError(f'cannot find volume "{device.name}" to pass into container "{container.name}"')
        claim = claims.get(device.name)
        permissions = READ_ONLY if claim is not None and claim.read_only else READ_WRITE
        devices.append(pb.Device(container_path=device.device_path, host_path=path, permissions=permissions))
    return devices
