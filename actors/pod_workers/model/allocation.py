"""The resources allocated to a pod, as a record that can be applied to a spec and compared. Pure.

KEP-1287 (containers) and KEP-5419 (the pod as a whole). A source may change the resources of a running pod. Until the
node has room for the change, the pod keeps its allocated resources. `resource_state` stores the records, `resizing`
decides.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from proto.v1 import Container, Pod, ResourceRequirements
from proto.v1.scalars.base import ResourceList
from proto.v1.scalars.quantity import parse


class PodResourceInfo(msgspec.Struct, frozen=True):
    """Resources of a pod's containers and init containers by name, and of the pod itself. Keys as in the kubelet."""

    containers: Mapping[str, ResourceRequirements] = msgspec.field(name="ContainerResources", default_factory=dict)
    pod: ResourceRequirements | None = msgspec.field(name="PodLevelResources", default=None)

    def with_container(self, name: str, resources: ResourceRequirements) -> PodResourceInfo:
        """A copy with these resources for one container."""
        return replace(self, containers={**self.containers, name: resources})


NOTHING = PodResourceInfo()


def resources_of(pod: Pod) -> PodResourceInfo:
    """The resources that the pod's spec asks for."""
    return PodResourceInfo({one.name: one.resources for one in containers_of(pod)}, pod.spec.resources)


def with_resources(pod: Pod, info: PodResourceInfo | None) -> Pod:
    """The pod with these resources instead of its own; the same object if they are equal.

    A container that is not in `info` keeps its own. A source may have added it since.
    """
    if info is None or equal(resources_of(pod), info):
        return pod
    spec = replace(
        pod.spec,
        containers=_with(pod.spec.containers, info),
        init_containers=_with(pod.spec.init_containers, info),
        resources=pod.spec.resources if _same(pod.spec.resources, info.pod) else info.pod,
    )
    return replace(pod, spec=spec)


def equal(left: PodResourceInfo, right: PodResourceInfo) -> bool:
    """Return True for the same amounts, in any notation. Containers that only one of them has do not count."""
    if not _same(left.pod, right.pod):
        return False
    common = left.containers.keys() & right.containers.keys()
    return all(_same(left.containers[name], right.containers[name]) for name in common)


def containers_of(pod: Pod) -> tuple[Container, ...]:
    """All containers but the ephemeral ones, which have no resources and no probes."""
    return (*pod.spec.init_containers, *pod.spec.containers)


def _with(containers: tuple[Container, ...], info: PodResourceInfo) -> tuple[Container, ...]:
    return tuple(
        replace(one, resources=info.containers[one.name])
        if one.name in info.containers and not _same(one.resources, info.containers[one.name])
        else one
        for one in containers
    )


def _same(left: ResourceRequirements | None, right: ResourceRequirements | None) -> bool:
    if left is right or left == right:
        return True
    if left is None or right is None:
        return False
    return same_list(left.requests, right.requests) and same_list(left.limits, right.limits)


def same_list(left: ResourceList, right: ResourceList) -> bool:
    """Return True for the same resources in the same amounts. Raises QuantityError."""
    return left.keys() == right.keys() and all(parse(left[name]) == parse(right[name]) for name in left)
