"""One event as it is kept, and as the API shows it. Pure."""

from __future__ import annotations

import hashlib
import time
from typing import Literal

import msgspec

from proto.v1 import Event, EventSource, ObjectMeta, ObjectReference

KUBELET = "kubelet"
"""source.component of what the node says about pods and itself."""
SUPERVISION = "nodevisor"
"""source.component of what the supervisor says about actors; of no interest to an API server."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An occurrence, or several of them counted. Times are Unix nanoseconds, those of the occurrences."""

    name: str
    """`OBJECT.HEX`, unique and for good: its repeats change the event of this name."""
    involved: ObjectReference
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    component: str = KUBELET
    first_ns: int
    last_ns: int
    count: int = 1
    revision: int = 0
    """Of its last change; given when it is stored."""


def event_name(object_name: str, time_ns: int) -> str:
    """client-go's name for an event of an object that happened at a time."""
    return f"{object_name}.{time_ns:x}"


def rfc3339(time_ns: int) -> str:
    """metav1.Time: whole seconds, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ns // 10**9))


def to_api(entry: Entry, host: str) -> Event:
    """The core/v1 Event, as the kubelet creates it and its API server completes it."""
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
            creation_timestamp=rfc3339(entry.first_ns),
        ),
        involved_object=entry.involved,
        reason=entry.reason,
        message=entry.message,
        source=EventSource(component=entry.component, host=host),
        first_timestamp=rfc3339(entry.first_ns),
        last_timestamp=rfc3339(entry.last_ns),
        count=entry.count,
        type=entry.type,
        reporting_component=entry.component,
        reporting_instance=host,
    )
