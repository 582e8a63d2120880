"""WorkerContext, which all pod workers of this process share: clients, limits, checkpointed state, published pods.

Workers run in threads, so `Published` has a lock. All other parts are read-only or have one writer per key.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec

from actors._base import Future, RemoteRef, Semaphore
from actors._base.messaging.mailbox import Timers
from actors._cgroup.migration_prewarm import MigrationPrewarm
from actors._cgroup.quantities.allocatable import Amounts
from actors._cri.client import Cri
from actors._events.recorder import Recorder
from actors._objects.peer import ObjectsRef
from actors.pod_workers.model.back_off import Replaced, RestartDelay
from actors.pod_workers.shared.ends import Ends
from actors.pod_workers.shared.http_hooks import HttpHooks
from actors.pod_workers.shared.managed_resources import ManagedResources, ResourceHealths
from actors.pod_workers.shared.network import RuntimeNetwork
from actors.pod_workers.shared.resource_state import ResourceState
from actors.pod_workers.shared.used_objects import UsedObjects
from actors.pod_workers.shared.userns import UserNamespaces
from proto.agent.settings import Settings
from proto.common.backoff import Backoff
from proto.pods import pleg, probe, status
from proto.pods.pod_workers import ObjectsChanged
from proto.v1 import Pod, PodStatus

START_WIDTH = max(4, min(32, 4 * (os.cpu_count() or 1)))
"""Most concurrent sandbox and container starts. containerd and runc are bound by CPU and by kernel locks of namespaces
and cgroups. More concurrency only lengthens each start (measured in `make bench`)."""
STOP_WIDTH = START_WIDTH
"""Most concurrent sandbox stops and removals. StopContainer is not limited: it mostly waits for the grace period."""


@dataclass
class Published:
    """The latest facts that each peer was told about each pod, so that a restarted peer gets all of them.

    Recording and sending happen under one lock: a full re-send cannot overtake a newer change.
    """

    status_ref: RemoteRef
    probe_ref: RemoteRef
    pleg_ref: RemoteRef
    used_objects: UsedObjects
    on_new_pod: Callable[[], None]
    """A pod was published for the first time."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    pods: dict[str, Pod] = field(default_factory=dict)
    stages: dict[str, status.Stage] = field(default_factory=dict)
    probed: dict[str, probe.ProbedPod] = field(default_factory=dict)
    watches: dict[str, dict[str, pleg.Watch]] = field(default_factory=dict)

    @classmethod
    def to(
        cls, peer: Callable[[str], RemoteRef], objects: ObjectsRef, on_new_pod: Callable[[], None], *, cluster: bool
    ) -> Published:
        """`peer` finds an actor by name. `cluster`: the objects that pods refer to are an API server's."""
        used = UsedObjects(objects, cluster=cluster)
        return cls(peer("status"), peer("probe"), peer("pleg"), used, on_new_pod)

    def status(self, pod: Pod, new_status: PodStatus, stage: status.Stage, *, spec_changed: bool) -> None:
        """Tell status the pod's status and stage. `spec_changed`: send the whole object."""
        uid = pod.metadata.uid
        with self.lock:
            new = uid not in self.pods
            self.pods[uid] = msgspec.structs.replace(pod, status=new_status)
            self.stages[uid] = stage
            if spec_changed:
                self.status_ref.tell(status.SetPod(pod=self.pods[uid], stage=stage))
            else:
                self.status_ref.tell(status.SetPodStatus(pod_uid=uid, status=new_status, stage=stage))
        if new:
            self.on_new_pod()

    def uses(self, pod: Pod) -> None:
        """Tell objects the objects that the pod refers to."""
        with self.lock:
            self.used_objects.set(pod)

    def users(self, changed: ObjectsChanged) -> list[str]:
        """UIDs of the pods that refer to a changed object."""
        with self.lock:
            return self.used_objects.all() if changed.full else self.used_objects.users(changed.refs)

    def probing(self, pod: probe.ProbedPod, *, again: bool) -> None:
        """Tell probe the pod's probes if they have changed, or if it is to probe `again` what is not ready."""
        with self.lock:
            if self.probed.get(pod.uid) == pod and not again:
                return
            self.probed[pod.uid] = pod
            self.probe_ref.tell(probe.SetPods(pods=(pod,)))

    def watch(self, new: pleg.Watch) -> None:
        """Tell pleg to watch the first process of a sandbox or container."""
        with self.lock:
            known = self.watches.setdefault(new.pod_uid, {})
            if known.get(new.id) == new:
                return
            known[new.id] = new
            self.pleg_ref.tell(pleg.WatchProcesses(watches=(new,)))

    def unwatch(self, pod_uid: str, exited_id: str) -> None:
        """Leave an exited process out of the next full re-send."""
        with self.lock:
            self.watches.get(pod_uid, {}).pop(exited_id, None)

    def forget(self, pod_uid: str) -> None:
        """Tell all peers to drop a pod of which nothing is left."""
        with self.lock:
            self.used_objects.forget(pod_uid)
            self.stages.pop(pod_uid, None)
            if self.pods.pop(pod_uid, None) is not None:
                self.status_ref.tell(status.RemovePod(pod_uid=pod_uid))
            if self.probed.pop(pod_uid, None) is not None:
                self.probe_ref.tell(probe.RemovePod(pod_uid=pod_uid))
            if self.watches.pop(pod_uid, None) is not None:
                self.pleg_ref.tell(pleg.ForgetPod(pod_uid=pod_uid))

    def resend(self, peer: str, *, full: bool) -> None:
        """Send a restarted peer all known pods. `full`: it may drop every other pod."""
        with self.lock:
            match peer:
                case "status" if full:
                    termination: dict[str, status.Stage] = {
                        uid: stage for uid, stage in self.stages.items() if stage != "sync"
                    }
                    self.status_ref.tell(status.SetPods(pods=tuple(self.pods.values()), stages=termination))
                case "status":
                    for uid, pod in self.pods.items():
                        self.status_ref.tell(status.SetPod(pod=pod, stage=self.stages[uid]))
                case "probe":
                    self.probe_ref.tell(probe.SetPods(pods=tuple(self.probed.values()), full=full))
                case "pleg":
                    watches = tuple(watch for pod in self.watches.values() for watch in pod.values())
                    self.pleg_ref.tell(pleg.WatchProcesses(watches=watches, full=full))
                case "objects":
                    self.used_objects.resend(full=full)


