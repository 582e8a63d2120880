"""The stats actor: answers what the node and its pods use, measuring only when asked and at most as often as needed.

Nothing runs while nobody asks. Questions that come during a measurement share it.
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
from actors.stats import logs, measure
from actors.stats.policy import NOTHING, ContainerFigures, memory_available, pod_disks, pod_usages
from proto.node.stats import (
    Document,
    FsStats,
    GetExposition,
    GetNodeStats,
    GetPodUsages,
    GetSummary,
    NodeStats,
    PodUsages,
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
"""The kubelet's volume statistics take a minute for each walk; an eviction that waits for this one cannot."""


VOLUMES_S = 25.0
"""The volume actor measures in the background when its figures are old."""


class Stats(Actor):
    """State: the latest measurements. Nothing to bring back after a restart."""

    name = "stats"
    asks = frozenset({"pleg", "volume"})

    async def rebuild(self) -> None:
        """Opens nothing: the first question does."""
        endpoint = self.settings.container_runtime_endpoint
        self._cri = RelayedCri(self.peer("pleg")) if endpoint else None
        self._node: Shared[NodeStats] = Shared(self, self._measure_node, "node")
        self._pods: dict[tuple[bool, bool], Shared[PodUsages]] = {}
        self._image_path = ""
        self._images: tuple[DiskUse, DiskUse | None] = (NOTHING, None)
        self._pages: Pages | None = None

    def describe(self) -> dict[str, Any]:
        """How often was measured, and where images are."""
        measured = self._node.runs + sum(kind.runs for kind in self._pods.values())
        return {"measurements": measured, "imagefs": self._image_path}

    @handles(GetNodeStats)
    async def get_node_stats(self, request: GetNodeStats) -> NodeStats:
        """Refused Unavailable when nodefs or the memory figures cannot be read."""
        return await self._result(self._node.get(request.max_age_s))

    @handles(GetPodUsages)
    async def get_pod_usages(self, request: GetPodUsages) -> PodUsages:
        """Refused Unavailable when the pods' cgroups cannot be read; without the runtime, its part is missing."""
        kind = (request.with_disk, request.with_containers)
        if kind not in self._pods:
            self._pods[kind] = Shared(self, lambda: self._measure_pods(*kind), "pods")
        return await self._result(self._pods[kind].get(request.max_age_s))

    @handles(GetSummary)
    async def get_summary(self, request: GetSummary) -> Document:
        """Refused Unavailable when cgroups or nodefs cannot be read."""
        document = "cpu and memory" if request.only_cpu_and_memory else "summary"
        return Document(data=await self._result(self._documents().get(document, request.max_age_s)))

    @handles(GetExposition)
    async def get_exposition(self, request: GetExposition) -> Document:
        """The text, whatever could be read."""
        return Document(data=await self._result(self._documents().get(request.page, request.max_age_s)))

    async def _result(self, work: Coroutine[Any, None, T]) -> T:
        try:
            return await work
        except (OSError, AskTimeout) as error:
            raise Refused("Unavailable", f"cannot measure: {error}") from error

    def _documents(self) -> Pages:
        if self._pages is None:
            from actors.stats.pages.render import Disks, Pages  # noqa: PLC0415 - an agent that nobody scrapes needs none of it

            self._pages = Pages(self, self._cri, Disks(self._file_systems, self._walk_logs, self._volumes))
        return self._pages

    async def _file_systems(self) -> tuple[FsStats, FsStats, tuple[DiskUse, DiskUse | None]]:
        nodefs = await self.blocking(FILE_SYSTEM_S, measure.nearest, self.settings.root_dir)
        self._image_path = ""  # what images take is in the answer that says where they are
        return nodefs, await self._measure_imagefs(), self._images

    async def _walk_logs(self) -> dict[str, dict[str, DiskUse]]:
        return await self._walk()

    # The node

    async def _measure_node(self) -> NodeStats:
        nodefs = await self.blocking(FILE_SYSTEM_S, measure.nearest, self.settings.root_dir)
        imagefs = await self._measure_imagefs()
        capacity, working_set = measure.memory()
        pids_max, pids_running = measure.processes()
        return NodeStats(
            time=time.time(),
            memory_capacity_bytes=capacity,
            memory_working_set_bytes=working_set,
            memory_available_bytes=memory_available(capacity, working_set),
            nodefs=nodefs,
            imagefs=imagefs,
            pids_max=pids_max,
            pids_running=pids_running,
        )

    async def _measure_imagefs(self) -> FsStats:
        """measure.NO_FS while neither the runtime nor an earlier answer tells where images are."""
        for _ in range(2):
            if not self._image_path:
                self._image_path = await self._find_images()
            if not self._image_path:
                break
            try:
                return await self.blocking(FILE_SYSTEM_S, measure.file_system, self._image_path)
            except (OSError, AskTimeout) as error:
                log.warning("cannot read the image file system at %s: %s; asking the runtime anew", *self._took(error))
        return measure.NO_FS

    def _took(self, error: Exception) -> tuple[str, Exception]:
        path, self._image_path = self._image_path, ""
        return path, error

    async def _find_images(self) -> str:
        if self._cri is None:
            return ""
        try:
            answer = await self._cri.image_fs_info()
        except CriError as error:
            log.info("cannot learn where images are: %s", error)
            return ""
        self._images = measure.image_use(answer)
        return measure.image_mount_point(answer)

    # Pods

    async def _measure_pods(self, with_disk: bool, with_containers: bool) -> PodUsages:
        walking = self._walk() if with_disk else None
        cgroups = await self.blocking(FILE_SYSTEM_S, measure.pod_cgroups, self.settings)
        asked = with_disk or with_containers or not cgroups
        containers = await self._container_figures() if asked else []
        disks = pod_disks(await walking, await self._volumes()) if walking is not None else {}
        return PodUsages(time=time.time(), pods=pod_usages(cgroups, containers, disks))

    async def _container_figures(self) -> list[ContainerFigures]:
        if self._cri is None:
            return []
        try:
            return measure.containers(await self._cri.list_container_stats())
        except CriError as error:
            log.warning("cannot get container statistics from the runtime: %s; going on without them", error)
            return []

    async def _volumes(self) -> tuple[PodVolumeUsage, ...]:
        """From the volume actor, which alone touches volumes."""
        try:
            return (await self.peer("volume").ask(GetVolumeUsages(), VOLUMES_S)).pods
        except ActorError as error:
            log.warning("cannot learn what volumes take: %s; going on without them", error)
            return ()

    def _walk(self) -> Future[dict[str, dict[str, DiskUse]]]:
        """In a thread that ends with the walk: it lowers its own priority, which it may not be able to raise again."""
        future: Future[dict[str, dict[str, DiskUse]]] = Future()
        directory = self.settings.pod_logs_dir

        def work() -> None:
            try:
                future.set(logs.pod_logs(directory, time.monotonic() + WALK_S))
            except BaseException as error:
                future.set_error(error)

        timer = self.bus.call_later(
            WALK_S + FILE_SYSTEM_S, lambda: future.set_error(AskTimeout("the pods' files could not be counted in time"))
        )
        future.add_done_callback(lambda _: timer.cancel())
        threading.Thread(target=work, name="walk", daemon=True).start()
        return future


ACTOR = Stats
