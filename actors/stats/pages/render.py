"""Makes the documents /stats/summary, /metrics/resource and /metrics/cadvisor.

All three come from one reading of the cgroups, made in a thread and shared by requests that accept its age. The disk
figures cost most (a call of the runtime, walks), so they are kept for longer, as in the kubelet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec

from actors._base.actor import Actor
from actors._base.shared import Shared
from actors._cgroup.figures import Figures
from actors._cgroup.hierarchy import hierarchy
from actors._cri.client import CriCalls
from actors._cri.errors import CriError
from actors._host.disks import device_path
from actors._host.files.disk_use import DiskUse
from actors._host.open_files import Counter
from actors.stats import measure, reading
from actors.stats.inventory import Inventory
from actors.stats.pages import cadvisor, hardware, resource, summary
from actors.stats.pages.one_thread import OneThread
from actors.stats.policy import FileSystems
from actors.stats.rates import MIN_INTERVAL_S, Rates
from actors.stats.reading import PodCgroups, Reading
from proto.pods.volume import PodVolumeUsage
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

READ_S = 20.0
"""Deadline of one reading, which takes milliseconds on a healthy machine."""
DISK_S = 10.0
"""Age of disk figures that is accepted: containerd itself measures writable layers every 10 s."""
KEPT_S = 5.0
"""Time after which a document is dropped: requests that can share one come together."""
SECOND_READING_S = MIN_INTERVAL_S + 0.1


@dataclass(frozen=True)
class Disks:
    """The actor's functions that measure disks."""

    file_systems: Callable[[], Awaitable[FileSystems]]
    logs: Callable[[], Awaitable[dict[str, dict[str, DiskUse]]]]
    """Disk use of logs by pod UID and container."""
    volumes: Callable[[], Awaitable[tuple[PodVolumeUsage, ...]]]


class Pages:
    """State: the latest readings, CPU rates and documents, and the inventory of cgroups. For the actor's thread."""

    def __init__(self, actor: Actor, cri: CriCalls | None, disks: Disks) -> None:
        self._actor, self._cri, self._disks = actor, cri, disks
        self._thread = OneThread(actor)
        self._inventory = Inventory(cri)
        self._rates = Rates()
        self._nano_cores: dict[str, int] = {}
        self._reading: Shared[Reading] = Shared(actor, lambda: self._read(detailed=False), "reading")
        self._detailed: Shared[Reading] = Shared(actor, lambda: self._read(detailed=True), "detailed reading")
        self._disk: Shared[summary.Disk] = Shared(actor, self._measure_disk, "disks")
        self._documents: dict[str, Shared[bytes]] = {
            "summary": Shared(actor, lambda: self._summary(with_disk=True), "summary"),
            "cpu and memory": Shared(actor, lambda: self._summary(with_disk=False), "summary"),
            "resource": Shared(actor, self._resource, "resource"),
            "cadvisor": Shared(actor, self._cadvisor, "cadvisor"),
        }

    async def get(self, document: str, max_age_s: float) -> bytes:
        """Make `summary`, `cpu and memory`, `resource` or `cadvisor`. The first two raise OSError and AskTimeout."""
        found = await self._documents[document].get(max_age_s)
        self._actor.after(KEPT_S + 1.0, self._forget)
        return found

    def _forget(self) -> None:
        """Drop old documents and readings: they take megabytes."""
        kept: tuple[Shared[Any], ...] = (*self._documents.values(), self._detailed, self._reading)
        for one in kept:
            one.forget(KEPT_S)

    # Readings

    async def _read(self, *, detailed: bool) -> Reading:
        settings, tree = self._actor.settings, hierarchy()
        found: PodCgroups = await self._thread.run(READ_S, reading.find, settings, tree)
        # Containers of an ordinary user have no cgroup; pods with cgroups have all their containers there.
        reported = {} if settings.cgroups_per_qos or detailed else await self._reported()
        try:
            await self._inventory.update(found.ids | reported.keys())
        except CriError as error:
            log.warning("cannot list containers: %s; showing the known ones", error)
        known = dict(self._inventory.known)

        def read() -> Reading:
            return reading.read(settings, tree, found, known, reported, detailed=detailed)

        return await self._thread.run(READ_S, read)

    async def _reported(self) -> dict[str, Figures]:
        """The runtime's figures of containers by ID."""
        if self._cri is None:
            return {}
        try:
            return measure.figures(await self._cri.list_container_stats())
        except CriError as error:
            log.warning("cannot get container statistics from the runtime: %s; going on without them", error)
            return {}

    async def _read_with_rates(self) -> Reading:
        """Make a reading and update the rates. Without an earlier reading it makes two, SECOND_READING_S apart."""
        if self._rates.is_old(time.time()):
            first = await self._reading.get(0.0)
            self._rates.update(first.time, summary.cpu_times(first))
        if not self._rates.has("/"):
            await self._actor.sleep(SECOND_READING_S)
        latest = await self._reading.get(0.0)
        self._nano_cores = self._rates.update(latest.time, summary.cpu_times(latest))
        return latest

    # Documents

    async def _summary(self, *, with_disk: bool) -> bytes:
        disk = await self._disk.get(DISK_S) if with_disk else None
        latest = await self._read_with_rates()
        rates, settings = dict(self._nano_cores), self._actor.settings

        def write() -> bytes:
            return msgspec.json.encode(summary.build(latest, rates, hardware.machine(settings), disk))

        return await self._thread.run(READ_S, write)

    async def _resource(self) -> bytes:
        latest = await self._or_none(self._reading)
        return await self._thread.run(READ_S, resource.text, latest)

    async def _cadvisor(self) -> bytes:
        latest = await self._or_none(self._detailed)
        try:
            found = await self._disks.file_systems()
            disks = [found.nodefs, found.imagefs, found.containerfs]
        except (OSError, AskTimeout) as error:
            log.warning("cannot read file systems for /metrics/cadvisor: %s; going on without them", error)
            disks = []

        def write() -> bytes:
            devices = hardware.devices(*disks)
            processes = partial(hardware.processes, counter=Counter())
            return cadvisor.text(latest, hardware.hardware(), processes, devices, cache(device_path))

        return await self._thread.run(READ_S, write)

    async def _or_none(self, shared: Shared[Reading]) -> Reading | None:
        try:
            return await shared.get(0.0)
        except (OSError, AskTimeout) as error:
            log.warning("cannot read cgroups: %s; this answer lacks their figures", error)
            return None

    # Disks

    async def _measure_disk(self) -> summary.Disk:
        found = await self._disks.file_systems()
        layers: dict[str, DiskUse] = {}
        if self._cri is not None:
            try:
                layers = _layers(await self._cri.list_container_stats())
            except CriError as error:
                log.warning("cannot get container statistics from the runtime: %s; going on without them", error)
        return summary.Disk(
            time=time.time(),
            nodefs=found.nodefs,
            imagefs=found.imagefs,
            containerfs=found.containerfs,
            image_use=found.image_use,
            container_use=found.container_use,
            layers=layers,
            logs=await self._disks.logs(),
            volumes={one.pod_uid: one for one in await self._disks.volumes()},
        )


def _layers(stats: Any) -> dict[str, DiskUse]:
    return {
        one.attributes.id: DiskUse(one.writable_layer.used_bytes.value, one.writable_layer.inodes_used.value)
        for one in stats
    }
