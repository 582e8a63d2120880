"""The devices that plugins list, by resource, and the capacity that follows. Pure.

Source: pkg/kubelet/cm/devicemanager of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

GRACE_S = 300.0
"""A plugin that is away for longer has its resource's capacity taken off the Node."""
MOST_DEVICES = 65_536
MOST_PLACEMENTS = 65_536
"""Of all resources together: a device counts once for each NUMA node near it. The pod resources API lists it so."""
MOST_ID_BYTES = 4 << 20
"""Of all resources together. The checkpoint has every ID, and its checksum takes 0.3 s of CPU time for this much."""
NO_NODE = -1
"""NUMA node of devices without one, in the checkpoint."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device as its plugin lists it."""

    id: str
    healthy: bool = True
    nodes: frozenset[int] = frozenset()
    """NUMA nodes that it is near to. Empty: unknown."""


@dataclass
class Resource:
    """The devices of one resource."""

    devices: dict[str, Device] = field(default_factory=dict)
    connected: bool = False
    listed: bool = False
    """The connected plugin has sent its list."""
    away_since: float = 0.0
    """Without a connected plugin: monotonic time since when."""

    @property
    def healthy(self) -> frozenset[str]:
        """IDs of devices that may be assigned; none while the plugin is away."""
        if not self.connected:
            return frozenset()
        return frozenset(one.id for one in self.devices.values() if one.healthy)

    @property
    def has_topology(self) -> bool:
        """True if some device names its NUMA nodes."""
        return any(one.nodes for one in self.devices.values())


class Inventory:
    """All resources by name."""

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.removed: set[str] = set()
        """Resources whose plugin stayed away: the Node says 0 of them."""

    def restore(self, names: Iterable[str], now: float) -> None:
        """Know resources of an earlier incarnation. Their capacity is 0 until their plugin registers again."""
        for name in names:
            self.resources.setdefault(name, Resource(away_since=now))

    def connect(self, name: str) -> None:
        """A plugin has registered; devices of an earlier one stay until it sends its list."""
        resource = self.resources.setdefault(name, Resource())
        resource.connected, resource.listed = True, False
        self.removed.discard(name)

    def update(self, name: str, devices: Iterable[Device]) -> bool:
        """Replace the devices by the plugin's list. True for its first list, and for one with other devices."""
        resource = self.resources[name]
        before = resource.listed, resource.devices
        resource.listed, resource.devices = True, {one.id: one for one in devices}
        return before != (True, resource.devices)

    def problem(self, name: str, devices: Collection[Device]) -> str:
        """Why a resource's list is too long beside those of the others; empty if it is not."""
        others = [each for other, one in self.resources.items() if other != name for each in one.devices.values()]
        if len(others) + len(devices) > MOST_DEVICES:
            return f"it lists {len(devices)} devices, with other resources more than {MOST_DEVICES}"
        placements = _placements(devices)
        if placements + _placements(others) > MOST_PLACEMENTS:
            what = f"it lists {len(devices)} devices at {placements} places near NUMA nodes"
            return f"{what}, with other resources more than {MOST_PLACEMENTS}"
        size = _id_bytes(devices)
        if size + _id_bytes(others) > MOST_ID_BYTES:
            what = f"it lists {len(devices)} devices with IDs of {size} bytes"
            return f"{what}, with other resources more than {MOST_ID_BYTES}"
        return ""

    def disconnect(self, name: str, now: float) -> None:
        """The plugin has gone: its devices count for the capacity, and none is allocatable."""
        resource = self.resources.get(name)
        if resource is not None and resource.connected:
            resource.connected = resource.listed = False
            resource.away_since = now

    def any_away(self) -> bool:
        """True while the plugin of a resource is away."""
        return any(not one.connected for one in self.resources.values())

    def expire(self, now: float) -> frozenset[str]:
        """Forget resources whose plugin is away for GRACE_S; their names."""
        gone = frozenset(
            name for name, one in self.resources.items() if not one.connected and now - one.away_since >= GRACE_S
        )
        for name in gone:
            del self.resources[name]
        self.removed |= gone
        return gone

    def knows(self, name: str) -> bool:
        """True for a resource that a plugin has, or had, on this node."""
        return name in self.resources or name in self.removed

    def capacity(self) -> dict[str, int]:
        """Number of devices by resource, for the Node's capacity."""
        present = {name: len(one.devices) for name, one in self.resources.items()}
        return present | dict.fromkeys(self.removed, 0)

    def allocatable(self) -> dict[str, int]:
        """Number of healthy devices by resource, for the Node's allocatable."""
        present = {name: len(one.healthy) for name, one in self.resources.items()}
        return present | dict.fromkeys(self.removed, 0)

    def registered(self) -> dict[str, tuple[str, ...]]:
        """Healthy devices by resource, as the checkpoint has them."""
        return {name: tuple(sorted(one.healthy)) for name, one in sorted(self.resources.items())}

    def by_node(self, name: str, ids: Collection[str]) -> Mapping[int, tuple[str, ...]]:
        """Device IDs by NUMA node, as the checkpoint has them; NO_NODE for those without."""
        found: dict[int, list[str]] = {}
        known = self.resources[name].devices if name in self.resources else {}
        for one in sorted(ids):
            nodes = known[one].nodes if one in known else frozenset[int]()
            for node in sorted(nodes) or [NO_NODE]:
                found.setdefault(node, []).append(one)
        return {node: tuple(names) for node, names in found.items()}


def _placements(devices: Iterable[Device]) -> int:
    return sum(max(1, len(one.nodes)) for one in devices)


def _id_bytes(devices: Iterable[Device]) -> int:
    return sum(len(one.id.encode()) for one in devices)
