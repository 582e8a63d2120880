"""Formats an evicted pod's status message, with quantities in Kubernetes' canonical form. Pure.

Source: evictionMessage of pkg/kubelet/eviction/helpers.go, and k8s.io/apimachinery/pkg/api/resource.
"""

from __future__ import annotations

from actors.eviction.policy import Observation
from actors.eviction.thresholds import SIGNALS, Condition, Threshold
from proto.node.stats import ContainerUsage, PodUsage
from proto.v1 import Pod
from proto.v1.scalars.base import Quantity
from proto.v1.scalars.quantity import NANOS, parse, value

REASON = "Evicted"


_NODE_HAS: dict[Condition, tuple[str, str]] = {
    "MemoryPressure": ("NodeHasSufficientMemory", "NodeHasInsufficientMemory"),
    "DiskPressure": ("NodeHasNoDiskPressure", "NodeHasDiskPressure"),
    "PIDPressure": ("NodeHasSufficientPID", "NodeHasInsufficientPID"),
}


def condition_reason(condition: Condition, *, holds: bool) -> str:
    """Return the reason of the node event for a condition that begins or ends."""
    return _NODE_HAS[condition][holds]


def eviction_message(
    threshold: Threshold, configured: str, observed: Observation, pod: Pod, usage: PodUsage | None
) -> str:
    """Return the message of the pod's status. `configured` is the threshold in the settings, `10%` or `100Mi`."""
    resource = SIGNALS[threshold.signal].resource
    in_bytes = resource in ("memory", "ephemeral-storage")
    quantity = canonical(configured) if threshold.percent is None else binary_si(threshold.quantity(observed.capacity))
    available = binary_si(observed.available) if in_bytes else decimal_si(observed.available)
    text = f"The node was low on resource: {resource}. Threshold quantity: {quantity}, available: {available}. "
    if usage is None or not in_bytes:
        return text
    if resource == "memory" and pod.spec.resources is not None and "memory" in pod.spec.resources.requests:
        own = pod.spec.resources.requests["memory"]
        text += _larger("Pod", pod.metadata.name, usage.memory_working_set_bytes, own, resource)
    requests = {one.name: one.resources.requests for one in (*pod.spec.containers, *pod.spec.init_containers)}
    for container in usage.containers:
        request = requests.get(container.name, {}).get(resource, 0)
        taken = _taken(container, resource)
        if container.name in requests and taken > value(request):
            text += _larger("Container", container.name, taken, request, resource)
    return text


def _taken(container: ContainerUsage, resource: str) -> int:
    if resource == "memory":
        return container.memory_working_set_bytes
    return container.writable_layer_bytes + container.log_bytes


def _larger(kind: str, name: str, taken: int, request: Quantity, resource: str) -> str:
    return (
        f"{kind} {name} was using {binary_si(taken)}, request is {canonical(request)}, "
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


def canonical(quantity: Quantity) -> str:
    """Return a quantity as Kubernetes prints it, in the suffix format it was written in. Fractions stay unchanged."""
    nanos = parse(quantity)
    if nanos % NANOS:
        return str(quantity)
    return binary_si(nanos // NANOS) if str(quantity).endswith("i") else decimal_si(nanos // NANOS)
