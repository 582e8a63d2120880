"""Admits a pod with the providers of CPUs, memory and devices: hints, merge, allocate.

Source: scope_container.go, scope_pod.go and scope_none.go of pkg/kubelet/cm/topologymanager.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.resources.model.hints import Hint
from actors.resources.model.provider import AllocationError, Provider
from actors.resources.topology.policy import Settings, decide
from proto.v1 import Container, Pod

REASON = "TopologyAffinityError"
MESSAGE = "Resources cannot be allocated with Topology locality"

NO_AFFINITY = Hint(None, preferred=False)
"""The affinity with the policy none. Not preferred: the memory manager may then take more nodes than needed."""


async def admit(pod: Pod, providers: Sequence[Provider], settings: Settings) -> None:
    """Allocate the resources of all containers of a pod, init containers first. A repeat changes nothing.

    Raises AllocationError and NotYetError. What earlier containers got then stays allocated until Provider.release.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    if settings.policy == "none":
        for container in containers:
            await _allocate(pod, container, providers, NO_AFFINITY)
    elif settings.scope == "pod":
        affinity = _pod_affinity(pod, providers, settings)
        for container in containers:
            await _allocate(pod, container, providers, affinity)
    else:
        for container in containers:
            await _allocate(pod, container, providers, _container_affinity(pod, container, providers, settings))


def _pod_affinity(pod: Pod, providers: Sequence[Provider], settings: Settings) -> Hint:
    return _admitted(*decide([provider.pod_hints(pod) for provider in providers], settings))


def _container_affinity(pod: Pod, container: Container, providers: Sequence[Provider], settings: Settings) -> Hint:
    return _admitted(*decide([provider.container_hints(pod, container) for provider in providers], settings))


def _admitted(affinity: Hint, admit: bool) -> Hint:
    if not admit:
        raise AllocationError(REASON, MESSAGE)
    return affinity


async def _allocate(pod: Pod, container: Container, providers: Sequence[Provider], affinity: Hint) -> None:
    for provider in providers:
        await provider.allocate(pod, container, affinity)
