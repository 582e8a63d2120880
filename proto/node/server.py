"""Messages that the server actor receives: its copy of the pods. From status: SetPods, SetPod, RemovePods.

With the copy, logs, exec and lists need no answer of status, which may hang or restart.
"""

from __future__ import annotations

from proto.wire.message import Message, Record


class ServedPod(Record, frozen=True, kw_only=True):
    """A pod with its status, as the kubelet's API shows it."""

    uid: str
    namespace: str
    name: str
    deleted: bool = False
    """It has a deletionTimestamp."""
    document: bytes
    """The pod as JSON."""


class SetPods(Message, frozen=True, kw_only=True):
    """All pods, after a start of either actor; other pods are dropped. Idempotent."""

    pods: tuple[ServedPod, ...]


class SetPod(Message, frozen=True, kw_only=True):
    """A new or changed pod. Sent before the API server gets its status. Idempotent."""

    pod: ServedPod


class RemovePods(Message, frozen=True, kw_only=True):
    """UIDs of removed pods. A repeat is harmless."""

    uids: tuple[str, ...]