async def _not_known(_uid: str, _container_id: str) -> str:
    return ""


@dataclass
class WorkerContext:
    """Shared by all workers. The actor makes it once, in `assembly`."""

    settings: Settings
    cri: Cri
    timers: Timers
    published: Published
    images: RemoteRef
    volumes: RemoteRef
    objects: ObjectsRef
    container_gc: RemoteRef
    resources: RemoteRef
    managed: ManagedResources
    events: Recorder
    http_hooks: HttpHooks
    network: RuntimeNetwork
    blocking: Callable[..., Future[Any]]
    """`Actor.blocking`: deadline in seconds, function, arguments."""
    outlive_kill: Callable[[], Awaitable[None]]
    """`Checkpoint.outlive_kill`."""
    moves: MigrationPrewarm
    """Shortens the calls in which the runtime moves processes into cgroups."""
    allocated: ResourceState
    actuated: ResourceState
    crash_loop: Backoff
    """Delays before a container that ended starts again."""
    userns: UserNamespaces
    ends: Ends
    allocatable: Amounts
    """Allocatable resources of the node: milli CPUs, bytes."""
    runtime_name: str = "containerd"
    """The scheme of container IDs in statuses."""
    host_ips: tuple[str, ...] = ()
    """The Node's addresses. Until node has told them, the addresses that this machine finds."""
    host_ips_told: bool = True
    """False in a cluster until node has told them. Statuses keep the published ones before."""
    masked_paths: tuple[str, ...] = ()
    """Paths of this machine that containers must not read: its CPUs' `thermal_throttle`."""
    selinux: bool = False
    """The machine has SELinux, enforcing or permissive."""
    health: ResourceHealths = field(default_factory=ResourceHealths)
    """The health of devices that pods have."""
    starting: Semaphore = field(default_factory=lambda: Semaphore(START_WIDTH))
    stopping: Semaphore = field(default_factory=lambda: Semaphore(STOP_WIDTH))
    sandboxes: set[str] = field(default_factory=set)
    """UIDs of pods whose sandbox is being made or waits for its turn. Workers only add and discard: that is atomic."""
    back_offs: dict[tuple[str, str], RestartDelay] = field(default_factory=dict)
    """By pod UID and container name."""
    replaced: dict[str, dict[str, Replaced]] = field(default_factory=dict)
    """By pod UID and container name: what the last step killed to start it again. Inner dicts do not change."""
    restored: Collection[str] = frozenset()
    """UIDs of pods that come from the checkpoint alone, since the API server has not answered yet."""
    probes_known: bool = False
    """probe has sent its results since this actor started. No readiness is published before that."""
    missing_dns_reported: bool = False
    """An event of the node says that pods get no cluster DNS; without a cluster there is one such event."""
    on_terminated: Callable[[str], None] = lambda uid: None  # noqa: ARG005 - the signature
    """No process of the pod with this UID runs any more."""
    throttling: Callable[[str, str], Awaitable[str]] = _not_known
    """The text on a CPU limit that throttles a container, by pod UID and CRI ID; empty without throttling."""
    on_back_off: Callable[[], None] = lambda: None
    """`back_offs` or `replaced` changed: write the checkpoint soon."""
