"""Messages the pod_workers actor receives.

From config: PodUpdate. From objects: ObjectsChanged. From volume: VolumesMounted. From pleg: PodChanged. From probe:
ProbeResults. From eviction: EvictPod, SetNodePressure. From node, when the machine shuts down: EvictPod,
SetNodeShutdown. From container_gc, eviction, node, consoles: ListPodWorkers.
"""

from __future__ import annotations

from typing import Literal

from proto.pods.objects import ObjectRef
from proto.v1 import Pod
from proto.wire.message import Done, Message, Record, Request


class PodUpdate(Message, frozen=True, kw_only=True):
    """Changed pods of one source, with the kubelet's operations (pkg/kubelet/types, PodOperation).

    SET carries every pod of the source: what it lacks is removed; it also says that the source has been seen once.
    Idempotent: a repeat with the same pods changes nothing.
    """

    source: str
    """`file` or `api`."""
    op: Literal["SET", "ADD", "UPDATE", "DELETE", "REMOVE", "RECONCILE"]
    """DELETE: the objects have a deletionTimestamp now, and the pods are to end; REMOVE: the objects are gone."""
    pods: tuple[Pod, ...]


class ObjectsChanged(Message, frozen=True, kw_only=True):
    """From objects: these came, changed or went, and some pod refers to them. `full`: anything may have changed.

    A container that waits for one of them is tried at once. A repeat is harmless.
    """

    refs: tuple[ObjectRef, ...] = ()
    full: bool = False


class VolumesMounted(Message, frozen=True, kw_only=True):
    """From volume: what it had refused for this pod is mounted by now; ask again at once. A repeat is harmless."""

    pod_uid: str


class PodChanged(Message, frozen=True, kw_only=True):
    """A hint that the runtime's view of a pod changed; the worker reads the runtime itself. A repeat is harmless."""

    pod_uid: str
    exited: tuple[str, ...] = ()
    """Container and sandbox IDs whose init process is gone (the runtime may take milliseconds to say so).
    Empty: something else differs, list the pod anew."""


class ProbeResult(Record, frozen=True, kw_only=True):
    """The standing result of one probe of one container."""

    pod_uid: str
    container: str
    container_id: str
    """Full CRI ID, without runtime prefix. A result of another ID than the present one is ignored."""
    probe: Literal["liveness", "readiness", "startup"]
    result: Literal["success", "failure", "unknown"]
    message: str = ""


class ProbeResults(Message, frozen=True, kw_only=True):
    """Changed results (full=False) or all standing ones (full=True, when either side started). Idempotent."""

    results: tuple[ProbeResult, ...]
    full: bool = False


class EvictPod(Request[Done], frozen=True, kw_only=True):
    """End a pod and leave it Failed with this reason and message. Refused: NotFound. A repeat keeps the first one's."""

    pod_uid: str
    reason: str
    """`Evicted`"""
    message: str
    grace_period_s: int
    """1 for a hard threshold (the kubelet's immediateEvictionGracePeriodSeconds)."""
    with_machine: bool = False
    """It ends with its machine only: the next agent runs it again."""


class SetNodeShutdown(Message, frozen=True, kw_only=True):
    """From node: the machine is going down, and no pod may begin; or not any more. Idempotent."""

    shutting_down: bool


class SetNodePressure(Message, frozen=True, kw_only=True):
    """Full list of pressure conditions that hold; admission of BestEffort pods depends on it. Idempotent."""

    conditions: tuple[Literal["MemoryPressure", "DiskPressure", "PIDPressure"], ...]


class PodWorkerState(Record, frozen=True, kw_only=True):
    """What the pod workers know of one pod."""

    uid: str
    namespace: str
    name: str
    stage: Literal["sync", "terminating", "terminated"]
    deleted: bool
    """No source wants it any more."""
    static: bool
    pod: Pod | None = None
    """The spec, where asked for."""
    start_time: float = 0.0
    """Unix seconds."""


class PodWorkerStates(Message, frozen=True, kw_only=True):
    """Every pod that has a worker, or those asked for."""

    pods: tuple[PodWorkerState, ...]
    sources_ready: bool
    """Every source has been seen once; before that nobody may clean up what looks orphaned."""


class ListPodWorkers(Request[PodWorkerStates], frozen=True, kw_only=True):
    """Which pods have a worker and how far each is. A repeat is harmless."""

    with_pods: bool = False
    """Carry each pod's object too."""
    uids: tuple[str, ...] = ()
    """Of these only; empty for all."""
