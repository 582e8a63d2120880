"""Computes the swap limit of a container. Pure.

memorySwap.swapBehavior is NoSwap (the default) or LimitedSwap. LimitedSwap gives Burstable pods a share of the node's
swap, on cgroup v2. Source: KEP-2400 and pkg/kubelet/kuberuntime/kuberuntime_container_linux.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from actors._cgroup.quantities.qos import qos_class
from actors._host.node.critical import is_critical
from proto.v1 import Container, Pod
from proto.v1.scalars.quantity import parse, value

SwapBehavior = Literal["NoSwap", "LimitedSwap"]


@dataclass(frozen=True, slots=True)
class SwapRules:
    """The node's swap configuration and capacity."""

    behavior: str = ""
    """memorySwap.swapBehavior."""
    unified: bool = False
    """cgroup v2."""
    accounting: bool = False
    """True when the kernel limits swap, by memory.memsw files (v1) or memory.swap.max (v2)."""
    memory_capacity_bytes: int = 0
    swap_capacity_bytes: int = 0


def swap_behavior(pod: Pod, container: Container, rules: SwapRules) -> SwapBehavior:
    """Return the behaviour that applies to the container. Raises QuantityError."""
    if rules.behavior != "LimitedSwap" or not rules.unified or not rules.accounting:
        return "NoSwap"
    if is_critical(pod) or qos_class(pod) != "Burstable":
        return "NoSwap"
    request = parse(container.resources.requests.get("memory", 0))
    limit = parse(container.resources.limits.get("memory", 0))
    # No request means no share. A request equal to the limit asks for no swapping.
    return "NoSwap" if request == limit else "LimitedSwap"


def swap_limit_bytes(pod: Pod, container: Container, rules: SwapRules) -> int | None:
    """Return memory.swap.max of the container on cgroup v2; None when it is not set at all. Raises QuantityError.

    A container that requests a quarter of the node's memory gets a quarter of its swap.
    """
    if not rules.unified or not rules.accounting:
        return None
    if swap_behavior(pod, container, rules) == "NoSwap":
        return 0
    request = value(container.resources.requests.get("memory", 0))
    if not 0 <= request <= rules.memory_capacity_bytes or not rules.memory_capacity_bytes:
        return 0
    return int(request / rules.memory_capacity_bytes * rules.swap_capacity_bytes)
