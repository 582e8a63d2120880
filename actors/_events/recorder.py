"""The recorder: how an actor says that something happened to a pod or to the node.

Covers the object an event is about, as client-go's reference.GetReference and the kubelet's GenerateContainerRef have
it. Counting, filtering and keeping are the `events` actor's. Recording is one tell: never awaited, and dropped past the
bus's bound while nobody takes it.
"""

from __future__ import annotations

import time
from typing import Literal

from actors._base.messaging.ref import RemoteRef
from proto.pods.events import RecordEvent
from proto.v1 import ObjectReference, Pod

EventType = Literal["Normal", "Warning"]

MAX_MESSAGE = 4096
"""Characters; a runtime's error may carry a whole log."""


def field_path(pod: Pod, container: str) -> str | None:
    """Where in the pod's spec a container stands: `spec.containers{NAME}`; None when it is not in there."""
    spec = pod.spec
    if any(one.name == container for one in spec.containers):
        return f"spec.containers{{{container}}}"
    if any(one.name == container for one in spec.init_containers):
        return f"spec.initContainers{{{container}}}"
    if any(one.name == container for one in spec.ephemeral_containers):
        return f"spec.ephemeralContainers{{{container}}}"
    return None


def pod_reference(pod: Pod, container: str = "") -> ObjectReference:
    """The pod, or one container of it. A static pod goes by the kubelet's name and UID of it, not its mirror's."""
    meta = pod.metadata
    return ObjectReference(
        kind="Pod",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        api_version="v1",
        resource_version=meta.resource_version or None,
        field_path=field_path(pod, container) if container else None,
    )


class Recorder:
    """Records events. Usable from any thread of the process."""

    def __init__(self, ref: RemoteRef) -> None:
        """`ref` is the events actor's: `Recorder(self.peer("events"))`."""
        self._ref = ref

    def pod(self, pod: Pod, kind: EventType, reason: str, message: str, container: str = "") -> None:
        """An event of a pod, or of one of its containers, init and ephemeral ones included."""
        self.object(pod_reference(pod, container), kind, reason, message)

    def node(self, kind: EventType, reason: str, message: str) -> None:
        """An event of this node."""
        self.object(ObjectReference(kind="Node"), kind, reason, message)

    def object(self, involved: ObjectReference, kind: EventType, reason: str, message: str) -> None:
        """An event of an object of which the caller knows only the reference."""
        self._ref.tell(
            RecordEvent(
                involved=involved, type=kind, reason=reason, message=message[:MAX_MESSAGE], time_ns=time.time_ns()
            )
        )
