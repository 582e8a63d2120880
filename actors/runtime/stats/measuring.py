"""Reads the values of ListPodSandboxMetrics on request, from cgroups, processes, file systems and network namespaces.

A container takes some 25 small files, and a readlink for each open file of its processes, up to a bound.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time

from actors._cgroup import figures
from actors._cgroup.hierarchy import hierarchy
from actors._host import disks, interfaces
from actors._host.open_files import Counter
from actors.runtime.engine.engine import Engine
from actors.runtime.model.namespace_threads import in_namespace
from actors.runtime.model.state import Container, Sandbox
from actors.runtime.stats import metrics
from actors.runtime.stats.metrics import Disk, Measurements, Processes
from actors.runtime.stats.stats import Stats
from proto.cri import api_pb2 as pb


class Metrics:
    """Measures on request. Safe from any thread."""

    def __init__(self, engine: Engine, stats: Stats) -> None:
        self._engine = engine
        self._stats = stats

    def sandboxes(self) -> list[pb.PodSandboxMetrics]:
        """Metrics of ready sandboxes, with their running containers."""
        running = (one for one in self._engine.state.containers.all() if one.state == pb.CONTAINER_RUNNING)
        self._stats.written.refresh(one.record.id for one in running)
        ready = [one for one in self._engine.state.sandboxes.all() if one.state == pb.SANDBOX_READY]
        counter = Counter()
        return [self._sandbox(one, counter) for one in ready]

    def _sandbox(self, sandbox: Sandbox, counter: Counter) -> pb.PodSandboxMetrics:
        id_, config, now_ns = sandbox.record.id, sandbox.config, time.time_ns()
        labels = ("POD", config.linux.cgroup_parent, "", id_, config.metadata.namespace, config.metadata.name)
        result = pb.PodSandboxMetrics(
            pod_sandbox_id=id_, metrics=metrics.samples(metrics.POD, _network(sandbox), labels, now_ns)
        )
        for container in self._engine.state.containers_of(id_):
            if container.state != pb.CONTAINER_RUNNING:
                continue
            measured = self._container(container, now_ns, counter)
            if measured is not None:
                image = container.config.image
                labels = (
                    container.config.metadata.name,
                    container.record.cgroup,
                    image.user_specified_image or image.image,
                    container.record.id,
                    config.metadata.namespace,
                    config.metadata.name,
                )
                found = metrics.samples(metrics.CONTAINER, measured, labels, now_ns)
                result.container_metrics.append(pb.ContainerMetrics(container_id=container.record.id, metrics=found))
        return result

    def _container(self, container: Container, now_ns: int, counter: Counter) -> Measurements | None:
        """None without a cgroup: at isolation level 3, or just after the exit."""
        cgroup, tree = container.record.cgroup, hierarchy()
        found = figures.read(cgroup, tree, now_ns / 1e9, detailed=True) if cgroup else None
        if found is None:
            return None
        moved = found.detail.transfers if found.detail is not None else ()
        return Measurements(
            figures=found,
            started_s=container.started.at_ns // 1_000_000_000 if container.started is not None else 0,
            processes=_processes(figures.processes(cgroup, tree), counter),
            disk=self._disk(container),
            transfers={disks.device_path(one.numbers) or one.numbers: one for one in moved},
        )

    def _disk(self, container: Container) -> Disk | None:
        directory = str(self._engine.containers.directory)
        used_bytes = self._stats.written.use(container.record.id).bytes
        with contextlib.suppress(OSError):
            space, number = os.statvfs(directory), os.stat(directory).st_dev
            device = disks.device_path(f"{os.major(number)}:{os.minor(number)}") or os.path.realpath(directory)
            return Disk(device, used_bytes, space.f_blocks * space.f_frsize, space.f_files, space.f_ffree)
        return None


def _network(sandbox: Sandbox) -> Measurements:
    """A pod's own network; empty if it uses the machine's."""
    path = sandbox.record.namespaces.get("network", "")
    with contextlib.suppress(OSError):
        if path:
            text = in_namespace(path, lambda: interfaces.table("/proc/thread-self/net/dev"))
            return Measurements(interfaces=tuple(interfaces.parse(text)))
    return Measurements()


def _processes(pids: list[int], counter: Counter) -> Processes:
    most = 0
    for pid in pids[:1]:
        with contextlib.suppress(OSError):  # it has ended
            most = resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
    found = counter.count(pids)
    return Processes(
        number=len(pids),
        descriptors=found.descriptors if found.all_descriptors else None,
        sockets=found.sockets if found.all_sockets else None,
        open_files_max=most,
    )
