"""CRI's statistics of containers and pods, from their cgroups and their writable layers."""

from __future__ import annotations

import os
import time
from pathlib import Path

from actors._cgroup import figures
from actors._cgroup.figures import NO_STALLS, Figures, Pressure, Stalls
from actors._cgroup.hierarchy import hierarchy
from actors.runtime.engine.engine import Engine
from actors.runtime.model.disk import usage as disk_usage
from actors.runtime.model.state import Container, Sandbox
from actors.runtime.policy import matches_id, matches_labels
from proto.cri import api_pb2 as pb

DISK_AGE_S = 15.0
"""Maximum age of a container's disk usage: measuring walks through all its files."""


class Stats:
    """Measures on request."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._disk: dict[str, tuple[float, int, int]] = {}

    def container(self, container: Container) -> pb.ContainerStats:
        """ContainerStats; without CPU and memory if the container does not run."""
        stats = pb.ContainerStats(
            attributes=pb.ContainerAttributes(
                id=container.record.id,
                metadata=container.config.metadata,
                labels=container.config.labels,
                annotations=container.config.annotations,
            ),
            writable_layer=self._writable(container),
        )
        used = _read(container.record.cgroup) if container.state == pb.CONTAINER_RUNNING else None
        if used is not None:
            fill(stats, used, container.config.linux.resources.memory_limit_in_bytes)
            swap = pb.SwapUsage(timestamp=_ns(used), swap_usage_bytes=pb.UInt64Value(value=used.swap_bytes))
            stats.swap.CopyFrom(swap)
        return stats

    def containers(self, wanted: pb.ContainerStatsFilter) -> list[pb.ContainerStats]:
        """ListContainerStats: of running containers."""
        return [
            self.container(one)
            for one in self._engine.state.containers.all()
            if one.state == pb.CONTAINER_RUNNING
            and matches_id(one.record.id, wanted.id)
            and matches_id(one.record.sandbox_id, wanted.pod_sandbox_id)
            and matches_labels(one.config.labels, wanted.label_selector)
        ]

    def sandbox(self, sandbox: Sandbox) -> pb.PodSandboxStats:
        """PodSandboxStats."""
        config = sandbox.config
        inside = self.containers(pb.ContainerStatsFilter(pod_sandbox_id=sandbox.record.id))
        linux = pb.LinuxPodSandboxStats(containers=inside)
        used = _read(config.linux.cgroup_parent, detailed=True)
        if used is not None and used.detail is not None:
            fill(linux, used, 0)
            count = pb.UInt64Value(value=used.detail.threads)
            linux.process.CopyFrom(pb.ProcessUsage(timestamp=_ns(used), process_count=count))
        return pb.PodSandboxStats(
            attributes=pb.PodSandboxAttributes(
                id=sandbox.record.id, metadata=config.metadata, labels=config.labels, annotations=config.annotations
            ),
            linux=linux,
        )

    def sandboxes(self, wanted: pb.PodSandboxStatsFilter) -> list[pb.PodSandboxStats]:
        """ListPodSandboxStats: of ready sandboxes."""
        return [
            self.sandbox(one)
            for one in self._engine.state.sandboxes.all()
            if one.state == pb.SANDBOX_READY
            and matches_id(one.record.id, wanted.id)
            and matches_labels(one.config.labels, wanted.label_selector)
        ]

    def image_fs(self) -> pb.ImageFsInfoResponse:
        """ImageFsInfo: images and writable layers are on one file system."""
        used_bytes, inodes = self._engine.store.usage()
        images = _fs_usage(str(self._engine.store.root), used_bytes, inodes)
        written = [self.written(one) for one in self._engine.state.containers.all()]
        containers = _fs_usage(
            str(self._engine.containers.directory), sum(one[0] for one in written), sum(one[1] for one in written)
        )
        return pb.ImageFsInfoResponse(image_filesystems=[images], container_filesystems=[containers])

    def forget(self, container_id: str) -> None:
        """Drop the cached usage of a removed container."""
        self._disk.pop(container_id, None)

    def _writable(self, container: Container) -> pb.FilesystemUsage:
        used_bytes, inodes = self.written(container)
        return _fs_usage(str(self._engine.containers.directory), used_bytes, inodes)

    def written(self, container: Container) -> tuple[int, int]:
        """Bytes and inodes in its writable layer, at most DISK_AGE_S old."""
        id_, now = container.record.id, time.monotonic()
        measured, used_bytes, inodes = self._disk.get(id_, (-DISK_AGE_S, 0, 0))
        if now - measured >= DISK_AGE_S:
            directory: Path = self._engine.containers.path(id_)
            found = next((directory / name for name in ("upper", "copy") if (directory / name).is_dir()), None)
            used_bytes, inodes = disk_usage(found) if found is not None else (0, 0)
            self._disk[id_] = (now, used_bytes, inodes)
        return used_bytes, inodes


def _read(cgroup: str, *, detailed: bool = False) -> Figures | None:
    """Return None when the cgroup is empty, does not exist, or is no path."""
    return figures.read(cgroup, hierarchy(), time.time(), detailed=detailed) if cgroup.startswith("/") else None


def _ns(used: Figures) -> int:
    return int(used.time * 1e9)


def fill(stats: pb.ContainerStats | pb.LinuxPodSandboxStats, used: Figures, limit_bytes: int) -> None:
    """Set cpu, memory and, where the kernel measures pressure (cgroup v2), io."""
    stats.cpu.timestamp = stats.memory.timestamp = _ns(used)
    stats.cpu.usage_core_nano_seconds.value = used.cpu_ns
    stats.memory.usage_bytes.value = used.memory_bytes
    stats.memory.working_set_bytes.value = used.working_set_bytes
    stats.memory.rss_bytes.value = used.rss_bytes
    stats.memory.page_faults.value = used.page_faults
    stats.memory.major_page_faults.value = used.major_page_faults
    if limit_bytes > 0:
        stats.memory.available_bytes.value = max(0, limit_bytes - used.working_set_bytes)
    stalls = ((stats.cpu, used.cpu_stalls), (stats.memory, used.memory_stalls), (stats.io, used.io_stalls))
    for where, found in stalls:
        if found is not NO_STALLS:
            where.timestamp = _ns(used)
            where.psi.CopyFrom(_psi(found))


def _psi(stalls: Stalls) -> pb.PsiStats:
    return pb.PsiStats(Full=_line(stalls.full), Some=_line(stalls.some))


def _line(one: Pressure) -> pb.PsiData:
    return pb.PsiData(Total=one.total_us, Avg10=one.avg10, Avg60=one.avg60, Avg300=one.avg300)


def _fs_usage(path: str, used_bytes: int, inodes: int) -> pb.FilesystemUsage:
    return pb.FilesystemUsage(
        timestamp=time.time_ns(),
        fs_id=pb.FilesystemIdentifier(mountpoint=os.path.realpath(path)),
        used_bytes=pb.UInt64Value(value=used_bytes),
        inodes_used=pb.UInt64Value(value=inodes),
    )
