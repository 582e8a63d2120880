"""Answers of the pod resources API. Pure.

Source: pkg/kubelet/apis/podresources/server_v1.go and pkg/kubelet/cm of Kubernetes 1.36. As there, each device has an
entry of its own for each of its NUMA nodes. Entries are sorted, where the kubelet has the order of a Go map.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from actors.resources.devices.holdings import Holding
from actors.resources.devices.inventory import NO_NODE, Device
from actors.resources.dra.claims import Device as ClaimDevice
from actors.resources.dra.claims import Key
from proto.plugins import podresources_pb2 as pb
from proto.plugins import podresourcesv1alpha1_pb2 as alpha


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory on a group of NUMA nodes."""

    resource: str
    size: int
    """Bytes."""
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClaimShare:
    """A claim that a container uses."""

    key: Key
    devices: tuple[tuple[str, ClaimDevice], ...]
    """Each with its driver."""


@dataclass(frozen=True, slots=True)
class ContainerShare:
    """Resources of a container."""

    name: str
    cpus: Collection[int] = ()
    """CPUs that it has alone."""
    memory: tuple[MemoryBlock, ...] = ()
    holdings: tuple[Holding, ...] = ()
    claims: tuple[ClaimShare, ...] = ()


@dataclass(frozen=True, slots=True)
class PodShare:
    """Resources of a pod."""

    namespace: str
    name: str
    containers: tuple[ContainerShare, ...]


@dataclass(frozen=True, slots=True)
class NodeShare:
    """Resources that containers of the node can have."""

    cpus: Collection[int] = ()
    memory: tuple[MemoryBlock, ...] = ()
    devices: Mapping[str, Mapping[str, Device]] | None = None
    """By resource and ID, of plugins that are connected. Only healthy ones count."""


def listed(pods: Iterable[PodShare]) -> Any:
    """ListPodResourcesResponse."""
    ordered = sorted(pods, key=lambda one: (one.namespace, one.name))
    return pb.ListPodResourcesResponse(pod_resources=map(_pod, ordered))


def listed_devices(pods: Iterable[PodShare]) -> Any:
    """v1alpha1.ListPodResourcesResponse. Its fields are the first ones of version 1, so that answer is stripped."""
    found = alpha.ListPodResourcesResponse.FromString(listed(pods).SerializeToString())
    found.DiscardUnknownFields()
    return found


def one_pod(pod: PodShare) -> Any:
    """GetPodResourcesResponse."""
    return pb.GetPodResourcesResponse(pod_resources=_pod(pod))


def allocatable(node: NodeShare) -> Any:
    """AllocatableResourcesResponse."""
    return pb.AllocatableResourcesResponse(
        devices=[
            _device(resource, one.id, number)
            for resource, devices in sorted((node.devices or {}).items())
            for one in sorted(devices.values(), key=lambda device: device.id)
            if one.healthy
            for number in sorted(one.nodes) or [NO_NODE]
        ],
        cpu_ids=sorted(node.cpus),
        memory=map(_memory, node.memory),
    )


def _pod(pod: PodShare) -> Any:
    return pb.PodResources(name=pod.name, namespace=pod.namespace, containers=map(_container, pod.containers))


def _container(share: ContainerShare) -> Any:
    return pb.ContainerResources(
        name=share.name,
        devices=[device for holding in share.holdings for device in _devices(holding)],
        cpu_ids=sorted(share.cpus),
        memory=map(_memory, share.memory),
        dynamic_resources=map(_claim, share.claims),
    )


def _claim(claim: ClaimShare) -> Any:
    return pb.DynamicResource(
        claim_name=claim.key.name,
        claim_namespace=claim.key.namespace,
        claim_resources=[
            pb.ClaimResource(
                cdi_devices=[pb.CDIDevice(name=name) for name in device.cdi_names],
                driver_name=driver,
                pool_name=device.pool,
                device_name=device.name,
                share_id=device.share_id,
            )
            for driver, device in claim.devices
        ],
    )


def _devices(holding: Holding) -> Iterator[Any]:
    placed = sorted((identity, node) for node, ids in holding.by_node.items() for identity in ids)
    return (_device(holding.resource, identity, node) for identity, node in placed)


def _device(resource: str, identity: str, node: int) -> Any:
    near = None if node == NO_NODE else pb.TopologyInfo(nodes=[pb.NUMANode(ID=node)])
    return pb.ContainerDevices(resource_name=resource, device_ids=[identity], topology=near)


def _memory(block: MemoryBlock) -> Any:
    near = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in sorted(block.nodes)])
    return pb.ContainerMemory(memory_type=block.resource, size=block.size, topology=near)
