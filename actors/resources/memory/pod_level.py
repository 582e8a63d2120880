"""Memory of pods with resources of their own, with topologyManagerScope `pod` (KEP-5526). Pure.

All of it is on one group of nodes. A container with limits equal to its requests has a part of its own, and the others
share what is left. An init container that ends has its part out of what sidecars before it leave.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors._host.restart import is_sidecar
from actors.resources.memory import requests, static
from actors.resources.memory.model import Block, State
from actors.resources.memory.requests import Requests
from actors.resources.model.hints import Hint, Hints
from actors.resources.model.pod_level import EmptyPoolError
from proto.v1 import Pod


def pod_hints(state: State, pod: Pod) -> Hints:
    """See Provider. Raises QuantityError."""
    uid, wanted = pod.metadata.uid, requests.of_pod(pod)
    if uid in state.pods:
        return static.assigned_hints(state.pods[uid], wanted)
    if uid in state.entries:  # since the scope was `container`
        return static.pod_hints(state, pod)
    try:
        _check_pool(pod, wanted)
    except EmptyPoolError:
        return {resource: [] for resource in wanted}
    return static.possible_hints(state, pod, wanted)


def allocate(state: State, pod: Pod, affinity: Hint) -> bool:
    """Assign the memory of the pod and of all its containers; False when they have it, or the pod requests none.

    The kubelet assigns it once more after a restart. Raises EmptyPoolError, AssignmentError, QuantityError.
    """
    uid, wanted = pod.metadata.uid, requests.of_pod(pod)
    if not wanted or uid in state.entries:
        return False
    _check_pool(pod, wanted)
    nodes = sorted(static.chosen_nodes(state, pod, wanted, affinity))
    state.entries[uid] = _divided(pod, wanted, nodes)
    state.pods[uid] = _blocks(nodes, wanted)
    for block in state.pods[uid]:
        state.take(block, block.size)
    return True


def _check_pool(pod: Pod, total: Requests) -> None:
    """Raise EmptyPoolError if the pod's own memory leaves none for a container that shares it."""
    used: Requests = {}
    shares = False
    for container in pod.spec.init_containers:
        asked = requests.of_container(pod, container)
        if is_sidecar(container):
            shares = shares or not asked
            used = _sum(used, asked)
            continue
        for resource, size in total.items():
            left = size - used.get(resource, 0)
            if asked.get(resource, 0) > left:
                raise EmptyPoolError(
                    f"pod rejected, largest exclusive init container requests {asked[resource]} of {resource}, "
                    f"but only {left} available"
                )
            if not asked and left <= 0:
                raise EmptyPoolError(
                    f"pod rejected, pod has shared init containers but no {resource} available for them"
                )
    for container in pod.spec.containers:
        asked = requests.of_container(pod, container)
        shares = shares or not asked
        used = _sum(used, asked)
    for resource, size in total.items():
        if shares and used.get(resource, 0) >= size:
            raise EmptyPoolError(
                f"pod rejected, sum of exclusive container {resource} requests equals pod budget, "
                "leaving no memory for shared containers"
            )
        if used.get(resource, 0) > size:  # the kubelet does not look, since the API server refuses such a pod
            raise EmptyPoolError(f"pod rejected, its containers request more {resource} than the pod")


def _divided(pod: Pod, total: Requests, nodes: list[int]) -> dict[str, list[Block]]:
    """Each container's part."""
    left, parts = total, {}
    for container in pod.spec.init_containers:
        asked = requests.of_container(pod, container)
        if is_sidecar(container):
            left = _sum(left, {resource: -size for resource, size in asked.items()})
        if asked or not is_sidecar(container):
            parts[container.name] = _blocks(nodes, asked or left)
    for container in pod.spec.containers:
        if asked := requests.of_container(pod, container):
            parts[container.name] = _blocks(nodes, asked)
            left = _sum(left, {resource: -size for resource, size in asked.items()})
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return {one.name: parts[one.name] if one.name in parts else _blocks(nodes, left) for one in every}


def _blocks(nodes: list[int], sizes: Requests) -> list[Block]:
    return [Block(list(nodes), resource, size) for resource, size in sorted(sizes.items()) if size > 0]


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> Requests:
    return {name: first.get(name, 0) + second.get(name, 0) for name in sorted({**first, **second})}
