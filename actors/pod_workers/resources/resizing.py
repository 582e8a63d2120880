"""Decides whether the node grants a resize, and in which order resizes are decided on. Pure.

KEP-1287. Messages are those of pkg/kubelet/allocation and of the admission checks, which a resize passes as a new pod
does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from actors._cgroup.quantities import totals
from actors._cgroup.quantities.qos import qos_class
from actors._cgroup.quantities.swap import SwapRules, swap_behavior
from actors._host.node import shutdown
from actors._host.node.critical import is_static
from actors.pod_workers.admission import NodeInfo, Preempt, Share, chain
from actors.pod_workers.model.allocation import containers_of
from proto.v1 import Container, Pod
from proto.v1.scalars.quantity import milli_value, parse, value

DEFERRED = "Deferred"
INFEASIBLE = "Infeasible"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused resize: condition PodResizePending with this reason and message."""

    reason: str
    """Deferred: it may fit later. Infeasible: it never fits on this node."""
    message: str
    detail: str = ""
    """For the metric of infeasible resizes."""


@dataclass(frozen=True, slots=True)
class ManagerPolicies:
    """True: the manager's policy is static, and assigns the resource to containers of Guaranteed pods."""

    cpus: bool = False
    memory: bool = False


NO_POLICIES = ManagerPolicies()


@dataclass(frozen=True, slots=True)
class ResizeRequest:
    """One pod's pending resize."""

    desired: Pod
    allocated: Pod
    """The same pod with the resources it has now."""
    since: float = 0.0
    """Unix seconds of the first refusal; 0 before the first decision."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """The node that resizes are decided for."""

    info: NodeInfo
    pressure: tuple[str, ...] = ()
    """Its conditions: MemoryPressure, DiskPressure, PIDPressure."""
    shutting_down: bool = False


def decide(
    request: ResizeRequest,
    others: Iterable[Share],
    node: NodeState,
    swap: SwapRules,
    policies: ManagerPolicies = NO_POLICIES,
) -> Refusal | Preempt | None:
    """None to grant it. `others`: the shares of all other pods. Raises QuantityError.

    As in the kubelet, a resize passes all checks of a new pod, except the assignment of exclusive CPUs, memory and
    devices.
    """
    share = Share.of(request.desired)
    if infeasible := _infeasible(request, share, node.info, swap, policies):
        return infeasible
    verdict: chain.Verdict | None = chain.rejection_before_resources(share.pod, node.info, node.pressure)
    verdict = verdict or chain.admit(share, others, node.info)
    if isinstance(verdict, chain.Rejection):
        return Refusal(DEFERRED, verdict.message)
    if node.shutting_down:
        return Refusal(DEFERRED, shutdown.NOT_ADMITTED_MESSAGE)
    return verdict if isinstance(verdict, Preempt) else None


def _infeasible(
    request: ResizeRequest, share: Share, node: NodeInfo, swap: SwapRules, policies: ManagerPolicies
) -> Refusal | None:
    """Refuse a resize that never fits on this node."""
    desired = request.desired
    if is_static(desired):
        return Refusal(INFEASIBLE, "In-place resize of static-pods is not supported", "static_pod")
    if _swap_forbids(request, swap):
        return Refusal(INFEASIBLE, "In-place resize of containers with swap is not supported.", "swap_limitation")
    if exclusive := _exclusive(request, policies):
        return exclusive
    for resource in ("memory", "cpu"):
        wanted, capacity = share.requests.get(resource, 0), node.enforced.get(resource, node.allocatable[resource])
        if wanted > capacity:
            message = f"Node didn't have enough capacity: {resource}, requested: {wanted}, capacity: {capacity}"
            return Refusal(INFEASIBLE, message, "insufficient_node_allocatable")
    return None


def _exclusive(request: ResizeRequest, policies: ManagerPolicies) -> Refusal | None:
    """Refuse to resize what a static policy assigns to Guaranteed pods (podResizesAdmitHandler of pkg/kubelet)."""
    if qos_class(request.desired) != "Guaranteed":
        return None
    for resource, static, manager, policy in (
        ("cpu", policies.cpus, "CPU", "static"),
        ("memory", policies.memory, "Memory", "Static"),
    ):
        if static and _amounts(request.desired, resource) != _amounts(request.allocated, resource):
            message = f'Resize is infeasible for Guaranteed Pods alongside {manager} Manager policy "{policy}"'
            return Refusal(INFEASIBLE, message, f"guaranteed_pod_{resource}_manager_static_policy")
    return None


def _amounts(pod: Pod, resource: str) -> dict[str, int]:
    """By container, in nanos; see `quantity.parse`."""
    return {one.name: parse(one.resources.requests.get(resource, 0)) for one in containers_of(pod)}


def in_order(requests: Iterable[ResizeRequest]) -> list[ResizeRequest]:
    """Sorted: shrinking pods, higher priority, Guaranteed before Burstable, longest wait."""
    return sorted(
        requests,
        key=lambda request: (
            _grows(request),
            -(request.desired.spec.priority or 0),
            qos_class(request.desired) != "Guaranteed",
            request.since or float("inf"),
        ),
    )


def _grows(request: ResizeRequest) -> bool:
    now, then = _requests(request.allocated), _requests(request.desired)
    return then[0] > now[0] or then[1] > now[1]


def _requests(pod: Pod) -> tuple[int, int]:
    """(milli CPU, memory bytes) as the scheduler counts them."""
    wanted = totals.requests(pod)
    return milli_value(wanted.get("cpu", 0)), value(wanted.get("memory", 0))


def _swap_forbids(request: ResizeRequest, swap: SwapRules) -> bool:
    """True if the resize changes the memory of a container with swap, whose swap limit cannot change while it runs."""
    allocated = {one.name: one for one in containers_of(request.allocated)}
    for container in containers_of(request.desired):
        before = allocated.get(container.name)
        if before is None or _memory(container) == _memory(before) or _restarts_for_memory(before):
            continue
        behaviors = (swap_behavior(request.desired, container, swap), swap_behavior(request.allocated, before, swap))
        if behaviors != ("NoSwap", "NoSwap"):
            return True
    return False


def _memory(container: Container) -> int:
    """In nanos, as of `_amounts`."""
    return parse(container.resources.requests.get("memory", 0))


def _restarts_for_memory(container: Container) -> bool:
    rule = next((one for one in container.resize_policy if one.resource_name == "memory"), None)
    return rule is not None and rule.restart_policy == "RestartContainer"
