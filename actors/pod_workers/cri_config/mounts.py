"""Makes CRI mounts from a container's volumeMounts and host files. Pure.

Covers sub paths, which are bound on the host first, propagation, and recursive read-only mounts (KEP-3857). Source:
makeMounts of pkg/kubelet/kubelet_pods.go.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from actors.pod_workers.cri_config.host_files import HOSTS, HostFiles
from actors.pod_workers.environment.exec_limits import MAX_PATH_BYTES
from actors.pod_workers.environment.variables import ConfigError, TooLongError, expand, references
from actors.pod_workers.model.view import absolute
from proto.cri import api_pb2 as pb
from proto.pods.volume import SubPath
from proto.v1 import Container, ImageVolumeSource, Pod, Volume, VolumeMount
from proto.v1.volumes.migrated import MIGRATED

_PROPAGATION = {
    "HostToContainer": pb.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": pb.PROPAGATION_BIDIRECTIONAL,
}


@dataclass(frozen=True, slots=True)
class MountInputs:
    """The inputs of mounts besides the spec."""

    volumes: Mapping[str, str] = field(default_factory=dict)
    """Volume name to path on the host."""
    sub_paths: Mapping[int, str] = field(default_factory=dict)
    """Index of a volumeMount with a sub path to the path where it is bound on the host."""
    recursive_read_only: bool = False
    """The pod's runtime handler supports it."""
    images: Mapping[str, pb.ImageSpec] = field(default_factory=dict)
    """Image volumes by name. The runtime itself mounts the image (KEP-4639)."""
    image_sub_paths: Mapping[int, str] = field(default_factory=dict)
    """Index of a volumeMount of an image volume to its path in the image; missing for the whole image."""
    groups: tuple[int, ...] = ()
    """GIDs of the pod's volumes, which its containers get as supplemental groups."""
    relabel: frozenset[str] = frozenset()
    """Volumes whose files the runtime gives the container's SELinux label."""
    selinux: bool = False
    """The machine has SELinux. The runtime labels the pod's own files too."""


def sub_paths(container: Container, variables: Callable[[], Mapping[str, str]]) -> dict[int, str]:
    """Index of a volumeMount to its sub path. `variables`: for subPathExpr. Raises ConfigError."""
    found = {}
    variables = functools.cache(variables)
    for index, mount in enumerate(container.volume_mounts):
        path = mount.sub_path or ""
        if mount.sub_path_expr:
            path = _expanded(mount, variables())
        if path:
            _check_sub_path(path)
            found[index] = path
    return found


def to_bind(
    container: Container, parts: Mapping[int, str], host_paths: Mapping[str, str], images: Collection[str]
) -> tuple[SubPath, ...]:
    """The sub paths to bind on the host first: all but those of images. Raises ConfigError."""
    found = []
    for index, path in parts.items():
        mount = container.volume_mounts[index]
        if mount.name not in images:
            volume_path = _host_path(mount, container, host_paths)
            found.append(SubPath(index=index, volume=mount.name, volume_path=volume_path, sub_path=path))
    return tuple(found)


def image_volumes(pod: Pod, container: Container) -> dict[str, ImageVolumeSource]:
    """The image volumes that the container mounts, by name."""
    mounted = {mount.name for mount in container.volume_mounts}
    return {one.name: one.image for one in pod.spec.volumes if one.image is not None and one.name in mounted}


_OWN = ("empty_dir", "config_map", "secret", "downward_api", "projected")
"""Sources of volumes that the agent itself keeps, in memory or on its own disk."""


def foreign_volumes(pod: Pod, container: Container, host_paths: Mapping[str, str]) -> dict[str, str]:
    """Name to host path of the container's volumes that a server or driver serves, which may die."""
    own = {one.name for one in pod.spec.volumes if any(getattr(one, source) is not None for source in _OWN)}
    names = {mount.name for mount in container.volume_mounts} - own
    return {name: path for name, path in host_paths.items() if name in names}


