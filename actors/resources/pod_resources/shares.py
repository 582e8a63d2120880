"""Takes what pods and the node have from the managers, as values that do not change any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from actors.resources.assembly import Managers
from actors.resources.devices.manager import DeviceManager
from actors.resources.dra.claims import Claims
from actors.resources.dra.policy import ClaimError, uses_of
from actors.resources.memory.model import Block
from actors.resources.pod_resources.answers import ClaimShare, ContainerShare, MemoryBlock, NodeShare, PodShare
from actors.resources.policy import find_container
from proto.resources.resources import ListedPod
from proto.v1 import Container, Pod


class Shares:
    """Reads the managers, in the actor's mailbox thread. The values may be used in any thread."""

    def __init__(self, managers: Managers, devices: DeviceManager, claims: Claims, pods: Mapping[str, Pod]) -> None:
        """`pods`: the actor's, by UID; they may hold something."""
        self._managers, self._devices, self._claims, self._pods = managers, devices, claims, pods

    def of_pod(self, pod: ListedPod) -> PodShare:
        """Resources of the pod's containers."""
        containers = tuple(self._of_container(pod.uid, name) for name in (*pod.sidecars, *pod.containers))
        return PodShare(pod.namespace, pod.name, containers)

    def devices_of_pod(self, pod: ListedPod) -> PodShare:
        """Devices of the pod's containers without the sidecars."""
        holdings = self._devices.holdings
        containers = (
            ContainerShare(name, holdings=tuple(holdings.of_container(pod.uid, name))) for name in pod.containers
        )
        return PodShare(pod.namespace, pod.name, tuple(containers))

    def of_node(self) -> NodeShare:
        """Resources that containers of the node can have."""
        cpus, memory = self._managers.cpus, self._managers.memory
        return NodeShare(
            cpus=cpus.allocatable if cpus is not None else (),
            memory=_blocks(memory.allocatable()) if memory is not None else (),
            devices={name: one.devices for name, one in self._devices.inventory.resources.items() if one.connected},
        )

    def _of_container(self, uid: str, name: str) -> ContainerShare:
        holdings = tuple(self._devices.holdings.of_container(uid, name))
        pod = self._pods.get(uid)
        container = find_container(pod, name) if pod is not None else None
        if pod is None or container is None:
            return ContainerShare(name, holdings=holdings)
        cpus, memory = self._managers.cpus, self._managers.memory
        return ContainerShare(
            name,
            cpus=cpus.exclusive(pod, container) if cpus is not None else (),
            memory=_blocks(memory.blocks(pod, container)) if memory is not None else (),
            holdings=holdings,
            claims=tuple(_claims(pod, container, self._claims)),
        )


def _claims(pod: Pod, container: Container, claims: Claims) -> Iterator[ClaimShare]:
    """The claims that the container uses. As in the kubelet, with all devices, also if it uses only one request."""
    with suppress(ClaimError):  # a claim is not created yet
        for key in dict.fromkeys(use.key for use in uses_of(pod, container)):
            found = claims.get(key)
            if found is not None and pod.metadata.uid in found.pod_uids:
                devices = found.devices.items()
                yield ClaimShare(key, tuple((driver, one) for driver, those in devices for one in those))


def _blocks(blocks: Iterable[Block]) -> tuple[MemoryBlock, ...]:
    return tuple(MemoryBlock(one.resource, one.size, tuple(one.nodes)) for one in blocks)
