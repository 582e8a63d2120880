"""Stand-ins for the actors that pod_workers talks to. Each keeps the state that the real one keeps over a restart."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from actors._host.files import paths
from actors._host.files.listing import names
from actors._host.files.own_pods import OwnPods
from actors.container_gc import removal
from actors.container_gc.listing import container_views, sandbox_views
from actors.container_gc.policy import Limits, Pods, containers_to_remove, sandboxes_to_remove
from actors.pleg import listing
from actors.pleg.policy import Snapshot, changes
from actors.status.policy import ended_with
from proto.cri import api_pb2 as pb
from proto.node.image_pull import EnsureImage, ExpectImages, ImageEnsured
from proto.pods import objects, pleg, pod_workers, probe, status, volume
from proto.v1 import Pod
from proto.wire.errors import Refused
from proto.wire.message import Done, Message

if TYPE_CHECKING:
    from tests.model.world import World

RELIST_S = 10.0
PROBED_AFTER_S = 1.0


class StandIn:
    """One actor. It handles a message in the method `on_` plus its type; other tells are ignored."""

    name: ClassVar[str]
    answer_s: ClassVar[float] = 0.001

    def __init__(self, world: World) -> None:
        self.world = world
        self.incarnation = 1
        self.fault: Callable[[Message], Exception | None] = lambda _: None
        """The error of the next ask; None: it succeeds."""

    def tell(self, message: Message) -> None:
        handler = getattr(self, f"on_{type(message).__name__}", None)
        if handler is not None:
            handler(message)

    def ask(self, request: Message) -> Message:
        error = self.fault(request)
        if error is not None:
            raise error
        handler: Callable[[Message], Message] = getattr(self, f"on_{type(request).__name__}")
        return handler(request)

    def restart(self) -> None:
        """Killed and restarted: state in memory is lost."""
        self.incarnation += 1

    def pod_workers_started(self) -> None:
        """Send a new pod_workers the messages that it needs."""


class Status(StandIn):
    name = "status"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pods: dict[str, Pod] = {}

    def _set(self, pod: Pod) -> None:
        self.world.invariants.published(pod)
        self.pods[pod.metadata.uid] = pod

    def _forget(self, uid: str) -> None:
        if self.pods.pop(uid, None) is not None:
            self.world.invariants.forgotten(uid)

    def on_SetPod(self, message: status.SetPod) -> None:  # noqa: N802
        self._set(message.pod)

    def on_SetPods(self, message: status.SetPods) -> None:  # noqa: N802
        for uid in self.pods.keys() - {pod.metadata.uid for pod in message.pods}:
            self._forget(uid)
        for pod in message.pods:
            self._set(pod)

    def on_SetPodStatus(self, message: status.SetPodStatus) -> None:  # noqa: N802
        pod = self.pods.get(message.pod_uid)
        if pod is not None:
            self._set(msgspec.structs.replace(pod, status=message.status))

    def on_RemovePod(self, message: status.RemovePod) -> None:  # noqa: N802
        kept = self.pods.get(message.pod_uid)
        if not message.reason or (kept and ended_with(kept.status, message.reason, message.message)):
            self._forget(message.pod_uid)

    def on_ListPods(self, _: status.ListPods) -> status.Pods:  # noqa: N802
        return status.Pods(pods=tuple(self.pods.values()))


class Pleg(StandIn):
    """Uses the policy of the real pleg."""

    name = "pleg"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.watches: dict[str, pleg.Watch] = {}
        self.told: set[str] = set()
        self.listed: Snapshot | None = None
        self.relayed = 0
        """Calls of the runtime."""
        world.clock.call_later(RELIST_S, self._relist)

    def restart(self) -> None:
        super().restart()
        self.watches, self.told, self.listed = {}, set(), None

    def on_CallRuntime(self, call: pleg.CallRuntime) -> pleg.RuntimeAnswer:  # noqa: N802
        assert call.rpc == "Status", "pod_workers calls the runtime itself otherwise"
        self.relayed += 1
        return pleg.RuntimeAnswer(response=self.world.runtime.Status(pb.StatusRequest()).SerializeToString())

    def on_WatchProcesses(self, message: pleg.WatchProcesses) -> None:  # noqa: N802
        if message.full:
            wanted = {watch.id for watch in message.watches}
            self.watches = {id_: watch for id_, watch in self.watches.items() if id_ in wanted}
        gone = []
        for watch in message.watches:
            self.told.discard(watch.id)
            if watch.pid and not self.world.runtime.alive(watch.pid):
                gone.append(watch)
                self.watches.pop(watch.id, None)
            else:
                self.watches[watch.id] = watch
        self._tell_ended(gone)

    def on_ForgetPod(self, message: pleg.ForgetPod) -> None:  # noqa: N802
        self.watches = {id_: watch for id_, watch in self.watches.items() if watch.pod_uid != message.pod_uid}
        if self.listed is not None:
            self.listed = {id_: one for id_, one in self.listed.items() if one.pod_uid != message.pod_uid}

    def process_ended(self, pid: int) -> None:
        ended = [watch for watch in self.watches.values() if watch.pid == pid]
        for watch in ended:
            del self.watches[watch.id]
        self._tell_ended(ended)

    def _tell_ended(self, ended: Iterable[pleg.Watch]) -> None:
        by_pod: defaultdict[str, list[str]] = defaultdict(list)
        for watch in ended:
            by_pod[watch.pod_uid].append(watch.id)
            self.told.add(watch.id)
        for uid, ids in by_pod.items():
            self.world.tell_pod_workers(self.name, pod_workers.PodChanged(pod_uid=uid, exited=tuple(ids)))

    def _relist(self) -> None:
        self.world.clock.call_later(RELIST_S, self._relist)
        runtime = self.world.runtime
        now = listing.snapshot(
            runtime.ListPodSandbox(pb.ListPodSandboxRequest()).items,
            runtime.ListContainers(pb.ListContainersRequest()).containers,
        )
        found = changes(self.listed, now, {id_: one.pod_uid for id_, one in self.watches.items()}, self.told)
        self.listed = now
        self.told |= found.ended
        self.told &= now.keys() | self.watches.keys()
        for uid in sorted(found.pod_uids):
            self.world.tell_pod_workers(self.name, pod_workers.PodChanged(pod_uid=uid))


class Probe(StandIn):
    """Probes every container once, a second after its start, and again whenever `world.health` changes."""

    name = "probe"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pods: dict[str, probe.ProbedPod] = {}
        self.results: dict[tuple[str, str], pod_workers.ProbeResult] = {}
        self.told = 0
        """The number of times that a pod was sent."""

    def restart(self) -> None:
        super().restart()
        self.pods = {}

    def pod_workers_started(self) -> None:
        message = pod_workers.ProbeResults(results=tuple(self.results.values()), full=True)
        self.world.tell_pod_workers(self.name, message)

    def on_GetResults(self, _: probe.GetResults) -> probe.Results:  # noqa: N802
        return probe.Results(results=tuple(self.results.values()))

    def on_SetPods(self, message: probe.SetPods) -> None:  # noqa: N802
        if message.full:
            self.pods = {}
        for pod in message.pods:
            self.pods[pod.uid] = pod
            self.told += 1
        self.world.clock.call_later(PROBED_AFTER_S, self.look)

    def on_RemovePod(self, message: probe.RemovePod) -> None:  # noqa: N802
        self.pods.pop(message.pod_uid, None)
        self.results = {key: one for key, one in self.results.items() if one.pod_uid != message.pod_uid}

    def look(self) -> None:
        """One round of all probes."""
        changed = []
        for pod in self.pods.values():
            for container in pod.containers:
                if container.running:
                    changed += self._probe(pod, container)
        if changed:
            self.world.tell_pod_workers(self.name, pod_workers.ProbeResults(results=tuple(changed)))

    def _probe(self, pod: probe.ProbedPod, container: probe.ProbedContainer) -> list[pod_workers.ProbeResult]:
        changed = []
        kinds = ["startup"] if container.startup is not None else []
        standing = self.results.get((container.container_id, "startup"))
        if container.startup is None or (standing is not None and standing.result == "success"):
            kinds = ["liveness", "readiness"]
        for kind in kinds:
            if getattr(container, kind) is None or (pod.terminating and kind != "readiness"):
                continue
            healthy = self.world.health.get((container.name, kind), True)
            result = pod_workers.ProbeResult(
                pod_uid=pod.uid,
                container=container.name,
                container_id=container.container_id,
                probe=kind,
                result="success" if healthy else "failure",
            )
            if self.results.get((container.container_id, kind)) != result:
                self.results[container.container_id, kind] = result
                changed.append(result)
        if changed and kinds == ["startup"]:
            self.world.clock.call_later(PROBED_AFTER_S, self.look)
        return changed


class Volume(StandIn):
    name = "volume"
    answer_s = 0.01

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.mounted: set[str] = set()
        self.refuses: Refused | None = None
        self.ending: set[str] = set()

    def on_PodEnding(self, message: volume.PodEnding) -> None:  # noqa: N802
        self.ending.add(message.pod_uid)

    def on_MountPod(self, request: volume.MountPod) -> volume.PodMounted:  # noqa: N802
        if self.refuses is not None:
            raise self.refuses
        self.mounted.add(request.pod.metadata.uid)
        return volume.PodMounted(host_paths={one.name: f"/v/{one.name}" for one in request.pod.spec.volumes})

    def on_UnmountPod(self, request: volume.UnmountPod) -> Done:  # noqa: N802
        self.world.invariants.unmounted(request.pod_uid, announced=request.pod_uid in self.ending)
        self.mounted.discard(request.pod_uid)
        return Done()


class Images(StandIn):
    name = "image_pull"
    answer_s = 0.02

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.expected: list[ExpectImages] = []

    def on_ExpectImages(self, message: ExpectImages) -> None:  # noqa: N802
        self.expected.append(message)

    def on_EnsureImage(self, request: EnsureImage) -> ImageEnsured:  # noqa: N802
        if request.image in self.world.no_images:
            raise Refused("ErrImagePull", f"cannot pull {request.image}")
        digest = hashlib.sha256(request.image.encode()).hexdigest()
        return ImageEnsured(image_ref=f"sha256:{digest}", user="0")


class Objects(StandIn):
    name = "objects"

    def on_GetObjects(self, request: objects.GetObjects) -> objects.Objects:  # noqa: N802
        return objects.Objects(missing=tuple(ref for ref in request.refs if ref.name))


class ContainerGc(StandIn):
    """A full pass every minute, with the policy of the real container_gc."""

    name = "container_gc"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._every_minute()

    def _every_minute(self) -> None:
        self.world.clock.call_later(60.0, self._every_minute)
        self.collect()

    def collect(self) -> None:
        """One pass; none while pod_workers does not answer."""
        process, runtime = self.world.process, self.world.runtime
        if process is None or not process.bus.ready:
            return
        containers = container_views(runtime.ListContainers(pb.ListContainersRequest()).containers, "/logs")
        sandboxes = sandbox_views(runtime.ListPodSandbox(pb.ListPodSandboxRequest()).items)
        root, volumes = self.world.settings.root_dir, self.world.peers["volume"]
        own, directories = OwnPods(root), names(paths.pods_dir(root))
        marked = own.among([*directories, *(one.pod_uid for one in (*containers, *sandboxes))])
        # A mounted volume is in its pod's directory, which this model's do not make.
        pods = Pods.of(process.actor.on_list(pod_workers.ListPodWorkers()), marked | set(volumes.mounted))
        for one in containers_to_remove(containers, pods, Limits(), self.world.clock.now):
            self.world.remove(one.id)
        holding = {one.sandbox.id for one in runtime.containers.values()}
        for sandbox in sandboxes_to_remove(sandboxes, holding.__contains__, pods):
            self.world.remove(sandbox.id)
        for uid in [uid for uid in volumes.mounted if pods.is_gone(uid)]:
            volumes.on_UnmountPod(volume.UnmountPod(pod_uid=uid))
        held = {one.uid for one in runtime.sandboxes.values()}
        gone = [uid for uid in directories if pods.is_gone(uid) and uid not in held]
        removal.remove_pod_directories(root, gone, own.note_removed)


class Other(StandIn):
    """A peer that ignores all messages."""

    name = "other"


KINDS = (Status, Pleg, Probe, Volume, Images, Objects, ContainerGc)


def all_of(world: World) -> dict[str, Any]:
    """By name."""
    found: dict[str, Any] = {kind.name: kind(world) for kind in KINDS}
    return found | {name: Other(world) for name in ("events", "resources", "supervisor")}
