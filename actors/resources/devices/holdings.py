"""The devices that containers hold: assigned, and freed with their pod. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from actors.resources.model.hints import Hint
from proto.v1 import Container, Pod


@dataclass(frozen=True, slots=True)
class Holding:
    """The devices of one resource that a container has."""

    pod_uid: str
    container: str
    resource: str
    by_node: Mapping[int, tuple[str, ...]]
    """Device IDs by NUMA node; a device of several nodes is in each."""
    response: bytes = b""
    """The plugin's serialized ContainerAllocateResponse."""
    earlier_boot: bool = False
    """Assigned before the machine's last start: the plugin has to allocate the devices again."""
    chosen_for: Hint | None = None
    """The affinity of an admission under way: no other pod gets the devices, and the plugin has not allocated them."""

    @property
    def is_allocated(self) -> bool:
        """The plugin has allocated the devices since the machine's start."""
        return self.chosen_for is None and not self.earlier_boot

    @property
    def ids(self) -> frozenset[str]:
        """The device IDs."""
        return frozenset(one for ids in self.by_node.values() for one in ids)

    @property
    def cost(self) -> int:
        """Bytes that the checkpoint's checksum is over: its IDs and, in decimal, its response."""
        return 4 * len(self.response) + sum(len(one.encode()) + 1 for ids in self.by_node.values() for one in ids)


class Holdings:
    """All holdings, by pod, container and resource."""

    def __init__(self, holdings: Iterable[Holding] = ()) -> None:
        self._pods: dict[str, dict[tuple[str, str], Holding]] = {}
        for one in holdings:
            self.put(one)

    def __iter__(self) -> Iterator[Holding]:
        return (one for pod in self._pods.values() for one in pod.values())

    def put(self, holding: Holding) -> None:
        """Add or replace what a container has of a resource."""
        self._pods.setdefault(holding.pod_uid, {})[holding.container, holding.resource] = holding

    def get(self, pod_uid: str, container: str, resource: str) -> Holding | None:
        """The devices of a resource that a container has; None without any."""
        return self._pods.get(pod_uid, {}).get((container, resource))

    def of_container(self, pod_uid: str, container: str) -> list[Holding]:
        """All that plugins have allocated to a container, by resource name."""
        held = (one for (name, _), one in self._pods.get(pod_uid, {}).items() if name == container)
        return sorted((one for one in held if one.chosen_for is None), key=lambda one: one.resource)

    def of_pod(self, pod_uid: str) -> tuple[Holding, ...]:
        """All that a pod has."""
        return tuple(self._pods.get(pod_uid, {}).values())

    def release(self, pod_uid: str) -> bool:
        """Free all of a pod; False when it had nothing."""
        return self._pods.pop(pod_uid, None) is not None

    def retain(self, pod_uids: Collection[str]) -> bool:
        """Free all of other pods; False when they had nothing."""
        gone = self._pods.keys() - set(pod_uids)
        for uid in gone:
            del self._pods[uid]
        return bool(gone)

    def in_use(self, resource: str, *, but: tuple[str, str] | None = None) -> frozenset[str]:
        """IDs of the resource's assigned devices. `but`: pod UID and name of a container that does not count."""
        others = (held for held in self if held.resource == resource and (held.pod_uid, held.container) != but)
        return frozenset(one for held in others for one in held.ids)

    def cost(self, *, but: Holding) -> int:
        """Cost of all others that are in the checkpoint."""
        return sum(one.cost for one in self if one is not but and one.chosen_for is None)

    def owners(self, resource: str, ids: Collection[str]) -> frozenset[str]:
        """UIDs of the pods that have one of these devices."""
        return frozenset(one.pod_uid for one in self if one.resource == resource and not one.ids.isdisjoint(ids))

    def resources(self) -> frozenset[str]:
        """Names of resources of which a device is assigned."""
        return frozenset(one.resource for one in self)

    def reusable(self, pod: Pod, container: Container, resource: str) -> frozenset[str]:
        """Devices of the pod's init containers that have ended when this container starts.

        Restartable init containers and containers keep theirs.
        """
        free: frozenset[str] = frozenset()
        plain = {one.name for one in pod.spec.init_containers if one.restart_policy != "Always"}
        for other in (*pod.spec.init_containers, *pod.spec.containers):
            if other.name == container.name:
                break
            held = self.get(pod.metadata.uid, other.name, resource)
            if held is not None:
                free = free | held.ids if other.name in plain else free - held.ids
        return free
