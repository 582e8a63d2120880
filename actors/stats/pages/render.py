"""The documents that are served over HTTP: /stats/summary, /metrics/resource and /metrics/cadvisor.

All three are one reading of the cgroups, made in a thread and shared by whoever asks within a second. What disks hold
is the costly part (a call of the runtime, walks), so it is kept for longer, as the kubelet does.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from actors._base.actor import Actor
from actors._base.shared import Shared
from actors._cgroup.hierarchy import hierarchy
from actors._cri.client import CriCalls
from actors._cri.errors import CriError
from actors._host.files import paths
from actors._host.files.disk_use import DiskUse
from actors.stats import measure, reading
from actors.stats.inventory import Inventory
from actors.stats.pages import cadvisor, hardware, resource, summary
from actors.stats.rates import LEAST_S, Rates
from actors.stats.reading import Found, Reading
from proto.node.stats import FsStats
from proto.pods.volume import PodVolumeUsage
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

READ_S = 20.0
"""Deadline of one reading: milliseconds, unless the machine is in trouble."""
DISK_S = 10.0
"""containerd itself looks at writable layers every 10 s."""
KEPT_S = 5.0
"""Questions that share an answer come together."""
SECOND_READING_S = LEAST_S + 0.1


@dataclass(frozen=True)
class Disks:
    """Where the figures of disks come from: the actor's own ways, each a coroutine."""

    file_systems: Callable[[], Coroutine[Any, None, tuple[FsStats, FsStats, tuple[DiskUse, DiskUse | None]]]]
    """nodefs, imagefs, and what images and containers use of that."""
    logs: Callable[[], Coroutine[Any, None, dict[str, dict[str, DiskUse]]]]
    volumes: Callable[[], Coroutine[Any, None, tuple[PodVolumeUsage, ...]]]


class Pages:
    """State: the latest reading, what rates are reckoned from, and whose cgroups are whose. For the actor's thread."""

    def __init__(self, actor: Actor, cri: CriCalls | None, disks: Disks) -> None:
        self._actor, self._cri, self._disks = actor, cri, disks
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
        """`summary`, `cpu and memory`, `resource` or `cadvisor`. Raises OSError and AskTimeout for the first two."""
        found = await self._documents[document].get(max_age_s)
        self._actor.after(KEPT_S + 1.0, self._forget)
        return found

    def _forget(self) -> None:
        """Nothing of megabytes is kept from one scrape to the next."""
        kept: tuple[Shared[Any], ...] = (*self._documents.values(), self._detailed, self._reading)
        for one in kept:
            one.forget(KEPT_S)

    # Readings

    async def _read(self, *, detailed: bool) -> Reading:
        settings, tree = self._actor.settings, hierarchy()
        found: Found = await self._actor.blocking(READ_S, reading.find, settings, tree)
        try:
            await self._inventory.learn(found.ids)
        except CriError as error:
            log.warning("cannot learn whose containers are whose: %s; showing those that are known", error)
        known = dict(self._inventory.known)

        def read() -> Reading:
            return reading.read(settings, tree, found, known, detailed=detailed)

        return await self._actor.blocking(READ_S, read)

    async def _rated(self) -> Reading:
        """A reading with rates. The first one for a while is made twice, so that there are any."""
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
        latest = await self._rated()
        rates, settings = dict(self._nano_cores), self._actor.settings

        def write() -> bytes:
            found = None if disk is None else replace(disk, hosts=_hosts(latest, settings.root_dir))
            return msgspec.json.encode(summary.build(latest, rates, hardware.machine(settings), found))

        return await self._actor.blocking(READ_S, write)

    async def _resource(self) -> bytes:
        latest = await self._or_none(self._reading)
        return await self._actor.blocking(READ_S, resource.text, latest)

    async def _cadvisor(self) -> bytes:
        latest = await self._or_none(self._detailed)
        try:
            nodefs, imagefs, _ = await self._disks.file_systems()
        except (OSError, AskTimeout) as error:
            log.warning("cannot read file systems for /metrics/cadvisor: %s; going on without them", error)
            nodefs = imagefs = measure.NO_FS

        def write() -> bytes:
            devices = hardware.devices(nodefs, imagefs)
            return cadvisor.text(latest, hardware.hardware(), hardware.processes, devices)

        return await self._actor.blocking(READ_S, write)

    async def _or_none(self, shared: Shared[Reading]) -> Reading | None:
        try:
            return await shared.get(0.0)
        except (OSError, AskTimeout) as error:
            log.warning("cannot read cgroups: %s", error)
            return None

    # Disks

    async def _measure_disk(self) -> summary.Disk:
        nodefs, imagefs, (images, containers) = await self._disks.file_systems()
        layers: dict[str, DiskUse] = {}
        if self._cri is not None:
            try:
                layers = _layers(await self._cri.list_container_stats())
            except CriError as error:
                log.warning("cannot learn what containers wrote: %s; going on without", error)
        return summary.Disk(
            time=time.time(),
            nodefs=nodefs,
            imagefs=imagefs,
            image_use=images,
            container_use=containers,
            layers=layers,
            logs=await self._disks.logs(),
            volumes={one.pod_uid: one for one in await self._disks.volumes()},
        )


def _layers(stats: Any) -> dict[str, DiskUse]:
    return {
        one.attributes.id: DiskUse(one.writable_layer.used_bytes.value, one.writable_layer.inodes_used.value)
        for one in stats
    }


def _hosts(latest: Reading, root_dir: str) -> dict[str, DiskUse]:
    hosts = {}
    for pod in latest.pods:
        try:
            found = os.stat(paths.etc_hosts_path(root_dir, pod.uid))
        except OSError:
            continue
        hosts[pod.uid] = DiskUse(found.st_blocks * 512, 1)
    return hosts
