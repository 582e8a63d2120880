"""Provider, the interface of the managers of CPUs, memory and devices to the topology manager and the actor.

The order of calls for a pod is that of pkg/kubelet/cm/topologymanager: hints of all providers, merge, allocate. With
scope `container` that happens for each container in turn, with scope `pod` once for the pod.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from actors._metrics.registry import Counter, Labels
from actors.resources.model.hints import Hint, Hints
from proto.resources.grants import Grant
from proto.v1 import Container, Pod

Series = tuple[Counter, Labels]
"""A counter, and the values of its labels."""


class AllocationError(Exception):
    """A container's request cannot be served: the reason and the message of the rejected pod."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.counts: tuple[Series, ...] = ()
        """The metrics of the manager that failed; they count once the pod is rejected."""
        self.container = ""
        """The container that failed; empty when the pod failed as a whole."""


class NotYetError(Exception):
    """The request cannot be served now and may be later, as when a device plugin has not registered again."""


@contextmanager
def failing(container: Container) -> Iterator[None]:
    """Name the container in an AllocationError."""
    try:
        yield
    except AllocationError as error:
        error.container = container.name
        raise


def write_failure(path: str, error: Exception) -> AllocationError | NotYetError:
    """Return the error of an allocation whose state file cannot be written. A disk that is full or slow may recover."""
    what = f"cannot write {path}: {error}"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return AllocationError("UnexpectedAdmissionError", f"Allocate failed due to {what}, which is unexpected")
    return NotYetError(what)


class Provider(Protocol):
    """A manager of one kind of resource. All methods run in the actor's mailbox thread."""

    def container_hints(self, pod: Pod, container: Container) -> Hints:
        """Hints for one container, which count what it holds already."""

    def pod_hints(self, pod: Pod) -> Hints:
        """Hints for the sum of the pod's containers, for the scope `pod`."""

    async def allocate(self, pod: Pod, container: Container, affinity: Hint) -> None:
        """Assign resources and write them to the state file before returning. A repeat changes nothing.

        Raises AllocationError, NotYetError.
        """

    def release(self, pod_uid: str) -> None:
        """Free everything of a pod of which no process runs any more. A repeat changes nothing."""

    def retain(self, pod_uids: Collection[str]) -> None:
        """Free everything of other pods: all pods of the node are known now."""

    def grant(self, pod: Pod, container: Container) -> Grant:
        """The part of this provider in what the container gets. An empty Grant for a container without a share."""
