"""Checks a pod's requests against the node's free resources. Pure.

The scheduler's arithmetic (pkg/scheduler/framework/plugins/noderesources, Fits), which the kubelet uses too. As in
removeMissingExtendedResources of pkg/kubelet/lifecycle, a resource that a claim gives is not the node's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from actors._cgroup.quantities import totals
from actors._cgroup.quantities.allocatable import Amounts, amount
from actors._cgroup.quantities.qos import QosClass, qos_class
from actors.pod_workers.admission.ports import HostPort, host_ports
from actors.pod_workers.model.allocation import PodResourceInfo, with_resources
from proto.v1 import Container, Pod
from proto.v1.scalars.resource_name import is_extended
from proto.v1.status import claimed_resources

CHECKED_FIRST = ("cpu", "memory", "ephemeral-storage")
"""Checked in this order, before the others."""
RESIZED = ("cpu", "memory")
"""The resources that a resize changes."""


@dataclass(frozen=True, slots=True)
class Share:
    """Resources and ports that one pod holds. Computed once per pod: adding up quantities of 100 pods is slow."""

    pod: Pod
    requests: Amounts
    """Of the pod's allocated resources. The cgroups of QoS classes count these."""
    held: Amounts
    """Counted by admission: the larger of the requests and the amounts that the containers still have."""
    ports: frozenset[HostPort]
    qos: QosClass

    @classmethod
    def of(cls, pod: Pod, actuated: PodResourceInfo | None = None) -> Share:
        """`actuated`: the resources of the containers while a resize is carried out. Raises QuantityError.

        As in KEP-1287, a container that is to shrink keeps its room until it has shrunk.
        """
        requests = _requests(pod)
        before = {} if actuated is None else _requests(with_resources(pod, actuated))
        more = {name: before[name] for name in RESIZED if before.get(name, 0) > requests.get(name, 0)}
        return cls(pod, requests, requests | more, host_ports(pod), qos_class(pod))


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource of which the node has too little. Amounts as in `Amounts`: millicores of cpu, else whole units."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """The amount to free."""
        return self.requested - (self.capacity - self.used)

    @property
    def reason(self) -> str:
        """OutOfcpu, OutOfmemory, ..."""
        return f"OutOf{self.resource}"

    @property
    def message(self) -> str:
        """The kubelet's message."""
        return (
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}"
        )


def shortages(wanted: Share, others: Iterable[Share], allocatable: Mapping[str, int]) -> list[Shortage]:
    """All shortages, cpu, memory and ephemeral-storage first; empty if the pod fits beside the others.

    `allocatable` has "pods".
    """
    taken = list(others)
    found = []
    if len(taken) + 1 > allocatable["pods"]:
        found.append(Shortage("pods", 1, len(taken), allocatable["pods"]))
    requests = {name: want for name, want in wanted.requests.items() if want and not _is_elsewhere(name, allocatable)}
    if not requests:
        return found
    used: Counter[str] = Counter()
    for share in taken:
        used.update(share.held)
    for name in (*(one for one in CHECKED_FIRST if one in requests), *sorted(requests.keys() - set(CHECKED_FIRST))):
        capacity = allocatable.get(name, 0)
        if requests[name] > capacity - used[name]:
            found.append(Shortage(name, requests[name], used[name], capacity))
    return found


def _requests(pod: Pod) -> Amounts:
    wanted = totals.requests(_without_claimed(pod))
    return {name: amount(name, quantity) for name, quantity in wanted.items()}


def _is_elsewhere(name: str, allocatable: Mapping[str, int]) -> bool:
    """An extended resource that this node lacks is the cluster's: the scheduler alone counts it."""
    return is_extended(name) and name not in allocatable


def _without_claimed(pod: Pod) -> Pod:
    """The pod without requests that its claim serves."""
    if pod.status.extended_resource_claim_status is None:
        return pod

    def of_node(container: Container) -> Container:
        claimed = claimed_resources(pod.status, container.name)
        requests = {name: want for name, want in container.resources.requests.items() if name not in claimed}
        return replace(container, resources=replace(container.resources, requests=requests))

    containers = tuple(map(of_node, pod.spec.containers))
    init_containers = tuple(map(of_node, pod.spec.init_containers))
    return replace(pod, spec=replace(pod.spec, containers=containers, init_containers=init_containers))
