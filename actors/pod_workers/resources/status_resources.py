"""Chooses the resources in a container's status (KEP-1287): those of its cgroup while it runs, else allocated. Pure.

Source: convertContainerStatusResources of pkg/kubelet/kubelet_pods.go. Amounts from the runtime are written as the API
server prints them.
"""

from __future__ import annotations

from actors.pod_workers.decide.resize import MIN_MILLI_CPU_LIMIT, MIN_MILLI_CPU_REQUEST
from actors.pod_workers.model.view import ContainerView
from actors.pod_workers.resources.pod_resources import binary_si, decimal_milli
from proto.v1 import Container, ContainerStatus, ResourceRequirements
from proto.v1.scalars.base import ResourceList
from proto.v1.scalars.quantity import canonical, canonical_list, milli_value, value


def container_resources(
    container: Container,
    found: ContainerView,
    actuated: ResourceRequirements | None,
    old: ContainerStatus | None,
    identity: str,
) -> ResourceRequirements:
    """`container` has the allocated resources. `old`: the last status. `identity`: container ID of the new status.

    `actuated`: the resources set last; the memory request comes from it, since no cgroup has one. An amount
    that the runtime does not report stays as in `old` for the same container ID, else it is the allocated one.
    """
    limits, requests = canonical_list(container.resources.limits), canonical_list(container.resources.requests)
    if found.state != "running":
        return ResourceRequirements(limits=limits, requests=requests)
    before = old.resources if old is not None and old.state.running is not None else None
    if old is None or old.container_id != identity or before is None:
        before = ResourceRequirements()
    shown = found.resources
    if limits:
        _set_cpu(limits, shown.milli_cpu_limit if shown else 0, MIN_MILLI_CPU_LIMIT, before.limits)
        if shown and shown.memory_limit_bytes:
            limits["memory"] = binary_si(shown.memory_limit_bytes)
        else:
            _keep(limits, "memory", before.limits)
    if requests:
        _set_cpu(requests, shown.milli_cpu_request if shown else 0, MIN_MILLI_CPU_REQUEST, before.requests)
        requested = actuated.requests.get("memory", 0) if actuated is not None else 0
        if value(requested):
            requests["memory"] = canonical(requested)
        else:
            _keep(requests, "memory", before.requests)
    return ResourceRequirements(limits=limits, requests=requests)


def _set_cpu(resources: ResourceList, milli_cpu: int, least: int, before: ResourceList) -> None:
    """Amounts up to the kernel's minimum stay as they are written."""
    if not milli_cpu:
        _keep(resources, "cpu", before)
    elif max(milli_cpu, milli_value(resources.get("cpu", 0))) > least:
        resources["cpu"] = decimal_milli(milli_cpu)


def _keep(resources: ResourceList, name: str, before: ResourceList) -> None:
    if name in before:
        resources[name] = before[name]
