"""The container_gc actor with its directories and cgroups, and containers and sandboxes for its runtime."""

import uuid
from pathlib import Path
from typing import Any

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.quantities.resources import PodLimits
from proto.cri import api_pb2 as pb
from proto.node.container_gc import PodTerminated
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import ListPodWorkers, PodWorkerState, PodWorkerStates
from proto.pods.volume import UnmountPod
from proto.wire.errors import Refused
from proto.wire.message import Done
from tests.harness import ActorProcess, wait_for

ALONE = "from actors.container_gc import actor as container_gc; container_gc.FIRST_PASS_S = 3600.0\n"
"""Prevents periodic passes, so that only the requested ones run."""
NO_PASS = ALONE + "container_gc.COALESCE_S = 3600.0\n"


class Node:
    """The actor under test with its directories, its cgroups, and the pod workers' states."""

    def __init__(self, directory: Path, endpoint: str, *, prelude: str = ALONE, **settings: Any) -> None:
        self.logs, self.links = directory / "logs", directory / "links"
        self.root = directory / "root"
        for path in (self.logs, self.links, self.root):
            path.mkdir()
        self.cgroup_root = f"/nvtest-{uuid.uuid4().hex[:8]}"
        self.workers: dict[str, PodWorkerState] = {}
        self.sources_ready = True
        self.waiting: tuple[str, ...] = ()
        self.actor = ActorProcess(
            "container_gc",
            None,
            ("pod_workers", "volume", "pleg", "events"),
            container_runtime_endpoint=endpoint,
            root_dir=str(self.root),
            pod_logs_dir=str(self.logs),
            container_logs_dir=str(self.links),
            cgroup_root=self.cgroup_root,
            prelude=prelude,
            **{"container_gc_period_s": 3600.0} | settings,
        )
        self.actor.peers["pod_workers"].answers[ListPodWorkers] = lambda _: PodWorkerStates(
            pods=tuple(self.workers.values()), sources_ready=self.sources_ready, waiting=self.waiting
        )
        self.actor.peers["volume"].answers[UnmountPod] = self.unmount
        self.unmounts = True

    def unmount(self, request: UnmountPod) -> Done:
        if not self.unmounts:
            raise Refused("FailedUnmount", "it is busy")
        for path in (self.root / "pods" / request.pod_uid / "volumes").rglob("v"):
            path.rmdir()
        return Done()

    def worker(self, uid: str, stage: Any = "sync", *, deleted: bool = False) -> None:
        self.workers[uid] = PodWorkerState(
            uid=uid, namespace="ns", name=f"p-{uid}", stage=stage, deleted=deleted, released=deleted, static=True
        )

    def leave(self, uid: str, *, volume: bool = False) -> None:
        """Create a pod's directory, logs, log link and cgroup."""
        (self.root / "pods" / uid / "containers/main").mkdir(parents=True)
        (self.root / "pods" / uid / "etc-hosts").write_text("x")
        if volume:
            (self.root / "pods" / uid / "volumes/kubernetes.io~empty-dir/v").mkdir(parents=True)
        log = self.logs / f"ns_p-{uid}_{uid}" / "main/0.log"
        log.parent.mkdir(parents=True)
        log.write_text("x")
        (self.links / f"p-{uid}_ns_main-{'a' * 64}.log").symlink_to(log)
        fs.create(f"{self.cgroup_root}/kubepods/besteffort/pod{uid}", PodLimits(cpu_shares=2), hierarchy())

    def left(self) -> dict[str, list[str]]:
        """Return place to UIDs of pods with something there."""
        return {
            "pods": sorted(path.name for path in self.root.glob("pods/*")),
            "logs": sorted(path.name.rpartition("_")[2] for path in self.logs.iterdir()),
            "links": sorted(path.name.partition("_")[0].removeprefix("p-") for path in self.links.iterdir()),
            "cgroups": sorted(fs.list_pod_cgroups(self.actor.settings)),
        }

    def terminated(self, uid: str) -> None:
        self.actor.tell(PodTerminated(pod_uid=uid, pod_namespace="ns", pod_name=f"p-{uid}"))


def everywhere(*uids: str) -> dict[str, list[str]]:
    return {where: sorted(uids) for where in ("pods", "logs", "links", "cgroups")}


def nowhere() -> dict[str, list[str]]:
    return everywhere()


def recorded(node: Node, reason: str, count: int = 1) -> list[RecordEvent]:
    """So many events of a reason: the first of all may come after the answer that it was sent before."""

    def found() -> list[RecordEvent]:
        return [one for one in node.actor.peers["events"].of(RecordEvent) if one.reason == reason]

    wait_for(lambda: len(found()) >= count, 10, f"{count} events {reason}")
    return found()


def container(uid: str, attempt: int, state: Any = pb.CONTAINER_EXITED, name: str = "main") -> pb.Container:
    return pb.Container(
        id=f"{uid}-{name}-{attempt}",
        pod_sandbox_id=f"sandbox-{uid}",
        metadata=pb.ContainerMetadata(name=name, attempt=attempt),
        state=state,
        created_at=1_000_000_000 + attempt,
        labels={
            "io.kubernetes.pod.uid": uid,
            "io.kubernetes.pod.name": f"p-{uid}",
            "io.kubernetes.pod.namespace": "ns",
            "io.kubernetes.container.name": name,
        },
        annotations={"io.kubernetes.container.restartCount": str(attempt)},
    )


def sandbox(uid: str, *, ready: bool) -> pb.PodSandbox:
    state = pb.SANDBOX_READY if ready else pb.SANDBOX_NOTREADY
    labels = {"io.kubernetes.pod.uid": uid}
    return pb.PodSandbox(id=f"sandbox-{uid}", state=state, labels=labels, metadata=pb.PodSandboxMetadata(uid=uid))
