"""What of a pod's requests and limits the node has granted it, which a resize may lag behind. Pure.

KEP-1287 (containers) and KEP-5419 (the pod as a whole). A source may change the resources of a running pod; until the
node has room for that, the pod goes on with its allocation. Covers the record, how it is laid over a spec and how it
is compared. Does not cover where it is kept (resource_state.py) nor who decides (resizing.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from proto.v1 import Container, Pod, ResourceRequirements
from proto.v1.scalars.base import ResourceList
from proto.v1.scalars.quantity import parse


class PodResourceInfo(msgspec.Struct, frozen=True):
    """The resources of one pod's containers, init containers among them, and its own; keys as in the kubelet's file."""

    containers: Mapping[str, ResourceRequirements] = msgspec.field(name="ContainerResources", default_factory=dict)
    pod: ResourceRequirements | None = msgspec.field(name="PodLevelResources", default=None)

    def with_container(self, name: str, resources: ResourceRequirements) -> PodResourceInfo:
        """With one container's resources as given."""
        return replace(self, containers={**self.containers, name: resources})


NOTHING = PodResourceInfo()


def resources_of(pod: Pod) -> PodResourceInfo:
    """What the pod's spec asks for."""
    return PodResourceInfo({one.name: one.resources for one in _resizable(pod)}, pod.spec.resources)


def with_resources(pod: Pod, info: PodResourceInfo | None) -> Pod:
    """The pod with these resources instead of its own; the very same object where nothing differs.

    A container that `info` does not know, added since by a source that may do so, keeps its own.
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
    """Whether both say the same, however their quantities are written. Containers only one of them has do not count."""
    if not _same(left.pod, right.pod):
        return False
    common = left.containers.keys() & right.containers.keys()
    return all(_same(left.containers[name], right.containers[name]) for name in common)


def _resizable(pod: Pod) -> Iterable[Container]:
    """Every container but the ephemeral ones, which have no resources."""
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
    """Whether two lists have the same resources in the same amounts. Raises QuantityError."""
    return left.keys() == right.keys() and all(parse(left[name]) == parse(right[name]) for name in left)
