"""Messages that the pod_workers actor receives: pods, exits, probe results, evictions and the node's state.

From config: PodUpdate. From objects: ObjectsChanged. From volume: VolumesMounted. From pleg: PodChanged. From probe:
ProbeResults. From eviction: EvictPod, SetNodePressure. From node: SetHostIPs, and when the machine shuts down EvictPod,
SetNodeShutdown. From resources: ResourcesState, SetResourceHealth. From status: StatusWritten. From container_gc,
eviction, node, command line: ListPodWorkers. From server, command line: GetTimelines.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from proto.pods.objects import ObjectRef
from proto.v1 import Pod
from proto.v1.status import ResourceStatus
from proto.wire.envelope import TRACEPARENT
from proto.wire.message import Done, Message, Record, Request


class PodTrace(Record, frozen=True, kw_only=True):
    """The trace of a pod's start. Times are Unix nanoseconds."""

    context: Annotated[str, msgspec.Meta(pattern=TRACEPARENT)]
    """The traceparent of its first span, which pod_workers records."""
    seen_ns: int
    """When the source saw the pod."""
    told_ns: int


class PodUpdate(Message, frozen=True, kw_only=True):
    """Changed pods of one source, with the kubelet's operations (pkg/kubelet/types, PodOperation).

    SET has every pod of the source: other pods of the source are removed, and the source counts as seen. Idempotent.
    """

    source: str
    """`file` or `api`."""
    op: Literal["SET", "ADD", "UPDATE", "DELETE", "REMOVE", "RECONCILE"]
    """DELETE: the objects have a deletionTimestamp, so the pods end. REMOVE: the objects are deleted."""
    pods: tuple[Pod, ...]
    traces: dict[str, PodTrace] = {}
    """By UID: pods whose start is traced."""
    seen_ns: int = 0
    """When the source saw these pods, in Unix nanoseconds; 0: unknown."""
    told_ns: int = 0


class ObjectsChanged(Message, frozen=True, kw_only=True):
    """From objects: objects that pods refer to were added, changed or deleted. A repeat is harmless.

    Containers that wait for one of them are retried at once. `full`: any object may have changed.
    """

    refs: tuple[ObjectRef, ...] = ()
    full: bool = False


class VolumesMounted(Message, frozen=True, kw_only=True):
    """From volume: the pod's volumes, refused before, are mounted now; ask again. A repeat is harmless."""

    pod_uid: str


class PodChanged(Message, frozen=True, kw_only=True):
    """From pleg: the pod changed in the runtime; the worker reads the state itself. A repeat is harmless."""

    pod_uid: str
    exited: tuple[str, ...] = ()
    """Containers and sandboxes whose init process has ended; the runtime may report it milliseconds later.

    Empty: another change; list the pod again.
    """


class ProbeResult(Record, frozen=True, kw_only=True):
    """The present result of a container's probe."""

    pod_uid: str
    container: str
    container_id: str
    """Full CRI ID without the runtime's prefix. Results for former containers are ignored."""
    probe: Literal["liveness", "readiness", "startup"]
    result: Literal["success", "failure", "unknown"]
    message: str = ""


class ProbeResults(Message, frozen=True, kw_only=True):
    """From probe: changed results, or with `full`, after a start, all results. Idempotent."""

    results: tuple[ProbeResult, ...]
    full: bool = False


class EvictPod(Request[Done], frozen=True, kw_only=True):
    """End a pod and set it Failed with this reason. Refused: NotFound. A repeat keeps the first reason."""

    pod_uid: str
    reason: str
    """`Evicted`"""
    message: str
    """Of `Evicted`: if it begins with "The node was low on resource: ", the pod gets the condition DisruptionTarget."""
    grace_period_s: int
    """1 for a hard threshold (the kubelet's immediateEvictionGracePeriodSeconds)."""
    with_machine: bool = False
    """The machine shuts down: the next agent starts the pod again."""


class SetNodeShutdown(Message, frozen=True, kw_only=True):
    """From node: the machine shuts down, so admit no pod; or the shutdown was cancelled. Idempotent."""

    shutting_down: bool


class SetHostIPs(Message, frozen=True, kw_only=True):
    """From node, once it has read its Node, and with every change: the Node's IP addresses. Idempotent.

    They are hostIP and hostIPs of all pods, and the podIPs of pods on the host's network. Until the first one, statuses
    keep what was published, and new pods have the addresses that this machine finds.
    """

    ips: tuple[str, ...]
    """One, or one of each family, the primary first. Empty: the Node has none yet."""


