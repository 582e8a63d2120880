"""Makes the document /stats/summary from readings. Pure.

Source: pkg/kubelet/stats (cri_stats_provider.go, helper.go) and pkg/kubelet/server/stats/summary.go of Kubernetes 1.36,
and recorded documents of its kubelet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from actors._cgroup.figures import Figures, Pressure, Stalls
from actors._host.files.disk_use import DiskUse
from actors._host.interfaces import Interface
from actors.stats.policy import NO_USE, POD_FILES, bounded_sum
from actors.stats.reading import ContainerReading, PodReading, Reading, SystemReading
from proto.common import rfc3339
from proto.node import summary as shape
from proto.node.stats import FsStats
from proto.pods.volume import PodVolumeUsage, VolumeUsage

DEFAULT_INTERFACE = "eth0"
"""The kubelet's assumption for pods and nodes."""
_COUNTERS = ("rx_bytes", "rx_errors", "tx_bytes", "tx_errors")


@dataclass(frozen=True)
class Machine:
    """Facts about the node that its cgroups do not have."""

    node_name: str
    boot_time: float
    memory_bytes: int
    swap_bytes: int
    default_interface: str = DEFAULT_INTERFACE
    tasks_max: int = 0
    tasks: int = 0


@dataclass(frozen=True)
class Disk:
    """Disk figures. A file system without capacity is unknown."""

    time: float
    nodefs: FsStats
    imagefs: FsStats
    containerfs: FsStats
    image_use: DiskUse = NO_USE
    container_use: DiskUse | None = None
    """None: the runtime does not separate images from writable layers."""
    layers: Mapping[str, DiskUse] = field(default_factory=dict)
    """By container ID."""
    logs: Mapping[str, Mapping[str, DiskUse]] = field(default_factory=dict)
    """By pod UID and container."""
    volumes: Mapping[str, PodVolumeUsage] = field(default_factory=dict)


def cpu_times(reading: Reading) -> dict[str, int]:
    """CPU time in nanoseconds of each cgroup, or container without one, whose rate the summary shows."""
    times = {"/": reading.node.cpu_ns} | {one.cgroup: one.figures.cpu_ns for one in reading.system}
    for pod in reading.pods:
        if pod.cgroup:  # the rate of a pod without one is the sum of its containers' rates
            times[pod.cgroup] = pod.figures.cpu_ns
        times.update((_key(container), container.figures.cpu_ns) for container in pod.containers)
    return times


def _key(one: ContainerReading) -> str:
    """The container's name among the rates: its cgroup or, if only the runtime knows it, its ID."""
    return one.cgroup or one.identity.id


def build(reading: Reading, rates: Mapping[str, int], machine: Machine, disk: Disk | None = None) -> shape.Summary:
    """The document; without `disk` only CPU and memory. As in the kubelet without pods of which no container runs."""
    pods = tuple(_pod(pod, rates, disk) for pod in reading.pods if pod.containers)
    return shape.Summary(node=_node(reading, rates, machine, disk), pods=pods)


# The node


def _node(reading: Reading, rates: Mapping[str, int], machine: Machine, disk: Disk | None) -> shape.Node:
    at = rfc3339.seconds(reading.time)
    own = reading.node
    found = shape.Node(
        node_name=machine.node_name,
        start_time=rfc3339.seconds(machine.boot_time),
        cpu=_cpu(own, rates.get("/"), "/"),
        memory=_memory(own, machine.memory_bytes, "/"),
        swap=shape.Swap(
            time=at,
            swap_usage_bytes=own.swap_bytes,
            swap_available_bytes=max(0, machine.swap_bytes - own.swap_bytes),
        ),
        system_containers=tuple(_system_container(one, rates, with_all=disk is not None) for one in reading.system),
    )
    if disk is None:
        return found
    return replace(
        found,
        io=_io(own, "/"),
        network=_network(reading.interfaces, machine.default_interface, at),
        fs=_file_system(disk.nodefs, _used(disk.nodefs), disk.time),
        runtime=_runtime(disk),
        rlimit=shape.Rlimit(time=at, maxpid=machine.tasks_max, curproc=machine.tasks),
    )


