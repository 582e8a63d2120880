"""Formats an evicted pod's status message and its event's annotations, with Kubernetes' canonical quantities. Pure.

Source: evictionMessage of pkg/kubelet/eviction/helpers.go, and k8s.io/apimachinery/pkg/api/resource.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from actors.eviction.policy import Observation
from actors.eviction.thresholds import SIGNALS, Condition, Threshold
from proto.node.stats import ContainerUsage, PodUsage
from proto.v1 import Pod
from proto.v1.scalars.base import Quantity
from proto.v1.scalars.quantity import canonical, value

REASON = "Evicted"


_NODE_HAS: dict[Condition, tuple[str, str]] = {
    "MemoryPressure": ("NodeHasSufficientMemory", "NodeHasInsufficientMemory"),
    "DiskPressure": ("NodeHasNoDiskPressure", "NodeHasDiskPressure"),
    "PIDPressure": ("NodeHasSufficientPID", "NodeHasInsufficientPID"),
}


def condition_reason(condition: Condition, *, holds: bool) -> str:
    """Return the reason of the node event for a condition that begins or ends."""
    return _NODE_HAS[condition][holds]


class _Offender(NamedTuple):
    """A pod or a container with a larger consumption, in bytes."""

    kind: str
    name: str
    taken: int
    request: Quantity


def eviction_message(
    threshold: Threshold, configured: str, observed: Observation, pod: Pod, usage: PodUsage | None
) -> tuple[str, dict[str, str]]:
    """Return the message of the pod's status, and annotations of the event: none without a usage of the pod.

    `configured` is the threshold in the settings, `10%` or `100Mi`.
    """
    resource = SIGNALS[threshold.signal].resource
    in_bytes = resource in ("memory", "ephemeral-storage")
    quantity = canonical(configured) if threshold.percent is None else binary_si(threshold.quantity(observed.capacity))
    available = binary_si(observed.available) if in_bytes else decimal_si(observed.available)
    text = f"The node was low on resource: {resource}. Threshold quantity: {quantity}, available: {available}. "
    if usage is None:
        return text, {}
    offenders = list(_offenders(resource, pod, usage)) if in_bytes else []
    return text + "".join(_larger(one, resource) for one in offenders), _annotations(resource, offenders)


def _offenders(resource: str, pod: Pod, usage: PodUsage) -> Iterator[_Offender]:
    """Return the pod, if it has a memory request of its own, and its containers above their requests."""
    if resource == "memory" and pod.spec.resources is not None and "memory" in pod.spec.resources.requests:
        own = pod.spec.resources.requests["memory"]
        yield _Offender("Pod", pod.metadata.name, usage.memory_working_set_bytes, own)
    requests = {one.name: one.resources.requests for one in (*pod.spec.containers, *pod.spec.init_containers)}
    for container in usage.containers:
        request = requests.get(container.name, {}).get(resource, 0)
        taken = _taken(container, resource)
        if container.name in requests and taken > value(request):
            yield _Offender("Container", container.name, taken, request)


def _annotations(resource: str, offenders: list[_Offender]) -> dict[str, str]:
    """Return annotations of the event. Names and quantities of containers are joined by commas, in one order."""
    containers = [one for one in offenders if one.kind == "Container"]
    found = {
        "offending_containers": ",".join(one.name for one in containers),
        "offending_containers_usage": ",".join(binary_si(one.taken) for one in containers),
        "starved_resource": resource,
    }
    for one in offenders:
        if one.kind == "Pod":
            found |= {"offending_pod": one.name, "offending_pod_usage": binary_si(one.taken)}
    return found


def _taken(container: ContainerUsage, resource: str) -> int:
    if resource == "memory":
        return container.memory_working_set_bytes
    return container.writable_layer_bytes + container.log_bytes


def _larger(one: _Offender, resource: str) -> str:
    return (
        f"{one.kind} {one.name} was using {binary_si(one.taken)}, request is {canonical(one.request)}, "
        f"has larger consumption of {resource}. "
    )


def binary_si(number: int) -> str:
    """Return an integer in format BinarySI: `100Mi`, `85324Ki`, and below 1024 as decimal_si."""
    return decimal_si(number) if abs(number) < 1024 else _scaled(number, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))


def decimal_si(number: int) -> str:
    """Return an integer in format DecimalSI: `12345`, `120k`."""
    return _scaled(number, 1000, ("", "k", "M", "G", "T", "P", "E"))


def _scaled(number: int, base: int, suffixes: tuple[str, ...]) -> str:
    power = 0
    while number and number % base == 0 and power < len(suffixes) - 1:
        number, power = number // base, power + 1
    return f"{number}{suffixes[power]}"
