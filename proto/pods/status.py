"""Messages the status actor receives.

From pod_workers: SetPods, SetPod, SetPodStatus, RemovePod. From config, with an API server: SetApiPods, RemoveApiPods.
From node, before the machine goes down: Flush. From all: ListPods.
"""

from __future__ import annotations

from typing import Literal

from proto.v1 import Pod, PodStatus
from proto.wire.message import Message, Request

Stage = Literal["sync", "terminating", "terminated", "released"]
"""How far the end of a pod is: it goes on; it ends; nothing of it runs; its volumes and its cgroup are given back, too.
The API server is told a terminal phase from `terminated` on, and lets go of the object from `released` on."""


class SetPod(Message, frozen=True, kw_only=True):
    """A pod that is new or whose metadata or spec changed, with its status. Idempotent."""

    pod: Pod
    stage: Stage = "sync"


class SetPods(Message, frozen=True, kw_only=True):
    """Every pod there is, with status; what is not in it is dropped. Sent when either side started. Idempotent."""

    pods: tuple[Pod, ...]
    stages: dict[str, Stage] = {}
    """By UID, of those that are not in `sync`."""


class SetPodStatus(Message, frozen=True, kw_only=True):
    """A pod's status as its worker computed it; the condition times are filled in by the status actor. Idempotent."""

    pod_uid: str
    status: PodStatus
    stage: Stage = "sync"


class RemovePod(Message, frozen=True, kw_only=True):
    """The pod is gone: nothing of it is left on the node. A repeat is harmless."""

    pod_uid: str


class SetApiPods(Message, frozen=True, kw_only=True):
    """Pods bound to this node as the API server has them, mirror pods among them. Idempotent.

    Each with its metadata, at least name, namespace, uid, resourceVersion, generation, deletionTimestamp and the
    annotations `kubernetes.io/config.*`, and its status; the spec is left out. Told before pod_workers is told of the
    same change.
    """

    pods: tuple[Pod, ...]
    full: bool = False
    """All there are, as after a list and when status has started: what is not in it the API server does not have."""


class RemoveApiPods(Message, frozen=True, kw_only=True):
    """The API server has these no more. A repeat is harmless."""

    uids: tuple[str, ...]


class Flushed(Message, frozen=True, kw_only=True):
    """Of how many pods the API server does not have the last word yet; 0 without an API server."""

    unsaid: int = 0


class Flush(Request[Flushed], frozen=True, kw_only=True):
    """Answered once the API server has been told of every status that is known now. A repeat is harmless."""

    timeout_s: float
    """Then it is answered in any case; less than the ask's own deadline."""


class Pods(Message, frozen=True, kw_only=True):
    """Pods with full status, ordered by namespace and name."""

    pods: tuple[Pod, ...]


class FindPod(Request[Pods], frozen=True, kw_only=True):
    """The pod of that name, or none: for one that is asked for by name, the others need not travel. A repeat is
    harmless."""

    namespace: str
    name: str


class ListPods(Request[Pods], frozen=True, kw_only=True):
    """What `supervisor pods` shows, and what pod_workers starts from after a restart. A repeat is harmless."""
