"""Defines the stored event, and converts it to core/v1. Pure."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from proto.common import rfc3339
from proto.v1 import Event, EventSource, ObjectMeta, ObjectReference

KUBELET = "kubelet"
"""source.component of events about pods and the node."""
SUPERVISION = "nodevisor"
"""source.component of events about actors, which are not sent to an API server."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event with its count. Times are those of the occurrences, in Unix nanoseconds."""

    name: str
    """`OBJECT.HEX`, unique. Repetitions change the event with this name."""
    involved: ObjectReference
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    component: str = KUBELET
    first_ns: int
    last_ns: int
    count: int = 1
    revision: int = 0
    """Revision of the last change, set by the store."""
    annotations: dict[str, str] = {}
    """Annotations of the first occurrence. A combined event has none."""

    def size(self) -> int:
        """Return the number of characters of message and annotations, whose length others decide."""
        return len(self.message) + sum(len(key) + len(text) for key, text in self.annotations.items())


def event_name(object_name: str, time_ns: int) -> str:
    """Return client-go's name for an event of an object at a time."""
    return f"{object_name}.{time_ns:x}"


def to_api(entry: Entry, host: str) -> Event:
    """Return the core/v1 Event, as the kubelet creates it and the API server completes it."""
    namespace = entry.involved.namespace or "default"
    digest = hashlib.md5(f"{namespace}/{entry.name}".encode(), usedforsecurity=False).hexdigest()
    uid = "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))
    return Event(
        api_version="v1",
        kind="Event",
        metadata=ObjectMeta(
            name=entry.name,
            namespace=namespace,
            uid=uid,
            resource_version=str(entry.revision),
            creation_timestamp=rfc3339.from_nanos(entry.first_ns),
            annotations=entry.annotations,
        ),
        involved_object=entry.involved,
        reason=entry.reason,
        message=entry.message,
        source=EventSource(component=entry.component, host=host),
        first_timestamp=rfc3339.from_nanos(entry.first_ns),
        last_timestamp=rfc3339.from_nanos(entry.last_ns),
        count=entry.count,
        type=entry.type,
        reporting_component=entry.component,
        reporting_instance=host,
    )