def _system_container(one: SystemReading, rates: Mapping[str, int], *, with_all: bool) -> shape.Container:
    own = one.figures
    return shape.Container(
        name=one.name,
        start_time=rfc3339.seconds(one.created),
        cpu=_cpu(own, rates.get(one.cgroup), one.cgroup),
        memory=_memory(own, own.memory_limit_bytes, one.cgroup),
        io=_io(own, one.cgroup) if with_all else None,
        swap=shape.Swap(time=rfc3339.seconds(own.time), swap_usage_bytes=own.swap_bytes),
    )


def _runtime(disk: Disk) -> shape.Runtime | None:
    if not disk.imagefs.capacity_bytes:
        return None
    images = _file_system(disk.imagefs, disk.image_use, disk.time)
    containers = images if disk.container_use is None else _file_system(disk.containerfs, disk.container_use, disk.time)
    return shape.Runtime(image_fs=images, container_fs=containers)


# Pods


def _pod(pod: PodReading, rates: Mapping[str, int], disk: Disk | None) -> shape.Pod:
    own, at = pod.figures, rfc3339.seconds(pod.figures.time)
    found = shape.Pod(
        pod_ref=shape.PodRef(name=pod.name, namespace=pod.namespace, uid=pod.uid),
        start_time=rfc3339.seconds(pod.started),
        containers=tuple(_container(one, rates, disk) for one in pod.containers),
        cpu=_cpu(own, rates.get(pod.cgroup), pod.cgroup),
        memory=_memory(own, own.memory_limit_bytes, pod.cgroup),
        swap=shape.Swap(time=at, swap_usage_bytes=own.swap_bytes),
    )
    if not pod.cgroup:
        found = _with_sums(found)
    if disk is None:
        return found
    volumes = disk.volumes.get(pod.uid)
    return replace(
        found,
        io=_io(own, pod.cgroup),
        network=_network(pod.interfaces, DEFAULT_INTERFACE, at) if pod.interfaces else None,
        volume=tuple(_volume(one, volumes.time, disk.nodefs) for one in volumes.volumes) if volumes else (),
        ephemeral_storage=_file_system(disk.nodefs, _ephemeral(pod, disk), disk.time),
        process_stats=shape.Processes(process_count=sum(len(one.pids) for one in pod.containers)),
    )


def _with_sums(pod: shape.Pod) -> shape.Pod:
    """A pod without a cgroup, with the containers' sums that its figures lack, as in the kubelet."""
    used = [one.cpu.usage_nano_cores for one in pod.containers if one.cpu and one.cpu.usage_nano_cores is not None]
    left = [one.memory.available_bytes or 0 for one in pod.containers if one.memory]
    swap = [one.swap.swap_available_bytes or 0 for one in pod.containers if one.swap]
    assert pod.cpu
    assert pod.memory
    assert pod.swap
    return replace(
        pod,
        cpu=replace(pod.cpu, usage_nano_cores=bounded_sum(used) if used else None),
        memory=replace(pod.memory, available_bytes=bounded_sum(left)),
        swap=replace(pod.swap, swap_available_bytes=bounded_sum(swap)),
    )


def _container(one: ContainerReading, rates: Mapping[str, int], disk: Disk | None) -> shape.Container:
    own, id_ = one.figures, one.identity
    rootfs = logs = io = None
    if disk is not None:
        io = _io(own, one.cgroup)
        layer = disk.layers.get(id_.id)
        if layer is not None and disk.containerfs.capacity_bytes:
            rootfs = _file_system(disk.containerfs, layer, disk.time)
        logs = _file_system(disk.nodefs, disk.logs.get(id_.pod_uid, {}).get(id_.name, NO_USE), disk.time)
    left = max(0, own.swap_max_bytes - own.swap_bytes) if own.swap_max_bytes is not None else None
    return shape.Container(
        name=id_.name,
        start_time=rfc3339.seconds(id_.created),
        cpu=_cpu(own, rates.get(_key(one)), one.cgroup),
        memory=_memory(own, own.memory_limit_bytes, one.cgroup),
        io=io,
        rootfs=rootfs,
        logs=logs,
        swap=shape.Swap(time=rfc3339.seconds(own.time), swap_usage_bytes=own.swap_bytes, swap_available_bytes=left),
    )


