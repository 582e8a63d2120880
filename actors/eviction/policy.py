"""Which thresholds are met, which conditions hold, and what may be reclaimed before a pod has to go. Pure.

Source: pkg/kubelet/eviction/eviction_manager.go and helpers.go of Kubernetes 1.36. Ranking of pods: `ranking`; words:
`message`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from actors.eviction.thresholds import SIGNALS, Condition, Threshold
from proto.node.stats import FsStats, NodeStats

ORDER: tuple[Condition, ...] = ("MemoryPressure", "DiskPressure", "PIDPressure")

HARD_GRACE_PERIOD_S = 1
"""A pod evicted for a hard threshold is not waited for: the node itself is at stake."""

Reclaim = Literal["containers", "images"]


@dataclass(frozen=True, slots=True)
class Observation:
    """What is available of how much, in bytes, inodes or processes."""

    available: int
    capacity: int


def observations(node: NodeStats) -> dict[str, Observation]:
    """By signal; one that could not be measured (no capacity) is left out."""
    found = {
        "memory.available": Observation(node.memory_available_bytes, node.memory_capacity_bytes),
        **_file_system("nodefs", node.nodefs),
        **_file_system("imagefs", node.imagefs),
        "pid.available": Observation(node.pids_max - node.pids_running, node.pids_max),
    }
    return {signal: seen for signal, seen in found.items() if seen.capacity > 0}


def _file_system(name: str, fs: FsStats) -> dict[str, Observation]:
    return {
        f"{name}.available": Observation(fs.available_bytes, fs.capacity_bytes),
        # 0 inodes: a file system that makes them as needed, such as btrfs
        f"{name}.inodesFree": Observation(fs.inodes_free, fs.inodes),
    }


def has_dedicated_imagefs(node: NodeStats) -> bool:
    """Whether images are on a disk of their own; not while nobody knows where they are."""
    return node.imagefs.capacity_bytes > 0 and node.imagefs.device != node.nodefs.device


def is_met(threshold: Threshold, seen: Mapping[str, Observation], *, with_reclaim: bool = False) -> bool:
    """Whether less than the threshold is available, or `with_reclaim` less than that and the minimum reclaim; not when
    it was not observed."""
    observed = seen.get(threshold.signal)
    if observed is None:
        return False
    more = threshold.reclaim(observed.capacity) if with_reclaim else 0
    return observed.available < threshold.quantity(observed.capacity) + more


def thresholds_met(thresholds: Iterable[Threshold], seen: Mapping[str, Observation]) -> list[Threshold]:
    """Those that are met, the one to act on first."""
    return _in_order(one for one in thresholds if is_met(one, seen))


def _in_order(thresholds: Iterable[Threshold]) -> list[Threshold]:
    """Memory first; of two for one signal the hard one."""
    order = list(SIGNALS)
    return sorted(thresholds, key=lambda one: (order.index(one.signal), one.grace_s))


@dataclass(frozen=True, slots=True)
class Progress:
    """What is remembered from look to look."""

    first_met: Mapping[Threshold, float] = field(default_factory=dict)
    """Since when each has been met without a break, in seconds of any clock that only goes forward."""
    acted_on: tuple[Threshold, ...] = ()
    """Met for as long as their grace; they are over once the minimum reclaim is there too."""

    def look(self, thresholds: Iterable[Threshold], seen: Mapping[str, Observation], now: float) -> Progress:
        """After another look."""
        thresholds = tuple(thresholds)
        unresolved = {one for one in self.acted_on if is_met(one, seen, with_reclaim=True)}
        met = _in_order(one for one in thresholds if one in unresolved or is_met(one, seen))
        first_met = {one: self.first_met.get(one, now) for one in met}
        return Progress(first_met, tuple(one for one in met if now - first_met[one] >= one.grace_s))


def grace_period_s(threshold: Threshold, maximum_s: int, own_s: int | None) -> int:
    """What a pod gets that is evicted for the threshold; `maximum_s` is evictionMaxPodGracePeriod."""
    if not threshold.grace_s:
        return HARD_GRACE_PERIOD_S
    return maximum_s if own_s is None else min(maximum_s, own_s)


def last_observed(
    before: Mapping[Condition, float], met: Iterable[Threshold], transition_s: float, now: float
) -> dict[Condition, float]:
    """When each condition that holds was last seen, in seconds of any clock that only goes forward.

    One that is no longer seen holds on for the transition period, so that a node at the edge does not flap. Its time
    is kept in between, and dropped after.
    """
    held = {condition: at for condition, at in before.items() if now - at < transition_s}
    return held | {SIGNALS[threshold.signal].condition: now for threshold in met}


def conditions(observed: Mapping[Condition, float]) -> tuple[Condition, ...]:
    """The conditions that hold, always in the same order."""
    return tuple(condition for condition in ORDER if condition in observed)


def reclaim_steps(signal: str, *, dedicated_imagefs: bool) -> tuple[Reclaim, ...]:
    """What is taken from the node itself before a pod has to go.

    On one disk everything helps everything. With images on a disk of their own, nothing on nodefs is the node's own.
    """
    on_disk = signal.startswith("imagefs") or (signal.startswith("nodefs") and not dedicated_imagefs)
    return ("containers", "images") if on_disk else ()
