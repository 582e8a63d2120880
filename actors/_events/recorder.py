"""Sends events about pods and the node to the `events` actor, which counts, filters and stores them.

References to objects are those of client-go's reference.GetReference and the kubelet's GenerateContainerRef. Recording
is one tell: it does not wait, and while the events actor is away, tells over the bus's limit are dropped.
"""

from __future__ import annotations

import time
from typing import Literal

from actors._base.messaging.ref import RemoteRef
from proto.pods.events import RecordEvent
from proto.v1 import ObjectReference, Pod

EventType = Literal["Normal", "Warning"]

MAX_MESSAGE = 4096
"""Limit in characters: a runtime's error may contain a whole log."""
MAX_ANNOTATIONS = 256 * 1024
"""Limit in bytes of all keys and values. An API server refuses objects with more (TotalAnnotationSizeLimitB)."""


def field_path(pod: Pod, container: str) -> str | None:
    """A container's path in the pod's spec, `spec.containers{NAME}`; None when the spec lacks it."""
    spec = pod.spec
    if any(one.name == container for one in spec.containers):
        return f"spec.containers{{{container}}}"
    if any(one.name == container for one in spec.init_containers):
        return f"spec.initContainers{{{container}}}"
    if any(one.name == container for one in spec.ephemeral_containers):
        return f"spec.ephemeralContainers{{{container}}}"
    return None


def pod_reference(pod: Pod, container: str = "") -> ObjectReference:
    """A reference to the pod or a container of it. A static pod has its own UID, not its mirror's."""
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


def bounded(annotations: dict[str, str]) -> dict[str, str]:
    """Return the annotations, or none when they are above MAX_ANNOTATIONS: the event itself is worth more."""
    size = sum(len(key.encode()) + len(text.encode()) for key, text in annotations.items())
    return annotations if size <= MAX_ANNOTATIONS else {}


class Recorder:
    """Records events. Usable from any thread of the process."""

    def __init__(self, ref: RemoteRef) -> None:
        """`ref` is the events actor's: `Recorder(self.peer("events"))`."""
        self._ref = ref

    def pod(
        self,
        pod: Pod,
        kind: EventType,
        reason: str,
        message: str,
        container: str = "",
        *,
        annotations: dict[str, str] | None = None,
    ) -> None:
        """Record an event of a pod, or of one of its containers, init and ephemeral ones included."""
        self.object(pod_reference(pod, container), kind, reason, message, annotations=annotations)

    def node(self, kind: EventType, reason: str, message: str) -> None:
        """Record an event of this node."""
        self.object(ObjectReference(kind="Node"), kind, reason, message)

    def object(
        self,
        involved: ObjectReference,
        kind: EventType,
        reason: str,
        message: str,
        *,
        annotations: dict[str, str] | None = None,
        most: int = MAX_MESSAGE,
    ) -> None:
        """Record an event of an object by its reference, with at most `most` characters of the message."""
        self._ref.tell(
            RecordEvent(
                involved=involved,
                type=kind,
                reason=reason,
                message=message[:most],
                time_ns=time.time_ns(),
                annotations=bounded(annotations or {}),
            )
        )