class SetNodePressure(Message, frozen=True, kw_only=True):
    """From eviction: all pressure conditions that hold, for the admission of BestEffort pods. Idempotent."""

    conditions: tuple[Literal["MemoryPressure", "DiskPressure", "PIDPressure"], ...]


class ResourcesState(Message, frozen=True, kw_only=True):
    """From resources, at its start and with every change: what it assigns. Pods that wait for it are tried again.

    Idempotent.
    """

    device_resources: tuple[str, ...] = ()
    """Extended resources of device plugins, also of plugins that have not registered again since a restart."""
    shared_cpus: str = ""
    """CPUs of containers without exclusive ones, in the kernel's list format. Empty: any."""
    has_claims: bool = False
    """A DRA driver has prepared a claim, or was asked to."""


class PodHealth(Record, frozen=True, kw_only=True):
    """The health of the devices of one pod."""

    pod_uid: str
    containers: dict[str, tuple[ResourceStatus, ...]] = {}
    """By container name. Empty: the pod has no devices."""


class SetResourceHealth(Message, frozen=True, kw_only=True):
    """From resources: the health of devices that pods have. Idempotent.

    `full`: no other pod has devices. Until the first such message, statuses keep what was published.
    """

    pods: tuple[PodHealth, ...] = ()
    full: bool = False


class PodWorkerState(Record, frozen=True, kw_only=True):
    """The state of a pod worker."""

    uid: str
    namespace: str
    name: str
    stage: Literal["sync", "terminating", "terminated"]
    released: bool = False
    """It is terminated, and its volumes and its cgroup are gone (the kubelet's PodIsFinished)."""
    deleted: bool
    """No source has the pod any more."""
    rejected: bool = False
    """It was not admitted, and none of its containers starts."""
    evicted: bool = False
    """The node ended it for want of a resource, or for a critical pod (the kubelet's IsEvicted)."""
    static: bool
    pod: Pod | None = None
    """The pod, with `with_pods`."""
    start_time: float = 0.0
    """Unix seconds."""


class PodWorkerStates(Message, frozen=True, kw_only=True):
    """The requested pod workers."""

    pods: tuple[PodWorkerState, ...]
    sources_ready: bool
    """Every source has been read once. Before that, apparent orphans must not be cleaned up."""
    waiting: tuple[str, ...] = ()
    """UIDs of all pods that get a worker soon: wanted ones before their admission, and those whose worker failed."""


class StatusWritten(Message, frozen=True, kw_only=True):
    """From status: the API server has the status of a pod that became ready. Unix nanoseconds. A repeat adds a step."""

    pod_uid: str
    began_ns: int
    ended_ns: int


class TimelineStep(Record, frozen=True, kw_only=True):
    """A step of a pod's start. Times are Unix nanoseconds."""

    name: str
    """config, admission, volumes, sandbox, image, prepare, create, start, probe or status write."""
    detail: str = ""
    """The container's name; empty for steps of the whole pod."""
    began_ns: int
    ended_ns: int
    error: str = ""


class PodTimeline(Record, frozen=True, kw_only=True):
    """The start of a pod."""

    uid: str
    namespace: str
    name: str
    began_ns: int
    ready_ns: int = 0
    """When it was ready or finished; 0: not yet."""
    steps: tuple[TimelineStep, ...] = ()


class StepTotal(Record, frozen=True, kw_only=True):
    """One step over all recorded pods."""

    step: str
    """A step's name, or `total`."""
    count: int
    total_s: float
    median_s: float
    most_s: float


class Timelines(Message, frozen=True, kw_only=True):
    """The requested timelines, newest first, and the totals of all recorded pods."""

    pods: tuple[PodTimeline, ...] = ()
    totals: tuple[StepTotal, ...] = ()


class GetTimelines(Request[Timelines], frozen=True, kw_only=True):
    """From server, command line: the starts of pods since the actor started, of the last 200. A repeat is harmless."""

    pod: str = ""
    """NAME or NAMESPACE/NAME, of a static pod also without `-NODENAME`; empty: all."""


class ListPodWorkers(Request[PodWorkerStates], frozen=True, kw_only=True):
    """Ask for the pods with a worker and their stages. A repeat is harmless."""

    with_pods: bool = False
    """Include each pod's object."""
    uids: tuple[str, ...] = ()
    """UIDs of the pods; empty: all."""
