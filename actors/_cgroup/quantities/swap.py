"""How much swap a container gets. Pure.

KEP-2400 and pkg/kubelet/kuberuntime/kuberuntime_container_linux.go. memorySwap.swapBehavior is NoSwap (also when unset)
or LimitedSwap, which gives Burstable pods of cgroup v2 nodes a share of the node's swap.
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
    """What the node says of swap."""

    behavior: str = ""
    """memorySwap.swapBehavior."""
    unified: bool = False
    """cgroup v2."""
    accounting: bool = False
    """The kernel limits swap: v1 has memory.memsw files, v2 memory.swap.max."""
    memory_capacity_bytes: int = 0
    swap_capacity_bytes: int = 0


def swap_behavior(pod: Pod, container: Container, rules: SwapRules) -> SwapBehavior:
    """Which of the two the container gets. Raises QuantityError."""
    if rules.behavior != "LimitedSwap" or not rules.unified or not rules.accounting:
        return "NoSwap"
    if is_critical(pod) or qos_class(pod) != "Burstable":
        return "NoSwap"
    request = parse(container.resources.requests.get("memory", 0))
    limit = parse(container.resources.limits.get("memory", 0))
    # Nothing asked for is no share; as much as the limit is a container that is not to swap.
    return "NoSwap" if request == limit else "LimitedSwap"


def swap_limit_bytes(pod: Pod, container: Container, rules: SwapRules) -> int | None:
    """memory.swap.max of the container on cgroup v2; None where it is not set at all. Raises QuantityError.

    The share of the node's swap is that of its memory which the container requests.
    """
    if not rules.unified or not rules.accounting:
        return None
    if swap_behavior(pod, container, rules) == "NoSwap":
        return 0
    request = value(container.resources.requests.get("memory", 0))
    if not 0 <= request <= rules.memory_capacity_bytes or not rules.memory_capacity_bytes:
        return 0
    return int(request / rules.memory_capacity_bytes * rules.swap_capacity_bytes)
