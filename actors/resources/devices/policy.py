"""Decisions of the device manager: which devices a container gets. Pure.

Source: pkg/kubelet/cm/devicemanager/manager.go of Kubernetes 1.36. Where the kubelet takes any devices of a set, these
functions take the first by ID.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from actors.resources.devices.inventory import Resource
from actors.resources.model.hints import Hint
from actors.resources.model.provider import AllocationError, NotYetError
from proto.v1 import Container, Pod
from proto.v1.scalars import quantity
from proto.v1.status import claimed_resources

REJECTED = "UnexpectedAdmissionError"
_NOT_NOW = frozenset({"Unavailable", "DeadlineExceeded", "Canceled"})
"""gRPC codes of a plugin that has died or hangs: it may answer later."""


@dataclass(frozen=True, slots=True)
class Question:
    """A GetPreferredAllocation request."""

    available: frozenset[str]
    must_include: frozenset[str]
    size: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Devices for one container and resource."""

    taken: tuple[str, ...]
    """Certain ones."""
    needed: int
    """Number of further ones from `pools`. The plugin's preferred ones come first, if they are in `preferable`."""
    question: Question | None = None
    preferable: frozenset[str] = frozenset()
    pools: tuple[frozenset[str], ...] = ()


def rejection(text: str) -> AllocationError:
    """The kubelet's rejection of a pod at admission for this reason."""
    return AllocationError(REJECTED, f"Allocate failed due to {text}, which is unexpected")


def call_failure(name: str, rpc: str, code: str, text: str) -> AllocationError | NotYetError:
    """Return the error of a pod after a failed call to a plugin. `text`: the error as a Go client prints it."""
    if code in _NOT_NOW:
        return NotYetError(f"the device plugin of {name} does not answer {rpc}: {text}")
    # The kubelet passes the error of Allocate on as it is.
    return rejection(text if rpc == "Allocate" else f"device plugin {rpc} rpc failed with err: {text}")


def requests(pod: Pod, container: Container) -> dict[str, int]:
    """Numbers of devices by extended resource, without what a claim gives. Limits count: they equal the requests."""
    claimed = claimed_resources(pod.status, container.name)
    found = {}
    for name, amount in sorted(container.resources.limits.items()):
        if "/" in name and name not in claimed and (number := quantity.value(amount)) > 0:
            found[name] = number
    return found


def check_ready(name: str, resource: Resource | None, held: frozenset[str]) -> Resource:
    """The resource, if its plugin is here and the devices that the container holds are healthy.

    Raises NotYetError while the plugin is away, AllocationError with the kubelet's text otherwise.
    """
    if resource is None or not resource.connected:
        raise NotYetError(f"the device plugin of {name} has not registered")
    if not resource.listed:
        raise NotYetError(f"the device plugin of {name} has registered and not yet listed its devices")
    if not resource.healthy:
        raise rejection(f"no healthy devices present; cannot allocate unhealthy devices {name}")
    if not held <= resource.healthy:
        raise rejection(f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {name}")
    return resource


def choose(
    name: str, resource: Resource, required: int, in_use: frozenset[str], reusable: frozenset[str], affinity: Hint
) -> Choice:
    """Choose `required` devices, reusable ones first. Raises AllocationError when there are too few."""
    taken = tuple(sorted(reusable & resource.healthy)[:required])
    needed = required - len(taken)
    if needed == 0:
        return Choice(taken, 0)
    available = resource.healthy - in_use - frozenset(taken)
    if len(available) < needed:
        raise rejection(
            f"requested number of devices unavailable for {name}. Requested: {needed}, Available: {len(available)}"
        )
    aligned, unaligned, without = _by_affinity(resource, available, affinity)
    if needed < len(aligned):
        question = Question(aligned | frozenset(taken), frozenset(taken), required)
        return Choice(taken, needed, question, aligned, (aligned,))
    taken = (*taken, *sorted(aligned))
    needed -= len(aligned)
    if needed == 0:
        return Choice(taken, 0)
    question = Question(available | frozenset(taken), frozenset(taken), required)
    return Choice(taken, needed, question, available, (unaligned, without))


def complete(choice: Choice, preferred: Iterable[str] = ()) -> tuple[str, ...]:
    """The devices, with the plugin's answer to the question. It may lie: only IDs that may be chosen count."""
    taken = list(choice.taken)
    wanted = [one for one in dict.fromkeys(preferred) if one in choice.preferable and one not in choice.taken]
    for one in (*wanted, *(one for pool in choice.pools for one in sorted(pool))):
        if len(taken) == len(choice.taken) + choice.needed:
            break
        if one not in taken:
            taken.append(one)
    return tuple(taken)


def _by_affinity(
    resource: Resource, available: frozenset[str], affinity: Hint
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The available devices near the hint's NUMA nodes, near others, and without a node."""
    nodes = affinity.nodes
    if not resource.has_topology or nodes is None:
        return frozenset(), frozenset(), available
    devices = resource.devices
    without = frozenset(one for one in available if not devices[one].nodes)
    aligned = frozenset(one for one in available if devices[one].nodes & nodes)
    return aligned, available - aligned - without, without
