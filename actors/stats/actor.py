"""The stats actor: measures what the node and its pods use, on request only.

Requests share a measurement when they arrive during it, or accept its age.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from actors._base import Actor, handles
from actors._base.messaging.futures import Future
from actors._base.shared import Shared
from actors._cri.errors import CriError
from actors._cri.relay import RelayedCri
from actors._host.files.disk_use import DiskUse
from actors.stats import inventory, measure, throttling
from actors.stats.policy import NO_USE, ContainerFigures, FileSystems, memory_available, pod_disks, pod_usages
from proto.node.stats import (
    Document,
    FsStats,
    GetExposition,
    GetNodeStats,
    GetPodUsages,
    GetSummary,
    GetThrottling,
    NodeStats,
    PodUsages,
    Throttling,
)
from proto.pods.volume import GetVolumeUsages, PodVolumeUsage
from proto.wire.errors import ActorError, AskTimeout, Refused

if TYPE_CHECKING:
    from actors.stats.pages.render import Pages

T = TypeVar("T")
log = logging.getLogger(__name__)

FILE_SYSTEM_S = 5.0
"""Deadline of one statvfs: a local disk answers in microseconds, a dead network one never."""
WALK_S = 20.0
"""Bound of one walk of logs and other files of pods.

The kubelet allows its volume statistics a minute; an eviction cannot wait so long.
"""
VOLUMES_S = 25.0
"""Deadline of the volume actor, which measures in the background when its figures are old."""


class Stats(Actor):
    """State: the latest measurements, none of which a restart needs."""

    name = "stats"
    asks = frozenset({"pleg", "volume"})

    async def rebuild(self) -> None:
        """Open nothing: the first request does."""
        endpoint = self.settings.container_runtime_endpoint
        self._cri = RelayedCri(self.peer("pleg")) if endpoint else None
        self._node: Shared[NodeStats] = Shared(self, self._measure_node, "node")
        self._pods: dict[tuple[bool, bool], Shared[PodUsages]] = {}
        self._image_path = self._container_path = ""
        self._disks_answer = True
        self._images: tuple[DiskUse, DiskUse | None] = (NO_USE, None)
        self._pages: Pages | None = None

    def describe(self) -> dict[str, Any]:
        """State for the console: the count of measurements, and the path of the image file system."""
        measured = self._node.runs + sum(kind.runs for kind in self._pods.values())
        return {"measurements": measured, "imagefs": self._image_path}

    @handles(GetNodeStats)
    async def get_node_stats(self, request: GetNodeStats) -> NodeStats:
        """Measure the node. Refused Unavailable when nodefs or the memory figures cannot be read."""
        return await self._result(self._node.get(request.max_age_s))

    @handles(GetPodUsages)
    async def get_pod_usages(self, request: GetPodUsages) -> PodUsages:
        """Measure the pods. Refused Unavailable when their cgroups cannot be read; the runtime's part may lack."""
        kind = (request.with_disk, request.with_containers)
        if kind not in self._pods:
            self._pods[kind] = Shared(self, lambda: self._measure_pods(*kind), "pods")
        return await self._result(self._pods[kind].get(request.max_age_s))

    @handles(GetSummary)
    async def get_summary(self, request: GetSummary) -> Document:
        """Make /stats/summary. Refused Unavailable when cgroups or nodefs cannot be read."""
        document = "cpu and memory" if request.only_cpu_and_memory else "summary"
        return Document(data=await self._result(self._documents().get(document, request.max_age_s)))

    @handles(GetExposition)
    async def get_exposition(self, request: GetExposition) -> Document:
        """Make a page of metrics from all that could be read."""
        return Document(data=await self._result(self._documents().get(request.page, request.max_age_s)))

    @handles(GetThrottling)
    async def get_throttling(self, request: GetThrottling) -> Throttling:
        """Read a container's cgroup twice. Refused Unavailable when cgroups cannot be read."""
        return await self._result(self._throttling(request.pod_uid, request.container_id))

    async def _throttling(self, uid: str, identity: str) -> Throttling:
        before = await self.blocking(FILE_SYSTEM_S, throttling.read, self.settings, uid, identity)
        if not throttling.is_limited(before):
            return Throttling()
        await self.sleep(throttling.WINDOW_S)
        after = await self.blocking(FILE_SYSTEM_S, throttling.read, self.settings, uid, identity)
        return throttling.throttling(before, after)

    async def _result(self, work: Coroutine[Any, None, T]) -> T:
        try:
            return await work
        except (OSError, AskTimeout) as error:
            raise Refused("Unavailable", f"cannot measure: {error}") from error

    def _documents(self) -> Pages:
        if self._pages is None:
            from actors.stats.pages.render import Disks, Pages  # noqa: PLC0415 - saves memory without scrapes

            self._pages = Pages(self, self._cri, Disks(self._file_systems, self._walk, self._volumes))
        return self._pages

    async def _file_systems(self) -> FileSystems:
        nodefs = await self.blocking(FILE_SYSTEM_S, measure.nearest_file_system, self.settings.root_dir)
        self._image_path = ""  # forces rpc ImageFsInfo, whose answer has the images' disk use too
        imagefs = await self._measure_imagefs()
        return FileSystems(nodefs, imagefs, await self._measure_containerfs(imagefs) or imagefs, *self._images)

    # The node

    async def _measure_node(self) -> NodeStats:
        nodefs, imagefs = await self._measure_disks()
        capacity, working_set = measure.memory()
        pids_max, pids_running = measure.processes()
        return NodeStats(
            time=time.time(),
            memory_capacity_bytes=capacity,
            memory_working_set_bytes=working_set,
            memory_available_bytes=memory_available(capacity, working_set),
            nodefs=nodefs,
            imagefs=imagefs,
            containerfs=await self._measure_containerfs(imagefs),
            pids_max=pids_max,
            pids_running=pids_running,
        )

    async def _measure_disks(self) -> tuple[FsStats, FsStats]:
        """Read both file systems in one call. After a failure each has a call of its own, until both answer."""
        root, images = self.settings.root_dir, self._image_path
        if images and self._disks_answer:
            try:
                return await self.blocking(FILE_SYSTEM_S, measure.two_file_systems, root, images)
            except (OSError, AskTimeout):
                self._disks_answer = False
        nodefs = await self.blocking(FILE_SYSTEM_S, measure.nearest_file_system, root)
        imagefs = await self._measure_imagefs()
        self._disks_answer = imagefs.capacity_bytes > 0
        return nodefs, imagefs

    async def _measure_imagefs(self) -> FsStats:
        """Read the image file system; measure.NO_FS while its path is unknown."""
        for _ in range(2):
            if not self._image_path:
                self._image_path = await self._find_images()
            if not self._image_path:
                break
            try:
                return await self.blocking(FILE_SYSTEM_S, measure.file_system, self._image_path)
            except (OSError, AskTimeout) as error:
                path, self._image_path = self._image_path, ""
                log.warning("cannot read the image file system at %s: %s; asking the runtime again", path, error)
        return measure.NO_FS

    async def _measure_containerfs(self, imagefs: FsStats) -> FsStats | None:
        """Read the disk of writable layers; None when it is imagefs. measure.NO_FS when it cannot be read.

        The kubelet compares mount points. Two directories on one device would count as two disks there.
        """
        path = self._container_path if imagefs.capacity_bytes else ""
        if not path or path == imagefs.path or not self.settings.separate_disk_gc:
            return None
        try:
            found: FsStats = await self.blocking(FILE_SYSTEM_S, measure.file_system, path)
        except (OSError, AskTimeout) as error:
            log.warning("cannot read the containers' file system at %s: %s; its signals are not known", path, error)
            self._image_path = ""  # asks the runtime again
            return measure.NO_FS
        return None if found.device == imagefs.device else found

    async def _find_images(self) -> str:
        if self._cri is None:
            return ""
        try:
            answer = await self._cri.image_fs_info()
        except CriError as error:
            log.info("cannot get the path of the image file system: %s", error)
            return ""
        self._images = measure.image_use(answer)
        self._container_path = measure.mount_point(answer.container_filesystems)
        return measure.mount_point(answer.image_filesystems)

    # Pods

    async def _measure_pods(self, with_disk: bool, with_containers: bool) -> PodUsages:
        # Together: one after the other they may take longer than an eviction waits.
        walking, asking = (self._walk(), self.spawn(self._volumes(), "volumes")) if with_disk else (None, None)
        cgroups = await self.blocking(FILE_SYSTEM_S, measure.pod_cgroups, self.settings)
        asked = with_disk or with_containers or not cgroups
        containers = await self._container_figures() if asked else None
        disks = pod_disks(await walking, await asking) if walking is not None and asking is not None else {}
        return PodUsages(time=time.time(), pods=pod_usages(cgroups, containers, disks))

    async def _container_figures(self) -> list[ContainerFigures] | None:
        """Figures of running containers; None when the runtime does not tell them.

        One list decides: a container that ends or is replaced between the two calls counts once. A container
        that starts between them is missed, and its layer is young.
        """
        if self._cri is None:
            return None
        try:
            running = {one.id for one in await inventory.running_containers(self._cri)}
            return measure.containers(await self._cri.list_container_stats(), running)
        except CriError as error:
            log.warning("cannot get container statistics from the runtime: %s; going on without them", error)
            return None

    async def _volumes(self) -> tuple[PodVolumeUsage, ...]:
        """Ask the volume actor: no other actor touches volumes."""
        try:
            return (await self.peer("volume").ask(GetVolumeUsages(), VOLUMES_S)).pods
        except ActorError as error:
            log.warning("cannot get the disk use of volumes: %s; going on without it", error)
            return ()

    def _walk(self) -> Future[dict[str, dict[str, DiskUse]]]:
        """Measure the pods' files in a new thread. It lowers its priority for good, as it may not raise it again."""
        future: Future[dict[str, dict[str, DiskUse]]] = Future()
        logs, root = self.settings.pod_logs_dir, self.settings.root_dir

        def work() -> None:
            try:
                future.set(measure.pod_files(logs, root, time.monotonic() + WALK_S))
            except BaseException as error:
                future.set_error(error)

        timer = self.bus.call_later(
            WALK_S + FILE_SYSTEM_S, lambda: future.set_error(AskTimeout("cannot count the pods' log files in time"))
        )
        future.add_done_callback(lambda _: timer.cancel())
        threading.Thread(target=work, name="walk", daemon=True).start()
        return future


ACTOR = Stats