def _expanded(mount: VolumeMount, variables: Mapping[str, str]) -> str:
    expression = mount.sub_path_expr or ""
    missing = sorted({name for name in references(expression) if not variables.get(name)})
    if missing:
        raise ConfigError(f"missing value for {', '.join(missing)}")
    try:
        return expand(expression, variables, MAX_PATH_BYTES)
    except TooLongError:
        problem = f"it is longer than {MAX_PATH_BYTES} bytes, which Linux refuses"
        raise ConfigError(f'cannot make the sub path of volume "{mount.name}": {problem}') from None


def _check_sub_path(path: str) -> None:
    if path.startswith("/"):
        raise ConfigError(f"error SubPath `{path}` must not be an absolute path")
    if ".." in path.split("/"):
        raise ConfigError(f"unable to provision SubPath `{path}`: must not contain '..'")


def wants_recursive_read_only(container: Container) -> bool:
    """Return True when a mount asks for recursive read-only."""
    return any(mount.recursive_read_only in ("Enabled", "IfPossible") for mount in container.volume_mounts)


def container_mounts(pod: Pod, container: Container, facts: MountInputs, files: HostFiles) -> list[pb.Mount]:
    """Volume mounts in the spec's order, then /etc/hosts and the termination log, as in the kubelet.

    Raises ConfigError.
    """
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    mounts = []
    for index, mount in enumerate(container.volume_mounts):
        image = facts.images.get(mount.name)
        if image is None:
            path = facts.sub_paths.get(index) or _host_path(mount, container, facts.volumes)
            relabel = mount.name in facts.relabel
            mounts.append(_volume_mount(mount, volumes.get(mount.name), facts, host_path=path, selinux_relabel=relabel))
        else:
            part = facts.image_sub_paths.get(index, "")
            volume = volumes.get(mount.name)
            mounts.append(_volume_mount(mount, volume, facts, image=image, image_sub_path=part))
    if files.etc_hosts:
        mounts.append(pb.Mount(container_path=HOSTS, host_path=files.etc_hosts, selinux_relabel=facts.selinux))
    if files.termination_log:
        path = absolute(container.termination_message_path or "")
        mounts.append(pb.Mount(container_path=path, host_path=files.termination_log, selinux_relabel=facts.selinux))
    return mounts


def _host_path(mount: VolumeMount, container: Container, host_paths: Mapping[str, str]) -> str:
    path = host_paths.get(mount.name)
    if not path:
        raise ConfigError(f'cannot find volume "{mount.name}" to mount into container "{container.name}"')
    return path


def _volume_mount(mount: VolumeMount, volume: Volume | None, facts: MountInputs, **source: Any) -> pb.Mount:
    return pb.Mount(
        **source,
        container_path=os.path.join("/", mount.mount_path),
        readonly=bool(mount.read_only) or _always_read_only(volume),
        propagation=_PROPAGATION.get(mount.mount_propagation or "None", pb.PROPAGATION_PRIVATE),
        recursive_read_only=_recursive_read_only(mount, can=facts.recursive_read_only),
    )


def _recursive_read_only(mount: VolumeMount, *, can: bool) -> bool:
    mode = mount.recursive_read_only
    if mode in (None, "Disabled"):
        return False
    problem = ""
    if not mount.read_only:
        problem = "but it is not read-only"
    elif mount.mount_propagation not in (None, "None"):
        problem = f'but it is not compatible with propagation "{mount.mount_propagation}"'
    elif mode == "Enabled" and not can:
        problem = "but it is not supported by the runtime"
    if problem:
        wanted = f'volume "{mount.name}" requested recursive read-only mode'
        raise ConfigError(f"failed to resolve recursive read-only mode: {wanted}, {problem}")
    return can


def _always_read_only(volume: Volume | None) -> bool:
    """True for API data and images, whose changes would be lost, and for volumes that the pod has read-only."""
    if volume is None:
        return False
    of_the_api = (volume.secret, volume.config_map, volume.downward_api, volume.projected, volume.image)
    others = (volume.persistent_volume_claim, volume.nfs, volume.csi, *(getattr(volume, name) for name in MIGRATED))
    return any(source is not None for source in of_the_api) or any(getattr(one, "read_only", False) for one in others)
