"""Messages the status actor receives: SetPods, SetPod, SetPodStatus, RemovePod from pod_workers; ListPods from all."""

from __future__ import annotations

from proto.message import Message, Request
from proto.v1 import Pod, PodStatus


class SetPod(Message, frozen=True, kw_only=True):
    """A pod that is new or whose metadata or spec changed, with its status. Idempotent."""

    pod: Pod


class SetPods(Message, frozen=True, kw_only=True):
    """Every pod there is, with status; what is not in it is dropped. Sent when either side started. Idempotent."""

    pods: tuple[Pod, ...]


class SetPodStatus(Message, frozen=True, kw_only=True):
    """A pod's status as its worker computed it; the condition times are filled in by the status actor. Idempotent."""

    pod_uid: str
    status: PodStatus


class RemovePod(Message, frozen=True, kw_only=True):
    """The pod is gone: nothing of it is left on the node. A repeat is harmless."""

    pod_uid: str


class Pods(Message, frozen=True, kw_only=True):
    """Pods with full status, ordered by namespace and name."""

    pods: tuple[Pod, ...]


class ListPods(Request[Pods], frozen=True, kw_only=True):
    """What `supervisor pods` shows, and what pod_workers starts from after a restart. A repeat is harmless."""
