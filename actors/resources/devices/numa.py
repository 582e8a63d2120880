"""Topology hints of devices: the NUMA nodes near which a request can be served. Pure.

Source: pkg/kubelet/cm/devicemanager/topology_hints.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from actors.resources.devices.holdings import Holdings
from actors.resources.devices.inventory import Resource
from actors.resources.devices.policy import requests
from actors.resources.model.hints import Hint
from proto.v1 import Pod


def hints(
    resource: Resource, numa_nodes: Sequence[int], requested: int, *,
    held: frozenset[str], in_use: frozenset[str], reusable: frozenset[str],
) -> list[Hint] | None:  # fmt: skip
    """Hints for `requested` devices. None: the devices name no NUMA node. Empty: the request cannot be served.

    `held`: devices that the container has already; they alone count then.
    """
    if not resource.has_topology:
        return None
    if held:
        return _over_masks(resource, numa_nodes, requested, held, frozenset()) if len(held) == requested else []
    available = resource.healthy - in_use
    if len(available | reusable) < requested:
        return []
    return _over_masks(resource, numa_nodes, requested, available, reusable)


def _over_masks(
    resource: Resource, numa_nodes: Sequence[int], requested: int, available: frozenset[str], reusable: frozenset[str]
) -> list[Hint]:
    near = {one.id: one.nodes for one in resource.devices.values()}
    smallest, masks = len(numa_nodes), []
    for mask in _masks(numa_nodes):
        if sum(not nodes.isdisjoint(mask) for nodes in near.values()) >= requested:
            smallest = min(smallest, len(mask))
        again = [near[one] for one in reusable if near.get(one)]
        if any(nodes.isdisjoint(mask) for nodes in again):
            continue
        matching = len(again) + sum(not near.get(one, frozenset()).isdisjoint(mask) for one in available)
        if matching >= requested:
            masks.append(mask)
    return [Hint(mask, preferred=len(mask) == smallest) for mask in masks]


def _masks(numa_nodes: Sequence[int]) -> Iterator[frozenset[int]]:
    ordered = sorted(numa_nodes)
    for size in range(1, len(ordered) + 1):
        for nodes in combinations(ordered, size):
            yield frozenset(nodes)


def pod_requests(pod: Pod) -> dict[str, int]:
    """Devices that a pod needs at once, by resource: of its containers together, or of one init container.

    Restartable init containers run beside what starts after them (KEP-753).
    """
    sidecars: dict[str, int] = {}
    at_start: dict[str, int] = {}
    for one in pod.spec.init_containers:
        wanted = requests(pod, one)
        if one.restart_policy == "Always":
            sidecars = _sum(sidecars, wanted)
            together = sidecars
        else:
            together = _sum(sidecars, wanted)
        at_start = {name: max(together.get(name, 0), at_start.get(name, 0)) for name in together.keys() | at_start}
    running = sidecars
    for one in pod.spec.containers:
        running = _sum(running, requests(pod, one))
    return {name: max(running.get(name, 0), at_start.get(name, 0)) for name in sorted(running.keys() | at_start)}


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other}


def pod_held(holdings: Holdings, pod: Pod, resource: str) -> frozenset[str]:
    """Devices of a resource that all containers of the pod hold."""
    return frozenset(one for held in holdings.of_pod(pod.metadata.uid) if held.resource == resource for one in held.ids)
