"""Messages the events actor receives.

From every actor: RecordEvent. From consoles: ListEvents.
"""

from __future__ import annotations

from typing import Literal

from proto.v1 import Event, ObjectReference
from proto.wire.message import Message, Request


class RecordEvent(Message, frozen=True, kw_only=True):
    """Something happened to an object. A repeat is counted as one more occurrence."""

    involved: ObjectReference
    """A pod with `field_path` of a container, or kind Node, whose name the receiver fills in."""
    type: Literal["Normal", "Warning"]
    reason: str
    """CamelCase, one of the kubelet's (pkg/kubelet/events)."""
    message: str
    time_ns: int
    """Unix time at which it happened: the tell may wait while its receiver restarts."""


class Events(Message, frozen=True, kw_only=True):
    """Events as the API has them, oldest first."""

    events: tuple[Event, ...]
    revision: int
    """Of the last change. Rises across restarts, so that a watcher can go on with `after`."""


class ListEvents(Request[Events], frozen=True, kw_only=True):
    """The events that are kept; those created or counted up after a revision. A repeat is harmless."""

    after: int = 0
    """Only what has changed since this revision."""
    wait_s: float = 0.0
    """With nothing to tell, wait so long for something."""
