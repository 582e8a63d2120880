"""CRI's statistics of containers and pods, from their cgroups and their writable layers."""

from __future__ import annotations

import os
import time
from pathlib import Path

from actors._cgroup import figures
from actors._cgroup.figures import NO_STALLS, Figures, Pressure, Stalls
from actors._cgroup.hierarchy import hierarchy
from actors.runtime.engine.engine import Engine
from actors.runtime.filesystems.declared_volumes import DIRECTORY as VOLUMES
from actors.runtime.model.records import ETC_FILES
from actors.runtime.model.state import Container, Sandbox
from actors.runtime.policy import matches_id, matches_labels
from actors.runtime.stats.written import WrittenLayers
from proto.cri import api_pb2 as pb


class Stats:
    """Measures on request."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.written = WrittenLayers(self._written_in)

    def container(self, container: Container) -> pb.ContainerStats:
        """ContainerStats; without CPU and memory if the container does not run."""
        self.written.refresh([container.record.id])
        return self._container(container)

    def _container(self, container: Container) -> pb.ContainerStats:
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
        found = self._running(wanted)
        self.written.refresh(one.record.id for one in found)
        return [self._container(one) for one in found]

    def _running(self, wanted: pb.ContainerStatsFilter) -> list[Container]:
        return [
            one
            for one in self._engine.state.containers.all()
            if one.state == pb.CONTAINER_RUNNING
            and matches_id(one.record.id, wanted.id)
            and matches_id(one.record.sandbox_id, wanted.pod_sandbox_id)
            and matches_labels(one.config.labels, wanted.label_selector)
        ]

    def sandbox(self, sandbox: Sandbox) -> pb.PodSandboxStats:
        """PodSandboxStats."""
        return self._sandboxes([sandbox])[0]

    def _sandboxes(self, sandboxes: list[Sandbox]) -> list[pb.PodSandboxStats]:
        inside = [self._running(pb.ContainerStatsFilter(pod_sandbox_id=one.record.id)) for one in sandboxes]
        self.written.refresh(container.record.id for containers in inside for container in containers)
        return [
            self._sandbox(sandbox, [self._container(one) for one in containers])
            for sandbox, containers in zip(sandboxes, inside, strict=True)
        ]

    def _sandbox(self, sandbox: Sandbox, inside: list[pb.ContainerStats]) -> pb.PodSandboxStats:
        config = sandbox.config
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
        return self._sandboxes(
            [
                one
                for one in self._engine.state.sandboxes.all()
                if one.state == pb.SANDBOX_READY
                and matches_id(one.record.id, wanted.id)
                and matches_labels(one.config.labels, wanted.label_selector)
            ]
        )

    def image_fs(self) -> pb.ImageFsInfoResponse:
        """ImageFsInfo: images and writable layers are on one file system."""
        used_bytes, inodes = self._engine.store.usage()
        images = _fs_usage(str(self._engine.store.root), used_bytes, inodes)
        ids = [one.record.id for one in self._engine.state.containers.all()]
        self.written.refresh(ids)
        written = [self.written.use(id_) for id_ in ids]
        self.written.keep_only(one.record.id for one in self._engine.state.containers.all())
        containers = _fs_usage(
            str(self._engine.containers.directory),
            sum(one.bytes for one in written),
            sum(one.inodes for one in written),
        )
        return pb.ImageFsInfoResponse(image_filesystems=[images], container_filesystems=[containers])

    def _writable(self, container: Container) -> pb.FilesystemUsage:
        use = self.written.use(container.record.id)
        return _fs_usage(str(self._engine.containers.directory), use.bytes, use.inodes)

    def _written_in(self, container_id: str) -> list[Path]:
        """Its writable layer, the VOLUMEs of its image, and for one container the files of its pod in /etc."""
        directory: Path = self._engine.containers.path(container_id)
        layer = next((name for name in ("upper", "copy") if (directory / name).is_dir()), "")
        places = [directory / name for name in (layer, VOLUMES) if name and (directory / name).is_dir()]
        return places + self._shared_files(container_id)

    def _shared_files(self, container_id: str) -> list[Path]:
        """Files that all containers of a pod may write, in /etc of each. They count once, for the first that runs.

        Programs change their resolv.conf, so it is not read-only. Without a count one could fill the disk unseen.
        """
        container = self._engine.state.containers.find(container_id)
        if container is None:
            return []
        sandbox_id = container.record.sandbox_id
        first = min(self._engine.state.containers_of(sandbox_id), key=_order, default=None)
        directory: Path = self._engine.sandboxes.path(sandbox_id)
        return [directory / name for name in ETC_FILES] if first is container else []


def _order(container: Container) -> tuple[bool, int, str]:
    # Clients read the figures of running containers. After a kill of the agent a container may stay created for ever.
    return container.state != pb.CONTAINER_RUNNING, container.record.created_at_ns, container.record.id


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
