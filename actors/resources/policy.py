"""Merges the grants that the providers give a container, and finds the containers that can have one. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from proto.resources.grants import Grant
from proto.v1 import Container, Pod


def merged(grants: Iterable[Grant]) -> Grant:
    """One grant of the parts that the providers give. Its CPUs, and its memory nodes, are the first that a part has."""
    parts = tuple(grants)
    return Grant(
        cpus=next((part.cpus for part in parts if part.cpus), ""),
        memory_nodes=next((part.memory_nodes for part in parts if part.memory_nodes), ""),
        exclusive_cpus=any(part.exclusive_cpus for part in parts),
        environment={name: value for part in parts for name, value in part.environment.items()},
        devices=tuple(dict.fromkeys(device for part in parts for device in part.devices)),
        mounts=tuple(dict.fromkeys(mount for part in parts for mount in part.mounts)),
        annotations={name: value for part in parts for name, value in part.annotations.items()},
        cdi_devices=tuple(dict.fromkeys(name for part in parts for name in part.cdi_devices)),
    )


def containers_of(pod: Pod) -> tuple[Container, ...]:
    """Init containers and containers, in the order in which resources are assigned to them."""
    return (*pod.spec.init_containers, *pod.spec.containers)


def find_container(pod: Pod, name: str) -> Container | None:
    """The pod's container of this name, also an ephemeral one. None: the pod has none."""
    every = (*containers_of(pod), *pod.spec.ephemeral_containers)
    return next((container for container in every if container.name == name), None)