def _ephemeral(pod: PodReading, disk: Disk) -> DiskUse:
    """Disk use that counts against the pod's limit: writable layers, logs, hosts file, volumes on the node's disk.

    As in the kubelet without layers and logs of ended containers.
    """
    logs = disk.logs.get(pod.uid, {})
    total = logs.get(POD_FILES, NO_USE)
    for one in pod.containers:
        total = total.plus(disk.layers.get(one.identity.id, NO_USE)).plus(logs.get(one.identity.name, NO_USE))
    volumes = disk.volumes.get(pod.uid)
    for volume in volumes.volumes if volumes else ():
        if volume.local:
            total = total.plus(DiskUse(volume.used_bytes, volume.inodes_used))
    return total


# Parts


def _cpu(own: Figures, nano_cores: int | None, cgroup: str) -> shape.Cpu:
    return shape.Cpu(
        time=rfc3339.seconds(own.time),
        usage_nano_cores=nano_cores,
        usage_core_nano_seconds=own.cpu_ns,
        psi=_psi(own.cpu_stalls, cgroup),
    )


def _memory(own: Figures, limit_bytes: int, cgroup: str) -> shape.Memory:
    return shape.Memory(
        time=rfc3339.seconds(own.time),
        available_bytes=max(0, limit_bytes - own.working_set_bytes) if limit_bytes else None,
        usage_bytes=own.memory_bytes,
        working_set_bytes=own.working_set_bytes,
        rss_bytes=own.rss_bytes,
        page_faults=own.page_faults,
        major_page_faults=own.major_page_faults,
        psi=_psi(own.memory_stalls, cgroup),
    )


def _io(own: Figures, cgroup: str) -> shape.Io:
    return shape.Io(time=rfc3339.seconds(own.time), psi=_psi(own.io_stalls, cgroup))


def _psi(stalls: Stalls, cgroup: str) -> shape.Psi | None:
    """None without a cgroup: stalled times of containers cannot be added."""
    return shape.Psi(full=_line(stalls.full), some=_line(stalls.some)) if cgroup else None


def _line(pressure: Pressure) -> shape.PsiLine:
    return shape.PsiLine(total=pressure.total_us, avg10=pressure.avg10, avg60=pressure.avg60, avg300=pressure.avg300)


def _used(fs: FsStats) -> DiskUse:
    return DiskUse(fs.used_bytes, fs.inodes - fs.inodes_free)


def _file_system(fs: FsStats, use: DiskUse, at: float) -> shape.Fs:
    return shape.Fs(
        time=rfc3339.seconds(at),
        available_bytes=fs.available_bytes,
        capacity_bytes=fs.capacity_bytes,
        used_bytes=use.bytes,
        inodes_free=fs.inodes_free,
        inodes=fs.inodes,
        inodes_used=use.inodes,
    )


def _volume(one: VolumeUsage, at: float, nodefs: FsStats) -> shape.Volume:
    """Figures of the volume's own file system or, where it has none, of nodefs."""
    own = not one.local  # a driver may report no capacity, which is then 0 as in the kubelet
    namespace, _, claim = one.claim.partition("/")
    return shape.Volume(
        name=one.name,
        pvc_ref=shape.ClaimRef(name=claim, namespace=namespace) if claim else None,
        time=rfc3339.seconds(at),
        used_bytes=one.used_bytes,
        inodes_used=one.inodes_used,
        capacity_bytes=one.capacity_bytes if own else nodefs.capacity_bytes,
        available_bytes=one.available_bytes if own else nodefs.available_bytes,
        inodes=one.inodes if own else nodefs.inodes,
        inodes_free=one.inodes_free if own else nodefs.inodes_free,
    )


def _network(interfaces: Iterable[Interface], default: str, at: str) -> shape.Network:
    shown = tuple(
        shape.Interface(name=one.name, **{name: getattr(one, name) for name in _COUNTERS}) for one in interfaces
    )
    found = shape.Network(time=at, interfaces=shown)
    first = next((one for one in shown if one.name == default), None)
    if first is None:
        return found
    return replace(found, name=first.name, **{name: getattr(first, name) for name in _COUNTERS})
