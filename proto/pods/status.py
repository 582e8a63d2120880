"""Messages that the status actor receives: pods and their status from the node, and the API server's view of them.

From pod_workers: SetPods, SetPod, SetPodStatus, PodStarted, RemovePod. From config, with an API server: SetApiPods,
RemoveApiPods. From node, before the machine goes down: Flush. From all: ListPods.
"""

from __future__ import annotations

from typing import Literal

from proto.v1 import Pod, PodStatus
from proto.wire.message import Message, Request

Stage = Literal["sync", "terminating", "terminated", "released"]
"""Stage of a pod: synced; terminating; all containers ended; volumes and cgroup removed too.

From `terminated` on, the API server gets the terminal phase. From `released` on, the object can be deleted.
"""


class SetPod(Message, frozen=True, kw_only=True):
    """A new pod, or one with changed metadata or spec, with its status. Idempotent."""

    pod: Pod
    stage: Stage = "sync"


class SetPods(Message, frozen=True, kw_only=True):
    """All pods with status, after a start of either actor; other pods are dropped. Idempotent."""

    pods: tuple[Pod, ...]
    stages: dict[str, Stage] = {}
    """By UID, for pods in other stages than `sync`."""


class SetPodStatus(Message, frozen=True, kw_only=True):
    """A pod's status from its worker. The status actor adds the condition times. Idempotent."""

    pod_uid: str
    status: PodStatus
    stage: Stage = "sync"


class RemovePod(Message, frozen=True, kw_only=True):
    """The pod has been removed from the node. A repeat is harmless."""

    pod_uid: str
    reason: str = ""
    """Not empty: remove it only if its status is Succeeded or Failed with this reason and `message`. The pod runs again
    in spite of such an end, and its later statuses stay."""
    message: str = ""


class PodStarted(Message, frozen=True, kw_only=True):
    """All containers of a pod were started for the first time. A repeat is harmless."""

    pod_uid: str
    left_out_s: float
    """Seconds of the start in which images were pulled or init containers ran."""


class SetApiPods(Message, frozen=True, kw_only=True):
    """Pods of this node in the API server, mirror pods too. Idempotent. Sent before pod_workers gets the change.

    Each has its status, no spec, and at least this metadata: name, namespace, uid, resourceVersion, generation,
    deletionTimestamp and the annotations `kubernetes.io/config.*`.
    """

    pods: tuple[Pod, ...]
    full: bool = False
    """The pods are all pods of the node, as after a list and after a start of status."""


class RemoveApiPods(Message, frozen=True, kw_only=True):
    """Pods that the API server has deleted. A repeat is harmless."""

    uids: tuple[str, ...]


class Flushed(Message, frozen=True, kw_only=True):
    """Number of pods whose latest status the API server lacks; 0 without an API server."""

    unsaid: int = 0


class Flush(Request[Flushed], frozen=True, kw_only=True):
    """Write every present status to the API server, then answer. A repeat is harmless."""

    timeout_s: float
    """Answer at the latest after this time, which is shorter than the ask's deadline."""


class Pods(Message, frozen=True, kw_only=True):
    """Pods with full status, ordered by namespace and name."""

    pods: tuple[Pod, ...]


class FindPod(Request[Pods], frozen=True, kw_only=True):
    """From server: the pod of that name, or none, without the other pods. A repeat is harmless."""

    namespace: str
    name: str


class ListPods(Request[Pods], frozen=True, kw_only=True):
    """Ask for all pods, for `supervisor pods` and for pod_workers after a restart. A repeat is harmless."""
