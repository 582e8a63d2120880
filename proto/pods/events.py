"""Messages that the events actor receives: events to record, and requests for the recorded ones."""

from __future__ import annotations

from typing import Literal

from proto.v1 import Event, ObjectReference
from proto.wire.message import Message, Request


class RecordEvent(Message, frozen=True, kw_only=True):
    """From every actor: an event of an object. A repeat counts as another occurrence."""

    involved: ObjectReference
    """A pod, with the `field_path` of a container, or kind Node. The receiver adds the Node's name."""
    type: Literal["Normal", "Warning"]
    reason: str
    """CamelCase, one of the kubelet's (pkg/kubelet/events)."""
    message: str
    time_ns: int
    """Unix time of the event. The message itself may arrive later, after a restart of the receiver."""
    annotations: dict[str, str] = {}
    """Annotations of the created Event. A repeat does not change them."""


class Events(Message, frozen=True, kw_only=True):
    """Events as records of the API, oldest first."""

    events: tuple[Event, ...]
    revision: int
    """Number of the last change. It increases across restarts, so that a watcher can continue with `after`."""


class ListEvents(Request[Events], frozen=True, kw_only=True):
    """From the command line: stored events that are new or have a new count since `after`. A repeat is harmless."""

    after: int = 0
    """A revision; 0: all events."""
    wait_s: float = 0.0
    """Time to wait for a change when there is none yet."""
