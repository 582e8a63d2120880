"""What resources a status shows (KEP-1287): of a running container those its cgroup has, else those allocated. Pure.

convertContainerStatusResources of pkg/kubelet/kubelet_pods.go. Amounts that come from the runtime are written as the
API server would print them.
"""

from __future__ import annotations

from actors.pod_workers.decide.resize import MIN_MILLI_CPU_LIMIT, MIN_MILLI_CPU_REQUEST
from actors.pod_workers.model.view import ContainerView
from actors.pod_workers.resources.pod_resources import binary_si, decimal_milli
from proto.v1 import Container, ContainerStatus, ResourceRequirements
from proto.v1.scalars.base import ResourceList
from proto.v1.scalars.quantity import milli_value, value


def container_resources(
    container: Container,
    found: ContainerView,
    actuated: ResourceRequirements | None,
    old: ContainerStatus | None,
    identity: str,
) -> ResourceRequirements:
    """`container` has the allocated resources; `actuated` is the record of those carried out last, where a request of
    memory is from, which no cgroup knows. `old` is the last status, `identity` the container ID of the new one.

    What the runtime does not say stays as it was for the same container, and is as allocated for another.
    """
    allocated = container.resources
    if found.state != "running":
        return ResourceRequirements(limits=allocated.limits, requests=allocated.requests)
    before = old.resources if old is not None and old.state.running is not None else None
    if old is None or old.container_id != identity or before is None:
        before = ResourceRequirements()
    limits, requests = dict(allocated.limits), dict(allocated.requests)
    shown = found.resources
    if limits:
        _set_cpu(limits, shown.milli_cpu_limit if shown else 0, MIN_MILLI_CPU_LIMIT, before.limits)
        _set_memory(limits, shown.memory_limit_bytes if shown else 0, before.limits)
    if requests:
        _set_cpu(requests, shown.milli_cpu_request if shown else 0, MIN_MILLI_CPU_REQUEST, before.requests)
        requested = actuated.requests.get("memory", 0) if actuated is not None else 0
        _set_memory(requests, value(requested), before.requests)
    return ResourceRequirements(limits=limits, requests=requests)


def _set_cpu(resources: ResourceList, milli_cpu: int, least: int, before: ResourceList) -> None:
    """Amounts too small for the kernel to tell apart stay as they are written."""
    if not milli_cpu:
        _keep(resources, "cpu", before)
    elif max(milli_cpu, milli_value(resources.get("cpu", 0))) > least:
        resources["cpu"] = decimal_milli(milli_cpu)


def _set_memory(resources: ResourceList, count: int, before: ResourceList) -> None:
    if count:
        resources["memory"] = binary_si(count)
    else:
        _keep(resources, "memory", before)


def _keep(resources: ResourceList, name: str, before: ResourceList) -> None:
    if name in before:
        resources[name] = before[name]
