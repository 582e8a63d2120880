"""Admits a pod: asks the providers of CPUs, memory and devices for hints, merges these, and has them allocate.

Source: scope_container.go, scope_pod.go and scope_none.go of pkg/kubelet/cm/topologymanager.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from actors._metrics.kubelet import ALIGNED, ALIGNMENT_FAILURES
from actors.resources.model.counting import Counted
from actors.resources.model.hints import Hint, Hints
from actors.resources.model.pod_level import has_own_resources
from actors.resources.model.provider import AllocationError, Provider, Series, failing
from actors.resources.topology.policy import Scope, Settings, decide
from proto.v1 import Container, Pod

REASON = "TopologyAffinityError"
MESSAGE = "Resources cannot be allocated with Topology locality"
POD_LEVEL_MESSAGES: dict[Scope, str] = {
    "pod": "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
    "container": "Pod Scope pod with pod-level resources failed admission with a container-level topology manager",
}
"""Of pods with resources of their own, by scope (KEP-5526)."""
BOUNDARY = "numa_node"

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
            with failing(container):
                await _allocate(pod, container, providers, _container_affinity(pod, container, providers, settings))


def series(settings: Settings) -> tuple[Series, ...]:
    """The series of alignment that begin with 0: each policy but none shows all, and one counts."""
    scopes: tuple[Scope, ...] = ("container", "pod") if settings.policy != "none" else ()
    return tuple((counter, (scope, BOUNDARY)) for counter in (ALIGNED, ALIGNMENT_FAILURES) for scope in scopes)


def count_aligned(pod: Pod, settings: Settings, counted: Counted, failure: AllocationError | None = None) -> None:
    """Count the pod, or each container of it, as admitted to one NUMA node if the policy sees to that.

    `failure`: why the pod is rejected. As in the kubelet, containers before the failing one count.
    """
    if not settings.aligns:
        return
    uid, labels = pod.metadata.uid, (settings.scope, BOUNDARY)
    if settings.scope == "container":
        failed = failure.container if failure is not None else ""
        for container in takewhile(lambda one: one.name != failed, (*pod.spec.init_containers, *pod.spec.containers)):
            counted.count(ALIGNED, uid, container.name, labels)
    elif failure is None:
        counted.count(ALIGNED, uid, "", labels)


def _pod_affinity(pod: Pod, providers: Sequence[Provider], settings: Settings) -> Hint:
    return _affinity(pod, [provider.pod_hints(pod) for provider in providers], settings)


def _container_affinity(pod: Pod, container: Container, providers: Sequence[Provider], settings: Settings) -> Hint:
    return _affinity(pod, [provider.container_hints(pod, container) for provider in providers], settings)


def _affinity(pod: Pod, hints: Sequence[Hints], settings: Settings) -> Hint:
    affinity, admitted = decide(hints, settings)
    if admitted:
        return affinity
    pod_level = settings.pod_level and has_own_resources(pod)
    error = AllocationError(REASON, POD_LEVEL_MESSAGES[settings.scope] if pod_level else MESSAGE)
    if settings.aligns:
        error.counts = ((ALIGNMENT_FAILURES, (settings.scope, BOUNDARY)),)
    raise error


async def _allocate(pod: Pod, container: Container, providers: Sequence[Provider], affinity: Hint) -> None:
    for provider in providers:
        await provider.allocate(pod, container, affinity)
