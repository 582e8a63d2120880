"""The eviction actor as a process; stats, image_gc, container_gc and pod_workers are stand-ins."""

import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from proto.node.container_gc import Collected as CollectedContainers
from proto.node.container_gc import CollectGarbage
from proto.node.eviction import GetPressure, Pressure
from proto.node.image_gc import Collected as CollectedImages
from proto.node.image_gc import DeleteUnusedImages
from proto.node.stats import FsStats, GetNodeStats, GetPodUsages, NodeStats, PodUsage, PodUsages, VolumeUse
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import EvictPod, ListPodWorkers, PodWorkerState, PodWorkerStates, SetNodePressure
from proto.v1 import Pod, from_dict
from proto.wire.errors import Refused
from proto.wire.message import Done
from tests.harness import ActorProcess, wait_for

GIB = 1 << 30


class FakeNode:
    """A node whose figures the test sets, and whose pods end when they are evicted."""

    def __init__(self, *, prelude: str = "", **settings: Any) -> None:
        self.memory_available = 8 * GIB
        self.disk_available = 80 * GIB
        self.imagefs_device = 1
        self.containerfs_device = 0
        """0: writable layers are on imagefs."""
        self.containers_available = 80 * GIB
        self.freed_by_images = 0
        self.pods: dict[str, PodWorkerState] = {}
        self.sources_ready = True
        self.usages: dict[str, int] = {}
        self.volumes: dict[str, int] = {}
        """UID to the bytes in the pod's volume `v`."""
        self.order: list[str] = []
        """The requests that the actor made, in order."""
        self._staging = threading.Lock()
        self.actor = ActorProcess(
            "eviction",
            None,
            ("stats", "image_gc", "container_gc", "pod_workers", "events"),
            prelude=prelude,
            **{
                "eviction_monitoring_period_s": 0.05,
                "eviction_pressure_transition_period_s": 0.0,
                "eviction_hard": {"memory.available": "1Gi", "nodefs.available": "10%"},
                "enforce_node_allocatable": (),
            }
            | settings,
        )
        self.directories = Path(self.actor.settings.root_dir, "pods")
        self.directories.mkdir(parents=True)
        peers = self.actor.peers
        peers["stats"].answers = {GetNodeStats: self.node, GetPodUsages: self.measure}
        peers["container_gc"].answers[CollectGarbage] = self.collect_containers
        peers["image_gc"].answers[DeleteUnusedImages] = self.delete_images
        peers["pod_workers"].answers = {
            ListPodWorkers: lambda request: PodWorkerStates(
                pods=tuple(row for uid, row in list(self.pods.items()) if not request.uids or uid in request.uids),
                sources_ready=self.sources_ready,
            ),
            EvictPod: self.evict,
        }

    def node(self, _: GetNodeStats) -> NodeStats:
        def fs(device: int, available: int) -> FsStats:
            return FsStats(
                path="/",
                device=device,
                capacity_bytes=100 * GIB,
                available_bytes=available,
                inodes=100,
                inodes_free=100,
            )

        return NodeStats(
            time=time.time(),
            memory_capacity_bytes=16 * GIB,
            memory_working_set_bytes=16 * GIB - self.memory_available,
            memory_available_bytes=self.memory_available,
            nodefs=fs(1, self.disk_available),
            imagefs=fs(self.imagefs_device, self.disk_available),
            containerfs=fs(self.containerfs_device, self.containers_available) if self.containerfs_device else None,
        )

    def measure(self, request: GetPodUsages) -> PodUsages:
        self.order.append("disk usages" if request.with_disk else "usages")
        volumes = dict(self.volumes)  # a test may add one meanwhile
        pods = (
            PodUsage(
                pod_uid=uid,
                memory_working_set_bytes=n,
                disk_bytes=n,
                volumes=(VolumeUse(name="v", used_bytes=volumes[uid]),) if uid in volumes else (),
            )
            for uid, n in list(self.usages.items())
        )
        return PodUsages(time=time.time(), pods=tuple(pods))

    def collect_containers(self, request: CollectGarbage) -> CollectedContainers:
        self.order.append(f"containers {request.all_dead}")
        return CollectedContainers(containers=0, sandboxes=0, directories=0)

    def delete_images(self, _: DeleteUnusedImages) -> CollectedImages:
        self.order.append("images")
        self.disk_available += self.freed_by_images
        return CollectedImages(freed_bytes=self.freed_by_images)

    def evict(self, request: EvictPod) -> Done:
        if request.pod_uid not in self.pods:
            raise Refused("NotFound", "no such pod")
        self.order.append(f"evict {request.pod_uid}")
        with self._staging:  # a test sees the request before this, and may have ended the pod since
            if self.pods[request.pod_uid].stage != "terminated":
                self.pods[request.pod_uid] = msgspec.structs.replace(self.pods[request.pod_uid], stage="terminating")
        return Done()

    def stage(self, uid: str, stage: Any, *, released: bool = False) -> None:
        with self._staging:
            self.pods[uid] = msgspec.structs.replace(self.pods[uid], stage=stage, released=released)

    def pod(self, uid: str, use: int, *, priority: int = 0, source: str = "api", limit: str = "", **state: Any) -> None:
        """Add a pod with its usage and directory. `limit`: of the size of its emptyDir `v`. `state`: of its worker."""
        volumes = [{"name": "v", "emptyDir": {"sizeLimit": limit}}] if limit else []
        pod = from_dict(
            Pod,
            {
                "metadata": {
                    "name": f"p-{uid}",
                    "namespace": "ns",
                    "uid": uid,
                    "annotations": {"kubernetes.io/config.source": source},
                },
                "spec": {"containers": [{"name": "c"}], "priority": priority, "volumes": volumes},
            },
        )
        (self.directories / uid).mkdir(exist_ok=True)
        known: dict[str, Any] = {"stage": "sync", "deleted": False, **state}
        self.pods[uid] = PodWorkerState(uid=uid, namespace="ns", name=f"p-{uid}", static=False, pod=pod, **known)
        self.usages[uid] = use

    def pressure(self) -> Pressure:
        return self.actor.ask(GetPressure())

    def told(self) -> list[tuple[str, ...]]:
        return [tuple(message.conditions) for message in self.actor.peers["pod_workers"].of(SetNodePressure)]

    def events(self) -> list[tuple[str, str, str, str]]:
        """(kind of object, type, reason, message)"""
        found = self.actor.peers["events"].of(RecordEvent)
        return [(one.involved.kind or "", one.type, one.reason, one.message) for one in found]

    def annotations(self) -> list[dict[str, str]]:
        """Annotations of the Evicted events."""
        return [one.annotations for one in self.actor.peers["events"].of(RecordEvent) if one.reason == "Evicted"]

    def looks(self) -> int:
        """The number of the actor's requests for stages of pods that it evicts."""
        return sum(not one.with_pods for one in self.actor.peers["pod_workers"].of(ListPodWorkers))

    def evictions(self) -> list[EvictPod]:
        return self.actor.peers["pod_workers"].of(EvictPod)


def pass_looks(fake: FakeNode, number: int = 4) -> None:
    """Wait until the actor has looked at the node a few times more."""
    stats = fake.actor.peers["stats"]
    looks = len(stats.of(GetNodeStats))
    wait_for(lambda: len(stats.of(GetNodeStats)) > looks + number, 10, "looks")
