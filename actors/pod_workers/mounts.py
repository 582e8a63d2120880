"""A container's mounts, as CRI asks for them. Pure.

Covers volumeMounts of volumes that are set up, propagation, recursive read-only, and the files of host_files.py. Does
not cover subPath, which is refused: joining it to the volume's path would let a container that may write there name any
path of the node through a link (CVE-2017-1002101), and the check that holds needs a bind mount of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from actors.pod_workers.environment import ConfigError
from actors.pod_workers.host_files import HOSTS, HostFiles
from proto.cri import api_pb2 as pb
from proto.v1 import Container, Pod, Volume, VolumeMount

_PROPAGATION = {
    "HostToContainer": pb.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": pb.PROPAGATION_BIDIRECTIONAL,
}


def container_mounts(pod: Pod, container: Container, host_paths: Mapping[str, str], files: HostFiles) -> list[pb.Mount]:
    """Volume mounts in the spec's order, then /etc/hosts and the termination log, as the kubelet orders them.

    `host_paths` is volume name to path on the host. Raises ConfigError.
    """
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    mounts = [
        _volume_mount(mount, container, volumes.get(mount.name), host_paths.get(mount.name, ""))
        for mount in container.volume_mounts
    ]
    if files.etc_hosts:
        mounts.append(pb.Mount(container_path=HOSTS, host_path=files.etc_hosts))
    if files.termination_log:
        path = container.termination_message_path or ""
        mounts.append(pb.Mount(container_path=path, host_path=files.termination_log))
    return mounts


def _volume_mount(mount: VolumeMount, container: Container, volume: Volume | None, host_path: str) -> pb.Mount:
    if not host_path:
        raise ConfigError(f'cannot find volume "{mount.name}" to mount into container "{container.name}"')
    if mount.sub_path or mount.sub_path_expr:
        raise ConfigError(
            f'cannot mount subPath "{mount.sub_path or mount.sub_path_expr}" of volume "{mount.name}" into container '
            f'"{container.name}": subPath is not supported yet; mount the whole volume'
        )
    if mount.recursive_read_only == "Enabled":
        # IfPossible is then not possible: runtimes say so in Status, which containerd does from 2.0 (KEP-3857).
        raise ConfigError(
            f'failed to resolve recursive read-only mode: volume "{mount.name}" requested recursive read-only mode, '
            "but it is not supported by the runtime"
        )
    return pb.Mount(
        container_path=os.path.join("/", mount.mount_path),
        host_path=host_path,
        readonly=bool(mount.read_only) or _always_read_only(volume),
        propagation=_PROPAGATION.get(mount.mount_propagation or "None", pb.PROPAGATION_PRIVATE),
    )


def _always_read_only(volume: Volume | None) -> bool:
    """API data is never written back, so a container that writes it would only deceive itself."""
    return volume is not None and any(
        source is not None for source in (volume.secret, volume.config_map, volume.downward_api, volume.projected)
    )
