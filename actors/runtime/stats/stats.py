"""CRI's statistics of containers and pods, from their cgroups and their writable layers."""

from __future__ import annotations

import os
import time
from pathlib import Path

from actors._cgroup import fs
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
        used = (
            fs.usage(container.record.cgroup)
            if container.state == pb.CONTAINER_RUNNING and container.record.cgroup
            else None
        )
        if used is not None:
            stats.cpu.CopyFrom(_cpu(used))
            stats.memory.CopyFrom(_memory(used, container.config.linux.resources.memory_limit_in_bytes))
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
        used = fs.usage(config.linux.cgroup_parent) if config.linux.cgroup_parent.startswith("/") else None
        if used is not None:
            linux.cpu.CopyFrom(_cpu(used))
            linux.memory.CopyFrom(_memory(used, 0))
            linux.process.CopyFrom(
                pb.ProcessUsage(timestamp=time.time_ns(), process_count=pb.UInt64Value(value=used.pids))
            )
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


def _cpu(used: fs.Usage) -> pb.CpuUsage:
    return pb.CpuUsage(timestamp=time.time_ns(), usage_core_nano_seconds=pb.UInt64Value(value=used.cpu_ns))


def _memory(used: fs.Usage, limit_bytes: int) -> pb.MemoryUsage:
    usage = pb.MemoryUsage(
        timestamp=time.time_ns(),
        working_set_bytes=pb.UInt64Value(value=used.memory_working_set_bytes),
        usage_bytes=pb.UInt64Value(value=used.memory_bytes),
    )
    if limit_bytes > 0:
        usage.available_bytes.value = max(0, limit_bytes - used.memory_working_set_bytes)
    return usage


def _fs_usage(path: str, used_bytes: int, inodes: int) -> pb.FilesystemUsage:
    return pb.FilesystemUsage(
        timestamp=time.time_ns(),
        fs_id=pb.FilesystemIdentifier(mountpoint=os.path.realpath(path)),
        used_bytes=pb.UInt64Value(value=used_bytes),
        inodes_used=pb.UInt64Value(value=inodes),
    )
