"""Adds what a container is granted (CPUs, memory nodes, devices) to its CRI messages. Pure."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import TypeVar

from proto.cri import api_pb2 as pb
from proto.resources.grants import Grant, GrantedMount

T = TypeVar("T")
NO_QUOTA = -1


def add_grant(config: pb.ContainerConfig, grant: Grant, *, quota: bool) -> None:
    """Change a container's config. `quota`: keep the CFS quota also of a container with exclusive CPUs.

    As in the kubelet, the container's own variables, labels and annotations win, and the plugins' mounts come first.
    A plugin's mount has the ID mappings of the pod's user namespace, as each of the container's own mounts has.
    """
    users = config.linux.security_context.namespace_options.userns_options
    resources = config.linux.resources
    resources.cpuset_cpus, resources.cpuset_mems = grant.cpus, grant.memory_nodes
    lift_quota(resources, grant, quota=quota)
    own = {variable.key for variable in config.envs}
    environment = [
        pb.KeyValue(key=name, value=value.encode()) for name, value in grant.environment.items() if name not in own
    ]
    _prepend(config.envs, environment)
    _prepend(config.mounts, [_mount(one, users) for one in grant.mounts])
    _prepend(config.devices, [_device(one.host_path, one.container_path, one.permissions) for one in grant.devices])
    for name, value in grant.annotations.items():
        if name not in config.annotations:
            config.annotations[name] = value
    config.CDI_devices.extend(pb.CDIDevice(name=name) for name in grant.cdi_devices)


def lift_quota(resources: pb.LinuxContainerResources, grant: Grant, *, quota: bool) -> None:
    """Take the CFS quota from a container with exclusive CPUs, unless `quota`."""
    if grant.exclusive_cpus and not quota:
        resources.cpu_quota = NO_QUOTA


def _mount(granted: GrantedMount, users: pb.UserNamespace) -> pb.Mount:
    return pb.Mount(
        container_path=granted.container_path,
        host_path=granted.host_path,
        readonly=granted.read_only,
        uidMappings=users.uids,
        gidMappings=users.gids,
    )


def _device(host_path: str, container_path: str, permissions: str) -> pb.Device:
    return pb.Device(host_path=host_path, container_path=container_path, permissions=permissions)


def _prepend(field: MutableSequence[T], first: Sequence[T]) -> None:
    if first:
        rest = list(field)
        del field[:]
        field.extend([*first, *rest])
